"""False alarms and delay of the drift alarm, and a report on a log of digits.

Three parts:

- False alarms: streams without drift, or whose laws repeat with the window. The script counts the streams that ever had an alarm
  by the thresholds of DriftAlarm. Beside them stand thresholds that forget that there are many comparisons, and thresholds for
  the z-test, which forgets the tails too.
- Delay: the mean changes after ten windows. The script counts the streams with an alarm by the end of the first, second and
  fifth window after the change.
- A report: an epsilon-greedy policy learns scikit-learn's digits from a DecisionLog, with rewards that come late or never.
  After four fifths of the decisions all labels are moved by one. The script writes the page, and a picture of some of its
  parts.

    python examples/monitoring.py    # about a minute; seconds with --smoke
"""

import argparse
import heapq
import math
from collections.abc import Callable
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import torch
from sklearn.datasets import load_digits
from torch import Tensor

import torchonline
from torchonline import AdaptiveRidgeRegression, DisjointArms, EpsilonGreedy
from torchonline.environments import GaussianNoise, Pareto, StudentT
from torchonline.feedback import DecisionLog
from torchonline.metrics import DriftAlarm
from torchonline.reporting import Reader, Summary, pictures_of, style

WINDOW, ALPHA, COMPARISONS = 100, 0.05, 50
SHOWN = (
    "Shares of actions",
    "Reward over time",
    "Logged probabilities",
    "Effective sample size",
    "Delay of the feedback",
    "Predictions beside rewards",
)

Draw = Callable[[int, int, torch.Generator], Tensor]


def clicks(rate: float) -> Draw:
    """Return draws of clicks with a given rate."""
    return lambda n, streams, generator: (torch.rand(n, streams, generator=generator) < rate).double()


def seasonal(n: int, streams: int, generator: torch.Generator) -> Tensor:
    """Return normal values whose mean and spread repeat with the window."""
    phase = (2.0 * math.pi / WINDOW) * torch.arange(n, dtype=torch.float64).unsqueeze(-1)
    return 3.0 * phase.sin() + (1.5 + phase.cos()) * GaussianNoise().sample((n, streams), generator)


LAWS: dict[str, Draw] = {
    "normal": lambda n, streams, generator: GaussianNoise().sample((n, streams), generator),
    "Student-t, df 1.5": lambda n, streams, generator: StudentT(1.5).sample((n, streams), generator),
    "Pareto 1.1, one-sided": lambda n, streams, generator: Pareto(1.1).sample((n, streams), generator),
    "clicks of 2 %": clicks(0.02),
    "clicks of 50 %": clicks(0.5),
    "normal, repeats with the window": seasonal,
}


def alarms(draw: Draw, streams: int, comparisons: int) -> tuple[DriftAlarm, Tensor]:
    """Return an alarm that has seen streams without drift, and the statistics."""
    generator = torch.Generator().manual_seed(0)
    alarm = DriftAlarm(WINDOW, ALPHA, (streams,), warn=False)
    for _ in range(comparisons + 1):
        alarm.update(draw(WINDOW, streams, generator))
    thresholds = torch.tensor([alarm.threshold(j) for j in range(1, comparisons + 1)], dtype=torch.float64)
    return alarm, thresholds.unsqueeze(-1) * alarm.recent()[1][1:]  # up to the first alarm of a stream


def print_false_alarms(streams: int, comparisons: int) -> None:
    """Print the share of streams without drift that ever had an alarm."""
    unspent = math.sqrt(2.0 * math.log(4.0 / ALPHA))
    print(f"\nStreams with an alarm in {comparisons} comparisons of {WINDOW}, of {streams}, alpha = {ALPHA:g}\n")
    print("| values | DriftAlarm | alpha for each comparison | z-test for each comparison |")
    print("|---|---|---|---|")
    for name, draw in LAWS.items():
        alarm, statistics = alarms(draw, streams, comparisons)
        shares = [alarm.compute().alarms > 0, (statistics >= unspent).any(0), (statistics >= 1.96).any(0)]
        print(f"| {name} | {' | '.join(f'{100.0 * share.double().mean():.1f} %' for share in shares)} |")


