"""Random calls of the public methods of every public learner and metric: ``python -m tests.fuzz``.

Each argument is a right one, or one of many wrong ones. A call is answered, or refused by an error of the library's own, which
names what is wrong. A refused call leaves the state as it was, bit for bit. The learners are called in turn.
"""

import argparse
import decimal
import inspect
import random
import re
import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torchmetrics import Metric

import torchonline
from tests import golden, learners
from torchonline import (
    OFUL,
    DisjointArms,
    EpsilonGreedy,
    FixedArms,
    Greedy,
    LocalGLMRegression,
    RidgeRegression,
    ScaledPolicy,
    Softmax,
    SquareCB,
    StandardScaler,
    ThompsonSampling,
    metrics,
)
from torchonline.diagnostics import NoiseDiagnostic
from torchonline.models import BanditHead
from torchonline.privacy import PrivateLearner

DIM, ARMS = golden.DIM, golden.ARMS
# Methods of the library that make a file, a picture or a text, or replace the learner. They have tests of their own.
LEFT_OUT = re.compile(
    r"plot|draw_bars|cite|released|repr|parts|scratch|numpy_view|view_for|state_dict|state$|example|accepts|spawn"
)
# Hooks that implementers override, which the library calls with checked arguments.
HOOKS = {"choice", "distribution", "estimate_and_bonus", "grouped", "moves_of_width"}
HOOKS |= {"possible_reward", "raised", "scores_of", "width_allowance", "width_matrix"}
# An error of the library's own names an argument and says what it expected.
OWN = re.compile(r"^[\w\[\]. ]+(\(\))?: .*|^[\w.]+\(\) ", re.DOTALL)
POLICIES: dict[str, Callable[[], Any]] = {
    "bandit": lambda: torchonline.bandit(DIM),
    "bandit of actions": lambda: torchonline.bandit(DIM, actions=ARMS),
    "bandit of clicks": lambda: torchonline.bandit(DIM, rewards="binary", actions=ARMS),
    "bandit of heavy tails": lambda: torchonline.bandit(DIM, rewards="heavy", actions=ARMS),
    "EpsilonGreedy": lambda: EpsilonGreedy(DIM),
    "Softmax": lambda: Softmax(DIM),
    "SquareCB": lambda: SquareCB(DIM),
    "ThompsonSampling": lambda: ThompsonSampling(DIM),
    "Greedy": lambda: Greedy(LocalGLMRegression(DIM, feature_bound=10.0)),
    "batch": lambda: OFUL(DIM, batch_shape=(2,)),
    "float32": lambda: OFUL(DIM, dtype=torch.float32),
    "arms in a batch": lambda: DisjointArms(RidgeRegression(DIM, batch_shape=(2,)), ARMS),
    "fixed arms of SquareCB": lambda: FixedArms(SquareCB(DIM), golden.numbers(0, ARMS, DIM)),
    "scaled Softmax": lambda: ScaledPolicy(Softmax(DIM + 1), StandardScaler(DIM)),
    "head with actions": lambda: BanditHead(nn.Linear(2, DIM), torchonline.bandit(DIM, actions=ARMS, scale=False)),
}
METRICS: dict[str, Callable[[], Any]] = {
    "ActionShares": lambda: metrics.ActionShares(ARMS),
    "CumulativeRegret": metrics.CumulativeRegret,
    "DriftAlarm": metrics.DriftAlarm,
    "EffectiveSampleSize": metrics.EffectiveSampleSize,
    "GradientVariation": metrics.GradientVariation,
    "LogHistogram": lambda: metrics.LogHistogram(0.1, 10.0),
    "LoggedProbabilities": metrics.LoggedProbabilities,
    "MeanByArm": lambda: metrics.MeanByArm(ARMS),
    "NoiseDiagnostic": NoiseDiagnostic,
    "PrivacySpent": lambda: metrics.PrivacySpent(1e-3),
    "StreamVariation": metrics.StreamVariation,
    "ValueByTime": lambda: metrics.ValueByTime("day"),
}


def makers() -> dict[str, Callable[[], Any]]:
    """Return what builds each public learner and metric."""
    built = golden.classes()
    found: dict[str, Callable[[], Any]] = {
        name: lambda name=name, options=options: golden.build(name, options) for name, (_, options) in built.items()
    }
    return found | golden.COMPOSED | POLICIES | METRICS


