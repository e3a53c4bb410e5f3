"""
Exploration you can see
=======================

An optimistic bandit plays the arm with the highest mean reward that its confidence set allows. With two features this set is
an ellipse, drawn here in the plane of the parameter. The bandit explores until the choice is clear and then stops. It needs
neither an exploration rate nor a horizon.
"""

import copy
import math

import matplotlib.pyplot as plt
import torch
from matplotlib.animation import FuncAnimation

from torchonline import OFUL

plt.rcParams.update({"font.size": 11, "axes.spines.top": False, "axes.spines.right": False})
plt.rcParams["animation.writer"] = "pillow"
BLUE, RED, GREY = "#0072B2", "#D55E00", "0.45"
# sphinx_gallery_thumbnail_number = 2

# %%
# The features of the twelve arms are directions in the plane. An arm pays ``arm @ theta`` plus Gaussian noise of standard
# deviation 0.3. The bandit knows the 0.3; its other arguments are defaults. For heavier tails, take
# :class:`~torchonline.AnytimeHeavyTailUCB`. A bandit is a module, so a deep copy saves its state in a round.

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
    policy.step(
        arms, k, arms[k] @ theta + 0.3 * torch.randn((), generator=generator, dtype=torch.float64)
    )
    plays[k] += 1

# %%
# **Four moments** of one run. The cross is the true parameter. The ellipse contains it in all rounds with probability
# 0.99, because the noise scale is right and the norm of the parameter is at most ``theta_bound``, here the default 1. Dots
# are arms. Their size grows with the number of plays, and the red arm is played next.


def draw(ax, n):
    """Draw what the bandit knew after n rounds."""
    policy, plays = then[n]
    k = int(policy.select(arms))
    ax.clear()
    policy.estimator.plot_confidence_set(ax, color=BLUE)
    ax.plot(*theta, "x", color="k", ms=9, mew=2.5)
    ax.plot([0, arms[k, 0]], [0, arms[k, 1]], color=RED, lw=2)
    ax.scatter(
        *arms.T,
        s=12 + 7 * plays.sqrt(),
        color=[RED if arm == k else GREY for arm in range(12)],
        zorder=2,
    )
    ax.set_aspect("equal", adjustable="box")
    ax.set(xlim=(-1.45, 1.45), ylim=(-1.45, 1.45), xlabel="", ylabel="", title="")
    ax.set_axis_off()
    ax.set_title(f"after {n} rounds" if n else "at first", loc="left", fontsize=11)


figure, panels = plt.subplots(1, 4, figsize=(7, 2.1), layout="constrained")
for ax, n in zip(panels, (0, 10, 100, 1000), strict=True):
    draw(ax, n)

# %%
# **The whole run.** The ellipse gives an interval for the mean reward of each arm, and the bandit plays the arm with the
# highest upper end. Intervals of bad arms that are never played shrink too, because all arms share the parameter. The
# bandit stops exploring where nothing is to be gained.


def make_animation():
    """Return the animation. ``make_animation().save("ellipses.gif", dpi=80)`` writes a file of some 200 kB."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(7, 3.5), width_ratios=(1, 1.1))
    figure.subplots_adjust(0.02, 0.1, 0.98, 0.9, 0.14)
    bars = right.vlines(range(12), -1, 1, lw=8)
    right.plot(range(12), arms @ theta, "kx", ms=7, mew=2)
    right.set(xlim=(-0.6, 11.6), ylim=(-1.1, 1.1), xticks=[], yticks=(-1, 0, 1), xlabel="arm")
    right.set_title("mean rewards and their intervals", loc="left", fontsize=11)

    def show(n):
        draw(left, n)
        policy = then[n][0]
        k, (low, high) = int(policy.select(arms)), policy.interval(arms)
        bars.set_segments([[(arm, low[arm]), (arm, high[arm])] for arm in range(12)])
        bars.set_color(["#D55E0090" if arm == k else "#0072B280" for arm in range(12)])

    show(100)
    return FuncAnimation(figure, show, [*moments, *[1000] * 6], interval=200)


animation = make_animation()

# %%
# **Your own bandit**: ``policy.estimator.plot_confidence_set()`` draws the ellipse as above, and
# ``policy.plot_confidence()`` the intervals of the arms. The numbers on the right are the upper ends; the arm with the
# largest is played.

figure, ax = policy.plot_confidence(arms, names=[f"{30 * arm}°" for arm in range(12)])
