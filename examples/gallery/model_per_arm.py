"""
A model for each arm, on raw features
=====================================

On raw features, :func:`torchonline.bandit` makes 14 mistakes in 178 rounds, and a greedy policy without a scaler 24. The task:
which of three vintners made this wine? The bandit guesses once per bottle and learns only whether the guess was right. The 13
chemical measurements have different units, from phenols around 0.3 to proline above 1000. The bandit standardises them as they
arrive, and learns a separate model for each vintner.
"""

import matplotlib.pyplot as plt
import torch
from sklearn.datasets import load_wine

import torchonline
from torchonline import DisjointArms, Greedy, RidgeRegression, StandardScaler
from torchonline.metrics import CumulativeRegret

plt.rcParams.update({"font.size": 11, "axes.spines.top": False, "axes.spines.right": False})

# %%
# Each of 20 runs sees the 178 bottles once, in a different order. The runs are one batch: ``batch_shape=(20,)``.

wine = load_wine()
bottles, vintners = torch.tensor(wine.data), torch.tensor(wine.target)
torch.manual_seed(0)
orders = torch.stack([torch.randperm(178) for _ in range(20)], 1)


def play(policy, orders):
    """Play the bottles in some orders. Return the metric of the mistakes."""
    metric = CumulativeRegret(orders.shape[1:])
    for rows in orders:
        guess = policy.select(bottles[rows]) if policy else torch.randint(3, rows.shape)
        right = (guess == vintners[rows]).double()
        if policy:
            policy.step(bottles[rows], guess, right)
        metric.update(1 - right)
    return metric


# %%
# **Mistakes**: lines are means, and bands range from the best to the worst run. The greedy policy plays twice, on raw
# features and with the bandit's scaler, both times over ridge regression at its defaults. The scaler explains a fifth of
# the difference. The rest is not taken apart here: the bandit also explores, adds the magnitudes of features, and learns
# its first rounds again.

scaler = StandardScaler(13, batch_shape=(20,))
players = {
    "greedy, raw": DisjointArms(Greedy(RidgeRegression(13, batch_shape=(20,))), 3),
    "greedy, scaled": DisjointArms(
        Greedy(RidgeRegression(scaler.features, batch_shape=(20,))), 3, scaler=scaler
    ),
    "bandit": torchonline.bandit(13, rewards="binary", actions=3, batch_shape=(20,)),
}
figure, ax = plt.subplots(figsize=(7, 4), layout="constrained")
ax.set_prop_cycle(color=["0.45", "#E69F00", "#D55E00", "#0072B2"])
play(None, orders).plot(ax=ax)
ax.text(55, 48, "uniform", color="0.45", ha="right")
for name, policy in players.items():
    play(policy, orders).plot(ax=ax, label=name)
ax.set(xlabel="bottles", ylabel="mistakes", xlim=(0, 178), ylim=(0, 60))

# %%
# **What one bandit predicts for one bottle**, a wine of the second vintner, after 5, 30 and 177 other bottles. The bandit
# never learns from this one. Each row is an arm with its own model: the estimated probability of being right, and the
# interval that drives exploration. The interval is a heuristic, as the axis says, and can leave the range from 0 to 1.

kept = 100
others = torch.tensor([row for row in orders[:, 0].tolist() if row != kept])
policy = torchonline.bandit(13, rewards="binary", actions=3)
figure, panels = plt.subplots(3, 1, figsize=(7, 5), sharex=True, layout="constrained")
start = 0
for ax, stop in zip(panels, (5, 30, 177), strict=True):
    play(policy, others[start:stop])
    policy.plot_confidence(bottles[kept], ax=ax, names=["vintner 1", "vintner 2", "vintner 3"])
    if stop < 177:
        ax.set_xlabel("")
    ax.set_title(f"after {stop} bottles", loc="left", fontsize=11)
    start = stop
