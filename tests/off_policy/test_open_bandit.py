"""Estimators against those of Open Bandit Pipeline, on the logs of a real shop."""

import functools
import importlib
import logging
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from torchonline.off_policy import (
    BanditLog,
    OverlapWarning,
    at_positions,
    clipped_ips,
    direct_method,
    doubly_robust,
    from_frame,
    from_obp,
    ips,
    overlap,
    sndr,
    snips,
    switch,
    switch_doubly_robust,
    to_obp,
)

LOGS = [(policy, campaign) for policy in ("random", "bts") for campaign in ("all", "men", "women")]
PLACES = 3


@functools.cache
def obp() -> Any:
    """Return obp.ope. To import it warns, changes matplotlib's style and adds a handler to the root logger."""
    root, matplotlib = logging.getLogger(), importlib.import_module("matplotlib")
    level, handlers = root.level, root.handlers[:]
    with warnings.catch_warnings(), matplotlib.rc_context():
        warnings.simplefilter("ignore")
        ope = importlib.import_module("obp.ope")
    root.setLevel(level)
    root.handlers[:] = handlers
    return ope


@functools.cache
def sample(policy: str, campaign: str) -> Any:
    """Return the frame of a log. obp's own loader does not run with pandas 2."""
    pandas = importlib.import_module("pandas")
    places = find_spec("obp")
    assert places is not None
    folder = Path(next(iter(places.submodule_search_locations or [])), "dataset", "obd", policy, campaign)
    frame = pandas.read_csv(folder / f"{campaign}.csv", index_col=0)
    return frame.sort_values("timestamp", kind="stable")


def feedback_of(policy: str, campaign: str) -> dict[str, Any]:
    """Return what obp's OpenBanditDataset returns."""
    frame = sample(policy, campaign)
    users = [np.unique(frame[f"user_feature_{k}"], return_inverse=True)[1] for k in range(4)]
    return {
        "n_rounds": len(frame),
        "n_actions": int(frame["item_id"].max()) + 1,
        "action": frame["item_id"].to_numpy(),
        "position": frame["position"].to_numpy() - 1,
        "reward": frame["click"].to_numpy(),
        "pscore": frame["propensity_score"].to_numpy(),
        "context": np.stack(users, 1).astype(float),
        "action_context": None,
    }


def of_softmax(seed: int, rounds: int, arms: int) -> np.ndarray:
    """Return a policy of each round and position, and predictions for the same."""
    scores = np.random.default_rng(seed).normal(size=(rounds, arms, PLACES))
    weights = np.exp(scores)
    return weights / weights.sum(1, keepdims=True)


def of_thompson(seed: int, rounds: int, arms: int) -> np.ndarray:
    """Return how often each item is among the best by Beta draws, the same in all rounds: (N, K, 3)."""
    rng = np.random.default_rng(seed)
    draws = rng.beta(rng.uniform(1, 40, size=arms), rng.uniform(500, 5000, size=arms), size=(2000, arms))
    ranked = np.argsort(-draws, axis=1)[:, :PLACES]
    shares = np.stack([np.bincount(ranked[:, place], minlength=arms) / 2000 for place in range(PLACES)], 1)
    return np.broadcast_to(shares, (rounds, arms, PLACES)).copy()


@pytest.mark.filterwarnings("ignore::torchonline.off_policy.OverlapWarning")
@pytest.mark.parametrize("target", [of_softmax, of_thompson])
@pytest.mark.parametrize(("policy", "campaign"), LOGS)
def test_the_values_are_those_of_obp(policy: str, campaign: str, target: Any) -> None:
    """All estimators, with policies and predictions that differ by round and by position."""
    feedback = feedback_of(policy, campaign)
    shape = (feedback["n_rounds"], feedback["n_actions"])
    action_dist = target(0, *shape)
    q = 0.01 * np.random.default_rng(1).random((*shape, PLACES))
    names = ("action", "reward", "pscore", "position")
    theirs = {name: feedback[name] for name in names} | {"action_dist": action_dist}
    modelled = theirs | {"estimated_rewards_by_reg_model": q}
    log = from_obp(feedback)
    probability, predicted = at_positions(log, action_dist), at_positions(log, q)
    ope, tau = obp(), 2.0
    weights = action_dist[np.arange(shape[0]), feedback["action"], feedback["position"]] / feedback["pscore"]
    base = (action_dist * q).sum(1)[np.arange(shape[0]), feedback["position"]]
    of_all = action_dist[np.arange(shape[0]), :, feedback["position"]]
    logged = np.full(shape, 1.0 / shape[1])
    logged[np.arange(shape[0]), feedback["action"]] = feedback["pscore"]
    elsewhere = of_all * q[np.arange(shape[0]), :, feedback["position"]] * (of_all / logged > tau)
    ours = {
        "ips": (ips(log, probability), ope.InverseProbabilityWeighting(), theirs),
        "snips": (snips(log, probability), ope.SelfNormalizedInverseProbabilityWeighting(), theirs),
        "dm": (direct_method(log, probability, predicted), ope.DirectMethod(), modelled),
        "dr": (doubly_robust(log, probability, predicted), ope.DoublyRobust(), modelled),
        "sndr": (sndr(log, probability, predicted), ope.SelfNormalizedDoublyRobust(), modelled),
        "switch-dr": (
            switch_doubly_robust(log, probability, predicted, tau),
            ope.SwitchDoublyRobust(tau=tau),
            modelled,
        ),
    }
    for name, (estimate, estimator, inputs) in ours.items():
        rounds = estimator._estimate_round_rewards(**inputs)
        np.testing.assert_allclose(estimate.terms.numpy(), rounds, rtol=1e-10, atol=1e-10, err_msg=name)
        assert estimate.value == pytest.approx(estimator.estimate_policy_value(**inputs), rel=1e-10, abs=1e-10), name
    # obp 0.4.1 has no clipped IPS and no switch without a model.
    clipped = (np.minimum(weights, tau) * feedback["reward"]).mean()
    assert clipped_ips(log, probability, tau).value == pytest.approx(clipped, rel=1e-10, abs=1e-10)
    switched = (weights * feedback["reward"] * (weights <= tau)).mean() + elsewhere.sum(1).mean()
    estimate = switch(log, probability, predicted, tau, logging=torch.from_numpy(logged))
    assert estimate.value == pytest.approx(switched, rel=1e-10, abs=1e-10)
    assert base.shape == estimate.base.shape


