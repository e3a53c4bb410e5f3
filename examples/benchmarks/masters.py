"""Masters over multiples of a radius, in NumPy, for many seeds at once."""

import math
from collections.abc import Sequence

import numpy as np

SCALES = (1.0, 0.3, 0.1, 0.03, 0.01)


class Range:
    """Rewards cut to [0, 1]: the twin of ``reward_range=(0, 1)``."""

    def __init__(self, members: int) -> None:
        self.recent, self.count = np.zeros((members, 256)), 0

    def __call__(self, reward: np.ndarray) -> np.ndarray:
        """Return the gains of the members' rewards, (B) twice."""
        return np.clip(reward, 0.0, 1.0)


class Ranks(Range):
    """The share of the last 256 rewards below a reward, equal ones by half: the twin of ``reward_range=None``."""

    def __call__(self, reward: np.ndarray) -> np.ndarray:
        self.recent[:, self.count % 256] = reward
        self.count += 1
        recent = self.recent[:, : self.count]
        return 0.5 * ((recent < reward[:, None]).mean(1) + (recent <= reward[:, None]).mean(1))


class Master:
    """Exp3 over M multiples, for B members: only the played multiple learns from its loss.

    Args:
        rates: multiply the rate sqrt(log M / (options t)), (B). At 0, multiples are drawn uniformly.
        actions, rounds, seeds: K, T, and a seed of each member.
    """

    def __init__(self, rates: np.ndarray, actions: int, rounds: int, seeds: Sequence[int]) -> None:
        self.rates, self.rounds, self.options = rates, rounds, len(SCALES)
        self.draws = np.stack([np.random.default_rng([seed, 3]).random(rounds) for seed in seeds], axis=1)
        self.members, self.count = np.arange(len(seeds)), 1
        self.losses = np.zeros((len(seeds), len(SCALES)))

    def rate(self) -> np.ndarray:
        return self.rates * math.sqrt(math.log(len(SCALES)) / (self.options * self.count))

    def shares(self) -> np.ndarray:
        exponent = -self.rate()[:, None] * self.losses
        weights = np.exp(exponent - exponent.max(1, keepdims=True))
        return weights / weights.sum(1, keepdims=True)

    def play(self) -> np.ndarray:
        """Return the played multiple of each member."""
        up_to = self.shares().cumsum(1)
        return (self.draws[self.count - 1][:, None] * up_to[:, -1:] >= up_to).sum(1)

    def step(self, played: np.ndarray, agree: np.ndarray, loss: np.ndarray, guess: np.ndarray) -> None:
        """Learn: ``agree`` says which multiples named the played arm, ``guess`` the predicted losses of the named arms."""
        self.credit(1.0 * (np.arange(len(SCALES)) == played[:, None]), agree, loss, guess)
        self.count += 1

    def credit(self, played: np.ndarray, agree: np.ndarray, loss: np.ndarray, guess: np.ndarray) -> None:
        self.add(played, loss[:, None], 0.0)

    def add(self, credited: np.ndarray, loss: np.ndarray, floor: float) -> None:
        """Add the loss over the probability of the credited multiples, which is raised by ``floor`` rates."""
        chance = (self.shares() * credited).sum(1) + floor * self.rate()
        self.losses += credited * loss / chance[:, None]


class Exp3IX(Master):
    """Exp3 with implicit exploration."""

    def credit(self, played: np.ndarray, agree: np.ndarray, loss: np.ndarray, guess: np.ndarray) -> None:
        self.add(played, loss[:, None], 0.5)


class Exp4IX(Master):
    """EXP4-IX: every multiple that named the played arm learns. The twin of ``rule="exp4"``, whose rates are 1."""

    def __init__(self, rates: np.ndarray, actions: int, rounds: int, seeds: Sequence[int]) -> None:
        super().__init__(rates, actions, rounds, seeds)
        self.options = min(actions, len(SCALES))

    def credit(self, played: np.ndarray, agree: np.ndarray, loss: np.ndarray, guess: np.ndarray) -> None:
        self.add(agree, loss[:, None], 0.5)


class DoublyRobust(Exp4IX):
    """EXP4-IX on the difference from the predicted loss of the named arm, plus that prediction."""

    def credit(self, played: np.ndarray, agree: np.ndarray, loss: np.ndarray, guess: np.ndarray) -> None:
        self.add(agree, loss[:, None] - guess, 0.5)
        self.losses += guess


