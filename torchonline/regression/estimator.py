"""Base of the linear estimators: statistics, widths and an all-or-nothing step."""

import math
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import unset_fake_temporarily

from torchonline.core import checks
from torchonline.core.backend import SMALL_STEP, in_python, is_readable, may_hold
from torchonline.core.inputs import ArrayLike
from torchonline.core.ops import (
    along,
    at_least,
    converted,
    fill_,
    matmul,
    matvec,
    maximum,
    minimum,
    number,
    real,
    roundoff,
    row_dots,
    rows_times,
    sqrt,
    trace,
)
from torchonline.core.options import LearnerOptions
from torchonline.core.precision_matrix import (
    REFINE_EVERY,
    add_outer_,
    check_matrix,
    is_time_to_refine,
    refine_,
    start_of,
)
from torchonline.linalg import add_diagonal, diagonal
from torchonline.regression.arguments import check_growth, on_rows, step_rounds
from torchonline.regression.block_learner import BlockEstimator
from torchonline.regression.blocks import learn_in_blocks, learns_at_once

# A reward in [0, 1] is 1/2-sub-Gaussian around its mean (Hoeffding's lemma), with a p-norm of at most 1/2 for p up to 2.
NOISE_OF_UNIT_REWARDS = 0.5

# A subclass that overrides one of these gets a row for each learner of a batch, unless it sets `takes_one_row`.
ON_ROWS = ("predictor", "affine", "width", "raised", "_squared_width")
# The members that a theorem about the confidence set depends on.
OF_CONFIDENCE = (
    "_observe",
    "_observe_block",
    "radius",
    "width_matrix",
    "affine",
    "predictor",
    "width",
    "_squared_width",
    "interval",
)


def default_ridge(dim: int, theta_bound: float) -> float:
    """Return the ridge d / S^2, with which |theta| <= S adds d to the squared radius."""
    dim, bound = checks.positive_integer("dim", dim), checks.positive("theta_bound", theta_bound)
    if not 1e-20 <= bound <= 1e20:
        raise ValueError(f"theta_bound: expected from 1e-20 to 1e20, unless ridge is given, got {bound:g}")
    return dim / bound**2


