"""Sweep over the options of a bandit, as Ray tasks that survive the death of a worker.

A trial is a setting: a learner, its radius_scale and its ridge. It plays a batch of seeds at once, and writes a checkpoint every
few rounds: policy, regret, position and the states of both random generators. Each trial is a plain Ray task. If its worker dies,
Ray starts the task again, and the trial goes on from its checkpoint, to the same bits. If the script dies, start it again.

The bandit guesses the digits of images. A guess pays 1 or 0, plus Student-t noise. All settings meet the same images and noise.
The script prints a row for each setting. The regret is the number of wrong guesses: its mean over the seeds, and the standard
error of the mean. The rounds per second are of processor time. The last attempt began at the round "began at". The digest is of
the final state: equal digests mean equal bits.

    pip install ".[examples,ray]"               # without ray, the trials run one after another
    python examples/distributed/sweep.py                # minutes
    python examples/distributed/sweep.py --kill-at 700  # the same, and each trial's process is killed once with signal 9
"""

import argparse
import hashlib
import importlib.util
import math
import os
import signal
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import torch

from torchonline import UCB, DisjointArms, HeavyTailRegression, RidgeRegression, ThompsonSampling
from torchonline.datasets import digits
from torchonline.environments import StudentT

NOISE, ARMS = StudentT(2.1, scale=0.1), 10
LEARNERS = {
    "UCB": (UCB, RidgeRegression),
    "Thompson": (partial(ThompsonSampling, scale="theorem"), RidgeRegression),
    "heavy-tailed UCB": (UCB, HeavyTailRegression),
}
RADIUS_SCALES, RIDGES = (0.03, 0.1, 0.3), (1.0, 10.0)


class Setting(NamedTuple):
    """What a trial tries."""

    learner: str
    radius_scale: float
    ridge: float
    seeds: int


class Trial:
    """A batch of seeds that plays one setting. Put your own policy and round here."""

    def __init__(self, setting: Setting) -> None:
        torch.manual_seed(0)  # of the policy's draws
        self.generator = torch.Generator().manual_seed(0)  # of the images and the noise
        self.images, self.labels = digits()[1].tensors
        policy, estimator = LEARNERS[setting.learner]
        options = {"noise_scale": NOISE.moment_norm(2.0), "radius_scale": setting.radius_scale, "ridge": setting.ridge}
        self.policy = DisjointArms(policy(estimator(64, batch_shape=(setting.seeds,), **options)), ARMS)
        self.regret = torch.zeros(setting.seeds, dtype=torch.float64)
        self.rounds, self.seconds = 0, 0.0

    def play_round(self) -> None:
        """Play one round of all seeds."""
        rows = torch.randint(len(self.labels), self.regret.shape, generator=self.generator)
        arm = self.policy.select(self.images[rows])
        mean = (arm == self.labels[rows]).double()
        self.policy.step(self.images[rows], arm, mean + NOISE.sample(mean.shape, self.generator))
        self.regret += 1.0 - mean
        self.rounds += 1

    def state(self) -> dict[str, Any]:
        """Return all that changes from round to round."""
        own = {name: getattr(self, name) for name in ("rounds", "seconds", "regret")}
        generators = {"generator": self.generator.get_state(), "torch": torch.get_rng_state()}
        return {**own, **generators, "policy": self.policy.state_dict()}

    def load(self, state: dict[str, Any]) -> None:
        """Go on from a state of the same setting."""
        self.policy.load_state_dict(state["policy"])
        self.rounds, self.seconds, self.regret = state["rounds"], state["seconds"], state["regret"]
        self.generator.set_state(state["generator"])
        torch.set_rng_state(state["torch"])

    def digest(self) -> str:
        """Return a hash of the policy, the regret and the generators."""
        found, state = hashlib.sha256(), self.state()
        for x in (*state["policy"].values(), state["regret"], state["generator"], state["torch"]):
            found.update(x.numpy().tobytes())
        return found.hexdigest()[:12]


