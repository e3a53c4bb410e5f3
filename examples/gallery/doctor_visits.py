"""
Counts: who will see a doctor most often?
=========================================

A bandit on real counts finds persons with 4.7 doctor visits a year, and a random choice 2.9. :class:`~torchonline.LocalGLB`
learns counts with a Poisson link. The data are from the RAND Health Insurance Experiment. In each round the bandit sees the
features of ten persons, names the one who may need most care, and learns that person's number of visits in the year.
"""

import matplotlib.pyplot as plt
import torch

from torchonline import OFUL, LocalGLB, Poisson
from torchonline.datasets import health_insurance

plt.rcParams.update({"font.size": 11, "axes.spines.top": False, "axes.spines.right": False})
BLUE, RED, GREY = "#0072B2", "#D55E00", "0.45"

# %%
# There are 20,190 person-years, with 2.9 visits on average and 77 at most. The features are a constant and six
# standardised columns: age, child, sex, income, chronic diseases and general health.

columns = ("mdvis", "xage", "child", "female", "linc", "disea", "xghindx")
table = health_insurance(columns).tensors[0]
visits, persons = table[:, 0], (table[:, 1:] - table[:, 1:].mean(0)) / table[:, 1:].std(0)
persons = torch.cat([torch.ones(len(persons), 1, dtype=torch.float64), persons], 1)

# %%
# **Does it name the right persons?** Twenty runs play as one batch, and each draws its own persons. Lines are the mean
# visits of the persons named so far, and bands are two standard errors. No visit is simulated.

ROUNDS, RUNS = 1000, 20
policies = {
    "uniform": None,
    "OFUL": OFUL(7, batch_shape=(RUNS,)),
    "LocalGLB, Poisson": LocalGLB(7, link=Poisson(), feature_bound=9.0, batch_shape=(RUNS,)),
}
colours = dict(zip(policies, (GREY, RED, BLUE), strict=True))
figure, ax = plt.subplots(figsize=(7, 3.8), layout="constrained")
for name, policy in policies.items():
    generator, named = torch.Generator().manual_seed(0), []
    for _ in range(ROUNDS):
        rows = torch.randint(len(visits), (RUNS, 10), generator=generator)
        k = policy.select(persons[rows]) if policy else torch.zeros(RUNS, dtype=torch.int64)
        row = rows[range(RUNS), k]
        named.append(visits[row])
        if policy:
            policy.step(persons[rows], k, visits[row])
    mean = torch.stack(named).cumsum(0) / torch.arange(1, ROUNDS + 1).unsqueeze(1)
    middle, error = mean.mean(1), 2 * mean.std(1) / RUNS**0.5
    ax.plot(middle, color=colours[name], lw=2.5)
    ax.fill_between(
        range(ROUNDS), middle - error, middle + error, color=colours[name], alpha=0.25, lw=0
    )
    ax.text(
        1.01 * ROUNDS,
        float(middle[-1]),
        name,
        color=colours[name],
        va="bottom" if name == "OFUL" else "top",
    )
ax.set(xlabel="rounds", ylabel="visits of the person named", xlim=(0, ROUNDS), ylim=(0, None))

# %%
# OFUL with its defaults finds persons with 4.8 visits, and learns faster: for choices alone, a linear model is enough.
#
# **Are its predictions right?** Each bandit now sorts all 20,190 person-years by its own prediction, and we compare
# predicted and real visits in each tenth. A dot on the dashed line is a right prediction. Bars reach from the mean lower
# end to the mean upper end of the intervals. All values are means over the twenty runs.
#
# OFUL has learnt only from the persons whom it named, and predicts a negative number of visits for the healthiest. Its
# intervals rest on defaults for rewards in [0, 1], which do not fit visits. LocalGLB predicts positive numbers, close to
# the real ones. Its intervals are not reliable either: visits are overdispersed, with six times the variance of a Poisson
# distribution. Where the interval matters, pass ``noise_scale`` to ``step``.

figure, panels = plt.subplots(1, 2, figsize=(7, 3.8), sharex=True, sharey=True, layout="constrained")
for ax, name in zip(panels, ("OFUL", "LocalGLB, Poisson"), strict=True):
    estimator, everyone = policies[name].estimator, persons.expand(RUNS, -1, -1)
    predicted, (low, high) = estimator(everyone), estimator.interval(everyone)
    for tenth in predicted.argsort(-1).tensor_split(10, -1):
        observed = visits[tenth].mean()
        ends = low.gather(1, tenth).mean(), high.gather(1, tenth).mean()
        ax.plot(ends, (observed, observed), color=colours[name], lw=6, alpha=0.3, solid_capstyle="butt")
        ax.plot(predicted.gather(1, tenth).mean(), observed, "o", color=colours[name], ms=7)
    ax.axline((0, 0), slope=1, color="k", ls="--", lw=1.2)
    ax.set(title=name, xlabel="visits predicted")
panels[0].set_ylabel("visits observed, by tenths")