@pytest.mark.filterwarnings("ignore::torchonline.off_policy.OverlapWarning")
@pytest.mark.parametrize("policy", ["random", "bts"])
def test_a_log_goes_to_obp_and_back(policy: str) -> None:
    log = from_obp(feedback_of(policy, "men"))[:2000]
    target = torch.from_numpy(of_softmax(3, len(log), log.arms)[:, :, 0])
    feedback, action_dist = to_obp(log, target)
    assert action_dist.shape == (2000, 34, 1)
    ope = obp()
    evaluation = ope.OffPolicyEvaluation(
        bandit_feedback=feedback,
        ope_estimators=[ope.InverseProbabilityWeighting(), ope.SelfNormalizedInverseProbabilityWeighting()],
    )
    values = evaluation.estimate_policy_values(action_dist=action_dist)
    assert values["ipw"] == pytest.approx(ips(log, target).value, rel=1e-10)
    assert values["snipw"] == pytest.approx(snips(log, target).value, rel=1e-10)
    again = from_obp(feedback)
    for name in ("action", "reward", "probability", "context"):
        assert torch.equal(getattr(again, name), getattr(log, name))


def test_positions_are_places_of_a_list() -> None:
    """Each position of the list is evaluated alone by its rounds, and all of them by all."""
    log = from_obp(feedback_of("random", "women"))
    target = at_positions(log, of_softmax(2, len(log), log.arms))
    places = [ips(log[log.position == place], target[log.position == place]) for place in range(PLACES)]
    together = sum(place.value * len(place.log) for place in places) / len(log)
    assert together == pytest.approx(ips(log, target).value, rel=1e-12)


def test_the_frame_of_the_sample_is_the_same_log() -> None:
    polars = importlib.import_module("polars")
    frame = sample("bts", "men")
    columns: dict[str, Any] = {"action": "item_id", "reward": "click", "probability": "propensity_score"}
    columns |= {"position": "position", "groups": "user_feature_0", "context": ["user-item_affinity_3", "position"]}
    kept = ["item_id", "click", "propensity_score", "position", "user_feature_0", "user-item_affinity_3"]
    logs = [
        from_frame(each, **columns)
        for each in (frame, polars.DataFrame({name: frame[name].to_numpy() for name in kept}))
    ]
    known = from_obp(feedback_of("bts", "men"))
    for log in logs:
        for name in ("action", "reward", "probability", "position"):
            assert torch.equal(getattr(log, name), getattr(known, name))
        assert log.arms == known.arms
        assert torch.equal(log.context[:, 1], known.position + 1.0)
        assert len(log.groups.unique()) == frame["user_feature_0"].nunique()


def test_one_campaign_of_thompson_sampling_says_too_little_of_uniform_items() -> None:
    """In the log for women, one impression of an item with probability 1e-6 has 69 % of the weight."""
    logs = {campaign: from_obp(feedback_of("bts", campaign)) for campaign in ("all", "men", "women")}
    targets = {
        name: torch.full((len(log), log.arms), 1.0 / log.arms, dtype=torch.float64) for name, log in logs.items()
    }
    with pytest.warns(
        OverlapWarning, match=r"got too little overlap: the effective sample size is 2.08, of 10000 rounds; one"
    ):
        ips(logs["women"], targets["women"])
    for name in ("all", "men"):
        assert overlap(logs[name], targets[name]).problems == ()
    uniform = from_obp(feedback_of("random", "all"))
    estimate = ips(uniform, targets["all"])
    assert estimate.value == pytest.approx(float(uniform.reward.mean()), rel=1e-12)


def test_a_log_of_obp_lacks_nothing() -> None:
    feedback = {"n_actions": 2, "action": np.array([0, 1]), "reward": np.array([0, 1]), "pscore": np.array([0.5, 0.5])}
    assert isinstance(from_obp(feedback), BanditLog)
    for name in feedback:
        with pytest.raises(ValueError, match=f"^feedback: expected an entry {name}, got none"):
            from_obp(feedback | {name: None})
    with pytest.raises(TypeError, match=r"^feedback: expected a mapping, got list"):
        from_obp([])
