"""
Exploration you can see
=======================

An optimistic bandit with two features, drawn in the plane of its parameter. The ellipse holds the parameters that the rewards
so far leave possible; the bandit plays the arm that one of them praises most. So it learns what it needs to choose, and no
more, without a rate of exploration and without a horizon.
"""

import copy
import math

import matplotlib.pyplot as plt
import torch
from matplotlib.animation import FuncAnimation

from torchonline import OFUL

plt.rcParams.update({"font.size": 11, "axes.spines.top": False, "axes.spines.right": False})
BLUE, RED = "#0072B2", "#D55E00"

# %%
# Twelve arms have directions of the plane as features, and pay ``arm @ theta`` plus Gaussian noise of standard deviation 0.3. The
# bandit knows the 0.3; its other arguments are defaults. Under heavier tails, take :class:`~torchonline.HeavyTailUCB`. A bandit is a
# module, so a copy of it remembers all that it knew in a round.

angles = torch.arange(12) * math.pi / 6
arms = torch.stack([angles.cos(), angles.sin()], 1).double()
theta = torch.tensor([0.7, 0.35], dtype=torch.float64)
moments = [*range(12), *range(12, 40, 4), *(round(40 * 25 ** (i / 15)) for i in range(16))]

generator = torch.Generator().manual_seed(0)
policy, plays, then = OFUL(2, noise_scale=0.3), torch.zeros(12), {}
for n in range(1001):
    if n in (*moments, 100):
        then[n] = copy.deepcopy(policy), plays.clone()
    k = policy.select(arms)
    policy.step(arms[k], arms[k] @ theta + 0.3 * torch.randn((), generator=generator, dtype=torch.float64))
    plays[k] += 1

# %%
# **Four moments.** The cross is the true parameter. The blue ellipse holds it in all rounds with probability 99 %. Dots are the arms,
# which grow as they are played, and the red one is next. It is one run, with one seed.

turn = torch.linspace(0, 2 * math.pi, 121, dtype=torch.float64)
circle = torch.stack([turn.cos(), turn.sin()])


def plane(ax):
    """Prepare axes for the plane of the parameter. Return what :func:`show` moves."""
    ax.set(xlim=(-1.45, 1.45), ylim=(-1.45, 1.45), aspect="equal", xticks=[], yticks=[])
    ax.spines[:].set_visible(False)
    (inside,), (pointer,) = (
        ax.fill([0], [0], facecolor="#0072B240", edgecolor=BLUE, lw=1.5),
        ax.plot([], [], color=RED, lw=2),
    )
    ax.plot(*theta, "x", color="k", ms=9, mew=2.5)
    return inside, pointer, ax.scatter(*arms.T, color="0.45", zorder=2)


def show(artists, policy, plays):
    """Show the ellipse and the next arm of a bandit, and how often it has played each arm."""
    estimator, k = policy.estimator, int(policy.select(arms))
    root = torch.linalg.cholesky(estimator.V_inv)
    artists[0].set_xy((estimator.theta_hat[:, None] + estimator.radius() * root @ circle).T)
    artists[1].set_data([0, arms[k, 0]], [0, arms[k, 1]])
    artists[2].set_sizes(12 + 7 * plays.sqrt())
    artists[2].set_color([RED if arm == k else "0.45" for arm in range(12)])


figure, panels = plt.subplots(1, 4, figsize=(7, 2.1), layout="constrained")
for ax, n in zip(panels, (0, 10, 100, 1000), strict=True):
    show(plane(ax), *then[n])
    ax.set_title(f"{n} rounds" if n else "at first", fontsize=11)

# %%
# **The whole run**, and what the ellipse says of each arm: an interval of its mean reward. The bandit plays the arm whose upper end
# is highest. It comes to know bad arms that it never plays, because they share the parameter, and stops asking where nothing
# is to be gained.


def make_animation():
    """Return the animation. ``make_animation().save("ellipses.gif", dpi=80)`` writes a file of 200 kB."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(7, 3.5), width_ratios=(1, 1.1))
    figure.subplots_adjust(0.02, 0.1, 0.98, 0.9, 0.14)
    artists, bars = plane(left), right.vlines(range(12), -1, 1, lw=8)
    right.plot(range(12), arms @ theta, "kx", ms=7, mew=2)
    right.set(xlim=(-0.6, 11.6), ylim=(-1.1, 1.1), xticks=[], yticks=(-1, 0, 1), xlabel="arm")
    right.set_title("mean rewards and their intervals", loc="left", fontsize=11)
    title = left.set_title("", loc="left", fontsize=11)

    def draw(n):
        show(artists, *then[n])
        title.set_text(f"after {n} rounds")
        policy, next_arm = then[n][0], int(then[n][0].select(arms))
        low, high = policy.estimator.interval(arms)
        bars.set_segments([[(arm, low[arm]), (arm, high[arm])] for arm in range(12)])
        bars.set_color(["#D55E0090" if arm == next_arm else "#0072B280" for arm in range(12)])

    return FuncAnimation(figure, draw, [*moments, *[1000] * 6], interval=200)


animation = make_animation()
