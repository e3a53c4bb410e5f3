"""
A bandit on images, whose encoder learns as well
================================================

Training the encoder on the rewards cuts the mistakes of a bandit on 800 images from about 190 to 126-178. The bandit sees
handwritten digits and names them. It learns only whether it was right, never which digit it was.
:class:`~torchonline.models.NeuralLinearBandit` trains the encoder on the rewards as they arrive, and then computes the
bandit's statistics again from the new features.
"""

import logging
import warnings

import matplotlib.pyplot as plt
import pytorch_lightning as pl
import torch

import torchonline
from torchonline.callbacks import RegretLogger
from torchonline.datasets import digits
from torchonline.models import BanditHead, NeuralLinearBandit, RoundLoader

plt.rcParams.update({"font.size": 11, "axes.spines.top": False, "axes.spines.right": False})
warnings.filterwarnings("ignore", module="pytorch_lightning")  # hints on worker processes
logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
# sphinx_gallery_thumbnail_number = 2

# %%
# The stream has 800 images of scikit-learn's digits, and 500 others are held out. The policy is the recommended bandit,
# with a separate model for each digit on the 64 outputs of the encoder.

images, labels = digits(labelled=497)[1].tensors
mean = images[:800].mean(0)
rewards = torch.eye(10)[labels]  # 1 for the right digit; the bandit sees the entry that it chose


def play(seed, **options):
    """Play 800 rounds under Lightning. Return the regret after each round, and the head."""
    torch.manual_seed(seed)
    encoder = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU())
    head = BanditHead(encoder, torchonline.bandit(64, actions=10))
    loader = RoundLoader(images[:800] - mean, rewards[:800], batch_size=100, shuffle=True, seed=seed)
    logger = RegretLogger()
    quiet = {
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "enable_checkpointing": False,
        "logger": False,
    }
    trainer = pl.Trainer(accelerator="cpu", max_epochs=1, callbacks=[logger], **quiet)
    trainer.fit(NeuralLinearBandit(head, **options), loader)
    return logger.regret.curve(), head


# %%
# **Mistakes, by round**, in three runs each. The runs differ in the initial weights and the order of the images. By
# default the encoder is trained after every 50 rounds; with ``train_encoder_every=None`` it keeps its random weights.

variants = {
    "random encoder": ({"train_encoder_every": None}, "#D55E00", "--"),
    "trained every 50 rounds": ({}, "#0072B2", "-"),
}
heads = {}
figure, ax = plt.subplots(figsize=(7, 3.8), layout="constrained")
ax.plot([0, 800], [0, 720], color="0.45", lw=2)
ax.text(420, 395, "chance", color="0.45", ha="right")
for name, (options, colour, style) in variants.items():
    for seed in range(3):
        (rounds, regret), heads[name] = play(seed, **options)
        ax.plot(rounds, regret, style, color=colour, lw=2)
    ax.text(808, float(regret[-1]), name, color=colour, va="center")
ax.set(xlabel="images seen", ylabel="mistakes", xlim=(0, 800), ylim=(0, 500))

# %%
# **Twelve of the images held out**, with the choices of the last run of each kind. Mistakes are marked.

figure = plt.figure(figsize=(7, 2.6), layout="constrained")
for part, (name, head) in zip(figure.subfigures(2, 1), heads.items(), strict=True):
    named = head.select(images[800:] - mean)
    right = (named == labels[800:]).double().mean()
    part.suptitle(f"{name}: {right:.0%} of 500 right", x=0.01, ha="left", fontsize=11)
    for ax, image, choice, label in zip(
        part.subplots(1, 12), images[800:], named, labels[800:], strict=False
    ):
        ax.imshow(image.reshape(8, 8), cmap="gray_r")
        mark = {"color": "white", "backgroundcolor": "#D55E00"} if choice != label else {}
        ax.set_title(f"{choice}", fontsize=11, **mark)
        ax.set_axis_off()
