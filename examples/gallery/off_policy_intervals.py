"""
What would another policy have earned?
======================================

A log of an old system is enough to estimate what a new policy would earn, with a confidence interval. So a bad policy is found
out before it makes any decision. The log holds the old system's choices, their probabilities (propensities) and the rewards.
"""

import matplotlib.pyplot as plt
import torch

from torchonline import DisjointArms, EpsilonGreedy, RidgeRegression
from torchonline.off_policy import (
    BanditLog,
    confidence_sequence,
    doubly_robust,
    ips,
    normal_interval,
    predicted_rewards,
    snips,
)

BLUE, VERMILION = "#0072B2", "#D55E00"
SLOPES = torch.tensor([[0.0, 1.5, 0.0], [0.0, -1.5, 0.0], [-0.5, 0.0, 1.5]]).double()  # of three arms


def draw_log(count, seed):
    """The old system takes arm 0 in 60 % of all rounds, and the others in 20 % each. A reward is a click, or none."""
    generator = torch.Generator().manual_seed(seed)
    context = torch.cat([torch.ones(count, 1), torch.randn(count, 2, generator=generator)], 1).double()
    probability = torch.tensor([0.6, 0.2, 0.2])
    action = torch.multinomial(probability, count, replacement=True, generator=generator)
    reward = torch.bernoulli(
        torch.sigmoid(context @ SLOPES.T)[torch.arange(count), action], generator=generator
    )
    return BanditLog(
        arms=3, action=action, reward=reward, probability=probability[action], context=context
    )


# %%
# The new policy learns from one log of 500 rounds, and is evaluated on other logs. The data are simulated, so the true value of
# the policy is known.

old = draw_log(500, seed=0)
policy = DisjointArms(EpsilonGreedy(RidgeRegression(3), epsilon=0.1), actions=3)
policy.learn(old.context, old.action, old.reward)

contexts = draw_log(200_000, seed=1).context
truth = float((policy.probabilities(contexts) * torch.sigmoid(contexts @ SLOPES.T)).sum(-1).mean())

# %%
# Five 95 % intervals from one log
# --------------------------------
# Inverse propensity scoring (IPS) weights each logged reward by the new policy's probability of the action, divided by the old
# system's. A doubly robust estimate adds a model of the rewards. *Anytime* intervals hold for all lengths of the log
# simultaneously: you may look after each round and stop when you like. They need the range of the rewards and a bound on the
# weights, here 1 / 0.2.

model = DisjointArms(RidgeRegression(3), actions=3)


def in_order(log):
    """Doubly robust, with predictions from earlier rounds only: an anytime interval needs that."""
    past = predicted_rewards(model, log, folds=None)
    return doubly_robust(log, policy, past._replace(values=past.values.clamp(0.0, 1.0)))


def anytime(estimate):
    return confidence_sequence(estimate, reward_range=(0.0, 1.0), largest_weight=5.0)


def intervals(log):
    fixed = {"IPS": ips(log, policy), "SNIPS": snips(log, policy)}
    fixed["doubly robust"] = doubly_robust(log, policy, predicted_rewards(model, log))
    found = {name: (estimate.value, *normal_interval(estimate)) for name, estimate in fixed.items()}
    for name, estimate in {
        "IPS, anytime": fixed["IPS"],
        "doubly robust, anytime": in_order(log),
    }.items():
        found[name] = estimate.value, *(float(bound[-1]) for bound in anytime(estimate))
    return found


logs = [intervals(draw_log(1000, seed)) for seed in range(2, 32)]

figure, axes = plt.subplots(figsize=(7, 3.6), layout="constrained")
for row, (name, (value, lower, upper)) in enumerate(logs[0].items()):
    colour = VERMILION if "anytime" in name else BLUE
    axes.plot([lower, upper], [row, row], color=colour, linewidth=3)
    axes.plot(value, row, "o", color=colour, markersize=8)
    misses = sum(not log[name][1] <= truth <= log[name][2] for log in logs)
    axes.text(1.02, row, f"{misses} of {len(logs)}", va="center", transform=axes.get_yaxis_transform())
axes.text(1.02, -0.8, "logs missed", va="center", transform=axes.get_yaxis_transform())
axes.axvline(truth, color="black", linestyle="--")
axes.text(truth, -0.8, "true value ", ha="right", va="center")
axes.set(
    yticks=range(5),
    yticklabels=logs[0],
    xlabel="clicks per round under the new policy",
    ylim=(4.5, -1.2),
)
plt.show()

# %%
# The figure shows the intervals from the first of 30 logs with 1000 rounds each. The numbers at the right count the logs whose
# interval misses the true value; 95 % intervals miss one or two of 30 on average. The anytime intervals are wider, and miss
# less often.
#
# How long a log is long enough?
# ------------------------------

log = draw_log(10_000, seed=32)
lower, upper = anytime(in_order(log))

figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
axes.fill_between(range(1, len(log) + 1), lower, upper, color=VERMILION, alpha=0.25, linewidth=0)
for count in (200, 500, 1000, 2000, 5000, 10_000):
    estimate = doubly_robust(log[:count], policy, predicted_rewards(model, log[:count]))
    axes.plot([count, count], normal_interval(estimate), color=BLUE, linewidth=3)
    axes.plot(count, estimate.value, "o", color=BLUE)
axes.axhline(truth, color="black", linestyle="--")
axes.text(53, truth, "true value", va="bottom")
axes.text(170, 0.36, "anytime: all rounds at once", color="#A04000")
axes.text(1300, 0.58, "doubly robust, at one length", color=BLUE)
axes.set(
    xscale="log",
    xlim=(50, 12_000),
    ylim=(0.2, 1.0),
    xlabel="rounds in the log",
    ylabel="clicks per round",
)
plt.show()

# %%
# One log of 10,000 rounds, cut at six lengths. Four times the rounds give about half the width. Not shown: an old system that
# learns, a wrong model of the rewards, and actions that were hardly ever tried.
