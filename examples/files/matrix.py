"""Play learners in every kind of file, beside the learner in Python.

Each file plays the same rounds, one decision and one step at a time. Twenty rounds are poisoned: features or rewards are NaN,
infinite or too large. The table says where the choices of a file are those of the learner, and where a kind of file refuses it::

    python examples/files/matrix.py

With ``--smoke`` it plays two learners in three kinds of files.
"""

import argparse
import subprocess
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import torchonline
from torchonline import OFUL, AnytimeHeavyTailUCB, FixedArms, HybridArms, LocalGLB, RidgeRegression
from torchonline.export import Runner, compile_program, to_archive, to_executorch, to_onnx, to_torchscript
from torchonline.models import BanditHead

ROUNDS, POISONED, DIM, ARMS = 220, 20, 4, 3
SOURCE = Path(__file__).with_name("package.cpp")
DOUBLE = torch.float64


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


def choices_of(policy: Any, rounds: dict[str, Tensor], poisoned: Tensor) -> list[tuple[int, bool]]:
    """Return what the learner in Python chooses, and whether each round is learnt."""
    found = []
    for t, rewards in enumerate(rounds["rewards"]):
        inputs = rounds["inputs"][t] if "inputs" in rounds else None
        can_choose = inputs is None or not poisoned[t] or bool((inputs.abs() < 1e30).all())
        k = int(policy.select(inputs)) if can_choose else -1
        if not poisoned[t]:
            policy.step(inputs, k, float(rewards[k]))
        found.append((k, not bool(poisoned[t])))
    return found


def played(policy: Any, rounds: dict[str, Tensor]) -> list[tuple[int, bool]]:
    """Return what a file chooses, and whether it learns each round."""
    found = []
    for t, rewards in enumerate(rounds["rewards"]):
        inputs = rounds["inputs"][t] if "inputs" in rounds else None
        k = policy.select(inputs, None)
        action = k.clamp(min=0)
        found.append((int(k), bool(policy.step(inputs, action, rewards[action]))))
    return found


def in_cpp(package: Path, rounds: dict[str, Tensor], folder: Path) -> list[tuple[int, bool]]:
    """Return what a C++ program chooses with a compiled archive."""
    program, data = folder / "package", folder / "rounds.pt"
    if not program.exists():
        torch_at = Path(torch.__file__).parent
        command = ["g++", "-std=c++20", "-O0", f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}"]
        command += [f"-I{torch_at}/include", f"-I{torch_at}/include/torch/csrc/api/include", str(SOURCE)]
        command += ["-o", str(program), f"-L{torch_at}/lib", "-ltorch", "-ltorch_cpu", "-lc10"]
        subprocess.run([*command, f"-Wl,-rpath,{torch_at}/lib"], check=True)
    torch.save(rounds, data)
    done = subprocess.run([str(program), str(package), str(data)], check=True, capture_output=True, text=True)
    return [(int(k), learnt == "1") for k, learnt in map(str.split, done.stdout.splitlines())]


def kinds_of(policy: Any, example: Tensor | None, folder: Path) -> dict[str, Callable[[Any], Any]]:
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
        "TorchScript": lambda rounds: played(to_torchscript(policy, **options), rounds),
        "archive": lambda rounds: played(archive(), rounds),
        "ONNX": lambda rounds: played(onnx(), rounds),
        "ExecuTorch": lambda rounds: played(executorch(), rounds),
        "compiled": lambda rounds: played(compiled(), rounds),
        "compiled, in C++": lambda rounds: in_cpp(package, rounds, folder.parent),
    }


def cell(play: Callable[[Any], Any], rounds: dict[str, Tensor], wanted: list[tuple[int, bool]]) -> str:
    """Return how a file's rounds compare to those of the learner in Python."""
    try:
        found = play(rounds)
    except ValueError as error:
        return f"refused: {error}"
    wrong = sum(one != other for one, other in zip(wanted, found, strict=True))
    return "equal" if wrong == 0 else f"{wrong} of {len(wanted)} differ"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="play two learners in three kinds of files")
    parser.add_argument("--output", type=Path, default=Path("outputs"), help="not used: the table is printed")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", DeprecationWarning)
    names = ["`OFUL(4)`", "`bandit(4, actions=3)`"] if arguments.smoke else list(LEARNERS)
    header = False
    with tempfile.TemporaryDirectory() as place:
        for number, name in enumerate(names):
            make, kind = LEARNERS[name]
            policy, folder = make(), Path(place, str(number))
            folder.mkdir()
            rounds, poisoned = rounds_for(kind, torch.float32 if policy.has_encoder else DOUBLE)
            example = rounds["inputs"][0] if "inputs" in rounds else None
            kinds = kinds_of(policy, example, folder)
            kinds = dict(list(kinds.items())[:3]) if arguments.smoke else kinds
            if not header:
                print("| learner |", " | ".join(kinds), "|")
                print("|---" * (1 + len(kinds)) + "|")
                header = True
            wanted = choices_of(make(), rounds, poisoned)
            print("|", " | ".join([name, *(cell(play, rounds, wanted) for play in kinds.values())]), "|", flush=True)


if __name__ == "__main__":
    main()
