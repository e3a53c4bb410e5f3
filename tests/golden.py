"""Golden files: states that a version wrote, and what their learners said then. ``python tests/golden.py`` adds what is missing.

A file ``tests/data/golden/VERSION/FAMILY.pt.gz`` holds, for each public learner with a state, its name, the options that it was
built with, its state dict after some rounds, what it said then, two further rounds, and what it said after those. A file that has
been released is never written again: the script only adds learners that no file has, under the version that is named first in the
changelog, and it is run with the code of that version. ``tests/core/test_golden.py`` loads all files.

Private learners only say what they have published: a loaded one goes on with fresh noise.
"""

import gzip
import inspect
import io
import re
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import torchonline
from tests import convex_learners, learners, private_learners
from torchonline import (
    OFUL,
    AnytimeHeavyTailUCB,
    CatalogueArms,
    DisjointArms,
    FixedArms,
    FreeGrad,
    HybridArms,
    ParameterFree,
    RadiusSelector,
    RidgeRegression,
    ScaledPolicy,
    SharedRadiusSelector,
    StandardScaler,
    baselines,
)
from torchonline.convex.learner import ConvexLearner
from torchonline.export import to_torchscript
from torchonline.models import BanditHead
from torchonline.policies.policy import Policy
from torchonline.policies.rules import Rule
from torchonline.privacy import PrivateLearner, prefix_sum
from torchonline.regression.estimator import Estimator

FOLDER = Path(__file__).parent / "data" / "golden"
DIM, ARMS, ROUNDS = learners.DIM, 4, 12
Rounds = list[tuple[Any, ...]]

# Learners that are made of others. Whatever becomes of defaults, each must build what it built when its file was written: so all
# options are named.
RIDGE: dict[str, Any] = {"noise_scale": 1.0, "theta_bound": 1.0, "ridge": 1.0, "delta": 0.01, "radius": "classic"}
RIDGE |= {"radius_scale": 1.0, "restart_every": None, "batch_shape": (), "dtype": torch.float64}
SCALER: dict[str, Any] = {"clip": 2.5, "magnitudes": False, "intercept": True, "freeze_after": None}
MASTER: dict[str, Any] = {"scales": (1.0, 0.3, 0.1, 0.03, 0.01), "rule": "ucb", "reward_range": None, "scaler": None}
LOGISTIC: dict[str, Any] = {
    "theta_bound": 1.0,
    "feature_bound": 1.0,
    "ridge": None,
    "delta": 0.01,
    "step_size": "tight",
}
HEAD: dict[str, Any] = {"actions": None, "combine": "product", "feature_dims": 1, "scaler": None}
SUM: dict[str, Any] = {"clip": 1.0, "epsilon": 1.0, "delta": 1e-3, "noise_source": "torch", "adjacency": "replace_one"}
SUM |= {"participations": 1, "min_separation": 1}
COMPOSED: dict[str, Callable[[], Any]] = {
    "CatalogueArms": lambda: CatalogueArms(OFUL(DIM, **RIDGE), numbers(0, ARMS, DIM)),
    "FixedArms": lambda: FixedArms(OFUL(DIM, **RIDGE), numbers(0, ARMS, DIM)),
    "ScaledPolicy": lambda: ScaledPolicy(OFUL(DIM + 1, **RIDGE), StandardScaler(DIM, **SCALER)),
    "DisjointArms": lambda: DisjointArms(RidgeRegression(DIM, **RIDGE), ARMS, most_actions=ARMS, scaler=None),
    "HybridArms": lambda: HybridArms(RidgeRegression(DIM, **RIDGE), ARMS, embeddings=numbers(0, ARMS, 2), scaler=None),
    "RadiusSelector": lambda: RadiusSelector(RidgeRegression(DIM, **RIDGE), ARMS, most_actions=ARMS, **MASTER),
    "SharedRadiusSelector": lambda: SharedRadiusSelector(RidgeRegression(DIM, **RIDGE), **MASTER),
    "StandardScaler": lambda: StandardScaler(DIM, **SCALER),
    "MultinomialLogisticBandit": lambda: baselines.MultinomialLogisticBandit(
        DIM, revenues=(1.0, 2.0), radius_scale=1.0, **LOGISTIC
    ),
    "BanditHead": lambda: BanditHead(torch.nn.Identity(), OFUL(DIM, **RIDGE), **HEAD),
    "PrefixSum": lambda: prefix_sum("blt", 30, (DIM,), **SUM),
}
# Learners that have another name today than in files.
FORMER_NAMES = {
    "RunningScaler": "StandardScaler",
    "RadiusMaster": "RadiusSelector",
    "SharedRadiusMaster": "SharedRadiusSelector",
    "HeavyTailUCB": "AnytimeHeavyTailUCB",
}
FREE_GRAD = {"length_scale": 1.0, "restarts": True, "per_coordinate": False, "initial_wealth": 1.0}


def numbers(seed: int, *shape: int) -> Tensor:
    """Return normal numbers, float64."""
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape))


