"""Play learners in every kind of file, beside the learner in Python.

Each file plays the same rounds, one decision and one step at a time. Twenty rounds are poisoned: features or rewards are NaN,
infinite or too large. The first table says where the choices of a file are those of the learner, and where a kind of file refuses
it. The second says how long a round takes, beside the learner in Python::

    python examples/files/matrix.py

With ``--smoke`` it plays two learners in three kinds of files.
"""

import argparse
import statistics
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

import torchonline
from torchonline import OFUL, AnytimeHeavyTailUCB, FixedArms, HybridArms, LocalGLB, RidgeRegression
from torchonline.export import Runner, compile_program, to_archive, to_executorch, to_onnx, to_torchscript
from torchonline.models import BanditHead

ROUNDS, POISONED, DIM, ARMS = 220, 20, 4, 3
SOURCE = Path(__file__).with_name("package.cpp")
DOUBLE = torch.float64


class Played(NamedTuple):
    """Choices of a learner or a file.

    Attributes:
        choices: the choice of each round, and whether the round was learnt.
        seconds: median time of a choice and a step, if it was taken.
    """

    choices: list[tuple[int, bool]]
    seconds: float | None = None


def encoder() -> torch.nn.Module:
    """Return a small encoder with fixed weights."""
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(DIM, 8), torch.nn.Tanh(), torch.nn.Linear(8, DIM))


def fixed() -> FixedArms:
    """Return fixed arms."""
    arms = torch.randn(ARMS, DIM, generator=torch.Generator().manual_seed(0))
    return FixedArms(RidgeRegression(DIM), arms)


LEARNERS: dict[str, tuple[Callable[[], Any], str]] = {
    "`OFUL(4)`": (lambda: OFUL(DIM), "arms"),
    "`AnytimeHeavyTailUCB(4)`": (lambda: AnytimeHeavyTailUCB(DIM), "arms"),
    "`LocalGLB(4)`": (lambda: LocalGLB(DIM, theta_bound=1.0, feature_bound=10.0), "arms"),
    "`bandit(4)`": (lambda: torchonline.bandit(DIM), "arms"),
    "`bandit(4, actions=3)`": (lambda: torchonline.bandit(DIM, actions=ARMS), "context"),
    "`FixedArms`": (fixed, "nothing"),
    "`BanditHead`": (lambda: BanditHead(encoder(), torchonline.bandit(DIM, actions=ARMS, scale=False)), "context"),
    "`HybridArms`": (lambda: HybridArms(RidgeRegression(DIM), ARMS), "context"),
}


def rounds_for(kind: str, dtype: torch.dtype) -> tuple[dict[str, Tensor], Tensor]:
    """Return inputs and rewards of the rounds, and which are poisoned."""
    generator = torch.Generator().manual_seed(1)
    shape = (ROUNDS, ARMS, DIM) if kind == "arms" else (ROUNDS, DIM)
    inputs = torch.randn(shape, generator=generator, dtype=DOUBLE)
    theta = torch.randn((ARMS, DIM), generator=generator, dtype=DOUBLE)
    signal = (inputs * theta[0]).sum(-1) if kind == "arms" else inputs @ theta.T
    rewards = (signal + torch.randn(signal.shape, generator=generator, dtype=DOUBLE) > 0.0).to(DOUBLE)
    places = torch.randperm(ROUNDS, generator=generator)[:POISONED]
    for number, place in enumerate(places.tolist()):
        value = (torch.nan, torch.inf, 1e200)[number % 3]
        if kind != "nothing" and number % 2:
            inputs[place] = value
        else:
            rewards[place] = value
    found = {"rewards": rewards} | ({} if kind == "nothing" else {"inputs": inputs.to(dtype)})
    return found, torch.zeros(ROUNDS, dtype=torch.bool).index_fill_(0, places, True)


def by_learner(policy: Any, rounds: dict[str, Tensor], poisoned: Tensor) -> Played:
    """Play the learner in Python, but no poisoned step."""
    found, seconds = [], []
    for t, rewards in enumerate(rounds["rewards"]):
        inputs = rounds["inputs"][t] if "inputs" in rounds else None
        can_choose = inputs is None or not poisoned[t] or bool((inputs.abs() < 1e30).all())
        start = time.perf_counter()
        k = policy.select(inputs) if can_choose else torch.tensor(-1)
        if not poisoned[t]:
            policy.step(inputs, k, rewards[k])
            seconds.append(time.perf_counter() - start)
        found.append((int(k), not bool(poisoned[t])))
    return Played(found, statistics.median(seconds))


