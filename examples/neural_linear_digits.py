"""Bandit head on a trained encoder, from training to a served file.

A small encoder is trained on 300 labelled digits and frozen. Then digits come without labels. In each round the head sees an
image and guesses the digit. It observes only a reward: 1 or 0 plus Student-t noise with 2.1 degrees of freedom, whose
standard deviation is twice the gap between right and wrong. The stream passes through all images in random order, again and
again, for 5000 rounds. There are 5 seeds at once, each with its own order and noise.

The score of a guess is bilinear. The features of an arm are the entrywise product of the image's encoding and the arm's
class weights from the training. The head learns the worth of each entry: dimension 8 for all arms together instead of 8 for
each.

The script prints regret, accuracy and time of several heads. It writes the regret curves as PNG, TensorBoard logs, and the
head as TorchScript and as a torch.export program. Then it loads both files in a new process where torchonline cannot be
imported, and shows that they choose like the head and continue to learn.

    python examples/neural_linear_digits.py [--smoke] [--tune] [--output outputs/digits]
"""

import argparse
import logging
import math
import subprocess
import sys
import warnings
from pathlib import Path

import matplotlib
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Timer
from pytorch_lightning.loggers import TensorBoardLogger
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from torch import Tensor, nn
from torch.nn import functional

from torchonline import OFUL, AnytimeHeavyTailUCB, Greedy, RidgeRegression, ThompsonSampling
from torchonline.callbacks import ArtifactExporter, RegretLogger
from torchonline.datasets import ClassificationBandit, digits
from torchonline.environments import StudentT
from torchonline.export import runner
from torchonline.models import BanditHead, NeuralLinearBandit, RoundLoader
from torchonline.policies.rules import Rule

matplotlib.use("Agg")
import matplotlib.pyplot as plt

DIM, ARMS, SEEDS = 8, 10, 5
NOISE = StudentT(2.1, scale=0.5)
# Bound on the norm of the best linear scorer, whose norm is 2.6 on these features.
THETA_BOUND = 3.0
# Chosen by --tune from 1, 0.3, 0.1 and 0.03, on other seeds than the table. No theorem covers these heuristics.
SMALLER_SCALE = {"AnytimeHeavyTailUCB": 0.3, "OFUL": 0.3}


class Encoder(pl.LightningModule):
    """Map from 8 x 8 pixels to a unit vector, compared by cosine to class weights."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, DIM))
        self.class_weights = nn.Parameter(torch.randn(ARMS, DIM))

    def forward(self, images: Tensor) -> Tensor:
        return functional.normalize(self.layers(images), dim=-1)

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        images, labels = batch
        cosines = self(images) @ functional.normalize(self.class_weights, dim=-1).T
        return functional.cross_entropy(10.0 * cosines, labels, label_smoothing=0.05)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=1e-2, weight_decay=1e-4)


class Uniform(Rule):
    """Uniform random choice."""

    def _scores(self, features: Tensor) -> Tensor:
        return torch.rand(features.shape[:-1], dtype=torch.float64)


def make_policy(name: str, radius_scale: float) -> Rule:
    """Return a policy for a batch of SEEDS learners."""
    noise_scale = NOISE.moment_norm(2.0)
    options = {"noise_scale": noise_scale, "theta_bound": THETA_BOUND, "batch_shape": (SEEDS,)}
    if name == "AnytimeHeavyTailUCB":
        return AnytimeHeavyTailUCB(DIM, radius_scale=radius_scale, **options)
    if name == "OFUL":
        return OFUL(DIM, radius_scale=radius_scale, **options)
    ridge = RidgeRegression(DIM, radius_scale=radius_scale, **options)
    if name.startswith("Thompson"):
        return ThompsonSampling(ridge, scale=name.partition(", ")[2])
    return {"Greedy": Greedy, "uniform": Uniform}[name](ridge)


class Advance(pl.Callback):
    """Advance a task of a progress display that several fits share."""

    def __init__(self, progress: Progress, name: str, batches: int) -> None:
        self.progress, self.task = progress, progress.add_task(name, total=batches)

    def on_train_batch_end(self, *_: object) -> None:
        self.progress.advance(self.task)


def quiet_trainer(**options) -> pl.Trainer:
    """Return a CPU trainer without checkpoints, summary and progress bar."""
    quiet = {"enable_checkpointing": False, "enable_model_summary": False, "enable_progress_bar": False}
    return pl.Trainer(accelerator="cpu", **quiet, **options)


def train_encoder(epochs: int, progress: Progress) -> tuple[Encoder, float]:
    """Train the encoder; return it and its accuracy on the other digits."""
    labelled, rest = digits(labelled=300)
    pl.seed_everything(0, verbose=False)
    encoder = Encoder()
    loader = torch.utils.data.DataLoader(labelled, batch_size=300)
    quiet_trainer(max_epochs=epochs, logger=False, callbacks=[Advance(progress, "encoder", epochs)]).fit(
        encoder, loader
    )
    images, labels = rest.tensors
    with torch.no_grad():
        guesses = (encoder(images) @ functional.normalize(encoder.class_weights, dim=-1).T).argmax(-1)
    return encoder.eval().requires_grad_(False), (guesses == labels).double().mean().item()


def stream(rounds: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return images, rewards and mean rewards of all arms by round, for SEEDS trials."""
    _, rest = digits(labelled=300)
    data = ClassificationBandit(*rest.tensors, ARMS, rounds=rounds, noise=NOISE, batch_shape=(SEEDS,), seed=seed)
    return next(iter(torch.utils.data.DataLoader(data, batch_size=rounds)))


