"""The source itself: which module may import which, what TorchScript and -O would break, and what is documented."""

import ast
import doctest
import functools
import importlib
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import torchonline
from docs.site_parts.arguments import section
from tests import policy_arguments
from tests.fake_device import environment
from tests.learners import public_classes
from torchonline.policies.policy import Policy
from torchonline.policies.rules import UCB, Rule
from torchonline.regression.estimator import Estimator

PACKAGE = Path(torchonline.__file__).parent
# Inside an installed package, beside it in a checkout.
FOLDERS = {
    name: next(path for path in (PACKAGE / name, PACKAGE.parent / name) if path.is_dir())
    for name in ("models", "callbacks")
}


def sources() -> dict[str, Path]:
    """Every module of the library, by the name it is imported under, and its file."""
    found = {}
    for prefix, folder in {
        "torchonline": PACKAGE,
        **{f"torchonline.{name}": folder for name, folder in FOLDERS.items()},
    }.items():
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(folder).with_suffix("").parts
            found[".".join([prefix, *parts]).removesuffix(".__init__")] = path
    return found


SOURCES = sources()

# A module imports from lower layers and its own; what is not named here is on top. The longest name that fits counts.
LAYERS = [
    {"torchonline.core"},
    {"torchonline.linalg", "torchonline.links", "torchonline.features"},
    {"torchonline.privacy", *(f"torchonline.privacy.learners.{name}" for name in ("base", "clock", "released"))},
    {"torchonline.regression", "torchonline.convex", "torchonline.privacy.learners"},
    {"torchonline.policies"},
    {"torchonline.baselines"},
]
# The command line builds Lightning modules from configurations, and runs them.
COMMAND_LINE = ("torchonline.command_line", "torchonline.__main__")
OUTSIDE = ("torchonline.models", "torchonline.callbacks", *COMMAND_LINE)
# Modules that load Lightning, and modules that load torchmetrics only.
LIGHTNING = (
    "torchonline.callbacks",
    *(f"torchonline.command_line.{name}" for name in ("commands", "parser", "tables")),
    *(f"torchonline.models.{name}" for name in ("file_data", "lightning_strategy", "log_data", "neural_linear")),
    *(f"torchonline.models.{name}" for name in ("online_predictor", "pass_guard", "table_data", "weight_averages")),
)
TORCHMETRICS = ("torchonline.metrics", "torchonline.diagnostics", "torchonline.reporting")
# Who may import what is heavy or optional.
ALLOWED = {
    "torchmetrics": (*TORCHMETRICS, *LIGHTNING),
    "pytorch_lightning": LIGHTNING,
    "lightning": LIGHTNING,
    "matplotlib": ("torchonline.core.axes", "torchonline.reporting"),
    "sklearn": ("torchonline.datasets",),
    "dp_accounting": ("torchonline.baselines.private.noisy_sgd",),
    "statsmodels": (),
    "pandas": tuple(f"torchonline.models.{name}" for name in ("files", "file_tables", "fitted_transformer")),
    "gymnasium": ("torchonline.environments.table_bandit",),
    "tensordict": ("torchonline.models.tensordict_policy",),
    "narwhals": ("torchonline.features.rows",),
    "pyarrow": ("torchonline.models.files",),
    "yaml": COMMAND_LINE,
    "fastapi": ("torchonline.serving",),
    "uvicorn": ("torchonline.command_line.service", "torchonline.serving.protocol"),
    "jinja2": ("torchonline.reporting",),
    "jsonargparse": COMMAND_LINE,
    "sqlalchemy": ("torchonline.feedback.sqlalchemy_log",),
    "ray": (),
    "scipy": (),
    "rich": (),
}


@functools.cache
def nodes(path: Path) -> list[ast.AST]:
    """The nodes of a file's syntax tree."""
    return list(ast.walk(ast.parse(path.read_text())))


def imports(path: Path) -> set[str]:
    """The modules that a file imports, wherever in the file it does."""
    found = set()
    for node in nodes(path):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found |= {node.module or ""}
    return found


def layer(module: str) -> int:
    """The number of a module's layer; the top one for all that is not named."""
    found = [(len(name), n) for n, names in enumerate(LAYERS) for name in names if f"{module}.".startswith(f"{name}.")]
    return max(found)[1] if found else len(LAYERS)


