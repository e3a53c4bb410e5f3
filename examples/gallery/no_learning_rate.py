"""
One learner without a rate, fifty with one
==========================================

FreeGrad has no learning rate to choose, and here it beats 43 of 50 learning rates of gradient descent. The best of the 50 rates
depends on the data, down to the units of the features. Both learn the same stream, once with pixels from 0 to 1, and once with
pixels from 0 to 16.
"""

import matplotlib.pyplot as plt
import torch
from sklearn.datasets import load_digits
from torch.nn.functional import softplus

from torchonline import FreeGrad

SEEDS = 10
RATES = torch.logspace(-6, 1, 50, dtype=torch.float64)

# %%
# The task: is a handwritten digit even? A linear model sees each of the 1797 images of scikit-learn once. It predicts, suffers
# the logistic loss, and then learns the label. Ten seeds are ten orders of the images.

images, labels = (torch.from_numpy(array).double() for array in load_digits(return_X_y=True))
orders = torch.stack(
    [
        torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
        for seed in range(SEEDS)
    ]
)
images, evenness = images[orders], 1.0 - 2.0 * (labels % 2)[orders]  # labels 1 and -1


def mean_losses(decide, learn, x):
    """Play all seeds, and more than one rate, at once. Return the mean loss of each."""
    total = 0.0
    for t in range(len(labels)):
        y = evenness[:, t]
        margin = y * (decide() * x[:, t]).sum(-1)
        total = total + softplus(-margin)
        learn(-(y * torch.sigmoid(-margin)).unsqueeze(-1) * x[:, t])  # the gradient of the loss
    return total / len(labels)


def gradient_descent(x):
    weights = torch.zeros(len(RATES), SEEDS, x.size(-1), dtype=torch.float64)
    return mean_losses(
        lambda: weights, lambda gradient: weights.sub_(RATES[:, None, None] * gradient), x
    )


def freegrad(x):
    learner = FreeGrad(x.size(-1), per_coordinate=True, batch_shape=(SEEDS,))
    return mean_losses(learner.predict, learner.step, x)


# %%
# ``torchonline.ParameterFree(model.parameters(), per_coordinate=True)`` is the same learner as a PyTorch optimizer.

figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
for scale, colour, marker in ((16.0, "#0072B2", "o"), (1.0, "#D55E00", "s")):
    x = torch.cat([images * (scale / 16.0), torch.ones(SEEDS, len(labels), 1)], -1)
    losses, loss = gradient_descent(x), freegrad(x)
    low, mean, high = losses.amin(1), losses.mean(1), losses.amax(1)
    axes.errorbar(RATES, mean, (mean - low, high - mean), fmt=marker, color=colour, markersize=4)
    best = f"best rate {float(RATES[mean.argmin()]):.1g}: {float(mean.min()):.3f}"
    print(
        f"0 to {scale:g}: {best}; FreeGrad: {loss.mean():.3f}, beaten by {int((mean < loss.mean()).sum())} rates of {len(RATES)}"
    )
axes.axhline(loss.mean(), color="black", linewidth=2)
axes.axhspan(loss.min(), loss.max(), color="black", alpha=0.2, linewidth=0)
axes.text(1.5e-6, 0.47, "pixels from\n0 to 16", color="#0072B2")
axes.text(4e-3, 0.62, "pixels from 0 to 1", color="#D55E00")
axes.text(1.5e-6, 0.345, "FreeGrad, both units", va="top")
axes.set(
    xscale="log",
    ylim=(0.2, 1.0),
    xlabel="learning rate of gradient descent",
    ylabel="mean loss of a prediction",
)
plt.show()

# %%
# Each dot is a constant rate: the mean over ten seeds, with their range. The line is FreeGrad with its range, which is the same
# in both units. Seven rates, the best in hindsight, have less loss than FreeGrad, but nobody knows them before the end. The
# best rate for pixels from 0 to 1 fails for pixels from 0 to 16. Not shown: decreasing rates, and Adam.