def by_file(policy: Any, rounds: dict[str, Tensor]) -> Played:
    """Play a file."""
    found, seconds = [], []
    for t, rewards in enumerate(rounds["rewards"]):
        inputs = rounds["inputs"][t] if "inputs" in rounds else None
        start = time.perf_counter()
        k = policy.select(inputs, None)
        action = k.clamp(min=0)
        learnt = policy.step(inputs, action, rewards[action])
        seconds.append(time.perf_counter() - start)
        found.append((int(k), bool(learnt)))
    return Played(found, statistics.median(seconds))


def in_cpp(package: Path, rounds: dict[str, Tensor], folder: Path) -> Played:
    """Play a compiled archive by a C++ program."""
    program, data = folder / "package", folder / "rounds.pt"
    if not program.exists():
        torch_at = Path(torch.__file__).parent
        command = ["g++", "-std=c++20", "-O0", f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}"]
        command += [f"-I{torch_at}/include", f"-I{torch_at}/include/torch/csrc/api/include", str(SOURCE)]
        command += ["-o", str(program), f"-L{torch_at}/lib", "-ltorch", "-ltorch_cpu", "-lc10"]
        subprocess.run([*command, f"-Wl,-rpath,{torch_at}/lib"], check=True)
    torch.save(rounds, data)
    done = subprocess.run([str(program), str(package), str(data)], check=True, capture_output=True, text=True)
    return Played([(int(k), learnt == "1") for k, learnt in map(str.split, done.stdout.splitlines())])


def kinds_of(policy: Any, example: Tensor | None, folder: Path) -> dict[str, Callable[[Any], Played]]:
    """Return functions that play rounds in each kind of file."""
    package = folder / "compiled.pt2"
    options: dict[str, Any] = {"example": example if policy.has_encoder else None}

    def compiled() -> Any:
        return compile_program(to_archive(policy, **options), package)

    def onnx() -> Any:
        to_onnx(policy, folder / "onnx", **options)
        return Runner.load(folder / "onnx")

    def archive() -> Any:
        to_archive(policy, folder / "archive.pt2", **options)
        return Runner.load(folder / "archive.pt2")

    def executorch() -> Any:
        return to_executorch(policy, folder / "policy.pte", most_decisions=3, most_arms=5, **options)

    return {
        "TorchScript": lambda rounds: by_file(to_torchscript(policy, **options), rounds),
        "archive": lambda rounds: by_file(archive(), rounds),
        "ONNX": lambda rounds: by_file(onnx(), rounds),
        "ExecuTorch": lambda rounds: by_file(executorch(), rounds),
        "compiled": lambda rounds: by_file(compiled(), rounds),
        "compiled, in C++": lambda rounds: in_cpp(package, rounds, folder.parent),
    }


def cells(
    play: Callable[[Any], Played], learner: Callable[[], Any], rounds: dict[str, Tensor], poisoned: Tensor
) -> tuple[str, str]:
    """Return how a file's rounds compare to those of the learner in Python, and how long they take."""
    try:
        found = play(rounds)
    except ValueError as error:
        return f"refused: {error}", ""
    # At the same time, because machines change their speed.
    wanted = [by_learner(learner(), rounds, poisoned) for _ in range(3)]
    wrong = sum(one != other for one, other in zip(wanted[0].choices, found.choices, strict=True))
    equal = "equal" if wrong == 0 else f"{wrong} of {len(found.choices)} differ"
    if found.seconds is None:
        return equal, ""
    ratio = found.seconds / statistics.median(each.seconds for each in wanted)
    return equal, f"{ratio:.0f}" if ratio >= 10.0 else f"{ratio:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="play two learners in three kinds of files")
    parser.add_argument("--output", type=Path, default=Path("outputs"), help="not used: the table is printed")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", DeprecationWarning)
    names = ["`OFUL(4)`", "`bandit(4, actions=3)`"] if arguments.smoke else list(LEARNERS)
    tables: tuple[list[str], list[str]] = ([], [])
    with tempfile.TemporaryDirectory() as place:
        for number, name in enumerate(names):
            make, kind = LEARNERS[name]
            policy, folder = make(), Path(place, str(number))
            folder.mkdir()
            rounds, poisoned = rounds_for(kind, torch.float32 if policy.has_encoder else DOUBLE)
            kinds = kinds_of(policy, rounds["inputs"][0] if "inputs" in rounds else None, folder)
            kinds = dict(list(kinds.items())[:3]) if arguments.smoke else kinds
            found = [cells(play, make, rounds, poisoned) for play in kinds.values()]
            for table, row in zip(tables, zip(*found, strict=True), strict=True):
                table.append("| " + " | ".join([name, *row]) + " |")
            print(tables[0][-1], flush=True)
    for title, table in zip(("Choices", "Time of a round, in rounds of the learner in Python"), tables, strict=True):
        print(f"\n{title}\n\n| learner | {' | '.join(kinds)} |\n{'|---' * (1 + len(kinds))}|", *table, sep="\n")


if __name__ == "__main__":
    main()
