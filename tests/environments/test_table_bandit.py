"""The Gymnasium environment of a table or a log, and policies that play in it."""

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.utils.env_checker import check_env
from sklearn.datasets import load_iris

from torchonline import OFUL, bandit
from torchonline.environments import TableBandit, play

pytestmark = pytest.mark.fast

CONTEXTS = np.arange(12.0).reshape(6, 2)
REWARDS = np.arange(18.0).reshape(6, 3)


def of_log(contexts: Any, labels: Any, arms: int, passes: int = 1) -> TableBandit:
    """A log of uniform actions, whose reward is 1 for the label."""
    contexts, labels = np.tile(contexts, (passes, 1)), np.tile(labels, passes)
    actions = np.random.default_rng(0).integers(0, arms, len(labels))
    return TableBandit.from_log(contexts, actions, (actions == labels) * 1.0, arms)


def test_it_is_an_environment_of_gymnasium() -> None:
    check_env(TableBandit(CONTEXTS, REWARDS), skip_render_check=True)
    check_env(of_log(CONTEXTS, [0, 1, 2, 0, 1, 2], 3), skip_render_check=True)
    both = gymnasium.vector.SyncVectorEnv([lambda: TableBandit(CONTEXTS, REWARDS)] * 2)
    assert both.reset(seed=0)[0].shape == (2, 2)


def test_an_episode_is_a_decision_and_a_pass_has_each_row_once() -> None:
    environment = TableBandit(CONTEXTS, REWARDS)
    orders = []
    for _ in range(2):
        rows = []
        for number in range(len(environment)):
            observation, info = environment.reset(seed=7 if number == 0 and not orders else None)
            row = info["row"]
            after, reward, terminated, truncated, info = environment.step(1)
            assert observation.tolist() == CONTEXTS[row].tolist() == after.tolist()
            assert (reward, terminated, truncated) == (REWARDS[row, 1], True, False)
            assert info == {"row": row, "is_known": True}
            rows.append(row)
        assert sorted(rows) == list(range(6))
        orders.append(rows)
    assert orders[0] != orders[1]
    assert environment.reset(seed=7)[1]["row"] == orders[0][0]


def test_the_row_of_an_unknown_reward_is_passed_over() -> None:
    """Only the logged actions' rewards are known. The episode goes on with the next row, and nothing is learnt."""
    environment = of_log(CONTEXTS, [0] * 6, 3)
    rows, known = [], 0
    environment.reset(seed=0)
    for _ in range(6):
        _, reward, terminated, truncated, info = environment.step(0)
        logged = not np.isnan(environment.rewards[info["row"], 0])
        assert (terminated, info["is_known"], truncated) == (logged, logged, False)
        assert reward == float(logged)
        rows.append(info["row"])
        known += logged
        if terminated:
            environment.reset()
    assert sorted(rows) == list(range(6))
    assert 0 < known < 6
    policy = bandit(2, "binary", actions=3)
    rewards = play(policy, environment, 6, seed=0)
    assert len(rewards) == int(policy.rounds) < 6


def test_a_policy_learns_a_table_of_real_data() -> None:
    contexts, labels = load_iris(return_X_y=True)
    rewards = play(bandit(4, "binary", actions=3), TableBandit(contexts, np.eye(3)[labels]), 300, seed=0)
    assert rewards.shape == (300,)
    assert rewards[150:].mean() > 0.9


def test_the_replay_of_a_log_estimates_a_fixed_policy() -> None:
    """The mean of the known rewards of one pass is the policy's value, up to the noise of the matches."""

    class First:
        """Plays the first arm."""

        def select(self, observation: Any) -> int:
            return 0

        def step(self, observation: Any, action: int, reward: float) -> None:
            pass

    contexts, labels = load_iris(return_X_y=True)
    environment = of_log(contexts, labels, 3, passes=20)
    rewards = play(First(), environment, len(environment), seed=0)
    assert abs(len(rewards) - 1000) < 100
    assert abs(float(rewards.mean()) - 1 / 3) < 0.06  # four standard errors


def test_arms_may_have_features() -> None:
    arms = torch.randn(20, 4, 3, generator=torch.Generator().manual_seed(0))
    policy = OFUL(3)
    assert len(play(policy, TableBandit(arms, arms.sum(-1)), 40, seed=0)) == int(policy.rounds) == 40


@pytest.mark.parametrize(
    ("build", "error"),
    [
        (lambda: TableBandit(CONTEXTS, REWARDS[0]), r"^rewards: expected shape \(T, K\)"),
        (lambda: TableBandit(CONTEXTS[:3], REWARDS), r"^contexts: expected shape \(6, ...\), got \(3, 2\)"),
        (lambda: TableBandit(CONTEXTS[:, 0], REWARDS), r"^contexts: expected shape \(6, ...\), got \(6,\)"),
        (lambda: TableBandit(CONTEXTS * np.nan, REWARDS), "^contexts: expected finite numbers"),
        (lambda: TableBandit(CONTEXTS, [[np.inf, 0.0]] * 6), "^rewards: expected finite numbers, or NaN"),
        (lambda: TableBandit.from_log(CONTEXTS, [3] * 6, [0.0] * 6, 3), "^actions: expected values from 0 to 2"),
        (lambda: TableBandit.from_log(CONTEXTS, [1] * 6, [0.0] * 5, 3), r"^rewards: expected shape \(6\)"),
        (lambda: TableBandit.from_log(CONTEXTS, [1] * 6, [np.nan] * 6, 3), "^rewards: expected"),
        (lambda: TableBandit.from_log(CONTEXTS, [1] * 6, [0.0] * 6, 0), "^arms: expected"),
        (lambda: play(bandit(2, actions=3), TableBandit(CONTEXTS, REWARDS), 0), "^decisions: expected"),
        (lambda: play(bandit(3, actions=3), TableBandit(CONTEXTS, REWARDS), 1), r"^inputs: expected shape \(..., 3\)"),
    ],
)
def test_wrong_arguments_are_refused_by_name(build: Any, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        build()


def test_a_step_needs_a_reset_and_a_known_action() -> None:
    environment = TableBandit(CONTEXTS, REWARDS)
    with pytest.raises(RuntimeError, match=r"^step: expected a call of reset\(\)"):
        environment.step(0)
    environment.reset()
    for action in (3, True):
        with pytest.raises(ValueError, match=f"^action: expected an integer from 0 to 2, got {action}"):
            environment.step(action)
    assert environment.step(2)[2]
