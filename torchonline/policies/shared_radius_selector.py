"""Arms with features, and a selector that learns the best multiple of the radius."""

from typing import Any

from torch import Tensor

from torchonline.core.checks import passes
from torchonline.core.ops import in_type_of, of_chosen
from torchonline.policies.composed import ComposedPolicy
from torchonline.policies.radius_multiples import RadiusMultiples
from torchonline.policies.rules import UCB
from torchonline.policies.scaler import StandardScaler
from torchonline.regression.blocks import learn_by_step
from torchonline.regression.estimator import Estimator


class SharedRadiusSelector(RadiusMultiples, ComposedPolicy):
    r"""UCB on arms with features, and a selector that learns the best radius multiple.

    The selector works as in :class:`RadiusSelector`. A round::

        k = policy.select(arms)
        policy.step(arms, k, reward)

    :meth:`step` needs all arms of the decision, because it computes which multiples named the played arm. Everything else is as
    in :class:`RadiusSelector`: the rules, the gains, the heuristics, and the guarantee of ``"exp4"``, with M in place of min(K,
    M): 4 sqrt(T M log M). K may vary from round to round.

    Cost: O(K m^2) for a decision and for a step.

    Args:
        estimator: with m features. The multiples multiply its radius.
        scales: the M multiples, above 0. Include 1, so that the estimator's own radius stays available.
        rule: "ucb" or "exp4".
        reward_range: lowest and highest reward; None for gains by rank.
        scaler: a :class:`StandardScaler` of the arms' features with m outputs; None to use the raw features.

    Shape:
        - arms: ``(*B, ..., K, d)``, with d = m if there is no scaler; scores ``(*B, ..., K)``.
        - :meth:`step`: arms ``(*B, K, d)``, action and reward ``(*B)``; or ``(*B, n, K, d)`` and ``(*B, n)`` for n rounds.
        - ``plays``, ``gains``, ``losses``, ``recent``: as in :class:`RadiusSelector`.

    Example:
        >>> policy = SharedRadiusSelector(RidgeRegression(2))
        >>> arms = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]])
        >>> policy.step(arms, policy.select(arms), 1.0)
        >>> int(policy.rounds)
        1

    Reference:
        That of :class:`RadiusSelector`, for EXP4-IX.
    """

    learns_rows, has_batch_views = False, False

    def __init__(
        self,
        estimator: Estimator,
        *,
        scales: tuple[float, ...] = (1.0, 0.3, 0.1, 0.03, 0.01),
        rule: str = "ucb",
        reward_range: tuple[float, float] | None = None,
        scaler: StandardScaler | None = None,
    ) -> None:
        self._set_options(estimator, scales, rule, reward_range)
        dim = scaler.dim if isinstance(scaler, StandardScaler) else estimator.dim
        super().__init__(UCB(estimator), scaler, estimator.batch_shape, dim)
        self._create_buffers()

    def _most_named(self) -> int:
        return len(self.scales)

    def _estimates(self, features: Tensor) -> tuple[Tensor, Tensor]:
        return self.policy.estimator.estimate_and_bonus(features)

    def _as_round(self, x: Tensor, place: Tensor) -> tuple[Tensor, Tensor]:
        return x, place

    def _accepts(self, x: Tensor, place: Tensor, reward: Tensor, noise_scale: Tensor | None) -> Tensor:
        row = self._features(of_chosen(x, place))
        return passes(x).flatten(-2).all(-1) & self.policy.estimator._accepts(row, reward, noise_scale)

    def _chosen(self, inputs: Tensor, place: Tensor) -> Tensor:
        return in_type_of(inputs, self.policy.estimator.theta_hat)

    def _learn_round(self, x: Tensor, place: Tensor, reward: Tensor, noise_scale: Tensor) -> None:
        agree, row = self._agreement(x, place), of_chosen(x, place)
        # The estimator may refuse the round, so it learns before anything else is written.
        features = self._features(row)
        self.policy.estimator._learn_round(features, reward, noise_scale)
        self._credit_(agree, reward)
        self._end_round_(row, features, place, noise_scale)

    def _learn_rounds(
        self,
        x: Tensor,
        place: Tensor,
        reward: Tensor,
        noise_scale: Tensor | None,
        block_size: int | None,
        mask: Tensor | None,
    ) -> None:
        self.step(x, place, reward, noise_scale=noise_scale)

    # TorchScript does not compile the methods below.

    def _plain_row(self, rows: Any, k: int) -> Any:
        return rows if k < len(rows) else None

    def _chosen_of_checked(self, x: Tensor, place: Any) -> Tensor:
        return x

    def _learn_log_of_decisions(
        self, inputs: Any, action: Any, reward: Any, noise_scale: Any, block_size: Any, mask: Any
    ) -> None:
        learn_by_step(self, block_size, mask, inputs, action, reward, noise_scale=noise_scale)
