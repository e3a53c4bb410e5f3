"""Coin betting for gradients of unknown length (Cutkosky and Orabona, 2018)."""

import math
from typing import Unpack

import torch
from torch import Tensor

from torchonline.baselines.convex.coin_betting import most
from torchonline.convex.freegrad import euclidean
from torchonline.convex.learner import ConvexLearner
from torchonline.core.ops import (
    along,
    assign_,
    at_least,
    at_most,
    count_,
    dot,
    increase_,
    maximum,
    minimum,
    number,
    or_one,
    sqrt,
    where,
)
from torchonline.core.options import LearnerOptions
from torchonline.linalg import in_ball


class ScaleFreeCoinBetting(ConvexLearner):
    r"""Coin betting that needs to know neither the comparator nor the gradients.

    It combines four reductions. With :math:`\varepsilon` = ``length_scale``:

    1. Length and direction. The point is :math:`w_t = b_tW_ty_t`: a direction :math:`y_t` in the unit ball, times a bet, the
       fraction b of the wealth W.
    2. Direction. :math:`y_{t+1} = \Pi_1(y_t - \sqrt2\,\hat g_t/\sqrt{\sum_{s\le t}\|\hat g_s\|^2})`, from 0: scale-free
       gradient descent.
    3. Bet. With :math:`s_t = \langle\hat g_t, y_t\rangle` and :math:`\zeta_t = s_t/(1 - s_tb_t)`, the wealth becomes
       :math:`W_{t+1} = W_t(1 - s_tb_t)`, and the fraction follows an online Newton step for its logarithm:
       :math:`b_{t+1} = b_t - \zeta_t/(\beta A_{t+1})`, clipped to :math:`\pm1/(2h_{t+1})`, where
       :math:`A_{t+1} = A_t + \zeta_t^2` and :math:`\beta = (2 - \ln3)/2`.
    4. Hints and constraints. The hint :math:`h_t = \max_{s<t}\|g_s\|` bounds the next gradient: a longer gradient is clipped to
       it, :math:`\tilde g_t`, and counted in ``clipped_rounds``. The decision is :math:`x_t = \Pi_{D_t}(w_t)`, on the ball of
       radius :math:`D_t = \varepsilon(\sum_{s<t}\|g_s\|/h_{s+1})^{1/2}`, which grows for any data. If :math:`w_t` is outside, in
       the direction n, and :math:`\langle\tilde g_t, n\rangle < 0`, the component of the gradient along n is removed:
       :math:`\hat g_t = \tilde g_t - \langle\tilde g_t, n\rangle n`. In all other cases :math:`\hat g_t = \tilde g_t`.

    The first nonzero gradient sets :math:`h = h_1 = \|g\|`, :math:`W = \varepsilon h_1` and :math:`A = h_1^2`. Until then x = 0.
    With ``lipschitz`` = G these are set by :math:`h = G` from the start, and h is fixed. Then :math:`D_t = R` = ``radius_bound``,
    which may be infinite: nothing else is needed.

    Guarantee, for all gradients, every u and every T. Let :math:`U = \|u\|`, :math:`Q = \sum_t\|\hat g_t\|^2`, and let h be the
    last hint, :math:`h_{T+1}`. Then

    .. math:: \sum_t\langle g_t, x_t - u\rangle \le{}& \varepsilon h_1 + U\min_{0<v\le1/(2h)}\Big\{\frac1v\Big(
              \ln\frac{U}{\varepsilon h_1v} + \frac\beta8 + \frac1{2\beta}\ln\Big(1 + \frac{4Q}{h_1^2}\Big) - 1\Big) + vQ\Big\}
              + 2\sqrt2\,U\sqrt Q \\
              &+ \sum_t(h_{t+1} - h_t)(\|x_t\| + U) + 2\sum_t\|\tilde g_t\|\max\{U - D_t, 0\}.

    The first line is :math:`\tilde O(\varepsilon h_1 + U\sqrt Q + Uh)`. The second line is at most
    :math:`h(\varepsilon\sqrt T + U) + 2hU(U^2/\varepsilon^2 + 1)`, and is the price of no prior knowledge. With ``lipschitz``,
    for gradients no longer than G and u in the ball, it is 0.

    Proof, part by part:

    - Bet. :math:`-\ln(1 - r) \ge r + \beta r^2/2` for r from -2 to 2/3. So the Newton steps lose at most
      :math:`\beta A_1v^2/2 + \ln(A_{T+1}/A_1)/(2\beta)` to any fixed fraction v:
      :math:`\ln(W_{T+1}/W_1) \ge -v\sum s_t - v^2\sum s_t^2` minus that, as :math:`\ln(1 - r) \ge -r - r^2` for
      :math:`|r| \le 1/2`. Now :math:`\sum s_t(b_tW_t - U) = W_1 - W_{T+1} - U\sum s_t`, whose maximum over
      :math:`\sum s_t` gives :math:`\varepsilon h_1` and the minimum.
    - Direction. :math:`U\sum\langle\hat g_t, y_t - u/U\rangle \le 2\sqrt2U\sqrt Q`, the bound of gradient descent in the
      unit ball. With the bet, it bounds :math:`\sum\langle\hat g_t, w_t - u\rangle`.
    - Ball. :math:`\langle\tilde g_t, x_t - u\rangle \le \langle\hat g_t, w_t - u\rangle` for u in the ball. Any other u
      is moved to the ball in that round, which costs the last sum.
    - Hints. A clipped gradient costs :math:`\langle g_t - \tilde g_t, x_t - u\rangle`, and
      :math:`\|g_t - \tilde g_t\| = h_{t+1} - h_t`.

    The decisions do not depend on the unit of the loss. The wealth is capped at :math:`10^{200}\varepsilon h` (:math:`10^{24}` in
    float32), where the guarantee ends. Cost of a round: O(d).

    Args:
        dim: number of coordinates d.
        length_scale: :math:`\varepsilon > 0`, in units of the decision. The initial wealth is this times a gradient's length.
        lipschitz: bound G > 0 on the length of gradients; None if unknown.
        radius_bound: radius R > 0 of the ball, only with ``lipschitz``; ``inf`` for no ball.
        batch_shape, dtype, device, validate: options of all learners, see :class:`~torchonline.core.learner.Learner`.

    Shape:
        - ``direction`` y: ``(*B, d)``.
        - ``largest_gradient_norm`` h, ``wealth`` W/h, ``fraction`` bh, ``curvature`` :math:`A/h^2`, ``gradient_square_sum``
          :math:`Q/h^2`, ``gradient_ratio_sum`` :math:`(D/\varepsilon)^2`: ``(*B)``. In these units they stay in range.

    Example:
        >>> learner = ScaleFreeCoinBetting(2)
        >>> target = torch.tensor([3.0, -10.0]).double()
        >>> for _ in range(2000):
        ...     learner.step((learner.predict() - target).sign())  # of the distance to the target, coordinate by coordinate
        >>> bool((learner.predict() - target).norm() < 1.0)
        True

    Reference:
        Cutkosky and Orabona, Black-box reductions for parameter-free online learning in Banach spaces, COLT 2018, parts 1 to 3
        and the constraints; Cutkosky, Artificial constraints and hints for unbounded online learning, COLT 2019, part 4. All are
        recalled. The factor :math:`1/\beta = 2/(2 - \ln3)` is checked by the proof. What differs: the gradient outside of the
        ball is that of Cutkosky, Parameter-free, dynamic, and strongly-adaptive online learning, ICML 2020, where the paper of
        2018 takes half of :math:`g + \|g\|n`; the first value of A is inferred from units; and the bound, whose proof follows
        the papers' with these changes.
    """

    statistics_depend_on = ("length_scale", "lipschitz", "radius_bound")

    direction: Tensor
    largest_gradient_norm: Tensor
    wealth: Tensor
    fraction: Tensor
    curvature: Tensor
    gradient_square_sum: Tensor
    gradient_ratio_sum: Tensor
    clipped_rounds: Tensor

    def __init__(
        self,
        dim: int,
        *,
        length_scale: float = 1.0,
        lipschitz: float | None = None,
        radius_bound: float = math.inf,
        **options: Unpack[LearnerOptions],
    ) -> None:
        super().__init__(dim, **options)
        self.length_scale = self._size("length_scale", length_scale)
        self.lipschitz = None if lipschitz is None else self._size("lipschitz", lipschitz)
        self.radius_bound = self._size("radius_bound", radius_bound, math.inf)
        # 1/beta: -ln(1 - r) >= r + beta r^2 / 2 for all r in [-2, 2/3].
        self.newton_step = 2.0 / (2.0 - math.log(3.0))
        self.grows, self.is_bounded = lipschitz is None, self.radius_bound < math.inf
        if self.grows and self.is_bounded:
            raise ValueError(f"radius_bound: expected inf without lipschitz, got {radius_bound!r}")
        self._create_buffers()

    def _initial_state(self) -> dict[str, Tensor | None]:
        state, zero = super()._initial_state(), torch.zeros((), dtype=torch.float64)
        hint, wealth = (torch.tensor(x, dtype=torch.float64) for x in (self.lipschitz or 0.0, self.length_scale))
        sums = {"curvature": zero + 1.0, "gradient_square_sum": zero, "gradient_ratio_sum": zero}
        own = {"largest_gradient_norm": hint, "wealth": wealth, "fraction": zero, "direction": state["decision"]}
        return state | own | sums | {"clipped_rounds": state["rounds"]}

    def _observe(self, gradients: Tensor, values: Tensor | None) -> None:
        count_(self.rounds)
        norm, hint = euclidean(gradients), number(self.largest_gradient_norm)
        increase_(self.clipped_rounds, (norm > hint) & (hint > 0.0))
        h = where(hint > 0.0, hint, norm)
        y, b, W = self.direction, number(self.fraction), number(self.wealth)
        # From here on, gradients are in units of h.
        g = gradients / along(or_one(maximum(norm, h)), gradients)
        if self.grows or self.is_bounded:
            g = self._within(g, y, b, W)
        # The bet.
        s = number(dot(g, y))
        won = 1.0 - s * b
        zeta = s / won
        A = number(self.curvature) + zeta * zeta
        b = at_least(at_most(b - self.newton_step * zeta / or_one(A), 0.5), -0.5)
        W = at_most(W * won, self.length_scale * most(gradients))
        # The direction.
        Q = number(self.gradient_square_sum) + number(dot(g, g))
        y = in_ball(y - along(math.sqrt(2.0) / sqrt(or_one(Q)), g) * g, 1.0)
        assign_(self.direction, y)
        if self.grows:
            # The next hint, and all statistics in its units.
            longest = maximum(norm, h)
            kept = where(longest > 0.0, h / or_one(longest), 1.0 + 0.0 * h)
            b = maximum(minimum(b, 0.5 * kept), -0.5 * kept) / or_one(kept)
            W, A, Q = W * kept, A * kept * kept, Q * kept * kept
            assign_(self.largest_gradient_norm, longest)
            increase_(self.gradient_ratio_sum, norm / or_one(longest))
        assign_(self.fraction, b)
        assign_(self.wealth, W)
        assign_(self.curvature, A)
        assign_(self.gradient_square_sum, Q)
        w = along(b * W, y) * y
        if self.grows:
            length = euclidean(w)
            w = along(minimum(self._radius(length), length) / or_one(length), w) * w
        elif self.is_bounded:
            w = in_ball(w, self.radius_bound)
        assign_(self.decision, w)

    def _radius(self, like: Tensor) -> Tensor:
        """Return the radius of the ball that contains the decision, ``(*B)``."""
        if self.grows:
            return self.length_scale * number(sqrt(number(self.gradient_ratio_sum)))
        return self.radius_bound + 0.0 * like

    def _within(self, g: Tensor, y: Tensor, b: Tensor, W: Tensor) -> Tensor:
        """Remove the component of a gradient that leads further out of the ball."""
        bet, size = b * W, euclidean(y)
        bound = self._radius(size)
        n = y / along(or_one(size), y)
        # Outwards is along n for a positive bet, and along -n for a negative one.
        along_n = number(dot(g, n))
        left_out = (abs(bet) * size > bound) & (along_n * bet < 0.0)
        return g - along(where(left_out, along_n, 0.0 * along_n), n) * n
