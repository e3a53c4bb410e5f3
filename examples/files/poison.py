"""Poisoned rounds: what an exported file learns from NaN, infinity and numbers out of range.

Each learner of the public API is exported, as a program and as TorchScript. Each file hears good rounds, and 500 poisoned ones
among them in a random order: NaN, infinity or a number too large to square in the features or the gradients, in the reward and in
the noise scale, a negative noise scale, an index of no arm, a reward that the learner's model does not have, arms of NaN, a mask
without an arm, and no arms at all. Then the file starts anew, and hears the good rounds alone. The table says in how many calls
the flags of the file were wrong, and whether the states are equal after both, bit for bit.

    python examples/files/poison.py            # about six minutes
    python examples/files/poison.py --quick    # two learners, 50 rounds
"""

import argparse
import inspect
import io
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

import torchonline
from torchonline import baselines
from torchonline.convex.learner import ConvexLearner
from torchonline.export import to_program, to_torchscript
from torchonline.export.verification import ConvexTrial, FixedTrial, PolicyTrial, trial_of
from torchonline.models import BanditHead
from torchonline.policies.rules import Rule
from torchonline.regression.estimator import Estimator

DIM, ARMS = 3, 4
# What constructors ask for.
ASKED: dict[str, Any] = {
    "dim": DIM,
    "experts": DIM,
    "horizon": 3000,
    "discount": 0.99,
    "feature_bound": 10.0,
    "lipschitz": 10.0,
    "rate": 0.02,
    "ranges": (1.0, 2.0, 4.0),
    "radius_bound": 0.5,
}
# Poisoned rounds to a good one.
GOOD = 8
BAD = (torch.nan, torch.inf, -torch.inf, 1e200)


class Call(NamedTuple):
    """What a file hears in a round, and what it should say."""

    past: tuple[Tensor, ...]
    scale: Tensor | None
    decision: tuple[Tensor, ...]
    is_learnt: bool
    is_possible: bool
    is_fixed: bool = False


def learners() -> Iterator[tuple[str, nn.Module, Tensor | None]]:
    """Yield all learners that can be exported, each with a name and, for a head, an example of its inputs."""
    for name in [*torchonline.__all__, *baselines.__all__]:
        cls = getattr(torchonline, name, None) or getattr(baselines, name)
        if not isinstance(cls, type) or not issubclass(cls, (Rule, ConvexLearner, Estimator)):
            continue
        asked = inspect.signature(cls).parameters
        # The estimators of the baselines have policies of their own.
        is_estimator = issubclass(cls, Estimator)
        if "estimator" in asked or "outputs" in asked or (is_estimator and name in baselines.__all__):
            continue
        needed = {key: ASKED[key] for key, value in asked.items() if value.default is inspect.Parameter.empty}
        if "feature_bound" in asked:
            needed["feature_bound"] = ASKED["feature_bound"]
        if is_estimator:
            yield f"UCB({name})", torchonline.UCB(cls(**needed)), None
        else:
            yield name, cls(**needed), None
    ridge = torchonline.RidgeRegression(DIM)
    yield "ThompsonSampling", torchonline.ThompsonSampling(ridge), None
    yield "EpsilonGreedy", torchonline.EpsilonGreedy(ridge), None
    yield "Softmax", torchonline.Softmax(ridge), None
    yield "SquareCB", torchonline.SquareCB(ridge), None
    yield "bandit", torchonline.bandit(DIM, rewards="binary", actions=ARMS), None
    yield "ScaledPolicy", torchonline.ScaledPolicy(torchonline.OFUL(DIM + 1), torchonline.StandardScaler(DIM)), None
    yield "DisjointArms", torchonline.DisjointArms(torchonline.LocalGLB(DIM, feature_bound=10.0), ARMS), None
    yield "RadiusSelector", torchonline.RadiusSelector(ridge, actions=ARMS), None
    yield "SharedRadiusSelector", torchonline.SharedRadiusSelector(ridge), None
    yield "FixedArms", torchonline.FixedArms(torchonline.OFUL(DIM), torch.eye(DIM)), None
    encoder, context = nn.Linear(5, DIM).double(), torch.ones(5, dtype=torch.float64)
    yield "BanditHead", BanditHead(encoder, torchonline.OFUL(DIM)), context.expand(ARMS, 5).clone()
    yield "BanditHead(actions=4)", BanditHead(encoder, torchonline.OFUL(DIM), actions=ARMS), context
    yield (
        "BanditHead(actions=embeddings)",
        BanditHead(encoder, torchonline.OFUL(DIM), actions=torch.ones(ARMS, DIM)),
        context,
    )
    scaler = torchonline.StandardScaler(5, intercept=False)
    yield "BanditHead(scaler=...)", BanditHead(encoder, torchonline.OFUL(DIM), actions=ARMS, scaler=scaler), context


