"""Names of actions in heads and in the modules that train them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from torch import Tensor, nn

import torchonline
from torchonline import OFUL, RidgeRegression, StandardScaler
from torchonline.models import BanditHead, LoggedRounds, NeuralLinearBandit, recommended_policy

NAMES = ["home", "sale", "news"]


def head(names: Any = NAMES, **options: Any) -> BanditHead:
    return BanditHead(nn.Linear(4, 2).double(), OFUL(2), actions=names, **options)


def inputs(*shape: int) -> Tensor:
    return torch.ones(*shape, 4, dtype=torch.float64)


@pytest.mark.parametrize("names", [NAMES, tuple(NAMES), np.array(NAMES)])
def test_a_head_gives_each_name_a_model(names: Any) -> None:
    made = head(names)
    assert (made.action_names, made.action_ids) == (NAMES, [0, 1, 2])
    made.step(inputs(), "sale", 1.0)
    made.learn(inputs(2), ["sale", "news"], [1.0, 0.0])
    assert made.estimator.rounds.tolist() == [0, 2, 1]
    assert made.select_name(inputs()) == made.name_of(made.select(inputs()))
    assert made.chosen_features(inputs(2), ["sale", "news"]).shape == (2, 2)


def test_a_scaler_of_the_inputs_and_an_identity_pass_names_on() -> None:
    for made in (head(scaler=StandardScaler(4, intercept=False)), BanditHead(nn.Identity(), OFUL(4), actions=NAMES)):
        made.step(inputs(), "sale", 1.0)
        made.learn(inputs(2), ["sale", "news"], [1.0, 0.0])
        assert made.policy.estimator.rounds.tolist() == [0, 2, 1]
        with pytest.raises(ValueError, match=r"did you mean 'sale'"):
            made.step(inputs(), "sal", 1.0)


def test_names_agree_with_those_of_the_policy() -> None:
    policy = torchonline.bandit(2, actions=NAMES, scale=False)
    for actions in (None, 3, NAMES, tuple(NAMES)):
        assert BanditHead(nn.Linear(4, 2), policy, actions=actions).action_names == NAMES
    for other in (2, ["home", "sale"], ["sale", "home", "news"]):
        with pytest.raises(
            ValueError, match=r"^actions: expected None or the policy's actions 'home', 'sale', 'news', got"
        ):
            BanditHead(nn.Linear(4, 2), policy, actions=other)
    with pytest.raises(ValueError, match=r"^actions: expected None or 3, the policy's actions, got"):
        BanditHead(nn.Linear(4, 2), torchonline.bandit(2, actions=3, scale=False), actions=NAMES)
    with pytest.raises(ValueError, match=r"got embeddings, which need a policy without actions$"):
        BanditHead(nn.Identity(), torchonline.bandit(2, actions=3), actions=torch.eye(2))


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        (["a", "a"], "distinct names"),
        ([], "at least one name"),
        (["a", 1], "names that are text"),
        ([1, "a"], "real numbers"),
        ([""], "an empty text"),
        ("home", "a list of names"),
        ([["a"], ["b"]], "a list of at least one name"),
    ],
)
def test_wrong_names_are_told_from_embeddings(actions: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=rf"^actions: expected .*{message}"):
        head(actions)
    assert head([[1.0, 0.0], [0.0, 1.0]]).action_names is None


def test_the_recommended_policy_has_names() -> None:
    assert recommended_policy(2, actions=NAMES).action_names == NAMES


def test_logged_rounds_may_hold_names() -> None:
    module = NeuralLinearBandit(head(), train_encoder_every=None)
    module.configure_optimizers()
    module.log = lambda *_, **__: None  # type: ignore[method-assign]
    names: Any = ["sale", "news", "sale"]
    rounds = inputs(3), names, torch.ones(3)
    module.training_step(LoggedRounds(*rounds), 0)
    module.training_step(dict(zip(("inputs", "action", "reward"), rounds, strict=True)), 1)
    assert module.head.estimator.rounds.tolist() == [0, 4, 2]
    with pytest.raises(ValueError, match=r"did you mean 'sale'"):
        module.training_step(LoggedRounds(inputs(1), ["sal"], torch.ones(1)), 2)  # type: ignore[arg-type]


def test_a_checkpoint_keeps_the_names(tmp_path: Path) -> None:
    module = NeuralLinearBandit(head(), train_encoder_every=None)
    module.head.step(inputs(), "news", 1.0)
    assert module.hparams["action_names"] == "home, sale, news"
    trainer = pl.Trainer(accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False)
    trainer.strategy.connect(module)
    trainer.save_checkpoint(tmp_path / "last.ckpt")
    loaded = NeuralLinearBandit.load_from_checkpoint(tmp_path / "last.ckpt")
    assert loaded.head.action_names == NAMES
    assert loaded.head.estimator.rounds.tolist() == [0, 0, 1]
    assert isinstance(loaded.head.policy.estimator, RidgeRegression)
