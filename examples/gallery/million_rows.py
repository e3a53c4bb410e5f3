"""
Learn a million rows, block by block
====================================

``learn`` takes a log of a million decisions and rewards in one call, tens of times as fast as one ``step`` per row. It learns
in blocks: a few matrix products replace thousands of steps. The confidence set keeps its guarantee.
"""

from time import process_time

import matplotlib.pyplot as plt
import torch

from torchonline import AnytimeHeavyTailUCB

DIM, ROWS, NOISE = 16, 1_000_000, 0.5
torch.manual_seed(0)
rows = torch.nn.functional.normalize(torch.randn(ROWS, DIM), dim=-1)
theta = torch.nn.functional.normalize(torch.randn(DIM), dim=0)
reward = rows @ theta + NOISE * torch.randn(ROWS)
# A log of chosen rows: each is the only arm of its round.
arms, k = rows.unsqueeze(1), torch.zeros(ROWS, dtype=torch.int64)

# %%
# Time
# ----
# A new learner learns the first rows of the log in one call of ``learn``, or in one call of ``step``, which takes the rows one
# after another. Times are processor times, in units of one row by ``step``.


def seconds(method, n):
    learn = getattr(AnytimeHeavyTailUCB(DIM, noise_scale=NOISE), method)
    start = process_time()
    learn(arms[:n], k[:n], reward[:n])
    return process_time() - start


sizes = (10, 30, 100, 300, 1000, 3000, 10_000, 30_000, 100_000, 300_000, ROWS)
few = sizes[:6]
seconds("learn", 1000)  # the first call is slower
steps = torch.tensor([min(seconds("step", n) for _ in range(3)) for n in few])
learnt = torch.tensor([min(seconds("learn", n) for _ in range(3)) for n in sizes])
unit = steps[-1] / few[-1]
ratio = float(ROWS * unit / learnt[-1])

figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
axes.plot(sizes, sizes, ":", color="#D55E00")
axes.plot(few, steps / unit, "s", color="#D55E00")
axes.plot(sizes, learnt / unit, "o-", color="#0072B2", linewidth=2)
axes.text(3e4, 6e4, "step", color="#D55E00", ha="right", size="large")
axes.text(2e4, 2e2, "learn", color="#0072B2", ha="left", size="large")
axes.annotate("", (ROWS, 1.4 * ROWS / ratio), (ROWS, 0.9 * ROWS), arrowprops={"arrowstyle": "<->"})
axes.text(0.8 * ROWS, ROWS / ratio**0.65, f"{ratio:.0f} times", ha="right", va="center", size="large")
axes.set(xscale="log", yscale="log", xlabel="rows", ylabel="time, in steps")
plt.show()

# %%
# Each time is the shortest of three runs on one machine. Squares are measured; the dotted line is one unit per row. The ratio
# depends on the machine and on the number of features, here 16.
#
# What a million rows are worth
# -----------------------------
# One policy learns the log in eleven pieces. After each piece it predicts 100 random arms, whose true mean rewards are known.

tests = torch.nn.functional.normalize(torch.randn(100, DIM), dim=-1)
policy, seen = AnytimeHeavyTailUCB(DIM, noise_scale=NOISE), 0
widths, errors = torch.empty(2, len(sizes), len(tests))
for piece, n in enumerate(sizes):
    policy.learn(arms[seen:n], k[seen:n], reward[seen:n])
    low, high = policy.interval(tests)
    widths[piece], errors[piece] = (
        (high - low) / 2,
        (policy.estimator.predictor(tests) - tests @ theta).abs(),
    )
    seen = n

figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
for values, colour, line in ((widths, "#0072B2", "-"), (errors, "#D55E00", "--")):
    axes.fill_between(
        sizes,
        values.quantile(0.1, dim=1),
        values.quantile(0.9, dim=1),
        color=colour,
        alpha=0.2,
        linewidth=0,
    )
    axes.plot(sizes, values.median(1).values, line, color=colour, linewidth=2)
axes.text(2e4, 0.25, "half width of the intervals", color="#0072B2")
axes.text(2e4, 0.03, "error of the estimates", color="#D55E00")
axes.set(xscale="log", yscale="log", xlabel="rows learnt", ylabel="in units of the reward")
plt.show()

# %%
# Lines are medians over 100 arms, and bands hold the middle 80 of them, for one log. Ten times the rows shrink error and
# interval to about a third. The interval is wider than the error, because with probability 0.99 it holds for all arms and all
# numbers of rows simultaneously.