def calls(module: Any, trial: Any, poisoned: int, seed: int = 0) -> list[Call]:
    """Return good rounds and poisoned ones, in a random order; the first is good."""
    random = torch.Generator().manual_seed(seed)

    def pick(choices: Any) -> Any:
        return choices[int(torch.randint(len(choices), (), generator=random))]

    good = list(good_rounds(module, trial))
    found = [good[t % len(good)] for t in range(poisoned // GOOD)]
    found += [poison(pick(good), trial, pick) for _ in range(poisoned)]
    order = torch.randperm(len(found) - 1, generator=random) + 1
    return [found[0], *(found[int(i)] for i in order)]


def good_rounds(module: Any, trial: Any) -> Iterator[Call]:
    """Yield rounds that a learner takes."""
    if isinstance(trial, ConvexTrial):
        for centre in trial.centres():
            point = torch.zeros(1, DIM, dtype=torch.float64).expand(module.points, DIM)
            yield Call(trial.past(point, centre), None, (), True, True)
    elif isinstance(trial, FixedTrial):
        for t, (mask, reward) in enumerate(trial.decisions()):
            past, scale = (torch.tensor(t % trial.count), reward), trial.estimator._own_scale(reward)
            yield Call(past, scale, (mask,), True, True, is_fixed=True)
    else:
        for t, decision in enumerate(trial.decisions()):
            action = torch.full(decision.mask.shape[:-1], t) % decision.mask.size(-1)
            past = trial.first(trial.past(decision, action))
            scale = trial.estimator._own_scale(past[-1])
            yield Call(past, scale, (decision.inputs, decision.mask), True, True)


def poison(call: Call, trial: Any, pick: Any) -> Call:
    """Return a round with poison in what is learnt, and now and then in what is decided."""
    kinds = [
        "reward",
        *(() if isinstance(trial, FixedTrial) else ("x",)),
        *(("scale",) if call.scale is not None else ()),
    ]
    if not isinstance(trial, ConvexTrial):
        kinds.append("action")
    if impossible(trial) is not None:
        kinds.append("impossible")
    past, scale, kind = list(call.past), call.scale, pick(kinds)
    if kind == "scale":
        scale = torch.full_like(past[-1], pick((*BAD, -1.0)))
    elif kind == "action":
        past[-2] = torch.full_like(past[-2], pick((-1, ARMS + 3, 1 << 40)))
    elif kind == "impossible":
        past[-1] = torch.full_like(past[-1], impossible(trial))
    else:
        # Convex learners that need no values get them all the same, and ignore them.
        i = 0 if kind == "x" or isinstance(trial, ConvexTrial) else len(past) - 1
        bad = past[i].clone()
        # Where each arm has inputs, a policy learns from those of the chosen arm alone.
        heard = bad[past[1]] if isinstance(trial, PolicyTrial) and trial.actions is None and i == 0 else bad
        heard.view(-1)[pick(range(heard.numel()))] = pick(BAD)
        past[i] = bad
    if not call.decision or pick((True, False)):
        return call._replace(past=tuple(past), scale=scale, is_learnt=False)
    *inputs, mask = call.decision
    if pick((True, False)) or not inputs:
        mask = torch.zeros_like(mask)
    elif pick((True, False)) or trial.actions is not None:
        inputs = [torch.full_like(inputs[0], pick(BAD))]
    else:
        inputs, mask = [inputs[0][:, :0]], mask[:, :0]
    return call._replace(past=tuple(past), scale=scale, decision=(*inputs, mask), is_learnt=False, is_possible=False)


def impossible(trial: Any) -> float | None:
    """Return a reward that the learner refuses, if there is any."""
    if isinstance(trial, ConvexTrial):
        return None
    tried = torch.tensor([2.0, -1.0], dtype=torch.float64)
    refused = tried[trial.estimator.possible_reward(tried) != tried]
    return float(refused[0]) if refused.numel() else None


def of_program(program: nn.Module, call: Call) -> tuple[bool, bool]:
    """Play a round with a program: whether it was learnt, and whether each decision was made."""
    scale = () if call.scale is None else (call.scale,)
    torch.manual_seed(0)
    *decided, learnt = program(*call.past, torch.tensor(True), *call.decision, *scale)
    return bool(learnt), bool((decided[0] >= 0).all()) if call.decision else call.is_possible


def of_script(script: Any, call: Call) -> tuple[bool, bool]:
    """The same for a TorchScript file."""
    scale = () if call.scale is None else (call.scale,)
    none = (None,) if call.is_fixed else ()  # in place of the inputs
    learnt = bool(script.step(*none, *call.past, *scale))
    if not call.decision:
        return learnt, call.is_possible
    torch.manual_seed(0)
    return learnt, bool((script.select(*none, *call.decision) >= 0).all())


def compare(file: Any, play: Any, rounds: list[Call]) -> tuple[int, bool]:
    """Return how many poisoned rounds a file has learnt or decided, and whether its state is that of the good rounds."""
    start = {name: value.clone() for name, value in file.named_buffers()}
    states, wrong = [], 0
    for heard in (rounds, [call for call in rounds if call.is_learnt]):
        for name, value in file.named_buffers():
            value.copy_(start[name])
        wrong += sum(play(file, call) != (call.is_learnt, call.is_possible) for call in heard)
        states.append({name: value.clone() for name, value in file.named_buffers()})
    same = all(torch.equal(value, states[1][name]) for name, value in states[0].items())
    # Good rounds are learnt indeed.
    return wrong, same and any(not torch.equal(value, start[name]) for name, value in states[0].items())


def files(module: Any, example: Tensor | None) -> dict[str, tuple[Any, Any]]:
    """Return the files of a learner, and how to play a round with each."""
    found: dict[str, tuple[Any, Any]] = {}
    parts = [part for part in module.modules() if hasattr(part, "is_scriptable")]
    if all(part.is_exportable and part.is_scriptable for part in parts):
        takes_scale = not isinstance(module, ConvexLearner)
        found["program"] = (to_program(module, example=example, noise_scale=takes_scale).module(), of_program)
    if all(part.is_scriptable for part in parts):
        file = io.BytesIO()
        torch.jit.save(to_torchscript(module, example=example), file)
        file.seek(0)
        found["TorchScript"] = (torch.jit.load(file), of_script)
    return found


def results(module: Any, example: Tensor | None, poisoned: int) -> tuple[str, str]:
    """Return what came of a learner's program and TorchScript file, in words."""
    rounds = calls(module, trial_of(module, example), poisoned)
    words = {"program": "none", "TorchScript": "none"}
    for kind, (file, play) in files(module, example).items():
        wrong, same = compare(file, play, rounds)
        words[kind] = f"{wrong} wrong, state {'equal' if same else 'DIFFERS'}"
    return words["program"], words["TorchScript"]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", "--smoke", action="store_true", help="two learners and 50 poisoned rounds")
    parser.add_argument("--only", help="the learners whose names hold this text")
    parser.add_argument("--output", type=Path, help="a folder for the table; none is written without it")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore", "`torch.jit", DeprecationWarning)
    start, poisoned = time.monotonic(), 50 if arguments.quick else 500
    found: dict[tuple[str, str], list[str]] = {}
    for name, module, example in learners():
        if arguments.quick and name not in ("OFUL", "FreeGrad"):
            continue
        if arguments.only and arguments.only not in name:
            continue
        words = results(module, example, poisoned)
        found.setdefault(words, []).append(name)
        print(f"{name}: {'; '.join(words)}", file=sys.stderr, flush=True)
    title = f"{poisoned} poisoned rounds among {poisoned // GOOD} good ones, for each file"
    lines = [f"| {title} | program | TorchScript |", "|---|---|---|"]
    lines += [f"| {', '.join(f'`{name}`' for name in names)} | {' | '.join(words)} |" for words, names in found.items()]
    print("\n".join(lines))
    print(f"{time.monotonic() - start:.0f} s")
    if arguments.output is not None:
        arguments.output.mkdir(parents=True, exist_ok=True)
        (arguments.output / "poison.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
