"""Private online Frank-Wolfe on balls, DPTOFW, and on polytopes, DPPOFW."""

import math
from typing import Any, Unpack, cast

from torch import Tensor

from torchonline.convex.domains import CrossPolytope, Domain, LpBall, Polytope, Vertices
from torchonline.core.checks import instance_of, one_of
from torchonline.privacy.learners.base import PrivateOptions
from torchonline.privacy.learners.frank_wolfe_base import PrivateFrankWolfe
from torchonline.privacy.learners.point import DEFAULT_RADIUS
from torchonline.privacy.learners.vertex_choice import NoisyVertex
from torchonline.privacy.mechanisms.base import VERTEX_LAWS, Mechanism
from torchonline.privacy.mechanisms.generalized_gaussian import GeneralizedGaussianTree
from torchonline.privacy.mechanisms.prefix_sums import MECHANISMS


class DPTOFW(PrivateFrankWolfe):
    r"""Private online Frank-Wolfe on an :math:`\ell_p` ball, with noise on the sum.

    A round takes one record and the gradients of its loss at the two points of ``queries()``::

        gradients, _ = torchonline.gradients(loss, learner, x, y)
        learner.step(gradients)    # or learner.step(None), for a missing record
        learner.predict()          # public

    The update is in :class:`~torchonline.privacy.learners.frank_wolfe_base.PrivateFrankWolfe`, with :math:`v_t` the minimizer for
    :math:`d_t = (S_t + N_t)/t` and the noise :math:`N_t` of a prefix-sum mechanism.

    Guarantee: the sequence of all decisions, and of all :math:`d_t`, is (epsilon, delta)-differentially private under the
    conditions of :class:`~torchonline.privacy.learners.base.PrivateLearner`; for the Gaussian mechanisms with exact accounting.
    It holds for the numbers that this program computes and publishes, to the last bit. There is no guarantee for the losses,
    because clipping biases long contributions. Proof: docs/privacy_proofs.md.
    Cost of a step: O(5 d) time and memory for ``"blt"``, O(7 d) without a horizon, O(d log n) for the trees, O(n d) for
    ``"sqrt"``.

    Args:
        dim: number of features d.
        horizon: n, the number of steps. A step after the last raises RuntimeError, because the budget is spent. None for no end:
            the promise holds for any number of steps, with about 1.3 times the noise.
        epsilon: of the whole run, above 0; ``inf`` for no privacy and no noise.
        delta: of the whole run, in (0, 1). Choose it much smaller than one over the number of people; a delta of 1 / n or more
            warns, if there is a horizon.
        norm, radius_bound: p and R, the order of the ball's norm, from 1 to infinity, and its radius. The default radius of 3 is
            for linear models on features of norm 1. For logistic loss on such features 10 is better (docs/private_accuracy.md).
            For losses that are curved in all directions, such as the squared distance to points, take the radius of the points.
        domain: a convex set to use instead of the ball, such as :class:`~torchonline.convex.domains.Simplex`, ``Box``,
            ``NuclearBall``, or your own :class:`~torchonline.convex.domains.Domain`.
        clip: C, the bound of the combined gradient g of the round, in the Euclidean norm. g has about the size of one gradient,
            for every t. Too small a clip biases; the noise is proportional to it. ``inf`` only if epsilon is.
        mechanism: ``"blt"``, ``"honaker"``, ``"tree"`` or ``"sqrt"``; or ``"paper"``, the tree with the paper's generalized
            Gaussian noise. That is at least five times the noise needed. The ledger books its actual zCDP. Without a horizon
            ``"blt"`` only.
        scheme: ``"unbiased"``, or ``"paper"``: :math:`g_t = (t+1)\nabla f(\theta_t) - t\nabla f(\theta_{t-1})` over t + 1,
            which is biased by :math:`-\nabla F(\theta_0)/(t+1)`.
        step_scale: c of the steps :math:`\min\{1, c/(t+1)\}`.
        records_a_step: m, the number of people in each step. Each contribution is clipped separately, and their sum gets the
            noise that one contribution needs. The horizon and ``min_separation`` count steps.
        adjacency: which streams are neighbours. ``"replace_one"``: one record is replaced by another. ``"zero_out"``: one
            record is replaced by none, for half the noise. Never compare epsilons of the two: at the same noise,
            ``"replace_one"`` has about twice the epsilon, or more.
        participations, min_separation: k and b. A person takes part in at most k steps, of which any two are at least b apart.
            For E passes over N records in one order: k = E, b = N, ``horizon`` = E N. If each pass has a different order, b is 1.
            For real-valued prefix-sum mechanisms only.
        noise_source, seed: ``"torch"``, ``"csprng"``, or ``"discrete"``, exact in integers, for the tree; a seed for tests.
        batch_shape: ``*B``, independent learners with one clock, each for a stream of different people.
        dtype: of the decisions.
        device: where the state lives. Noise is drawn on the CPU. Each step reads the clock, so the host waits for the device.
        validate: no effect. Shapes, types and devices are always checked, values never.

    Shape: queries and gradients ``(*B, 2, d)``; theta, theta_prev, noisy_sum ``(*B, d)``, noisy_memory
        ``(*B, 5, d)``, public; secret_memory ``(*B, 5, d)``. Without a horizon secret_memory is ``(*B, 7, d)``, int64, and
        there is no noisy_memory.

    Example:
        >>> learner = DPTOFW(2, radius_bound=1.0, horizon=1000, epsilon=1.0, delta=1e-4)
        >>> target = torch.tensor([0.6, 0.0]).double()
        >>> for _ in range(1000):
        ...     learner.step(learner.queries() - target)  # the gradient of |theta - target|^2 / 2
        >>> bool((learner.predict() - target).norm() < 0.3), learner.privacy_spent(1e-4) <= 1.0
        (True, True)

    Reference: Han, Liang, Liang, Wang, Yao and Zhang, On private online convex optimization: optimal algorithms in lp-geometry
    and high dimensional contextual bandits, 2022. What differs: gradients are clipped instead of assumed to be short; the
    weights are unbiased; the noise is a BLT's, calibrated exactly; and the generalized Gaussian of ``mechanism="paper"`` has
    the scale and the index that its theorem needs.
    """

    def __init__(
        self,
        dim: int,
        *,
        norm: float = 2.0,
        radius_bound: float = DEFAULT_RADIUS,
        domain: Domain | None = None,
        clip: float = 1.0,
        mechanism: str = "blt",
        scheme: str = "unbiased",
        step_scale: float = 1.0,
        records_a_step: int = 1,
        **options: Unpack[PrivateOptions],
    ) -> None:
        mechanism = one_of("mechanism", mechanism, (*MECHANISMS, "paper"))
        if domain is None:
            domain = LpBall(dim, norm=norm, radius=radius_bound)
        elif (norm, radius_bound) != (2.0, DEFAULT_RADIUS):
            raise ValueError(f"domain: expected None with norm={norm} and radius_bound={radius_bound}, got both")
        elif instance_of("domain", domain, Domain, "a Domain").dim != dim:
            raise ValueError(f"domain: expected a domain of dimension {dim}, got {domain.dim}")
        elif mechanism == "paper" and not isinstance(domain, LpBall):
            raise ValueError("mechanism: expected another for this domain, got 'paper', whose noise is for a ball")
        super().__init__(
            dim,
            domain=domain,
            clip=clip,
            mechanism=mechanism,
            scheme=scheme,
            step_scale=step_scale,
            records_a_step=records_a_step,
            **options,
        )

    def _new_noise(self) -> Mechanism | NoisyVertex:
        if self.mechanism != "paper" or self.epsilon == math.inf:
            return super()._new_noise()
        self._refuse_several("mechanism='paper'")
        self._refuse_endless("mechanism='paper'")
        norm = cast(LpBall, self.domain).norm
        order = norm / (norm - 1.0) if 1.0 < norm < math.inf else math.inf if norm == 1.0 else 1.0
        shape: dict[str, Any] = {"order": order, "dim": self.dim, "sensitivity": self._moved(max(order, 2.0))}
        shape["longest"] = self._longest_sum()
        return GeneralizedGaussianTree(self.horizon, **shape, **self._promise())


