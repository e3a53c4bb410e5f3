"""A trial of the sweep is killed with signal 9, goes on from its checkpoint, and ends in the bits of a trial that ran through."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.docs.script_modules import EXAMPLES, script_modules
from tests.fake_device import environment

FOLDER = EXAMPLES / "distributed"
ROUNDS, EVERY = 30, 10
LEARNERS = ("UCB", "Thompson", "heavy-tailed UCB")
ONE_TRIAL = (
    f"import pathlib, sweep; path = pathlib.Path('.'); setting = sweep.Setting({{}}); arguments = {ROUNDS}, {EVERY}"
)


@pytest.fixture(scope="module")
def sweep() -> Iterator[Any]:
    with script_modules("distributed", "sweep") as modules:
        yield modules.sweep


def setting_of(learner: str) -> tuple[str, float, float, int]:
    return learner, 0.1, 1.0, 3


def python(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python in a folder, with the module ``sweep`` at hand."""
    found = environment()
    found["PYTHONPATH"] += os.pathsep + str(FOLDER)
    return subprocess.run([sys.executable, *arguments], cwd=folder, env=found, capture_output=True, text=True)


def run_and_die(folder: Path, learner: str, code: str) -> None:
    """Begin a trial in a process that kills itself."""
    done = python(folder, "-c", "; ".join([ONE_TRIAL.format(", ".join(map(repr, setting_of(learner)))), code]))
    assert done.returncode == -signal.SIGKILL, done.stderr[-2000:]


def checkpoint(folder: Path) -> dict[str, Any]:
    (path,) = folder.glob("*.pt")
    return torch.load(path, weights_only=True)


def without_time(state: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in state.items() if name != "seconds"}


def assert_goes_on(sweep: Any, folder: Path, learner: str, position: int) -> None:
    """Check that a trial goes on from a position, to the same bits as a trial in another folder that runs through."""
    setting, other = sweep.Setting(*setting_of(learner)), folder / "other"
    other.mkdir()
    assert checkpoint(folder)["rounds"] == position
    whole = sweep.run_trial(setting, other, ROUNDS, EVERY)
    resumed = sweep.run_trial(setting, folder, ROUNDS, EVERY)
    assert (whole["start"], resumed["start"]) == (0, position)
    assert resumed["digest"] == whole["digest"]
    assert torch.equal(resumed["regret"], whole["regret"])
    states = without_time(checkpoint(folder)), without_time(checkpoint(other))
    torch.testing.assert_close(*states, rtol=0.0, atol=0.0)


def test_the_learners_are_those_of_the_sweep(sweep: Any) -> None:
    assert set(LEARNERS) == set(sweep.LEARNERS)


@pytest.mark.parametrize("learner", LEARNERS)
def test_a_trial_that_was_killed_goes_on(sweep: Any, learner: str, tmp_path: Path) -> None:
    run_and_die(tmp_path, learner, "sweep.run_trial(setting, path, *arguments, kill_at=25)")
    assert_goes_on(sweep, tmp_path, learner, 20)


# The second checkpoint is written but has no name yet.
DIE_AT_THE_SECOND = """
replace, calls = sweep.os.replace, []
def dies(*names):
    calls.append(names)
    if len(calls) == 2:
        sweep.os.kill(sweep.os.getpid(), 9)
    replace(*names)
sweep.os.replace = dies
sweep.run_trial(setting, path, *arguments)
"""


def test_a_kill_while_a_checkpoint_is_written_leaves_the_last_one(sweep: Any, tmp_path: Path) -> None:
    run_and_die(tmp_path, "Thompson", DIE_AT_THE_SECOND)
    assert len(list(tmp_path.glob("*.part"))) == 1
    assert_goes_on(sweep, tmp_path, "Thompson", 10)


def test_a_checkpoint_is_on_the_disk_before_it_has_its_name(
    sweep: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    def noted(name: str) -> None:
        real = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *arguments: (seen.append(name), real(*arguments))[1])

    noted("fsync")
    noted("replace")
    sweep.save({"rounds": 3}, tmp_path / "state.pt")
    assert seen == ["fsync", "replace"]
    assert [path.name for path in tmp_path.iterdir()] == ["state.pt"]
    assert torch.load(tmp_path / "state.pt", weights_only=True) == {"rounds": 3}