def play(
    encoder: Encoder,
    policy: Rule,
    rounds: tuple[Tensor, ...],
    name: str,
    output: Path,
    progress: Progress,
    *callbacks: pl.Callback,
) -> tuple[BanditHead, RegretLogger, float]:
    """Play the rounds in Lightning; return head, regret and microseconds per round."""
    actions = functional.normalize(encoder.class_weights, dim=-1)
    head = BanditHead(encoder, policy, actions=actions, combine="product")
    # The timer comes first, so it stops before the other callbacks write files.
    regret, timer, loader = RegretLogger(), Timer(), RoundLoader(*rounds, batch_size=100)
    trainer = quiet_trainer(
        max_epochs=1,
        logger=TensorBoardLogger(output / "logs", name=name),
        callbacks=[timer, regret, Advance(progress, name, len(loader)), *callbacks],
    )
    trainer.fit(NeuralLinearBandit(head), loader)
    return head, regret, 1e6 * timer.time_elapsed("train") / len(rounds[0])


def tune(encoder: Encoder, rounds: int, output: Path, progress: Progress) -> None:
    """Print the mean regret of each radius scale, on separate seeds."""
    data = stream(rounds, seed=1)
    for name in SMALLER_SCALE:
        for scale in (1.0, 0.3, 0.1, 0.03):
            _, regret, _ = play(encoder, make_policy(name, scale), data, f"tune-{name}-{scale:g}", output, progress)
            progress.console.print(f"{name} radius_scale {scale:g}: regret {regret.regret.compute().mean():.0f}")


def compare(encoder: Encoder, rounds: int, output: Path, progress: Progress) -> tuple[dict[str, tuple], BanditHead]:
    """Play and draw all heads; return name, scale, regret and time of each by its label, and the head to serve."""
    data = stream(rounds, seed=0)
    heads = [(name, scale) for name, smaller in SMALLER_SCALE.items() for scale in (1.0, smaller)]
    heads += [("Thompson, theorem", 1.0), ("Thompson, posterior", None), ("Greedy", None), ("uniform", None)]
    exporter = ArtifactExporter(output)
    axes = plt.subplots(figsize=(8, 5))[1]
    results = {}
    for name, scale in heads:
        label = name if scale is None or name not in SMALLER_SCALE else f"{name} x {scale:g}"
        is_main = (name, scale) == ("AnytimeHeavyTailUCB", SMALLER_SCALE["AnytimeHeavyTailUCB"])
        policy, file = make_policy(name, scale or 1.0), label.replace(" ", "").replace(",", "")
        head, regret, micros = play(encoder, policy, data, file, output, progress, *[exporter] * is_main)
        if is_main:
            served = head
        regret.regret.plot(ax=axes, label=label)
        results[label] = (name, scale, regret.regret.compute(), micros)
    axes.set_title("Bandit heads on a digit encoder: mean over seeds, best to worst shaded")
    axes.figure.savefig(output / "regret.png", dpi=120, bbox_inches="tight")
    return results, served


