"""
A thousand learners in one module
=================================

``batch_shape=(1000,)`` makes one module of a thousand bandits, each with its own arms, rewards and state. It is many times
as fast as a loop over a thousand modules. Here the thousand count how often a confidence set fails, which one run cannot show.
"""

from time import process_time

import matplotlib.pyplot as plt
import torch

from torchonline import OFUL, AnytimeHeavyTailUCB
from torchonline.environments import LinearBandit, TwoPoint
from torchonline.metrics import has_missed

DIM, ARMS, ROUNDS, LEARNERS, DELTA = 4, 10, 500, 1000, 0.05

# %%
# The noise has a standard deviation of 1, and both learners know it. But the noise consists of rare outliers: one reward in a
# thousand is off by about 32, and the others by next to nothing. The theorem of AnytimeHeavyTailUCB covers such noise, the
# theorem of OFUL does not.

NOISE = TwoPoint(0.001)


def share_failed(make):
    """Return the share of the learners whose set has missed the true parameter so far, after each round."""
    environment = LinearBandit(DIM, ARMS, noise=NOISE, batch_shape=(LEARNERS,), seed=0)
    policy = make(DIM, noise_scale=NOISE.moment_norm(2.0), delta=DELTA, batch_shape=(LEARNERS,))
    has_failed, shares = torch.zeros(LEARNERS, dtype=torch.bool), []
    for _ in range(ROUNDS):
        arms = environment.arms()
        k = policy.select(arms)
        policy.step(arms, k, environment.pull(k).reward)
        has_failed |= has_missed(policy.estimator, environment.theta)
        shares.append(100.0 * has_failed.double().mean())
    return shares


# %%
# A set that fails in one round counts as failed from then on, because the guarantee is for all rounds simultaneously.

figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
for make, colour, line in ((OFUL, "#D55E00", "--"), (AnytimeHeavyTailUCB, "#0072B2", "-")):
    shares = share_failed(make)
    axes.plot(range(1, ROUNDS + 1), shares, color=colour, linestyle=line, linewidth=2)
    axes.text(1.02 * ROUNDS, shares[-1], make.__name__, color=colour, va="center")
axes.axhline(100.0 * DELTA, color="black", linestyle=":")
axes.text(1.02 * ROUNDS, 100.0 * DELTA, "at most 5 %", va="bottom")
axes.set(
    xlim=(0, 1.25 * ROUNDS), ylim=(-1, 16), xlabel="rounds", ylabel="sets that have failed, percent"
)
plt.show()

# %%
# A thousand learners of each kind play the same thousand environments. The standard error of a share is at most 1.2 points. Both
# kinds have ``delta=0.05``: a set should fail with a probability of at most 5 %. AnytimeHeavyTailUCB keeps this guarantee with
# room to spare; OFUL has none for such noise. Not shown: the price. Under milder noise OFUL has less regret.
#
# Compared with a loop
# --------------------


def seconds(batched, rounds=100):
    """Return the processor seconds of a round, in which all learners choose and learn."""
    arms, policy = torch.randn(*batched, ARMS, DIM, dtype=torch.float64), OFUL(DIM, batch_shape=batched)
    reward, first = torch.rand(batched, dtype=torch.float64), torch.zeros(batched, dtype=torch.int64)
    start = process_time()
    for _ in range(rounds):
        policy.select(arms)
        policy.step(arms, first, reward)
    return (process_time() - start) / rounds


sizes = (1, 3, 10, 30, 100, 300, 1000, 3000)
alone = sorted(seconds(()) for _ in range(5))[2]
ratios = [size * alone / sorted(seconds((size,)) for _ in range(5))[2] for size in sizes]

figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
axes.plot(sizes, ratios, "o-", color="#0072B2", linewidth=2)
axes.axhline(1.0, color="black", linestyle=":")
axes.text(3000, 1.08, "a loop over single learners", ha="right")
axes.set(
    xscale="log", yscale="log", xlabel="learners in the module", ylabel="speed, over that of a loop"
)
axes.xaxis.set_major_formatter("{x:g}")
axes.yaxis.set_major_formatter("{x:g}")
plt.show()

# %%
# Each dot is the median of five runs of 100 rounds on one machine. The time of a loop is the time of one learner without
# ``batch_shape``, times the number of learners. A module of fewer than about ten learners is slower than a loop. Other machines
# have other ratios.