def wrong_imports(name: str, inside: set[str]) -> Iterator[str]:
    """What is wrong with the modules of the library that a module imports."""
    if name == "torchonline":
        return
    if above := {module for module in inside if layer(module) > layer(name)}:
        yield f"imports from a higher layer: {sorted(above)}"
    if not name.startswith(OUTSIDE):
        if outside := {module for module in inside if module.startswith(OUTSIDE)}:
            yield f"imports {sorted(outside)}"
        if "torchonline" in inside:
            yield "import from the module that defines the name"
        of_processes = any(module.startswith("torchonline.distributed") for module in inside)
        if of_processes and not name.startswith("torchonline.distributed"):
            yield "learners know nothing of processes"
    of_no_learner = ("environments", "metrics", "diagnostics", "datasets")
    if name.startswith(tuple(f"torchonline.{part}" for part in of_no_learner)):
        if any(module.startswith(("torchonline.regression", "torchonline.policies")) for module in inside):
            yield "know learners by the contract"


def test_imports_point_one_way() -> None:
    found = {
        name: list(wrong_imports(name, {module for module in imports(path) if module.split(".")[0] == "torchonline"}))
        for name, path in SOURCES.items()
    }
    assert {name: wrong for name, wrong in found.items() if wrong} == {}


def test_wrong_imports_are_found() -> None:
    for name, module, wrong in (
        ("linalg", "torchonline.regression.huber", "imports from a higher layer"),
        ("convex.oons", "torchonline.models", "imports ['torchonline.models']"),
        ("convex.oons", "torchonline", "import from the module that defines the name"),
        ("serving", "torchonline.distributed.ranks", "learners know nothing of processes"),
        ("metrics", "torchonline.regression.huber", "know learners by the contract"),
    ):
        assert any(each.startswith(wrong) for each in wrong_imports(f"torchonline.{name}", {module})), module
    assert list(wrong_imports("torchonline.regression.huber", {"torchonline.core.ops"})) == []


def test_heavy_packages_stay_where_they_belong() -> None:
    found = [(name, module) for name, path in SOURCES.items() for module in imports(path)]
    packages = [(name, module, module.split(".")[0]) for name, module in found]
    wrong = [
        f"{name} imports {module}"
        for name, module, package in packages
        if package in ALLOWED and not name.startswith(ALLOWED[package])
    ]
    assert wrong == []


HEAVY = ["pytorch_lightning", "lightning", "torchmetrics", "torchvision", "matplotlib", "pandas", "sklearn", "scipy"]
HEAVY += ["dp_accounting", "rich", "onnx", "executorch", "tensorboard", "jsonargparse", "fastapi", "sqlalchemy"]


def loaded_after(program: str, names: list[str]) -> list[str]:
    """Those of some modules that a program has loaded."""
    program += f"\nimport sys\nprint(*[name for name in {names} if name in sys.modules])"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment(), check=True)
    return run.stdout.split()


def test_importing_the_package_is_light() -> None:
    """``import torchonline`` brings in no Lightning, no plots, no data sets, and no module with a general name."""
    names = [*HEAVY, "gymnasium", "tensordict", "models", "callbacks"]
    assert loaded_after("import torchonline.models, torchonline.environments", names) == []


def test_heads_files_and_services_load_no_lightning() -> None:
    """Nor does any other module that is not named in LIGHTNING or TORCHMETRICS, or a part of the HTTP service."""
    http = tuple(f"torchonline.serving.{name}" for name in ("app", "bodies", "limits", "personalizer", "protocol"))
    light = [name for name in SOURCES if not name.startswith((*LIGHTNING, *TORCHMETRICS, *http))]
    assert {"torchonline.models", "torchonline.export", "torchonline.serving", "torchonline.off_policy"} <= set(light)
    names = "BanditHead, HashedEmbedding, LoggedRounds, RoundLoader, mlp, recommended_policy, table_head"
    program = f"from torchonline.models import {names}\n" + "\n".join(f"import {name}" for name in light)
    assert loaded_after(program, HEAVY) == []


def test_lazy_names_are_like_others() -> None:
    program = """
import pickle, torchonline
from torchonline.models import *
from torchonline import models
assert NeuralLinearBandit is models.NeuralLinearBandit is pickle.loads(pickle.dumps(NeuralLinearBandit))
assert NeuralLinearBandit.__module__ == "torchonline.models.neural_linear"
assert set(models.__all__) <= set(dir(models)) and not hasattr(models, "nothing")
"""
    assert loaded_after(program, ["pytorch_lightning"]) == ["pytorch_lightning"]


def test_no_general_name_is_taken() -> None:
    for module in modules():
        assert module.__name__.startswith("torchonline")
    assert "models" not in sys.modules
    assert "callbacks" not in sys.modules


SCRIPTED = ("core", "linalg", "links", "regression", "policies", "baselines", "convex", "privacy", "models")