def save(state: dict[str, Any], path: Path) -> None:
    """Replace a file in one step: it holds the old state or the new one, whenever the process dies.

    A process that is killed in between leaves a file that ends with .part, which nobody reads.
    """
    with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".part", delete=False) as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(file.name, path)


def run_trial(setting: Setting, folder: Path, rounds: int, every: int, kill_at: int | None = None) -> dict[str, Any]:
    """Play a trial to its end, from its checkpoint if there is one, and return its results.

    A process that did not begin from a checkpoint kills itself before round ``kill_at``, to show what happens then.
    """
    torch.set_num_threads(1)
    trial, path = Trial(setting), folder / f"{'_'.join(map(str, setting))}.pt"
    if path.exists():
        trial.load(torch.load(path, weights_only=True))
    start = trial.rounds
    if start > rounds:
        raise ValueError(f"rounds: expected at least {start}, the position of {path}, got {rounds}")
    while trial.rounds < rounds:
        if start == 0 and trial.rounds == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        before = time.process_time()
        trial.play_round()
        trial.seconds += time.process_time() - before
        if trial.rounds % every == 0 or trial.rounds == rounds:
            save(trial.state(), path)
    return {"regret": trial.regret, "rate": rounds / trial.seconds, "start": start, "digest": trial.digest()}


def run_trials(settings: list[Setting], use_ray: bool, *arguments: Any) -> Iterator[dict[str, Any]]:
    """Yield the results of each setting, in order."""
    if not use_ray:
        yield from (run_trial(setting, *arguments) for setting in settings)
        return
    import ray

    ray.init()
    # Ray starts a task again whose worker has died, but not a task that has raised an error.
    task = ray.remote(num_cpus=1, max_retries=3)(run_trial)
    yield from map(ray.get, [task.remote(setting, *arguments) for setting in settings])
    ray.shutdown()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=1500)
    parser.add_argument("--seeds", type=int, default=16, help="seeds of a trial, at least 2")
    parser.add_argument("--every", type=int, default=300, help="rounds from one checkpoint to the next")
    parser.add_argument("--kill-at", type=int, help="kill each trial once, after so many rounds")
    parser.add_argument("--no-ray", action="store_true", help="run one trial after another in this process")
    parser.add_argument("--output", type=Path, default=Path("outputs"), help="the checkpoints are in its folder sweep")
    parser.add_argument("--smoke", action="store_true", help="a few rounds without Ray, to see that it runs")
    options = parser.parse_args()
    rounds, every, seeds = (20, 8, 2) if options.smoke else (options.rounds, options.every, options.seeds)
    if min(rounds, every, seeds - 1) < 1:
        parser.error(f"expected --rounds, --every >= 1 and --seeds >= 2, got {rounds}, {every} and {seeds}")
    if options.kill_at is not None and options.kill_at < every:
        parser.error(f"--kill-at: expected at least --every, which is {every}, got {options.kill_at}")
    folder = (options.output / "sweep").resolve()
    folder.mkdir(parents=True, exist_ok=True)
    use_ray = not (options.no_ray or options.smoke) and importlib.util.find_spec("ray") is not None

    print(f"{rounds} rounds, {seeds} seeds, {'Ray tasks' if use_ray else 'one trial after another'}\n")
    print("| learner | radius_scale | ridge | mean regret | standard error | rounds/s | began at | digest |")
    print("|---|---|---|---|---|---|---|---|")
    settings = [Setting(*values, seeds) for values in product(LEARNERS, RADIUS_SCALES, RIDGES)]
    results = run_trials(settings, use_ray, folder, rounds, every, options.kill_at)
    for setting, found in zip(settings, results, strict=True):
        regret, error = found["regret"].mean(), found["regret"].std() / math.sqrt(seeds)
        numbers = f"{regret:.1f} | {error:.1f} | {found['rate']:.0f} | {found['start']} | {found['digest']}"
        print(f"| {setting.learner} | {setting.radius_scale:g} | {setting.ridge:g} | {numbers} |", flush=True)


if __name__ == "__main__":
    main()