def print_delays(streams: int) -> None:
    """Print the share of streams with an alarm soon after a change."""
    print(f"\nStreams with an alarm by the end of a window after the change, of {streams}\n")
    print("| values | change of the mean | window | first | second | fifth |")
    print("|---|---|---|---|---|---|")
    rows: list[tuple[str, str, Draw, Draw]] = [
        ("normal, sd 1", f"{shift:g}", LAWS["normal"], lambda *a, shift=shift: LAWS["normal"](*a) + shift)  # type: ignore[misc]
        for shift in (0.25, 0.5, 1.0)
    ]
    heavy = LAWS["Student-t, df 1.5"]
    rows += [("Student-t, df 1.5", "1", heavy, lambda *a: heavy(*a) + 1.0)]
    rows += [("clicks", "2 % to 1 %", clicks(0.02), clicks(0.01)), ("clicks", "50 % to 40 %", clicks(0.5), clicks(0.4))]
    for name, change, before, after in rows:
        for window in (100, 1000):
            generator = torch.Generator().manual_seed(1)
            alarm = DriftAlarm(window, ALPHA, (streams,), warn=False)
            for _ in range(10):
                alarm.update(before(window, streams, generator))
            shares = []
            for number in range(1, 6):
                alarm.update(after(window, streams, generator))
                if number in (1, 2, 5):
                    shares.append(f"{100.0 * (alarm.compute().alarms > 0).double().mean():.0f} %")
            print(f"| {name} | {change} | {window} | {' | '.join(shares)} |")


def play_digits(log: DecisionLog, rounds: int) -> DisjointArms:
    """Let a policy play digits into a log, and learn from it what is known."""
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    images, labels = (torch.as_tensor(part) for part in load_digits(return_X_y=True))
    images = images.double() / 16.0
    policy = DisjointArms(EpsilonGreedy(AdaptiveRidgeRegression(64), epsilon=0.1), actions=10)
    now, position, on_the_way = 1.7e9, 0, []
    for i, row in enumerate(torch.randint(len(images), (rounds,), generator=generator).tolist()):
        now += 20.0 * float(torch.empty(()).exponential_(generator=generator))
        action, probability = policy.select_with_probability(images[row])
        log.decide(f"visit {i}", images[row], action, probability, encoder=f"pixels {1 + 2 * i // rounds}", time=now)
        label = int(labels[row]) if i < 0.8 * rounds else (int(labels[row]) + 1) % 10
        delay = 300.0 * float(torch.empty(()).exponential_(generator=generator))
        if float(torch.rand((), generator=generator)) < 0.95:
            heapq.heappush(on_the_way, (now + delay, i, float(label == int(action))))
        while on_the_way and on_the_way[0][0] <= now:
            time, number, reward = heapq.heappop(on_the_way)
            log.reward(f"visit {number}", reward, time=time)
        if i % 50 == 49:
            log.close_due(now)
            for known in log.read(after=position):
                policy.step(known.inputs, known.action, known.reward)
                position = known.position
    return policy


def draw_parts(log: DecisionLog, policy: DisjointArms, window: int, path: Path) -> None:
    """Draw some of the page's pictures in one file."""
    summary = Summary(log, Reader(policy, None), window, 0.01, 1000)
    pictures = pictures_of(summary)
    with style():
        figure, axes = plt.subplots(2, 3, figsize=(14.5, 6.6), layout="constrained")
        for axis, title in zip(axes.flat, SHOWN, strict=True):
            pictures[title](axis)
            axis.set_title(title, loc="left", fontweight="bold")
        figure.savefig(path, format="png", dpi=90)
        plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=8000)
    parser.add_argument("--output", type=Path, default=Path("outputs"))
    parser.add_argument("--smoke", action="store_true", help="few streams and rounds, to see that it runs")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    streams, rounds = (20, 300) if options.smoke else (options.streams, options.rounds)

    print_false_alarms(streams, 3 if options.smoke else COMPARISONS)
    print_delays(streams)

    window = 50 if options.smoke else 500
    with DecisionLog(":memory:", window=3600.0) as log:
        policy = play_digits(log, rounds)
        page = options.output / "report.html"
        torchonline.report(log, page, policy=policy, window=window, title="Digits")
        draw_parts(log, policy, window, options.output / "monitoring.png")
        print(f"\nCounts of the log: {log.counts()}")
    print(f"Report: {page}")


if __name__ == "__main__":
    main()