def test_nothing_that_scripts_or_optimised_python_lose() -> None:
    """No annotations import, which TorchScript cannot read; no assert, which -O drops; no decorator that scripts drop."""
    wrong = []
    for name, path in SOURCES.items():
        if name.startswith(tuple(f"torchonline.{part}" for part in SCRIPTED)) and "__future__" in imports(path):
            wrong.append(f"{path}: imports __future__")
        for node in nodes(path):
            if isinstance(node, ast.Assert):
                wrong.append(f"{path}:{node.lineno}: assert is no check")
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                decorators = " ".join(map(ast.unparse, node.decorator_list))
                if "no_grad" in decorators or "inference_mode" in decorators:
                    wrong.append(f"{path}:{node.lineno}: write `with torch.no_grad():` inside the body")
    assert wrong == []


def modules() -> list[ModuleType]:
    """Every module of the library."""
    return [importlib.import_module(name) for name in SOURCES]


def test_all_modules_are_found() -> None:
    assert set(SOURCES) >= {"torchonline", "torchonline.core.learner", "torchonline.regression.huber", *OUTSIDE}


WRAPPERS = [cls for cls in public_classes(Rule) if "estimator" not in inspect.signature(cls).parameters]


@pytest.mark.fast
@pytest.mark.parametrize("cls", WRAPPERS)
def test_a_named_bandit_takes_what_its_estimator_takes(cls: Any) -> None:
    """OFUL, HvtUCB and AnytimeHeavyTailUCB: the same keywords and defaults, in the same order, and they arrive."""
    assert issubclass(cls, UCB)
    parameters = inspect.signature(cls).parameters
    built = cls(2, **{name: value for name, value in {"horizon": 7, "discount": 0.9}.items() if name in parameters})
    assert parameters == inspect.signature(type(built.estimator)).parameters
    values = {"theta_bound": 1.25, "radius_scale": 0.75, "batch_shape": (3,), "dtype": torch.float32, "validate": False}
    values |= {"delta": 0.3, "ridge": 2.5, "noise_scale": 0.4, "moment_order": 1.7, "alpha": 2.0, "minimum_scale": 0.2}
    values |= {
        "feature_bound": 3.0,
        "horizon": 11,
        "noise": "symmetric",
        "truncation": 2.0,
        "repeats": 3,
        "restart_every": 5,
        "corrupted_rounds": 6,
    }
    values |= {
        "radius_factor": 1.5,
        "moment_factor": 2.0,
        "ridge_factor": 0.5,
        "scale_factor": 3.0,
        "linear_factor": 7.0,
        "warm_up_factor": 3.0,
        "warm_up_rounds": 4,
        "growth": 3.0,
        "discount": 0.95,
        "threshold_factor": 2.5,
        "groups": 2,
        "recursive_scale": True,
        "corruption": 5.0,
    }
    values |= dict.fromkeys(("clip_residuals", "project", "adaptive_scale"), False)
    mine = {name: value for name, value in values.items() if name in parameters}
    assert set(parameters) - set(mine) <= {"dim", "device", "link", "radius", "constants"}
    policy, estimator = cls(4, **mine), type(built.estimator)(4, **mine)
    for name, buffer in estimator.named_buffers():
        assert torch.equal(buffer, policy.get_buffer(f"estimator.{name}"))
    plain = {name: value for name, value in vars(estimator).items() if isinstance(value, (int, float, str, tuple))}
    assert {name: vars(policy.estimator)[name] for name in plain} == plain
    assert {parameters[name].kind for name in parameters if name != "dim"} == {inspect.Parameter.KEYWORD_ONLY}


AFTER_TORCH = {
    f"torchonline.core.ops.{name}"
    for name in ("sqrt", "log", "exp", "log1p", "expm1", "minimum", "maximum", "where", "sign", "floor")
}


def public_objects() -> dict[str, Any]:
    """Public classes and functions, by qualified name."""
    found = {}
    for module in modules():
        for name, value in vars(module).items():
            if name.startswith("_") or getattr(value, "__module__", None) != module.__name__:
                continue
            if inspect.isclass(value) or inspect.isfunction(value):
                found[f"{module.__name__}.{name}"] = value
    return found


def test_every_module_says_what_it_is() -> None:
    assert [module.__name__ for module in modules() if not module.__doc__] == []


def test_first_lines_are_short() -> None:
    """The first line of a docstring has fewer than 80 characters."""
    kinds = (ast.FunctionDef, ast.ClassDef, ast.Module)
    found = [(path, node) for path in SOURCES.values() for node in nodes(path) if isinstance(node, kinds)]
    firsts = [(path, (ast.get_docstring(node) or "").partition("\n")[0]) for path, node in found]
    assert [f"{path}: {first}" for path, first in firsts if len(first) >= 80] == []


def test_every_public_name_is_documented() -> None:
    # What `ops` names after torch means what it does there.
    own = {name: value for name, value in public_objects().items() if name not in AFTER_TORCH}
    assert [name for name, value in own.items() if not value.__doc__] == []


