"""Links to the references of other projects, from names and addresses that are kept here.

Sphinx usually fetches an inventory of names from each project. The site has to build without a network, and to the same
result each time, so the few names that it uses stand here.
"""

import zlib
from pathlib import Path

# Address of the project, and of each name below it. "{}" is the name.
TORCH = "https://docs.pytorch.org/docs/stable/"
LIGHTNING = "https://lightning.ai/docs/pytorch/stable/"
NUMPY = "https://numpy.org/doc/stable/reference/"
METRICS = "https://lightning.ai/docs/torchmetrics/stable/"
PYTHON = "https://docs.python.org/3/library/"

CLASSES = {
    "torch": {
        "torch.Tensor": "tensors.html#{}",
        "torch.device": "tensor_attributes.html#{}",
        "torch.dtype": "tensor_attributes.html#{}",
        "torch.nn.Module": "generated/{}.html#{}",
        "torch.nn.Sequential": "generated/{}.html#{}",
        "torch.optim.Optimizer": "optim.html#{}",
        "torch.utils.data.DataLoader": "data.html#{}",
        "torch.utils.data.Dataset": "data.html#{}",
        "torch.utils.data.IterableDataset": "data.html#{}",
        "torch.distributed.ProcessGroup": "distributed.html#{}",
        "torch.jit.ScriptModule": "generated/{}.html#{}",
        "torch.export.ExportedProgram": "export.html#{}",
        "torch.Generator": "generated/{}.html#{}",
        "torch.optim.swa_utils.AveragedModel": "optim.html#weight-averaging-swa-and-ema",
        # As signatures name them.
        "torch._C.Generator": "generated/torch.Generator.html#torch.Generator",
        "torch.nn.modules.container.Sequential": "generated/torch.nn.Sequential.html#torch.nn.Sequential",
        "torch.jit._script.ScriptModule": "generated/torch.jit.ScriptModule.html#torch.jit.ScriptModule",
        "torch.utils.data.dataset.TensorDataset": "data.html#torch.utils.data.TensorDataset",
        "torch.nn.modules.module.Module": "generated/torch.nn.Module.html#torch.nn.Module",
        "torch.export.exported_program.ExportedProgram": "export.html#torch.export.ExportedProgram",
    },
    "lightning": {
        name: f"api/{target}.html#{target}"
        for name, target in (
            ("pytorch_lightning.Trainer", "lightning.pytorch.trainer.trainer.Trainer"),
            ("pytorch_lightning.trainer.trainer.Trainer", "lightning.pytorch.trainer.trainer.Trainer"),
            ("pytorch_lightning.LightningModule", "lightning.pytorch.core.LightningModule"),
            ("pytorch_lightning.core.module.LightningModule", "lightning.pytorch.core.LightningModule"),
            ("pytorch_lightning.LightningDataModule", "lightning.pytorch.core.LightningDataModule"),
            ("pytorch_lightning.Callback", "lightning.pytorch.callbacks.Callback"),
            ("pytorch_lightning.accelerators.accelerator.Accelerator", "lightning.pytorch.accelerators.Accelerator"),
            (
                "pytorch_lightning.plugins.precision.precision.Precision",
                "lightning.pytorch.plugins.precision.Precision",
            ),
            (
                "lightning_fabric.plugins.environments.cluster_environment.ClusterEnvironment",
                "lightning.pytorch.plugins.environments.ClusterEnvironment",
            ),
            ("lightning_fabric.plugins.io.checkpoint_io.CheckpointIO", "lightning.pytorch.plugins.io.CheckpointIO"),
        )
    },
    "numpy": {"numpy.ndarray": "generated/{}.html#{}", "numpy.generic": "arrays.scalars.html#{}"},
    "torchmetrics": {"torchmetrics.Metric": "references/metric.html#{}"},
    "python": {
        "pathlib.Path": "pathlib.html#{}",
        "collections.abc.Callable": "collections.abc.html#{}",
        "collections.abc.Iterable": "collections.abc.html#{}",
        "collections.abc.Iterator": "collections.abc.html#{}",
        "collections.abc.Mapping": "collections.abc.html#{}",
        "collections.abc.Sequence": "collections.abc.html#{}",
        "typing.Any": "typing.html#{}",
        "datetime.timedelta": "datetime.html#{}",
        "os.PathLike": "os.html#{}",
    },
}
ADDRESSES = {"torch": TORCH, "lightning": LIGHTNING, "torchmetrics": METRICS, "numpy": NUMPY, "python": PYTHON}


def written(folder: Path) -> dict[str, tuple[str, str]]:
    """Write the inventories into a folder; return what ``intersphinx_mapping`` has to be."""
    folder.mkdir(parents=True, exist_ok=True)
    mapping = {}
    for project, names in CLASSES.items():
        path = folder / f"{project}.inv"
        path.write_bytes(_inventory(project, names))
        mapping[project] = (ADDRESSES[project], str(path))
    return mapping


def _inventory(project: str, names: dict[str, str]) -> bytes:
    """Return an inventory of classes, in version 2 of Sphinx's format."""
    head = f"# Sphinx inventory version 2\n# Project: {project}\n# Version: \n"
    head += "# The remainder of this file is compressed using zlib.\n"
    lines = [f"{name} py:class 1 {address.replace('{}', name)} -" for name, address in sorted(names.items())]
    return head.encode() + zlib.compress("\n".join([*lines, ""]).encode())