class Estimator(BlockEstimator):
    r"""Base of all linear estimators: a prediction, a confidence set and an update.

    A subclass implements :meth:`radius` and :meth:`_observe`, which run on tensors and on NumPy views. :meth:`_initial_state`
    names further buffers. A subclass with an ``output_shape`` predicts several responses from the same features, and does not fit
    a policy. Widths are :math:`\|x\|_{V^{-1}}`, unless a subclass has another :meth:`width_matrix`. ``forward`` and ``width`` are
    differentiable in x.

    *The confidence set holds* means :math:`|x^\top(\hat\theta-\theta^*)| \le \text{radius}\cdot\text{width}(x)` for all rounds
    and all x at once. A guarantee says this with probability at least 1 - ``delta``, unless it names another probability.

    Args:
        dim: d, number of features.
        ridge: :math:`\lambda > 0`; V starts at :math:`\lambda I`.
        radius_scale: multiplies the radius. Other than 1 it is a heuristic.
        noise_scale: in units of the reward.
        theta_bound: S > 0, a bound on the norm of the true parameter. S = 1 allows mean rewards from -1 to 1 along features of
            length 1. Too large costs regret; too small voids the guarantee (docs/promises.md).
        restart_every: rounds after which a learner forgets everything, for a parameter that moves; None for never. ``rounds``
            counts the rounds since the last start. A guarantee holds for each epoch separately, if the parameter does not move
            in that epoch (docs/drift.md).
        batch_shape, dtype, device, validate: options of all learners, see :class:`~torchonline.core.learner.Learner`.

    Shape:
        - ``theta_hat``, ``(*B, d)``; ``V``, ``V_inv``, ``(*B, d, d)``; ``rounds``, ``(*B)``.
    """

    if TYPE_CHECKING:  # an annotation of None would hide the buffer from TorchScript
        V_lost: Tensor | None
        noise_scale: Any
        theta_bound: Any

        def __call__(self, x: ArrayLike) -> Tensor: ...

    theta_hat: Tensor
    V: Tensor
    V_inv: Tensor
    rounds: Tensor

    # The name of the response in `step`.
    response = "reward"
    positive_definite: tuple[str, ...] = ("V", "V_inv")
    inverses: tuple[tuple[str, str], ...] = (("V", "V_inv"),)
    # Buffers that the arms of a DisjointArms share: a round of one arm changes them for all arms.
    pooled: tuple[str, ...] = ()
    # Where a theorem proves the confidence set, under the docstring's conditions: "in all rounds" or "in each round"; "none"
    # for a heuristic; "" if the class does not say. A subclass that changes the set starts with "".
    guarantee = ""
    # Whether the features of an earlier round can be replaced by others.
    can_replace = False
    # Whether a decision can enter the statistics before its reward, see :meth:`Policy.open`.
    can_open = False
    # Whether the rounds of several arms that share statistics can be learnt at once, by `_observe_arms_`.
    has_pooled_blocks = False
    # The number of first rounds that are learnt in order before the first such block.
    rounds_before_blocks = 0
    # Whether, on NumPy views, the methods in ON_ROWS take one row, ``(d)``, for all learners of a batch.
    takes_one_row = True
    # Whether a step can run on NumPy views.
    runs_on_arrays = True
    # Rounds with less noise than this are refused.
    smallest_noise_scale = 0.0
    # The longest features that a round may have.
    longest = math.inf
    # Whether the state has d x d matrices.
    keeps_matrices = True
    # Whether a round changes, and a prediction reads, only the columns of `theta_hat` and `variances` in which x is not 0.
    has_own_columns = False

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for method in (cls.radius, cls.posterior_scale, cls._of_posterior):
            torch.jit.export(method)  # files have it even if nothing else calls it
        if not cls.__dict__.keys().isdisjoint(ON_ROWS) and "takes_one_row" not in cls.__dict__:
            cls.takes_one_row = False
        if not cls.__dict__.keys().isdisjoint(OF_CONFIDENCE) and "guarantee" not in cls.__dict__:
            cls.guarantee = ""

    def __init__(
        self,
        dim: int,
        ridge: float,
        radius_scale: float,
        noise_scale: float = 1.0,
        theta_bound: float = 1.0,
        restart_every: int | None = None,
        output_shape: tuple[int, ...] = (),
        **options: Unpack[LearnerOptions],
    ) -> None:
        super().__init__(dim, **options)
        if self.keeps_matrices:
            check_matrix("dim", self.dim, 2, type(self).__name__)
        dtype = self._initial_options["dtype"]
        self.output_shape = output_shape
        if not output_shape:  # with outputs, the subclass has buffers of these names
            self.noise_scale = checks.non_negative("noise_scale", noise_scale)
            self.theta_bound = checks.positive("theta_bound", theta_bound)
        self.ridge = checks.positive("ridge", ridge)
        checks.check_size("ridge", self.ridge, torch.finfo(dtype).max, dtype)
        self.radius_scale = checks.positive("radius_scale", radius_scale)
        self.restart_every = None if restart_every is None else checks.positive_integer("restart_every", restart_every)
        # Whether `learn` learns many rounds at once. TorchScript does not see class attributes.
        has_form = type(self)._observe_block is not Estimator._observe_block
        is_own = self.has_own_step or not learns_at_once(type(self), "_observe_block", ("_observe", "_learn_round"))
        self.has_blocks = has_form and not is_own
        self.features_shape = (*self.batch_shape, self.dim)
        self.response_shape = (*self.batch_shape, *output_shape)
        row = max(self.dim, *output_shape, 1) if self.keeps_matrices else 1
        size = math.prod(self.batch_shape) * self.dim * row
        self.is_small = self.runs_on_arrays and size < SMALL_STEP
        # Multiplications of a decision for each entry of its features.
        self.multiplications = self.dim
        # A float32 sum of many outer products needs compensation.
        self.compensated = dtype == torch.float32

    def _initial_state(self) -> dict[str, Tensor | None]:
        theta_hat = torch.zeros((self.dim, *self.output_shape), dtype=torch.float64)
        V = start_of(self.dim, self.ridge, "V", self.compensated)
        return {"theta_hat": theta_hat} | V | {"rounds": torch.zeros((), dtype=torch.int64)}

    def _create_buffers(self) -> None:
        # An option outside the range of the state's dtype would become infinite or 0.
        dtype = self._initial_options["dtype"]
        for name in ("noise_scale", "theta_bound", "feature_bound", "minimum_scale", "floor"):
            value = self.__dict__.get(name)
            if value:
                checks.check_size(name, value, checks.LARGEST[dtype], dtype)
        super()._create_buffers()
        self.evolving = [
            name for name, buffer in self._buffers.items() if buffer is not None and name not in self.unchanging
        ]
        # Readable numbers, even under torch.device("meta") and in fake mode.
        with torch.device("cpu"), unset_fake_temporarily():
            self.starts = [start for item in self._initial_state().items() if (start := _start(*item)) is not None]

    def radius(self) -> Tensor:
        """Return the confidence radius times ``radius_scale``: ``(*B, *output_shape)``."""
        raise NotImplementedError

    def posterior_scale(self) -> Tensor:
        r"""Return the scale of the posterior: ``(*B, *output_shape)``.

        The posterior of the parameter is :math:`N(\hat\theta, s^2M)`, with this scale s and the M of :meth:`width_matrix`.
        :class:`~torchonline.ThompsonSampling` draws from it. By default s is ``noise_scale``: right if M is the inverse of a V
        that adds :math:`xx^\top` for each reward. An estimator overrides it if M is in other units. ``radius_scale`` does not
        multiply it.
        """
        return self._for_each(self.noise_scale)

    def _for_each(self, value: float) -> Tensor:
        """Return one number for each learner: ``(*B)``."""
        return 0.0 * real(self.rounds, self.theta_hat) + value

    def _observe(self, x: Tensor, reward: Tensor, noise_scale: Tensor) -> None:
        """Learn from one round: ``(*B, d)``, ``(*B, *output_shape)`` twice."""
        # Refuse before the first write.
        raise NotImplementedError

    @torch.jit.export
    def _observe_arms_(self, x: Tensor, arm: Tensor, reward: Tensor, noise_scale: Tensor) -> None:
        """Learn from n rounds of several arms: ``(n, d)`` and ``(n)`` three times."""
        raise NotImplementedError

    def _replace_(self, old: Tensor, new: Tensor, target: Tensor, weight: Tensor) -> Tensor:
        """Replace the features of an earlier round: ``(*B, d)`` twice, ``(*B)`` twice.

        Features and ``target``, the response that was learnt, are multiplied by the round's weight; 0 changes nothing. Return
        whether the round was replaced: a round that outweighs the others stays.
        """
        raise NotImplementedError

    def _open_round(self, x: Any, place: Any, noise_scale: Any) -> Any:
        """Add features to the statistics, with their own prediction as the response.

        Return the record, ``(*B, d + 2)``, of ``(*B, d)`` and ``(*B)``: the features, the noise scale and the response.
        ``place`` is not used. Python only.
        """
        raise NotImplementedError

    def _drop_round(self, opened: Any, place: Any) -> None:
        """Take the features of a record, and their response, out again. Python only."""
        raise NotImplementedError

    def _learn_opened(self, opened: Any, place: Any, reward: Any) -> None:
        """Learn the reward, ``(*B)``, of a decision that was dropped. Python only."""
        self._learn_round(opened[..., : self.dim], reward, number(opened[..., self.dim]))

    def width_matrix(self) -> Tensor:
        """Return M of ``width(x) = sqrt(x'Mx)``, ``(*B, d, d)``; by default ``V_inv``."""
        return self.V_inv

    def width_allowance(self) -> Tensor | None:
        """Return the addition to M's diagonal against rounding, ``(*B)``, or None."""
        return None

    def moves_of_width(self, x: Tensor) -> list[Tensor]:
        """Return vectors whose span holds M's change in a round at x, ``(*B, d)`` each.

        That is, M changes by a linear combination of products ``u v'`` of them, up to rounding. FixedArms follows such changes,
        and detects others.
        """
        # V grows by a multiple of xx'.
        return [matvec(self.width_matrix(), x)]

    def _of_posterior(self, noise: Tensor) -> Tensor:
        """Return draws of N(0, M), given draws of N(0, I): ``(*B, n, d)`` twice."""
        matrix = self.width_matrix()
        factor, _ = torch.linalg.cholesky_ex(add_diagonal(matrix, 8.0 * roundoff(matrix) * trace(matrix)))
        return matmul(noise, factor.mT)

    def affine(self) -> tuple[Tensor, Tensor | None]:
        """Return theta, ``(*B, d)``, and c, ``(*B)`` or None, of x'theta + c.

        By default, ``theta_hat`` and None for 0.
        """
        return self.theta_hat, None

    def _response(self, predictor: Tensor) -> Tensor:
        """Return the mean reward at a predictor: by default, the predictor itself."""
        return predictor

    def raised(self, predictor: Tensor) -> Tensor:
        """Return the estimates that :class:`UCB` adds a bonus to; by default predictors."""
        return predictor

    def estimate_and_bonus(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the terms of an upper bound: raised predictors, and radius times width.

        Shapes: ``(*B, ..., d)`` to ``(*B, ...)`` twice.
        """
        estimate = self.raised(self.predictor(x))
        return estimate, along(self.radius(), estimate) * self.width(x)

    def possible_reward(self, values: Tensor) -> Tensor:
        """Return the possible rewards nearest to ``values``. Python only."""
        return values

    def forward(self, x: Tensor) -> Tensor:
        """Return the estimated mean reward: ``(*B, ..., d)`` to ``(*B, ...)``."""
        return self._response(self.predictor(x))

    @on_rows
    def predictor(self, x: Tensor) -> Tensor:
        """Return the linear predictor, x'theta + c: ``(*B, ...)``."""
        x = converted(x, self.theta_hat)
        if self.batch_dims > 0 and self._is_shared(x):
            return self._predictor_of_row(x)
        theta, offset = self.affine()
        if self.batch_dims == 0:
            predictor = rows_times(x, theta)
        else:
            predictor = rows_times(self.grouped(x), theta[..., None]).reshape(x.shape[:-1])
        return predictor if offset is None else predictor + along(offset, predictor)

    def _predictor_of_row(self, x: Tensor) -> Tensor:
        """Return the predictors of one row by all learners: ``(d)`` to ``(*B)``."""
        theta, offset = self.affine()
        predictor = matvec(theta, x)
        return predictor if offset is None else predictor + offset

    @torch.jit.export
    @on_rows
    def width(self, x: Tensor) -> Tensor:
        """Return the norm that the radius multiplies: ``(*B, ..., d)`` to ``(*B, ...)``."""
        x = converted(x, self.theta_hat)
        is_one_list = self.batch_dims == 0 or self._is_shared(x)
        square = self._squared_width(x) if is_one_list else self._squared_width(self.grouped(x)).reshape(x.shape[:-1])
        # Not 0, where the square root is not differentiable.
        return sqrt(at_least(square, 1e-38))

    @torch.jit.export
    @on_rows
    def interval(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return lower and upper confidence bounds of the mean reward.

        Shapes: ``(*B, ..., d)`` to ``(*B, ...)`` twice. The class attribute ``guarantee`` says what a theorem covers; with a
        ``radius_scale`` other than 1 they are a heuristic. They are clipped to the range that ``theta_bound`` allows. A lower
        bound above the upper one means that the confidence set has no such parameter: ``theta_bound`` is too small, the rewards
        are not of the family, or the failure event of probability ``delta`` has occurred.
        """
        x = converted(x, self.theta_hat)
        predictor = self.predictor(x)
        error = along(self.radius(), predictor) * self.width(x)
        bound = self.theta_bound * sqrt(row_dots(x, x))
        low, high = maximum(predictor - error, -bound), minimum(predictor + error, bound)
        return self._response(low), self._response(high)

    def plot_confidence_set(
        self,
        ax: Any = None,
        *,
        coordinates: tuple[int, int] = (0, 1),
        index: Any = None,
        truth: ArrayLike | None = None,
        label: str | None = None,
        **style: Any,
    ) -> tuple[Any, Any]:
        r"""Draw the confidence set's projection onto two coordinates, and its center.

        The set :math:`\{\theta : \|\theta - \hat\theta\|_{M^{-1}} \le \text{radius}\}`, with the M of :meth:`width_matrix`, is
        an ellipsoid. Its projection onto coordinates i and j is the ellipse around :math:`(\hat\theta_i, \hat\theta_j)` with
        the same radius and the rows and columns i and j of M: the parameters in the set have exactly these pairs of
        coordinates. The set is not clipped to ``theta_bound``. The title says whether a theorem covers the set. Needs
        matplotlib. Changes no state.

        Args:
            ax: matplotlib axes; None for a new figure of pyplot.
            coordinates: i and j, two different ones from 0 to d - 1.
            index: which learner of a batch, an integer or a tuple; with several outputs, also which output. None for a single
                one.
            truth: the true parameter ``(d)``, to be marked if it is known.
            label: written above the ellipse, for several sets in the same axes.
            style: options of matplotlib for its line, such as ``color`` and ``linestyle``.

        Returns:
            The figure and the axes.

        Raises:
            ImportError: matplotlib is not installed.
            TypeError: the confidence set is not such an ellipsoid.
            ValueError: ``coordinates``, ``index`` or the shape of ``truth`` is wrong, or the radius is infinite.

        Example:
            >>> learner = RidgeRegression(3)
            >>> learner.step(torch.eye(3), torch.tensor([1.0, 0.5, 0.0]))
            >>> figure, axes = learner.plot_confidence_set(coordinates=(0, 2), truth=[0.8, 0.4, 0.1])
            >>> axes.get_xlabel()
            'coordinate 0 of the parameter'
        """
        from torchonline.regression.plots import draw_confidence_set

        return draw_confidence_set(self, ax, coordinates, index, truth, label, style)

    def _squared_width(self, x: Tensor) -> Tensor:
        """Return ``x'Mx`` for rows.

        Shapes: ``(..., d)`` of one learner; ``(*B, n, d)``; or ``(d)``, one row for all learners.
        """
        matrix, allowance = self.width_matrix(), self.width_allowance()
        if allowance is not None:
            matrix = add_diagonal(matrix, allowance)
        if self.batch_dims > 0 and self._is_shared(x):
            return matvec(matvec(matrix, x), x)
        return row_dots(rows_times(x, matrix), x)

    def _is_shared(self, x: Tensor) -> bool:
        """Return whether all learners get one row, ``(d)``: only on NumPy views."""
        return len(x.shape) == 1

    def grouped(self, x: Tensor) -> Tensor:
        """Return ``(*B, ..., d)`` as one list of rows for each learner, ``(*B, n, d)``."""
        return x.reshape(list(self.rounds.shape) + [-1, self.dim])

    @torch.jit.export
    @in_python(step_rounds)
    def step(self, x: Tensor, reward: Tensor, noise_scale: Tensor | None = None) -> None:
        """Learn from the reward of a decision, or from several in order.

        Non-tensor arguments are converted once, without rounding.

        Args:
            x: features of the chosen arm, ``(*B, d)``; or ``(*B, n, d)`` for n rounds.
            reward: ``(*B)`` or ``(*B, n)``, in the units of ``noise_scale``.
            noise_scale: noise scale of the round, if it is known before the reward, shaped like ``reward``; None for the
                constructor's.

        Raises:
            TypeError: an argument does not hold real numbers, or ``x`` is a tensor of integers.
            ValueError: a shape, device or value is wrong, or a round outweighs the others beyond what the state's dtype can
                resolve. No buffer has changed.
        """
        self._learn(x, reward, noise_scale)

    def _learn(self, x: Tensor, reward: Tensor, noise_scale: Tensor | None) -> None:
        """Learn from one round or several in TorchScript; Python has :func:`step_rounds`."""
        with torch.no_grad():
            x = x.detach().to(self.theta_hat.dtype)
            reward = reward.detach().to(self.theta_hat.dtype)
            scale = self._own_scale(reward) if noise_scale is None else noise_scale.detach().to(self.theta_hat.dtype)
            rows = self.batch_dims
            if x.dim() == rows + 1:
                self._learn_round(x, reward, scale)
            else:
                for i in range(x.size(rows)):
                    self._learn_round(x.select(rows, i), reward.select(rows, i), scale.select(rows, i))

    def _learn_blocks_in_python(
        self, x: Any, reward: Any, *, noise_scale: Any = None, block_size: int | None = None, mask: Any = None
    ) -> None:
        learn_in_blocks(self, x, reward, noise_scale, block_size, mask)

    @torch.jit.export
    @in_python(_learn_blocks_in_python)
    def learn(
        self,
        x: Tensor,
        reward: Tensor,
        noise_scale: Tensor | None = None,
        block_size: int | None = None,
        mask: Tensor | None = None,
    ) -> None:
        """Learn from many rounds, in blocks that are learnt at once.

        A block is a few matrix products and a Cholesky factor, at O(n d^2 + d^3) for n rounds, where :meth:`step` makes n
        passes over matrices of d^2 entries. The confidence set keeps its guarantee, under the conditions in docs/blocks.md:
        rounds come in an order in which each noise meets its condition given all that came before, and no arm was chosen with
        knowledge of a reward that is learnt later. Learning a round twice voids it. A learner without a block form
        (``has_blocks`` is False) learns the rounds in order, as :meth:`step` does.

        Args:
            x: features of the chosen arms, ``(*B, n, d)``; or one round, ``(*B, d)``. An array or tensor of another type is
                converted block by block.
            reward: ``(*B, n)``, in the units of ``noise_scale``.
            noise_scale: of each round, if it is known before the reward, shaped like ``reward``; None for the constructor's.
            block_size: rounds in a block. None for blocks of an eighth of the rounds learnt, but at least d and at most 8192;
                also right for rewards that came together. A first block that is much longer than d makes the set wider.
            mask: True where a learner of a batch learns the round, ``(*B, n)``; None for all.

        Raises:
            TypeError: an argument does not hold real numbers, or ``x`` is a tensor of integers.
            ValueError: a shape, device or value is wrong, or the state's dtype cannot resolve what the rounds add. No buffer has
                changed.
        """
        self._learn_log(self.theta_hat, x, None, reward, noise_scale, mask, block_size)

    def _learn_round(self, x: Tensor, reward: Tensor, noise_scale: Tensor) -> None:
        """Learn a round of each learner; restart where it ends an epoch."""
        self._observe(x, reward, noise_scale)
        if self.restart_every is not None:
            due = self.rounds >= self.restart_every
            if may_hold(due):
                self._forget_(due)

    def _precision(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return V with its inverse."""
        return (self.V, self.V_inv, self.V_lost)

    def _add_outer_(self, a: Tensor, product: Tensor, quadratic: Tensor) -> None:
        """Add ``aa'`` to V, given ``V^-1 a`` and ``a'V^-1 a``, and end the round."""
        add_outer_(self._precision(), a, product, quadratic)
        self._end_round_()

    def _end_round_(self) -> None:
        """Count the round and, when it is time, correct a column of the inverse."""
        if self._count_round():
            refine_(self._precision(), self.rounds)

    def _count_round_in_python(self) -> bool:
        rounds = self.rounds
        if isinstance(rounds, np.ndarray) and rounds.ndim == 0:
            count = int(rounds) + 1
            rounds[()] = count  # a third of the time of +=
            return count % REFINE_EVERY == 0
        rounds += 1
        return is_time_to_refine(rounds)

    @in_python(_count_round_in_python)
    def _count_round(self) -> bool:
        """Count a round; return whether any learner's inverses are due for correction."""
        rounds = self.rounds
        rounds += 1
        return is_time_to_refine(rounds)

    def _forget_(self, due: Tensor) -> None:
        """Reset the learners that are ``due``, ``(*B)``, to their initial state."""
        for name, buffer in self.named_buffers():
            for start, fill, is_diagonal in self.starts:
                if buffer is not None and name == start:
                    fill_(buffer, along(due, buffer), 0.0 if is_diagonal else fill)
                    if is_diagonal:
                        entries = diagonal(buffer)
                        fill_(entries, along(due, entries), fill)

    def _of_chosen(self, index: Tensor, names: list[str]) -> dict[str, Tensor]:
        """Return copies of named buffers of the learners at ``index`` of a batch."""
        found: dict[str, Tensor] = {}
        for name, buffer in self.named_buffers():
            if buffer is not None and name in names:
                rows = buffer if self.batch_dims == 1 else buffer.flatten(0, self.batch_dims - 1)
                found[name] = rows.index_select(0, index)
        return found

    def _write_chosen_(self, index: Tensor, values: dict[str, Tensor], pooled: list[str]) -> None:
        """Write buffers back to some learners of a batch, the pooled ones to all."""
        for name, buffer in self.named_buffers():
            if buffer is not None and name in values:
                if name in pooled:
                    buffer.copy_(values[name] if self.batch_dims == 1 else values[name].unsqueeze(self.batch_dims - 1))
                else:
                    rows = buffer if self.batch_dims == 1 else buffer.flatten(0, self.batch_dims - 1)
                    rows.index_copy_(0, index, values[name].reshape(index.shape + rows.shape[1:]))

    def _statistics(self, names: list[str]) -> dict[str, Tensor]:
        """Return the named buffers."""
        found: dict[str, Tensor] = {}
        for name, buffer in self.named_buffers():
            if buffer is not None and name in names:
                found[name] = buffer
        return found

    @in_python(check_growth)
    def _check_growth(self, x: Tensor, quadratic: Tensor, is_response: bool = False) -> None:
        """Refuse NaN, infinity and a growth of V beyond the dtype's resolution."""
        # ``is_response`` blames the response, not x.
        self._note(~(quadratic < 1.0 / roundoff(quadratic)))

    def _accepts(self, x: Tensor, reward: Tensor, noise_scale: Tensor | None) -> Tensor:
        """Return whether :meth:`step` takes such values. For files, which cannot raise.

        Shapes: ``(*B, [n], d)`` and ``(*B, [n])`` twice to ``(*B, [n])``.
        """
        return self._accepts_features(x) & self._accepts_payoffs(reward, noise_scale)

    def _accepts_payoffs(self, reward: Tensor, noise_scale: Tensor | None) -> Tensor:
        """Return whether :meth:`step` takes rewards and their noise scales."""
        accepted = self._accepts_rewards(reward)
        if noise_scale is not None:
            accepted = accepted & checks.passes(noise_scale) & (noise_scale >= self.smallest_noise_scale)
        return accepted

    def _accepts_features(self, x: Tensor) -> Tensor:
        """Return which rows :meth:`step` takes as features: ``(..., d)`` to ``(...)``."""
        return checks.passes(x).all(-1)

    def _accepts_rewards(self, reward: Tensor) -> Tensor:
        """Return which rewards :meth:`step` takes."""
        return checks.passes(reward)

    def _largest(self, value: Any) -> float:
        """Return the largest entry, or -inf if none can be read. Python only."""
        if not self.validate or (isinstance(value, Tensor) and not (is_readable(value) and value.numel())):
            return -math.inf
        if isinstance(value, np.ndarray):
            return float(np.maximum.reduce(value, None))  # value.max() without a detour
        return value if isinstance(value, float) else float(value.max())

    def _check_rewards(self, reward: Tensor, noise_scale: Tensor | None) -> None:
        """Refuse wrong rewards and noise scales; `_check_growth` checks x. Python only."""
        if self.validate:
            checks.check_values(self.response, reward)
            if noise_scale is not None:
                checks.check_values("noise_scale", noise_scale, self.smallest_noise_scale)

    def _check_features(self, name: str, x: Tensor) -> None:
        """Refuse wrong features, ``(..., d)``, called ``name`` in errors. Python only."""
        if self.validate:
            checks.check_values(name, x)

    def __setstate__(self, state: dict[str, Any]) -> None:
        # Checkpoints of version 0.1 lack this attribute.
        super().__setstate__({"multiplications": state["dim"]} | state)

    def _state(self) -> Any:
        """Return a tensor of the state's type and device. Python only."""
        return self._buffers["theta_hat"]

    def _is_ordinary(self, reward: Any) -> bool:
        """Return whether an array or a float is sure to pass :meth:`_check_rewards`."""
        return checks.is_ordinary(reward)


def _start(name: str, value: Tensor | None) -> tuple[str, float, bool] | None:
    """Return a buffer's name, fill and whether only its diagonal has it; else None."""
    if value is None:
        return None
    fill = float(value.reshape(-1)[0])
    if bool((value == fill).all()):
        return name, fill, False
    is_diagonal = value.dim() == 2 and torch.equal(value, fill * torch.eye(*value.shape, dtype=value.dtype))
    return (name, fill, True) if is_diagonal else None
