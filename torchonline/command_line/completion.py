"""Completion of words by the shell."""

import argparse
import inspect
from typing import Any

import pytorch_lightning as pl

from torchonline.command_line import COMMANDS
from torchonline.command_line.commands import OnlineTrainer
from torchonline.models.log_data import LogDataModule
from torchonline.models.neural_linear import NeuralLinearBandit
from torchonline.models.online_predictor import OnlinePredictor
from torchonline.models.table_data import TableDataModule

# Classes whose options are completed, by the key that they are given under.
CLASSES: dict[str, tuple[type[Any], ...]] = {
    "model": (NeuralLinearBandit, OnlinePredictor),
    "data": (LogDataModule, TableDataModule),
    "trainer": (pl.Trainer,),
}
HIDDEN = ("self", "model", "datamodule", "train_dataloaders", "val_dataloaders", "weights_only")
FILES = ("config", "ckpt_path", "path", "log", "snapshot", "decisions", "data.files")


def completion_script(shell: str) -> str:
    """Return the script that completes commands and options of ``torchonline``.

    Args:
        shell: ``"bash"``, ``"zsh"`` or another one that shtab knows.

    Raises:
        ValueError: shtab does not know the shell.
    """
    import shtab

    if shell not in shtab.SUPPORTED_SHELLS:
        raise ValueError(f"print_completion: expected one of {', '.join(shtab.SUPPORTED_SHELLS)}, got {shell!r}")
    return str(shtab.complete(completion_parser(shtab.FILE), shell))


def completion_parser(file: Any) -> argparse.ArgumentParser:
    """Return a parser whose words the shell completes.

    It knows the commands, and the arguments of the usual classes of models and data. It does not know the options below them,
    such as those of a policy.

    Args:
        file: shtab's rule of completion for options that name files.
    """
    parser = argparse.ArgumentParser("torchonline", description="Online learners as PyTorch modules.")
    parser.add_argument("--version", action="store_true", help="print the version")
    commands = parser.add_subparsers(dest="command")
    for name, text in COMMANDS.items():
        command = commands.add_parser(name, help=text, description=text)
        own = [one for one in inspect.signature(getattr(OnlineTrainer, name)).parameters if one not in HIDDEN]
        below = {
            f"{key}.{one}"
            for key, classes in CLASSES.items()
            for cls in classes
            for one in inspect.signature(cls).parameters
        }
        for option in ("config", "print_config", "seed_everything", *CLASSES, *own, *sorted(below)):
            choices = [cls.__name__ for cls in CLASSES.get(option, ())] if option != "trainer" else []
            action: Any = command.add_argument(f"--{option}", choices=choices or None)
            if option in FILES:
                action.complete = file
    return parser