def test_a_finished_trial_is_not_played_again_and_a_longer_one_goes_on(sweep: Any, tmp_path: Path) -> None:
    setting = sweep.Setting(*setting_of("Thompson"))
    first = sweep.run_trial(setting, tmp_path, 15, EVERY)
    again = sweep.run_trial(setting, tmp_path, 15, EVERY)
    assert (again["start"], again["digest"], again["rate"]) == (15, first["digest"], first["rate"])
    assert_goes_on(sweep, tmp_path, "Thompson", 15)
    with pytest.raises(ValueError, match=r"^rounds: expected at least 30, the position of .*, got 15"):
        sweep.run_trial(setting, tmp_path, 15, EVERY)


def test_settings_meet_the_same_images_and_noise(sweep: Any, tmp_path: Path) -> None:
    for learner in ("UCB", "heavy-tailed UCB"):
        (tmp_path / learner).mkdir()
        sweep.run_trial(sweep.Setting(*setting_of(learner)), tmp_path / learner, EVERY, EVERY)
    first, second = (checkpoint(tmp_path / learner)["generator"] for learner in ("UCB", "heavy-tailed UCB"))
    assert torch.equal(first, second)


def test_the_script_dies_and_goes_on(sweep: Any, tmp_path: Path) -> None:
    """Without Ray the script plays the trials in its own process, and a second run finds what the first has written."""
    script = [str(FOLDER / "sweep.py"), "--no-ray", "--rounds", "12", "--every", "5", "--seeds", "2", "--output", "."]
    assert python(tmp_path, *script, "--kill-at", "7").returncode == -signal.SIGKILL
    assert [path.name for path in (tmp_path / "sweep").iterdir()] == ["UCB_0.03_1.0_2.pt"]
    done = python(tmp_path, *script)
    assert done.returncode == 0, done.stderr[-2000:]
    whole = sweep.run_trial(sweep.Setting("UCB", 0.03, 1.0, 2), tmp_path, 12, 5)
    assert re.search(
        rf"\| UCB \| 0\.03 \| 1 \| {whole['regret'].mean():.1f} \|.* \| 5 \| {whole['digest']} \|", done.stdout
    )
    assert len(re.findall(r"\| \w{12} \|\n", done.stdout)) == 18


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--rounds", "0"], "expected --rounds, --every >= 1"),
        (["--seeds", "1"], "--seeds >= 2, got 1500, 300 and 1"),
        (["--kill-at", "299"], "--kill-at: expected at least --every, which is 300, got 299"),
    ],
)
def test_bad_options_are_refused(sweep: Any, arguments: list[str], said: str, monkeypatch, capsys) -> None:
    monkeypatch.setattr(sys, "argv", ["sweep.py", *arguments])
    with pytest.raises(SystemExit):
        sweep.main()
    assert said in capsys.readouterr().err


RAY_TRIALS = f"""
import pathlib, sweep
settings = [sweep.Setting(name, 0.1, 1.0, 3) for name in ("UCB", "Thompson")]
for found in sweep.run_trials(settings, True, pathlib.Path(".").resolve(), {ROUNDS}, {EVERY}, 25):
    print("found", found["start"], found["digest"])
"""


@pytest.mark.ray
def test_ray_starts_tasks_again_whose_workers_were_killed(sweep: Any, tmp_path: Path) -> None:
    """Run with ``pytest -m ray``: Ray gives up if it has not started within 30 seconds, as happens on a busy machine."""
    pytest.importorskip("ray")
    done = python(tmp_path, "-c", RAY_TRIALS)
    assert done.returncode == 0, done.stderr[-2000:]
    (tmp_path / "other").mkdir()
    whole = [
        sweep.run_trial(sweep.Setting(name, 0.1, 1.0, 3), tmp_path / "other", ROUNDS, EVERY)
        for name in ("UCB", "Thompson")
    ]
    found = re.findall(r"found (\d+) (\w+)", done.stdout)
    assert found == [("20", trial["digest"]) for trial in whole]
