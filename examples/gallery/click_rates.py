"""
Rare clicks: rates instead of lines
===================================

For rare clicks, learn the logit of the click rate. :class:`~torchonline.LocalGLB` does so in one pass. Here one visitor in
thirty clicks. A line fitted to zeros and ones goes below 0. Its confidence band is as wide where nobody clicks as where many
do, because it ignores that a small rate has a small variance.
"""

import matplotlib.pyplot as plt
import torch

from torchonline import OFUL, Greedy, LocalGLB, LocalGLMRegression, RidgeRegression
from torchonline.metrics import CumulativeRegret

plt.rcParams.update({"font.size": 11, "axes.spines.top": False, "axes.spines.right": False})
BLUE, RED, GREY = "#0072B2", "#D55E00", "0.45"
TOLD = {"theta_bound": 5.0, "feature_bound": 1.5}  # the norm of the parameter below is 4.5

# %%
# **A log of 10,000 impressions**, learnt in one call of ``learn``. Clicks are simulated: an ad has an appeal z from -1
# to 1, and its click rate is sigmoid(2z - 4), from 0.2 % to 12 %. The right band holds with probability 0.99, for all z
# and at all times, because its two bounds hold. The left band assumes that the rates lie on a line, and they do not.


def features(z):
    return torch.cat([torch.ones(*z.shape[:-1], 1, dtype=torch.float64), z], -1)


generator = torch.Generator().manual_seed(0)
appeal = 2 * torch.rand(10000, 1, generator=generator, dtype=torch.float64) - 1
rate = torch.sigmoid(2 * appeal - 4).squeeze(-1)
clicks = torch.bernoulli(rate, generator=generator)

grid = torch.linspace(-1, 1, 101, dtype=torch.float64).unsqueeze(-1)
figure, panels = plt.subplots(1, 2, figsize=(7, 3.6), sharey=True, layout="constrained")
models = {
    "line (ridge regression)": (RidgeRegression(2), RED),
    "logit (LocalGLMRegression)": (LocalGLMRegression(2, **TOLD), BLUE),
}
for ax, (name, (estimator, colour)) in zip(panels, models.items(), strict=True):
    estimator.learn(features(appeal), clicks)
    low, high = estimator.interval(features(grid))
    ax.fill_between(grid[:, 0], 100 * low, 100 * high, color=colour, alpha=0.25, lw=0)
    ax.plot(grid, 100 * estimator(features(grid)), color=colour, lw=2.5)
    ax.plot(grid, 100 * torch.sigmoid(2 * grid - 4), "k--", lw=1.5)
    ax.axhline(0, color="k", lw=0.8)
    ax.set(title=name, xlabel="appeal of the ad")
panels[0].set_ylabel("click rate in %")
panels[1].annotate(
    "true rate",
    (0.6, 100 * torch.sigmoid(torch.tensor(1.2 - 4))),
    (-0.2, 12),
    arrowprops={"arrowstyle": "-"},
)

# %%
# **Which of ten ads to show?** Ads now have three features, and each visitor brings ten new ads. Regret is the expected
# number of clicks lost against the best ads. Twenty runs play as one batch. Lines are means, and bands range from the
# smallest to the largest regret.
#
# LocalGLB loses 25 clicks, OFUL 28 and a uniform choice 45. LocalGLB knows a valid bound on the parameter. The greedy
# choice over the same model loses 8, the fewest, because new ads bring exploration for free; it has no guarantee, and its
# runs differ most. Not shown: with rates near one in two hundred, LocalGLB hardly gains on uniform choice in 10,000 rounds.

parameter = torch.tensor([-4.0, 1.5, 1.0, -1.0], dtype=torch.float64)


def regret(policy):
    """Play a batch of 20. Return the metric of its regret."""
    generator, metric = torch.Generator().manual_seed(0), CumulativeRegret((20,))
    for _ in range(1500):
        arms = features(
            (2 * torch.rand(20, 10, 3, generator=generator, dtype=torch.float64) - 1) / 3**0.5
        )
        k = policy.select(arms) if policy else torch.zeros(20, dtype=torch.int64)
        rates = torch.sigmoid(arms @ parameter)
        clicked = torch.bernoulli(rates[range(20), k], generator=generator)
        metric.update(rates.amax(-1) - rates[range(20), k])
        if policy:
            policy.step(arms, k, clicked)
    return metric


figure, ax = plt.subplots(figsize=(7, 4), layout="constrained")
ax.set_prop_cycle(color=[GREY, RED, BLUE, "#009E73"])
regret(None).plot(ax=ax, label="uniform")
regret(OFUL(4, batch_shape=(20,))).plot(ax=ax, label="OFUL")
regret(LocalGLB(4, **TOLD, batch_shape=(20,))).plot(ax=ax, label="LocalGLB")
regret(Greedy(LocalGLMRegression(4, **TOLD, batch_shape=(20,)))).plot(ax=ax, label="greedy")
ax.set(xlabel="visitors", ylabel="clicks lost", xlim=(0, 1500), ylim=(0, None))