def test_every_learner_says_what_it_costs_and_shows_an_example() -> None:
    texts = {cls.__name__: inspect.getdoc(cls) or "" for cls in public_classes(Estimator, Policy)}
    assert [name for name, text in texts.items() if "Example" not in text or ">>>" not in text] == []


def public_classes_of_all_packages() -> list[Any]:
    """The classes that the package and its subpackages export, and whose constructors are the library's."""
    packages = [module for module in modules() if hasattr(module, "__all__")]
    values = {id(value): value for module in packages for value in (getattr(module, name) for name in module.__all__)}
    classes = [value for value in values.values() if inspect.isclass(value)]
    owners = [(cls, getattr(cls.__init__, "__module__", "")) for cls in classes]
    return [cls for cls, owner in owners if owner.startswith("torchonline.") or hasattr(cls, "_fields")]


def test_every_argument_of_a_public_class_is_explained() -> None:
    """In the section ``Args:`` of the class itself, or ``Attributes:`` of a result, where editors and help show it."""
    classes, silent = public_classes_of_all_packages(), []
    for cls in classes:
        text = vars(cls).get("__doc__") or ""
        for name in inspect.signature(cls).parameters:
            if not re.search(
                rf"^    (Args|Attributes):\n(.*\n|\n)*? {{8}}(\w+, )*(\*\*)?{name}(, \w+)*:", text, re.MULTILINE
            ):
                silent.append(f"{cls.__name__}: {name}")
    assert silent == []
    assert len(classes) > 120


def test_policies_explain_their_arguments_as_their_estimators_do() -> None:
    """With the same words; `python -m tests.policy_arguments` writes them."""
    stale = []
    for cls, estimator in policy_arguments.policies().items():
        text = Path(inspect.getsourcefile(cls) or "").read_text()
        if policy_arguments.rewritten(text, cls.__name__, policy_arguments.arguments(cls, estimator)) != text:
            stale.append(cls.__name__)
    assert stale == []
    assert "OFUL" in {cls.__name__ for cls in policy_arguments.policies()}


DEFAULT = ("estimator", "noise_scale, theta_bound, ridge")
SAME = [("UCB", cls, DEFAULT) for cls in ("Greedy", "ThompsonSampling", "EpsilonGreedy", "Softmax", "SquareCB")]
SAME += [("RadiusSelector", "DisjointArms", ("actions", "most_actions", "scaler"))]
SAME += [("RadiusSelector", "SharedRadiusSelector", ("scales", "rule", "reward_range"))]
SAME += [("DPTOFW", "DPPOFW", ("scheme", "step_scale", "records_a_step", "noise_source, seed"))]
PROMISE = ("dim", "epsilon", "delta", "participations, min_separation", "batch_shape", "dtype", "device", "validate")
SAME += [("privacy.PrivateLearner", cls, PROMISE) for cls in ("DPTOFW", "DPPOFW", "DPHDB")]


@pytest.mark.parametrize(("one", "other", "names"), SAME)
def test_policies_of_a_kind_explain_an_argument_with_the_same_words(
    one: str, other: str, names: tuple[str, ...]
) -> None:
    for name in names:
        mine, theirs = (
            [(names, words) for names, words in entries.items() if ", ".join(names).startswith(name)]
            for entries in map(section, attrgetter(one, other)(torchonline))
        )
        assert mine == theirs
        assert len(mine) == 1


def test_public_names_are_listed_once_and_exist() -> None:
    assert len(set(torchonline.__all__)) == len(torchonline.__all__)
    assert all(hasattr(torchonline, name) for name in torchonline.__all__)
    assert torchonline.__version__


DOCTESTS = [
    test for module in modules() for test in doctest.DocTestFinder().find(module, module.__name__) if test.examples
]
GLOBALS = {"torch": torch} | {name: getattr(torchonline, name) for name in torchonline.__all__}


# Lightning 2.6 uses what its own dependency has since deprecated.
@pytest.mark.filterwarnings("ignore:`isinstance.treespec, LeafSpec.` is deprecated:FutureWarning")
@pytest.mark.parametrize("example", DOCTESTS, ids=lambda test: test.name)
def test_examples_run(example: doctest.DocTest, tmp_path: Path) -> None:
    """An example needs no imports for torch, what ``torchonline`` exports and what its module uses; ``folder`` is a path."""
    example.globs = GLOBALS | example.globs | {"folder": tmp_path}
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    report: list[str] = []
    failed = runner.run(example, out=report.append).failed
    assert failed == 0, "".join(report)


def test_there_are_examples() -> None:
    assert len(DOCTESTS) >= len(public_classes(Estimator, Policy))