def serve_again(head: BanditHead, output: Path, rounds: tuple[Tensor, ...], console: Console) -> None:
    """Check in a new process that the files choose like the head."""
    inputs, rewards, _ = rounds
    choices = []
    for images, table in zip(inputs, rewards, strict=True):
        choice = head.select(images)
        head.step(images, choice, table.gather(-1, choice.unsqueeze(-1)).squeeze(-1))
        choices.append(choice)
    torch.save({"inputs": inputs, "rewards": rewards, "choices": torch.stack(choices)}, output / "more_rounds.pt")
    done = subprocess.run(
        [sys.executable, "-c", FRESH_PROCESS, str(output), runner.__file__], capture_output=True, text=True, check=False
    )
    console.print(done.stdout.rstrip() or done.stderr)
    if done.returncode:
        raise SystemExit("the files did not do what the head does")


FRESH_PROCESS = """
import os, sys, torch
sys.modules["torchonline"] = None  # makes `import torchonline` fail
folder, runner = sys.argv[1:]
sys.path.append(os.path.dirname(runner))
from runner import Runner
data = torch.load(f"{folder}/more_rounds.pt", weights_only=True)
script = torch.jit.load(f"{folder}/head.pt")
archive = Runner.load(f"{folder}/head.pt2")
start = script.policy.estimator.rounds[0].item()
same = {"TorchScript": 0, "archive": 0}
for images, table, expected in zip(data["inputs"], data["rewards"], data["choices"]):
    choice = script.select(images)
    same["TorchScript"] += int((choice == expected).sum())
    same["archive"] += int((archive.select(images) == expected).sum())
    reward = table.gather(-1, choice.unsqueeze(-1)).squeeze(-1)
    script.step(images, choice, reward)
    archive.step(images, choice, reward)
total = data["choices"].numel()
for name, count in same.items():
    print(f"{name} file, in a process without torchonline: {count} of {total} choices are the head's")
print(f"rounds learnt: {start} when the file was written, {script.policy.estimator.rounds[0].item()} now")
sys.exit(any(count != total for count in same.values()))
"""


def main() -> None:
    """Train, serve, compare, export, and serve from the files."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--smoke", action="store_true", help="a short run that only shows that everything works")
    parser.add_argument("--tune", action="store_true", help="show the regret of several radius scales, and stop")
    parser.add_argument("--output", type=Path, default=Path("outputs/digits"))
    arguments = parser.parse_args()
    # Lightning's hints on worker processes, GPUs and frozen encoders do not apply here.
    warnings.filterwarnings("ignore", module="pytorch_lightning")
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    # A round has many tiny products, which more threads only slow down.
    torch.set_num_threads(1)
    console = Console(width=110)
    rounds, output = 200 if arguments.smoke else 5000, arguments.output
    output.mkdir(parents=True, exist_ok=True)

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        encoder, accuracy = train_encoder(60 if arguments.smoke else 300, progress)
        console.print(f"encoder: trained on 300 labelled digits, {accuracy:.1%} of the other 1497 right")
        if arguments.tune:
            tune(encoder, rounds, output, progress)
            return
        results, served = compare(encoder, rounds, output, progress)

    table = Table(title=f"{rounds} rounds, {SEEDS} seeds, noise of standard deviation {NOISE.moment_norm(2.0):.2f}")
    for column in ("head", "radius_scale", "regret", "of uniform", "right choices", "µs a round *"):
        table.add_column(column, justify="left" if column == "head" else "right")
    uniform = results["uniform"][2].mean()
    for name, scale, total, micros in results.values():
        kind = " (theorem's)" if scale == 1.0 else " (heuristic)"
        error = total.std().item() / math.sqrt(SEEDS)
        right = 1.0 - total.mean().item() / rounds
        share = f"{total.mean() / uniform:.0%}"
        cell = "" if scale is None else f"{scale:g}{kind}"
        table.add_row(name, cell, f"{total.mean():.0f} ± {error:.0f}", share, f"{right:.1%}", f"{micros:.0f}")
    console.print(table)
    console.print(
        f"* of all {SEEDS} learners together, with Lightning and logging. ± is one standard error over the seeds. The radius"
        " at scale 1 is each theorem's, but no theorem covers this stream to the letter: mean rewards are not exactly linear"
        " in the features, and OFUL's and Thompson sampling's theorems ask for sub-Gaussian noise as well."
    )
    console.print(f"written to {output}: regret.png, logs (TensorBoard), head.pt (TorchScript), head.pt2 (an archive)")
    serve_again(served, output, stream(100, seed=2), console)


if __name__ == "__main__":
    main()