class Corral(Master):
    """CORRAL (Agarwal et al., COLT 2017): mirror descent by the log barrier, with rates that grow as shares fall."""

    def __init__(self, rates: np.ndarray, actions: int, rounds: int, seeds: Sequence[int]) -> None:
        super().__init__(rates, actions, rounds, seeds)
        self.p = np.full(self.losses.shape, 1.0 / len(SCALES))
        self.each = rates[:, None] * np.full(self.losses.shape, math.sqrt(len(SCALES) / rounds))
        self.bound = np.full(self.losses.shape, 2.0 * len(SCALES))

    def shares(self) -> np.ndarray:
        return (1.0 - 1.0 / self.rounds) * self.p + 1.0 / (self.rounds * len(SCALES))

    def credit(self, played: np.ndarray, agree: np.ndarray, loss: np.ndarray, guess: np.ndarray) -> None:
        estimate = played * loss[:, None] / self.shares()
        low, high = np.zeros(len(loss)), estimate.max(1)
        for _ in range(50):
            middle = 0.5 * (low + high)
            total = (1.0 / (1.0 / self.p + self.each * (estimate - middle[:, None]))).sum(1)
            is_high = total > 1.0
            low, high = np.where(is_high, low, middle), np.where(is_high, middle, high)
        self.p = 1.0 / (1.0 / self.p + self.each * (estimate - low[:, None]))
        self.p /= self.p.sum(1, keepdims=True)
        is_rare = 1.0 / self.shares() > self.bound
        self.bound = np.where(is_rare, 2.0 / self.shares(), self.bound)
        self.each = np.where(is_rare, self.each * math.exp(1.0 / math.log(self.rounds)), self.each)


class UCB1(Master):
    """The twin of ``rule="ucb"``, whose constant is 0.3."""

    def __init__(self, rates: np.ndarray, actions: int, rounds: int, seeds: Sequence[int]) -> None:
        super().__init__(rates, actions, rounds, seeds)
        self.plays, self.gains = np.zeros(self.losses.shape), np.zeros(self.losses.shape)

    def play(self) -> np.ndarray:
        plays = np.maximum(self.plays, 1.0)
        bonus = self.rates[:, None] * np.sqrt(math.log(1.0 + self.count) / plays)
        return np.where(self.plays == 0.0, np.inf, self.gains / plays + bonus).argmax(1)

    def credit(self, played: np.ndarray, agree: np.ndarray, loss: np.ndarray, guess: np.ndarray) -> None:
        self.plays += agree
        self.gains += agree * (1.0 - loss[:, None])


class RegretBalancing(UCB1):
    """Regret balancing with elimination (Pacchiano et al., 2020), for regret bounds ``rate`` multiple sqrt(plays)."""

    def __init__(self, rates: np.ndarray, actions: int, rounds: int, seeds: Sequence[int]) -> None:
        super().__init__(rates, actions, rounds, seeds)
        self.is_active = np.ones(self.losses.shape, bool)

    def play(self) -> np.ndarray:
        bounds = np.array(SCALES) * np.sqrt(self.plays)
        return np.where(self.is_active, bounds, np.inf).argmin(1)

    def credit(self, played: np.ndarray, agree: np.ndarray, loss: np.ndarray, guess: np.ndarray) -> None:
        super().credit(played, agree, loss, guess)
        plays, rate = np.maximum(self.plays, 1.0), self.rates[:, None]
        mean, error = self.gains / plays, rate * np.sqrt(math.log(1.0 + self.count) / plays)
        low = np.where(self.plays > 0.0, mean - error, -np.inf).max(1, keepdims=True)
        is_bad = mean + rate * np.array(SCALES) / np.sqrt(plays) + error < low
        self.is_active &= ~is_bad | (self.plays == 0.0)


class Fixed(Master):
    """One multiple in all rounds: the constant is its index."""

    def play(self) -> np.ndarray:
        return self.rates.astype(int)

    def credit(self, played: np.ndarray, agree: np.ndarray, loss: np.ndarray, guess: np.ndarray) -> None:
        return


# Each master, and three values of its constant. The masters that draw have 1 in theory, up to a factor of about 2.
MASTERS: dict[str, tuple[type[Master], tuple[float, float, float]]] = {
    "Exp3": (Master, (1.0, 3.0, 9.0)),
    "Exp3-IX": (Exp3IX, (1.0, 3.0, 9.0)),
    "EXP4-IX": (Exp4IX, (1.0, 3.0, 9.0)),
    "doubly robust EXP4-IX": (DoublyRobust, (1.0, 3.0, 9.0)),
    "CORRAL": (Corral, (1.0, 3.0, 9.0)),
    "regret balancing": (RegretBalancing, (0.1, 0.3, 0.9)),
    "ucb": (UCB1, (0.1, 0.3, 0.9)),
}