def options_of(case: Any) -> dict[str, Any]:
    """Return what builds a case again after defaults have changed: its own options, and the defaults that are plain values."""
    parameters = inspect.signature(case.cls).parameters.values()
    plain = {p.name: p.default for p in parameters if type(p.default) in (int, float, bool, str)}
    needed = convex_learners.required(case.cls) if issubclass(case.cls, ConvexLearner) else {}
    if issubclass(case.cls, PrivateLearner):
        needed = {"dim": private_learners.DIM} | private_learners.PROMISE
    elif issubclass(case.cls, Estimator | Rule):
        needed = {name: learners.REQUIRED[name] for name in learners.needed(case.cls)}
    return plain | needed | dict(case.options)


def classes() -> dict[str, tuple[str, dict[str, Any]]]:
    """Return the family and the options of each public class that tests build from options alone."""
    found = {}
    for family, module in (("private", private_learners), ("convex", convex_learners), ("bandits", learners)):
        for case in reversed(module.CASES):  # the first case of a class remains
            is_public = case.cls.__name__ in (*torchonline.__all__, *baselines.__all__)
            if is_public and getattr(case, "over", None) is None:
                found[case.cls.__name__] = (family, options_of(case))
    # Named bandits that say nothing of their own have no case.
    for cls in learners.public_classes(Rule):
        if "estimator" not in inspect.signature(cls).parameters and cls.__name__ not in found:
            found[cls.__name__] = ("bandits", options_of(learners.Case(cls)))
    return found


def build(name: str, options: dict[str, Any]) -> Any:
    """Return a fresh learner, without what the constructor warns of."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if name in COMPOSED:
            return COMPOSED[name]()
        return (getattr(torchonline, name, None) or getattr(baselines, name))(**options)


def rounds_of(learner: Any, name: str) -> Rounds:
    """Return the arguments of the steps of a learner."""
    x, rewards = numbers(1, ROUNDS + 2, DIM), numbers(2, ROUNDS + 2).clamp(-2.0, 2.0)
    action, arms = torch.arange(ROUNDS + 2) % ARMS, numbers(3, ROUNDS + 2, ARMS, DIM)
    shortened = x / x.norm(dim=-1, keepdim=True)
    if isinstance(learner, ConvexLearner):
        shape = learner.gradients_shape
        return [
            (each.expand(shape).contiguous(), each.sum().expand(shape[:-1]).contiguous()) for each in 0.5 * shortened
        ]
    if isinstance(learner, PrivateLearner):
        return [(x[t],) for t in range(ROUNDS)] if name == "PrefixSum" else []
    by_name: dict[str, Rounds] = {
        "FixedArms": [(None, *both) for both in zip(action, rewards, strict=True)],
        "CatalogueArms": list(zip(x, action, rewards, strict=True)),
        "DisjointArms": list(zip(x, action, rewards, strict=True)),
        "HybridArms": list(zip(x, action, rewards, strict=True)),
        "RadiusSelector": list(zip(x, action, rewards, strict=True)),
        "SharedRadiusSelector": list(zip(arms, action, rewards, strict=True)),
        "StandardScaler": [(each,) for each in x],
        "MultinomialLogisticBandit": list(zip(shortened, action % 2, strict=True)),
        "BanditHead": list(zip(arms, action, rewards, strict=True)),
    }
    if name in by_name:
        return by_name[name]
    estimator = learner.policy.estimator if name == "ScaledPolicy" else learners.estimator_of(learner)
    if estimator.output_shape:
        return list(zip(shortened, numbers(2, ROUNDS + 2, *estimator.output_shape), strict=True))
    rounds = list(zip(shortened, estimator.possible_reward(rewards), strict=True))
    return [learners.round_of(learner, *both) for both in rounds]


def said(learner: Any) -> dict[str, Tensor]:
    """Return what a learner says of some arms: scores, probabilities, widths, a decision, or what it has published."""
    arms = numbers(4, ARMS, DIM)
    arms = arms / arms.norm(dim=-1, keepdim=True)
    if isinstance(learner, PrivateLearner):
        return {"published": private_learners.published(learner)}
    if isinstance(learner, ConvexLearner):
        return {"decision": learner.predict()}
    if isinstance(learner, FixedArms):
        return {"scores": learner(), "chosen": learner.select()}
    if isinstance(learner, StandardScaler):
        return {"scaled": learner(arms)}
    if isinstance(learner, CatalogueArms | DisjointArms):
        return {"scores": learner(arms[0]), "chosen": learner.select(arms[0])}
    if isinstance(learner, Estimator):
        return {"predictor": learner.predictor(arms), "width": learner.width(arms), "radius": learner.radius()}
    found = {"scores": learner(arms), "chosen": learner.select(arms)}
    if getattr(learner, "is_random", False) or isinstance(learner, RadiusSelector | SharedRadiusSelector):
        found = {"probabilities": learner.probabilities(arms)}
    return {name: value.detach() for name, value in found.items()}


def as_today(learner: Any, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the arguments of a step from those that a file may hold.

    Policies learnt from the chosen arm's features and the reward once, and fixed arms from the chosen arm and the reward.
    """
    if isinstance(learner, baselines.MultinomialLogisticBandit):
        x, outcome = arguments
        return x.unsqueeze(-2), torch.zeros_like(outcome), outcome
    if not isinstance(learner, Policy) or len(arguments) == 3:
        return arguments
    return (None, *arguments) if isinstance(learner, FixedArms) else learners.round_of(learner, *arguments)


