"""Other libraries behind one interface: ``select(context) -> int`` and ``step(context, action, reward)``.

Each is made by ``make(dim, actions, rewards, seed, **options)``. A library is imported when its first learner is made.
"""

from itertools import count

import numpy as np
import torch
from ridges import ArmRidges
from torch import nn


class VW:
    """Vowpal Wabbit: one linear model for each action (``-q sa``), costs 1 - reward, arms drawn as it asks.

    ``explore`` is its exploration, such as ``"--squarecb"``; ``rate`` its learning rate. Vowpal Wabbit adds a constant itself.
    """

    def __init__(
        self, dim: int, actions: int, rewards: str, seed: int, *, explore: str = "--epsilon 0.05", rate: float = 0.5
    ) -> None:
        import vowpalwabbit

        arguments = f"--cb_explore_adf -q sa {explore} --learning_rate {rate} --random_seed {seed + 1} --quiet"
        self.workspace = vowpalwabbit.Workspace(arguments)
        self.generator = np.random.default_rng([seed, 2])
        self.lines = [f"|a {k}" for k in range(actions)]

    def select(self, context: np.ndarray) -> int:
        self.shared = "shared |s " + " ".join(map("%d:%.7g".__mod__, enumerate(context.tolist())))
        shares = np.cumsum(self.workspace.predict([self.shared, *self.lines]))
        action = int((shares < self.generator.random() * shares[-1]).sum())
        self.probability = np.diff(shares, prepend=0.0)[action]
        return action

    def step(self, context: np.ndarray, action: int, reward: float) -> None:
        lines = self.lines.copy()
        lines[action] = f"0:{1.0 - reward}:{self.probability} {lines[action]}"
        self.workspace.learn([self.shared, *lines])


class MABWiser:
    """MABWiser's LinUCB: a ridge regression for each arm, learnt round by round.

    ``alpha`` and ``l2_lambda`` are its options; without them its own defaults hold. It is made ready by its ``fit`` in the
    first ``step``; the first choice is random.
    """

    def __init__(self, dim: int, actions: int, rewards: str, seed: int, **options: float) -> None:
        from mabwiser.mab import MAB, LearningPolicy

        self.mab = MAB(list(range(actions)), LearningPolicy.LinUCB(**options), seed=seed)
        self.first, self.is_new = int(np.random.default_rng([seed, 2]).integers(actions)), True

    def select(self, context: np.ndarray) -> int:
        return self.first if self.is_new else self.mab.predict([context])

    def step(self, context: np.ndarray, action: int, reward: float) -> None:
        learn = self.mab.fit if self.is_new else self.mab.partial_fit
        learn([action], [reward], [context])
        self.is_new = False


class River:
    """river's LinUCBDisjoint: a Bayesian linear regression for each arm, the largest mean + standard deviation.

    ``alpha`` and ``beta`` are its options, the precisions of prior and noise; without them its own defaults hold.
    """

    def __init__(self, dim: int, actions: int, rewards: str, seed: int, **options: float) -> None:
        from river import bandit

        self.policy = bandit.LinUCBDisjoint(seed=seed, **options)
        self.arms = list(range(actions))

    def select(self, context: np.ndarray) -> int:
        self.features = dict(enumerate(context.tolist()))
        return self.policy.pull(self.arms, self.features)

    def step(self, context: np.ndarray, action: int, reward: float) -> None:
        self.policy.update(action, self.features, reward)


class BayesianBandits:
    """bayesianbandits: Thompson sampling from a Bayesian linear regression for each arm, as in its documentation.

    ``beta`` is the precision of the noise, if it is known, and ``alpha`` that of the prior. Without ``beta`` the precision of the
    noise is learnt too, by the library's defaults.
    """

    def __init__(self, dim: int, actions: int, rewards: str, seed: int, **options: float) -> None:
        import bayesianbandits

        name = "NormalRegressor" if "beta" in options else "NormalInverseGammaRegressor"
        learner = getattr(bayesianbandits, name)
        arms = [bayesianbandits.Arm(k, learner=learner(**options)) for k in range(actions)]
        policy = bayesianbandits.ThompsonSampling()
        self.agent = bayesianbandits.ContextualAgent(arms, policy, random_seed=seed)

    def select(self, context: np.ndarray) -> int:
        return self.agent.pull(context[None])[0]

    def step(self, context: np.ndarray, action: int, reward: float) -> None:
        self.agent.select_for_update(action).update(context[None], np.array([reward]))