def methods_of(learner: Any) -> list[str]:
    """Return the public methods that the library defines, ``forward`` among them."""
    found = set()
    for base in type(learner).__mro__:
        if base.__module__.startswith("torchonline"):
            found |= {name for name, value in vars(base).items() if inspect.isroutine(value)}
    found -= HOOKS | {*dir(nn.Module), *dir(Metric)} - {"forward", "update", "compute"}
    is_left = (name for name in found if not name.startswith("_") and not LEFT_OUT.search(name))
    return sorted(name for name in is_left if callable(getattr(learner, name)))


class Fuzz:
    """Random arguments, by a seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.torch = torch.Generator().manual_seed(seed)

    def tensor(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self.torch, dtype=torch.float64)

    def right(self, name: str, learner: Any) -> Any:
        """Return a value that may be right for an argument of that name."""
        pick, shape = self.random.choice, getattr(learner, "batch_shape", ())
        n = self.random.randrange(1, 4)
        if name == "inputs" and not getattr(learner, "takes_inputs", True):
            return None
        if name in ("x", "arms", "context", "features", "inputs", "contribution", "record"):
            extra: Any = pick([(), (), (n,), (ARMS,), (n, ARMS)])
            return pick([self.tensor, lambda *s: self.tensor(*s).float(), lambda *s: self.tensor(*s).numpy()])(
                *shape, *extra, getattr(learner, "dim", DIM)
            )
        if name in ("action", "actions", "indices", "index"):
            values = torch.randint(0, ARMS, (*shape, *pick([(), (), (n,)])), generator=self.torch)
            return pick([values, values.tolist(), values.numpy()])
        if name in ("reward", "rewards", "values", "losses", "response", "noise_scale"):
            values = torch.rand((*shape, *pick([(), (), (n,)])), generator=self.torch, dtype=torch.float64)
            return pick([values, values.tolist(), values > 0.5])
        if name in ("gradients", "hint"):
            return self.tensor(*getattr(learner, "gradients_shape", (DIM,))) / 10.0
        if name == "mask":
            return pick([None, torch.rand(ARMS, generator=self.torch) > 0.2, [True] * ARMS])
        if name in ("count", "block_size", "rounds", "steps"):
            return pick([1, 2, None])
        if name == "validate":
            return pick([True, False])
        return pick([None, 1.0, 2, self.tensor(DIM), True])

    def wrong(self) -> Any:
        """Return a value that is wrong for most arguments."""
        x = self.tensor(DIM)
        return self.random.choice(
            [
                *(None, "text", b"bytes", 3, -1, 10**30, True, 1j, float("nan"), float("inf"), -1e308, 1e200),
                *([], [[]], [1.0, [2.0]], {}, {"x": 1}, {1, 2}, object(), range(3), decimal.Decimal(1), slice(3), int),
                *(np.array(["a", "b"]), np.array([None, 1.0], dtype=object), np.array(1.0), np.zeros((0, DIM))),
                *(np.ones(DIM, np.float16), np.ones(DIM, complex), np.ones(DIM, "datetime64[s]"), np.ones(DIM)[::-1]),
                *(np.ones(DIM, ">f8"), np.ma.masked_array(np.ones(DIM), True), np.int64(-3), np.float32("nan")),
                *(
                    torch.empty(0),
                    torch.zeros(0, DIM),
                    torch.zeros(ARMS, 0),
                    self.tensor(DIM + 1),
                    self.tensor(2, 2, 2, DIM),
                ),
                *(
                    x.to(torch.int64),
                    x > 0.0,
                    x.to(torch.complex64),
                    x.to(torch.float16),
                    x.to(torch.bfloat16),
                    x.to_sparse(),
                ),
                *(
                    x.clone().fill_(float("nan")),
                    x.clone().fill_(float("inf")),
                    1e200 * x,
                    1e-320 * x,
                    x.requires_grad_(),
                ),
                *(
                    x.to("meta"),
                    x.to(torch.complex64).conj().imag,
                    x.expand(5, DIM).T,
                    torch.tensor(7),
                    torch.tensor(-1),
                ),
                *(
                    torch.tensor([2**62]),
                    torch.full((DIM,), 255, dtype=torch.uint8),
                    nn.Parameter(x.clone()),
                    nn.Linear(2, 2),
                ),
                *(torch.nested.nested_tensor([x, x[:1]]), torch.quantize_per_tensor(x.float(), 0.1, 0, torch.qint8)),
                *(
                    torch.tensor([True, False]),
                    torch.zeros(ARMS, dtype=torch.bool),
                    [float("nan")] * DIM,
                    [[1.0] * DIM] * ARMS,
                ),
            ]
        )

    def arguments(self, method: Callable[..., Any], learner: Any) -> tuple[list[Any], dict[str, Any]]:
        """Return arguments for a method, positional and named."""
        right = self.random.random() < 0.3  # all of them
        positional: list[Any] = []
        named: dict[str, Any] = {}
        for parameter in inspect.signature(method).parameters.values():
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                continue
            if parameter.default is not parameter.empty and self.random.random() < 0.6:
                if parameter.kind is not parameter.KEYWORD_ONLY:
                    positional.append(parameter.default)
                continue
            is_right = right or self.random.random() < 0.6
            value = self.right(parameter.name, learner) if is_right else self.wrong()
            if parameter.kind is parameter.KEYWORD_ONLY:
                named[parameter.name] = value
            else:
                positional.append(value)
        return positional, named


def state_of(learner: Any) -> dict[str, Tensor]:
    """Return a copy of all state, that of a metric too, which its state dict leaves out."""
    if not isinstance(learner, Metric):
        return learners.snapshot(learner)
    listed = {name: value if isinstance(value, list) else [value] for name, value in learner.metric_state.items()}
    return {f"{name} {i}": torch.as_tensor(x).clone() for name, rows in listed.items() for i, x in enumerate(rows)}


def same_state(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    """Return whether states have the same bits, NaN included."""
    return one.keys() == other.keys() and all(
        a.dtype == b.dtype and a.shape == b.shape and a.numpy().tobytes() == b.numpy().tobytes()
        for a, b in zip(one.values(), other.values(), strict=True)
    )


def run(calls: int, seed: int = 0, say: Callable[[str], None] = print) -> Counter[str]:
    """Make so many calls, and count what they came to: "answered", "refused", "changed by a refusal", "foreign errors"."""
    fuzz, counts, made = Fuzz(seed), Counter[str](), makers()
    names = sorted(made)
    alive: dict[str, Any] = {}
    torch.manual_seed(seed)
    for number in range(calls):
        name = names[number % len(names)]
        if name not in alive or fuzz.random.random() < 0.1:
            alive[name] = made[name]()
        learner = alive[name]
        method = fuzz.random.choice(methods_of(learner))
        call = learner if method == "forward" else getattr(learner, method)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            positional, named = fuzz.arguments(getattr(learner, method), learner)
        said = f"{name}.{method}({', '.join(map(shown, positional))}{', ' if named else ''}{named or ''})"
        before = state_of(learner)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                call(*positional, **named)
        except (
            TypeError,
            ValueError,
            RuntimeError,
            IndexError,
            LookupError,
            AttributeError,
            NotImplementedError,
        ) as error:
            counts["refused"] += 1
            if not OWN.match(str(error)) or type(error) not in (TypeError, ValueError, RuntimeError):
                counts["foreign errors"] += 1
                say(f"{said}\n    {type(error).__name__}: {str(error)[:200]}")
            # An interrupted or failed step of a private learner counts as taken.
            if not isinstance(learner, PrivateLearner) and not same_state(before, state_of(learner)):
                counts["changed by a refusal"] += 1
                say(f"{said}\n    changed the state, {type(error).__name__}: {str(error)[:200]}")
        else:
            counts["answered"] += 1
    return counts


def shown(value: Any) -> str:
    """Return a short text of an argument."""
    if isinstance(value, Tensor | np.ndarray):
        return f"{type(value).__name__}{tuple(value.shape) if not getattr(value, 'is_nested', False) else ''}:{value.dtype}"
    return repr(value)[:40]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    counts = run(options.calls, options.seed)
    kinds = ("answered", "refused", "changed by a refusal", "foreign errors")
    print(
        f"{options.calls} calls of {len(makers())} learners and metrics: "
        + ", ".join(f"{counts[kind]} {kind}" for kind in kinds)
    )


if __name__ == "__main__":
    main()
