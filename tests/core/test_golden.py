"""States that earlier versions wrote load for ever: golden files, written by tests/golden.py and never again."""

import gzip
import inspect
import io
from pathlib import Path
from typing import Any

import pytest
import torch

import torchonline
from tests import golden
from torchonline import ParameterFree, baselines
from torchonline.privacy import PrivateLearner

pytestmark = pytest.mark.fast

FILES = {f"{path.parent.name}/{path.name}": entries for path, entries in golden.files()}
# Rounding differs between processors and versions of torch. Some radii and widths come from iterations.
CLOSE = {"rtol": 1e-7, "atol": 1e-9}


def check(name: str, learner: Any, wanted: dict[str, Any], when: str) -> None:
    """Compare what a learner says with what it said."""
    found = golden.said(learner)
    assert set(found) >= set(wanted), name
    for key, value in wanted.items():
        if key == "chosen" and wanted["scores"].topk(2, -1).values.diff().abs().min() < 1e-7:
            continue  # rounding decides between equal scores
        message = f"{name}, {key}, {when}"
        torch.testing.assert_close(found[key], value, **CLOSE, msg=lambda text, m=message: f"{m}: {text}")


@pytest.mark.parametrize("file", FILES)
def test_states_load_and_learners_go_on(file: str) -> None:
    for name, entry in FILES[file].items():
        if name == "ParameterFree":
            continue
        learner = golden.build(name, entry["options"])
        learner.load_state_dict(entry["state"])
        check(name, learner, entry["said"], "loaded")
        golden.learn(learner, entry["next"])
        if entry["next"]:
            check(name, learner, entry["said_next"], "two rounds later")


def test_an_optimizer_goes_on() -> None:
    for entries in FILES.values():
        if entry := entries.get("ParameterFree"):
            layer, optimizer = golden.optimizer()
            layer.load_state_dict(entry["layer"])
            optimizer.load_state_dict(entry["state"])
            golden.fit(layer, optimizer, 6)
            torch.testing.assert_close(layer.weight.detach(), entry["said_next"]["weight"], **CLOSE)


def test_a_torchscript_file_loads_and_goes_on() -> None:
    """It says what the eager policy says, which learnt the same rounds from the start."""
    for path in sorted(golden.FOLDER.glob("*/*.torchscript.gz")):
        former = path.name.partition(".")[0]
        name = golden.FORMER_NAMES.get(former, former)
        file = torch.jit.load(io.BytesIO(gzip.decompress(path.read_bytes())))
        policy = golden.build(name, FILES[f"{path.parent.name}/bandits.pt.gz"][name]["options"])
        rounds = golden.rounds_of(policy, name)
        golden.learn(policy, rounds)
        for arms, k, reward in rounds[golden.ROUNDS :]:
            # Under its former name, it learns from the chosen arm's features.
            file.step(*((arms[0], reward) if name != former else (arms, k, reward)))
        arms = golden.numbers(4, golden.ARMS, golden.DIM)
        torch.testing.assert_close(file(arms), policy(arms), **CLOSE)
        assert torch.equal(file.select(arms), policy.select(arms))


def test_every_public_learner_has_a_golden_state() -> None:
    """``python tests/golden.py`` adds those that are missing."""
    have = {name for entries in FILES.values() for name in entries}
    wanted = {*golden.classes(), *golden.COMPOSED, "ParameterFree"}
    assert wanted <= have
    public = {name for package in (torchonline, baselines) for name in package.__all__}
    classes = {name: getattr(torchonline, name, None) or getattr(baselines, name) for name in public}
    states = {name for name, value in classes.items() if inspect.isclass(value) and hasattr(value, "load_state_dict")}
    # Policies over any estimator have no state of their own.
    over_any = {name for name in states if "estimator" in inspect.signature(classes[name]).parameters}
    links = {name for name in states if issubclass(classes[name], torchonline.links.Link)}
    assert states - over_any - links <= have | {"ParameterFree"}
    assert issubclass(classes["ParameterFree"], ParameterFree)


def test_private_states_are_loads_of_their_ledger() -> None:
    """A private learner that goes on from a file says so: its privacy is spent anew."""
    entry = FILES["0.1/private.pt.gz"]["DPTOFW"]
    learner = golden.build("DPTOFW", entry["options"])
    assert isinstance(learner, PrivateLearner)
    learner.load_state_dict(entry["state"])
    assert learner.privacy_spent(1e-3) > 0.0


def test_golden_files_are_small() -> None:
    """And are not written again."""
    paths = [path for path in golden.FOLDER.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in paths) < 300_000
    with pytest.raises(FileExistsError, match="stay as they are"):
        golden.write(Path(paths[0]), {})