class ContextualBandits:
    """contextualbandits' LinUCB, learnt round by round. It adds a constant itself."""

    def __init__(self, dim: int, actions: int, rewards: str, seed: int, **options: float) -> None:
        from contextualbandits.online import LinUCB

        self.policy = LinUCB(actions, random_state=seed + 1, **options)
        self.first: int | None = int(np.random.default_rng([seed, 2]).integers(actions))

    def select(self, context: np.ndarray) -> int:
        return self.first if self.first is not None else int(self.policy.predict(context[None])[0])

    def step(self, context: np.ndarray, action: int, reward: float) -> None:
        self.policy.partial_fit(context[None], np.array([action]), np.array([reward]))
        self.first = None


class NeuralLinear:
    """A neural-linear bandit as one writes it: an encoder trained on replay, a ridge regression for each arm on its features.

    Every 100 rounds, encoder and readout of all arms take ``steps`` Adam steps on the squared error of the chosen arms. Then the
    ridge regressions are computed anew from all rounds. ``radius`` 0 is greedy.
    """

    def __init__(
        self,
        dim: int,
        actions: int,
        rewards: str,
        seed: int,
        *,
        radius: float = 0.1,
        rate: float = 3e-3,
        steps: int = 100,
    ) -> None:
        torch.manual_seed(seed)
        self.encoder = nn.Sequential(nn.Linear(dim, 64), nn.ReLU())
        self.readout = nn.Linear(64, actions)
        self.parameters = [*self.encoder.parameters(), *self.readout.parameters()]
        self.optimizer = torch.optim.Adam(self.parameters, lr=rate)
        self.radius, self.steps, self.seen, self.actions = radius, steps, [], actions
        self.ridges, self.generator = ArmRidges(np.ones(1), actions, 65), np.random.default_rng([seed, 2])
        self.rounds = count(1)

    def features(self, contexts: torch.Tensor) -> np.ndarray:
        with torch.no_grad():
            hidden = self.encoder(contexts).double().numpy()
        return np.column_stack([hidden, np.ones(len(hidden))])

    def select(self, context: np.ndarray) -> int:
        self.context = torch.as_tensor(context, dtype=torch.float32)
        self.encoded = self.features(self.context[None])
        estimate, width = self.ridges.predict(self.encoded)
        score = (estimate + self.radius * width)[0]
        return int(self.generator.choice(np.flatnonzero(score == score.max())))

    def step(self, context: np.ndarray, action: int, reward: float) -> None:
        self.seen.append((self.context, action, reward))
        self.ridges.learn(self.encoded, np.array([action]), np.array([reward]))
        if next(self.rounds) % 100 == 0:
            self.retrain()

    def retrain(self) -> None:
        contexts, actions, rewards = (list(column) for column in zip(*self.seen, strict=True))
        x, k = torch.stack(contexts), torch.tensor(actions)
        r = torch.tensor(rewards, dtype=torch.float32)
        for _ in range(self.steps):
            batch = torch.randint(len(k), (128,))
            predicted = self.readout(self.encoder(x[batch])).gather(1, k[batch, None])[:, 0]
            loss = (predicted - r[batch]).square().mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        self.rebuild(self.features(x), np.array(actions), np.array(rewards))

    def rebuild(self, features: np.ndarray, actions: np.ndarray, rewards: np.ndarray) -> None:
        for k in range(self.actions):
            mine = features[actions == k]
            self.ridges.inverse[0, k] = np.linalg.inv(np.eye(mine.shape[1]) + mine.T @ mine)
            self.ridges.theta[0, k] = self.ridges.inverse[0, k] @ (mine.T @ rewards[actions == k])
