"""Plays a learner and its reference side by side, and says where they part."""

from typing import Any

import numpy as np
import torch

ROUNDS = 300


def data(dim: int, *, seed: int, noise: tuple[float, ...] | None, outlier: float) -> list[tuple]:
    """Rounds of (arms, reward, noise_scale): features of many sizes, zero rows, heavy tails, outliers, noise scale 0."""
    random = np.random.default_rng(seed)
    rounds = []
    for t in range(ROUNDS):
        arms = random.standard_normal((3 + t % 4, dim)) * 10.0 ** random.uniform(-1.5, 0.5)
        if t % 29 == 7:
            arms[:] = 0.0
        reward = 0.5 * random.standard_t(2.1) + (random.choice([-outlier, outlier]) if t % 41 == 11 else 0.0)
        rounds.append((arms, reward, None if noise is None else float(random.choice(noise))))
    return rounds


def follow(policy: Any, reference: Any, rounds: list[tuple], tolerance: float = 1e-9) -> None:
    """Raise where a policy and its reference differ by more than ``tolerance``, relative to their size; matrices now and then."""
    estimator = policy.estimator
    dim = len(reference.theta)
    probes = np.random.default_rng(0).standard_normal((4, dim))
    for t, (arms, reward, noise_scale) in enumerate(rounds):
        tensors = torch.from_numpy(arms)
        scores = reference.scores(arms)
        index = int(policy.select(tensors))
        size = max(1.0, float(np.abs(scores).max()))
        np.testing.assert_allclose(policy(tensors).numpy(), scores, rtol=tolerance, atol=tolerance * size)
        first, second = np.sort(scores)[::-1][:2]
        if first - second > tolerance * max(1.0, abs(first)):
            assert index == int(scores.argmax())
        x = arms[index]
        scale = None if noise_scale is None else torch.tensor(noise_scale, dtype=torch.float64)
        policy.step(tensors, index, torch.tensor(reward, dtype=torch.float64), noise_scale=scale)
        reference.step(x, reward, noise_scale)
        theta = reference.theta
        scale_of_theta = max(1.0, float(np.abs(theta).max()))
        np.testing.assert_allclose(estimator.theta_hat.numpy(), theta, rtol=tolerance, atol=tolerance * scale_of_theta)
        np.testing.assert_allclose(estimator.radius().item(), reference.radius(), rtol=tolerance)
        if t % 5:
            continue
        seen = estimator.width(torch.from_numpy(probes)).numpy()
        np.testing.assert_allclose(seen, reference.width(probes), rtol=tolerance)
        mean = reference.predictor(probes) if hasattr(reference, "predictor") else probes @ theta
        error = reference.radius() * reference.width(probes)
        bound = estimator.theta_bound * np.linalg.norm(probes, axis=-1)
        low, high = (end.numpy() for end in estimator.interval(torch.from_numpy(probes)))
        size = max(1.0, float(bound.max()))
        np.testing.assert_allclose(low, np.maximum(mean - error, -bound), rtol=tolerance, atol=tolerance * size)
        np.testing.assert_allclose(high, np.minimum(mean + error, bound), rtol=tolerance, atol=tolerance * size)
        inverse = np.linalg.inv(reference.V)
        np.testing.assert_allclose(
            estimator.V_inv.numpy(), inverse, rtol=tolerance, atol=tolerance * abs(inverse).max()
        )
    assert int(estimator.rounds) == getattr(reference, "since_start", len(rounds))