class DPPOFW(PrivateFrankWolfe):
    r"""Private online Frank-Wolfe on a polytope: sparse decisions in high dimension.

    The default polytope is the :math:`\ell_1` ball. Rounds are as in :class:`DPTOFW`. With ``mechanism="gumbel"`` or
    ``"laplace"`` the vertex is chosen by noisy scores (:class:`~torchonline.privacy.learners.vertex_choice.NoisyVertex`),

    .. math:: v_t = \arg\min_v\,\langle d_t, v\rangle - b_t\,G_{t,v},\qquad b_t = \Delta_1/\sqrt{8\rho_1 t},

    for Gumbel noise. For Laplace noise, 2 replaces 8. :math:`\Delta_1` is the most that a record moves the difference of two
    scores in step 1, and :math:`\rho_1` the zCDP of that step.

    Guarantee: as for :class:`DPTOFW`, for the sequence of decisions. Scores, sums, the margin of a choice and the Frank-Wolfe gap
    are not published. With noise on the choice, ``public_state()`` has no direction. Cost of a step: O(md) for m explicit
    vertices, O(d) on the ball.

    Args:
        dim: number of features d.
        horizon: n, the number of steps. A step after the last raises RuntimeError, because the budget is spent. None for no end:
            the promise holds for any number of steps, with about 1.3 times the noise.
        epsilon: of the whole run, above 0; ``inf`` for no privacy and no noise.
        delta: of the whole run, in (0, 1). Choose it much smaller than one over the number of people; a delta of 1 / n or more
            warns, if there is a horizon.
        radius_bound: R, of the ball :math:`\|\theta\|_1 \le R`. Not used with ``vertices``.
        vertices: ``(m, d)``, of another polytope. Choose them without looking at data.
        clip: C, the bound of the combined gradient in the maximum norm.
        mechanism: ``"gumbel"``, ``"laplace"``, ``"blt"``, ``"honaker"``, ``"tree"`` or ``"sqrt"``; or ``"auto"``, Gumbel noise
            if d > 3 n, else ``"blt"``: the better choice in 50 of 51 measured cases (docs/private_oco.md). It reads d and n.
        scheme: ``"unbiased"``, or ``"paper"``: :math:`g_t = (t+1)\nabla f(\theta_t) - t\nabla f(\theta_{t-1})` over t + 1,
            which is biased by :math:`-\nabla F(\theta_0)/(t+1)`.
        step_scale: c of the steps :math:`\min\{1, c/(t+1)\}`.
        records_a_step: m, the number of people in each step. Each contribution is clipped separately, and their sum gets the
            noise that one contribution needs. The horizon and ``min_separation`` count steps.
        adjacency: which streams are neighbours. ``"replace_one"``: one record is replaced by another. ``"zero_out"``: one
            record is replaced by none, for half the noise. Never compare epsilons of the two: at the same noise,
            ``"replace_one"`` has about twice the epsilon, or more.
        participations, min_separation: k and b. A person takes part in at most k steps, of which any two are at least b apart.
            For E passes over N records in one order: k = E, b = N, ``horizon`` = E N. If each pass has a different order, b is 1.
            For real-valued prefix-sum mechanisms only.
        noise_source, seed: ``"torch"``, ``"csprng"``, or ``"discrete"``, exact in integers, for the tree; a seed for tests.
        batch_shape: ``*B``, independent learners with one clock, each for a stream of different people.
        dtype: of the decisions.
        device: where the state lives. Noise is drawn on the CPU. Each step reads the clock, so the host waits for the device.
        validate: no effect. Shapes, types and devices are always checked, values never.

    Shape: theta, theta_prev ``(*B, d)``, public; secret_sum ``(*B, d)``, or the buffers of a mechanism.

    Example:
        >>> learner = DPPOFW(3, horizon=1000, epsilon=1.0, delta=1e-4)
        >>> for _ in range(1000):
        ...     learner.step(torch.tensor([-1.0, 0.0, 0.5]).expand(2, 3))
        >>> learner.mechanism, bool(learner.predict()[0] > 0.8)
        ('blt', True)

    Reference: the paper of :class:`DPTOFW`. What differs: its Laplace noise is for sums of counts; these scores need noise for
    their range only. Gumbel noise, as calibrated here, is three to four times smaller at epsilon 1, and two to three times
    smaller at epsilon 10.
    """

    def __init__(
        self,
        dim: int,
        *,
        radius_bound: float = 1.0,
        vertices: Tensor | None = None,
        clip: float = 1.0,
        mechanism: str = "auto",
        scheme: str = "unbiased",
        step_scale: float = 1.0,
        records_a_step: int = 1,
        **options: Unpack[PrivateOptions],
    ) -> None:
        domain: Vertices = CrossPolytope(dim, radius=radius_bound) if vertices is None else Polytope(vertices)
        if domain.dim != dim:
            raise ValueError(f"vertices: expected shape (m, {dim}), got ({domain.count}, {domain.dim})")
        super().__init__(
            dim,
            domain=domain,
            clip=clip,
            clip_norm=math.inf,
            mechanism=one_of("mechanism", mechanism, ("auto", *VERTEX_LAWS, *MECHANISMS)),
            scheme=scheme,
            step_scale=step_scale,
            records_a_step=records_a_step,
            **options,
        )