def learn(learner: Any, rounds: Rounds) -> None:
    """Take the steps."""
    for arguments in rounds:
        learner.step(*as_today(learner, arguments))


def played(name: str, options: dict[str, Any]) -> dict[str, Any]:
    """Return the entry of a learner."""
    learner = build(name, options)
    if isinstance(learner, PrivateLearner) and name != "PrefixSum":
        for t in range(ROUNDS):
            learner.step(*private_learners.record_for(learner, t))
    rounds = rounds_of(learner, name)
    learn(learner, rounds[:ROUNDS])
    state = {key: value.clone() for key, value in learner.state_dict().items()}
    kept = learner.state_dict()
    for key in kept:
        kept[key] = state[key]
    entry = {"options": options, "state": kept, "said": said(learner), "next": rounds[ROUNDS:]}
    learn(learner, rounds[ROUNDS:])
    return entry | {"said_next": said(learner) if rounds[ROUNDS:] else {}}


def optimizer() -> tuple[torch.nn.Linear, ParameterFree]:
    """Return a layer and its optimizer."""
    layer = torch.nn.Linear(DIM, 1, bias=False, dtype=torch.float64)
    torch.nn.init.zeros_(layer.weight)
    return layer, ParameterFree(layer.parameters(), learner=FreeGrad, lr=1.0, **FREE_GRAD)


def fit(layer: torch.nn.Linear, chosen: ParameterFree, seed: int) -> None:
    """Take a few steps of a regression."""
    for x in numbers(seed, ROUNDS, DIM):
        chosen.zero_grad()
        (layer(x) - x.sum()).abs().sum().backward()
        chosen.step()


def read(path: Path) -> Any:
    """Return what a golden file holds."""
    return torch.load(io.BytesIO(gzip.decompress(path.read_bytes())), weights_only=True)


def files() -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield the files of state dicts and their entries, under the names of today."""
    for path in sorted(FOLDER.glob("*/*.pt.gz")):
        yield path, {FORMER_NAMES.get(name, name): entry for name, entry in read(path).items()}


def write(path: Path, value: Any) -> None:
    """Write a file that does not exist yet, without the time in its bytes."""
    if path.exists():
        raise FileExistsError(f"{path}: expected no such file, for golden files stay as they are")
    buffer = io.BytesIO()
    torch.save(value, buffer)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(buffer.getvalue(), 9, mtime=0))


def unused(folder: Path, family: str) -> Path:
    """Return the first of ``FAMILY.pt.gz``, ``FAMILY_2.pt.gz`` and so on that does not exist yet."""
    names = (f"{family}.pt.gz", *(f"{family}_{number}.pt.gz" for number in range(2, 1000)))
    return next(folder / name for name in names if not (folder / name).exists())


def main() -> None:
    """Write files for the learners that have none."""
    log = (Path(__file__).parent.parent / "CHANGELOG.md").read_text()
    found = re.findall(r"^## (\d+\.\d+)", log, re.MULTILINE)
    folder, have = FOLDER / found[0], {name for _, entries in files() for name in entries}
    entries: dict[str, dict[str, Any]] = {}
    for name, (family, options) in classes().items():
        if name not in have:
            entries.setdefault(family, {})[name] = played(name, options)
    composed = {name: played(name, {}) for name in COMPOSED if name not in have}
    if "ParameterFree" not in have:
        layer, chosen = optimizer()
        fit(layer, chosen, 5)
        composed["ParameterFree"] = {"layer": layer.state_dict(), "state": chosen.state_dict()}
        fit(copied := layer, chosen, 6)
        composed["ParameterFree"]["said_next"] = {"weight": copied.weight.detach().clone()}
    for family, group in (entries | ({"composed": composed} if composed else {})).items():
        write(unused(folder, family), group)
    script = folder / "AnytimeHeavyTailUCB.torchscript.gz"
    if not script.exists():
        policy = build("AnytimeHeavyTailUCB", {"dim": DIM})
        learn(policy, rounds_of(policy, "AnytimeHeavyTailUCB")[:ROUNDS])
        to_torchscript(policy, script.with_suffix(""))
        script.write_bytes(gzip.compress(script.with_suffix("").read_bytes(), 9, mtime=0))
        script.with_suffix("").unlink()
    print({name: len(group) for name, group in entries.items()}, len(composed), AnytimeHeavyTailUCB.__name__)


if __name__ == "__main__":
    main()
