"""What a policy would have earned, from a log of what others chose: replay of a log, and weighted means with intervals."""

from typing import Any

import torch
from torch import Tensor

from torchonline.bandits.policies import Policy
from torchonline.core.checks import (
    check_indices,
    check_shape,
    check_values,
    kind,
    non_negative,
    positive_integer,
    seed_number,
    shape_text,
)
from torchonline.core.inputs import check_tensor
from torchonline.export.programs import step_where


def propensities(strata: Tensor, actions: Tensor, arms: int, *, smoothing: float = 1.0) -> Tensor:
    r"""How likely each arm was in each round of a log, by counting within strata.

    .. math:: p_{ik} = \frac{n_{s_i k} + c}{n_{s_i} + cK}

    with :math:`n_{sk}` rounds of stratum s in which arm k was logged, and c = ``smoothing``. These are the probabilities by
    which the log was made only if, within a stratum, the logged arm had nothing to do with what it would have paid.

    Args:
        strata: ``(N)`` or ``(N, m)`` with m above 0, integers; rounds that agree in all m are one stratum.
        actions: the arm that was logged, ``(N)``, int64 from 0 to K - 1.
        arms: K.
        smoothing: c, at least 0. At 0 an arm that was never logged in a stratum has probability 0 there.

    Returns:
        ``(N, K)``, float64; rows sum to 1.

    Example:
        >>> propensities(torch.tensor([0, 0, 0, 1]), torch.tensor([0, 0, 1, 1]), 2, smoothing=0.0)
        tensor([[0.6667, 0.3333],
                [0.6667, 0.3333],
                [0.6667, 0.3333],
                [0.0000, 1.0000]], dtype=torch.float64)
    """
    check_indices("actions", actions, positive_integer("arms", arms))
    if actions.dim() != 1:
        raise ValueError(f"actions: expected shape (N), got {shape_text(actions.shape)}")
    smoothing = non_negative("smoothing", smoothing)
    if not isinstance(strata, Tensor) or strata.is_floating_point() or strata.is_complex():
        raise TypeError(f"strata: expected a tensor of integers, got {kind(strata)}")
    size = len(actions)
    if strata.dim() not in (1, 2) or len(strata) != size or strata.numel() == 0:
        raise ValueError(
            f"strata: expected shape ({size}) or ({size}, m) with m above 0, got {shape_text(strata.shape)}"
        )
    _, stratum = torch.unique(strata, dim=0, return_inverse=True)
    counts = torch.bincount(stratum * arms + actions, minlength=(int(stratum.max()) + 1) * arms)
    counts = counts.reshape(-1, arms).double() + smoothing
    return (counts / counts.sum(1, keepdim=True))[stratum]


def replay(policy: Policy, arms: Tensor, actions: Tensor, rewards: Tensor, groups: Tensor, orders: Tensor) -> Tensor:
    r"""Run a policy over a log, where it learns from the rounds in which it would have done what was done.

    Groups of rounds come in order. For each:

    1. the policy chooses in all rounds of the group from one state;
    2. it learns, in the order of the log, from those in which its choice is the logged arm, and never sees the rest.

    What it chose is returned, for weighted means over the log: with weights

    .. math:: w_i = \frac{1[\text{choice}_i = \text{action}_i]}{p_i},\qquad p_i = P(\text{action}_i \mid \text{context}_i),

    the mean of :math:`w_i r_i` is unbiased for the mean, over the rounds of the stream, of the expected reward of what the
    policy chose there. Conditions: the :math:`p_i > 0` are right; arms were logged independently of what they would have
    paid, given the context; and groups are independent. Rounds whose logged arms depend on each other (a person always
    on the same treatment) must be in one group, or a match tells the next round's logged arm and the weights are wrong.

    What that is: the value of a learner that gets to see about one round in K of the stream, and so learns K times more
    slowly than one that acts on every round. It differs from the replay of Li et al., who count matches only and whose log is
    uniform: accepted rounds are then distributed as in a live run. Here the rounds that teach are more often those whose
    arm was likely to be logged; the weights correct the mean of the rewards for that, and not what was learnt.

    The policy is changed. Cost: a choice for each group, and as many steps for it as the learner of a fleet with the most
    matches has.

    Args:
        policy: on the CPU, as all else, with batch shape ``*B``; in its initial state if the stream is to be all it knows.
            A fleet with a history wants room for one round more than any of its learners learns from.
        arms: features, ``(N, K, d)``; K above 0.
        actions: the logged arms, ``(N)``, int64.
        rewards: what they paid, ``(N)``.
        groups: the group of each round, ``(N)``, int64 from 0 to G - 1.
        orders: the groups that each learner goes through, ``(*B, n)``, int64; no group twice.

    Returns:
        The choices, ``(*B, N)``, int64; -1 in rounds of groups that a learner did not go through.

    Example:
        >>> logged = torch.arange(100) % 2
        >>> policy = OFUL(2, noise_scale=0.1)
        >>> arms = torch.eye(2).expand(100, 2, 2)
        >>> choices = replay(policy, arms, logged, logged.double(), torch.arange(100), torch.arange(100))
        >>> choices[-5:], int(policy.estimator.rounds)  # it learnt from the matches
        (tensor([1, 1, 1, 1, 1]), 51)

    Reference:
        Li, Chu, Langford and Wang, Unbiased offline evaluation of contextual-bandit-based news article recommendation
        algorithms, WSDM 2011; Dudik, Erhan, Langford and Li, Doubly robust policy evaluation and optimization, Statistical
        Science 2014, for policies that change.
    """
    if not isinstance(policy, Policy):
        raise TypeError(f"policy: expected a Policy, got {type(policy).__name__}")
    estimator = policy.estimator
    batch = estimator.batch_shape
    if not isinstance(arms, Tensor) or arms.dim() != 3 or arms.size(-1) != estimator.dim:
        raise ValueError(f"arms: expected a tensor of shape (N, K, {estimator.dim}), got {kind(arms)}")
    if arms.size(1) == 0:
        raise ValueError(f"arms: expected at least one arm, got {kind(arms)}")
    if not estimator.theta_hat.is_cpu:
        raise ValueError(f"policy: expected one on the CPU, got one on {estimator.theta_hat.device}")
    size = len(arms)
    check_indices("actions", actions, arms.size(1))
    check_indices("groups", groups, size)
    check_values("arms", check_tensor("arms", arms, estimator.theta_hat))
    check_values("rewards", check_tensor("rewards", rewards, estimator.theta_hat))
    for name, value in (("actions", actions), ("rewards", rewards), ("groups", groups)):
        check_shape(name, value, (size,))
    counts = torch.bincount(groups)
    if not bool((counts > 0).all()):
        raise ValueError(f"groups: expected every number up to {len(counts) - 1}, got no {int(counts.argmin())}")
    starts = counts.cumsum(0) - counts
    check_indices("orders", orders, len(counts))
    if orders.dim() != len(batch) + 1 or orders.shape[:-1] != batch:
        raise ValueError(f"orders: expected shape {shape_text((*batch, 'n'))}, got {shape_text(orders.shape)}")
    if orders.size(-1) > 1 and bool((orders.sort(-1).values.diff(dim=-1) == 0).any()):
        raise ValueError("orders: expected no group twice for one learner, got one")

    rows = groups.argsort(dim=0, stable=True)
    choices = torch.full((*batch, size + 1), -1)  # the last column takes what pads the shorter groups
    for group in orders.unbind(-1):
        count = counts[group]
        place = torch.arange(int(count.max()))
        present = place < count.unsqueeze(-1)
        # Absent rounds stand for the first of their group until the choice is made.
        index = rows[starts[group].unsqueeze(-1) + place.where(present, 0)]
        choice = policy.select(arms[index])
        choices.scatter_(-1, index.where(present, size), choice)
        match = present & (choice == actions[index])
        # The rounds that teach come first, in their order.
        index = index.gather(-1, (~match).long().argsort(dim=-1, stable=True))
        matches = match.sum(-1)
        for number in range(int(matches.max())):
            row, learn = index[..., number], number < matches
            step_where(learn, policy, arms[row, actions[row]], rewards[row])
    return choices[..., :size]


def self_normalised_mean(values: Tensor, weights: Tensor) -> Tensor:
    r"""The weighted mean :math:`\sum w_i v_i / \sum w_i`, over the last dimension.

    With importance weights it is consistent where the plain mean of :math:`w_i v_i` is unbiased, and adding b to all values adds
    b to it.

    Args:
        values: ``(N)``, of size up to 5.6e102.
        weights: ``(..., N)``, from 0 to 5.6e102 and not all 0.

    Returns:
        ``(...)``, float64.

    Example:
        >>> self_normalised_mean(torch.tensor([1.0, 2.0, 6.0]), torch.tensor([1.0, 1.0, 2.0]))
        tensor(3.7500, dtype=torch.float64)
    """
    values, weights = _checked(values, weights)
    return (weights * values).sum(-1) / weights.sum(-1)


def effective_sample_size(weights: Tensor) -> Tensor:
    r"""How many equal weights would be as good, :math:`(\sum w_i)^2 / \sum w_i^2`.

    Args:
        weights: ``(..., N)``, from 0 to 5.6e102 and not all 0.

    Returns:
        ``(...)``, float64; from 1 to N.

    Example:
        >>> effective_sample_size(torch.tensor([1.0, 1.0, 0.0, 4.0]))
        tensor(2., dtype=torch.float64)
    """
    weights = _checked_weights(weights)
    return weights.sum(-1) ** 2 / (weights**2).sum(-1)


def bootstrap_means(values: Tensor, weights: Tensor, groups: Tensor, *, draws: int = 2000, seed: int = 0) -> Tensor:
    """Self-normalised means of resampled groups: whole groups are drawn with replacement, as many as there are.

    All weightings get the same resamples, so that differences between them may be taken draw by draw. Where the values have
    no variance, the bootstrap of a mean is not consistent (Athreya, Annals of Statistics 1987): its quantiles are then no
    confidence interval, however many draws there are.

    A resample in which no weight is above 0 has no mean. Where m of G groups have weight that is a matter of chance, with
    probability :math:`(1 - m/G)^G < e^{-m}` for each draw; if it happens the call is refused, since draws without these
    resamples would come from another law.

    Args:
        values: ``(N)``, of size up to 5.6e102.
        weights: ``(..., N)``, from 0 to 5.6e102 and not all 0.
        groups: ``(N)``, int64 from 0 to N - 1: what is drawn as a whole.
        draws: number of resamples.
        seed: of the draws, which come from a generator of their own.

    Returns:
        ``(draws, ...)``, float64.

    Raises:
        TypeError: ``values`` or ``weights`` is no floating-point tensor, ``groups`` none of int64, ``draws`` or ``seed``
            no integer.
        ValueError: a shape is wrong, a value is out of range, or a resample has no weight above 0.

    Example:
        >>> values, groups = torch.tensor([0.0, 1.0, 2.0, 3.0], dtype=torch.float64), torch.tensor([0, 0, 1, 1])
        >>> bootstrap_means(values, torch.ones(4, dtype=torch.float64), groups, draws=1000).unique()
        tensor([0.5000, 1.5000, 2.5000], dtype=torch.float64)
    """
    values, weights = _checked(values, weights)
    check_indices("groups", groups, len(values))
    check_shape("groups", groups, values.shape)
    positive_integer("draws", draws)
    generator = torch.Generator().manual_seed(seed_number(seed))
    _, group = torch.unique(groups, return_inverse=True)
    count = int(group.max()) + 1
    total = weights.new_zeros(*weights.shape[:-1], count).index_add_(-1, group, weights)
    weighted = torch.zeros_like(total).index_add_(-1, group, weights * values)
    sums, sizes = [], []
    for _ in range(draws):
        times = torch.randint(count, (count,), generator=generator).bincount(minlength=count).to(weights)
        sums.append(weighted @ times)
        sizes.append(total @ times)
    size = torch.stack(sizes)
    if not bool((size > 0).all()):
        few = int((total > 0).sum(-1).min())
        raise ValueError(
            f"weights: expected some above 0 in every resample, got none for {int((size == 0).sum())} of {size.numel()} "
            f"means; as few as {few} of {count} groups have any"
        )
    return torch.stack(sums) / size


def _checked(values: Any, weights: Any) -> tuple[Tensor, Tensor]:
    """Values, in float64, and their weights."""
    weights = _checked_weights(weights)
    if not isinstance(values, Tensor) or not values.is_floating_point():
        raise TypeError(f"values: expected a floating-point tensor, got {kind(values)}")
    check_shape("values", values, tuple(weights.shape[-1:]))
    values = values.double()
    check_values("values", values)
    return values, weights


def _checked_weights(weights: Any) -> Tensor:
    """Weights as shares of the largest in their row, in float64, so that neither sums nor squares overflow or vanish."""
    if not isinstance(weights, Tensor) or not weights.is_floating_point():
        raise TypeError(f"weights: expected a floating-point tensor, got {kind(weights)}")
    if weights.dim() == 0 or weights.size(-1) == 0:
        raise ValueError(f"weights: expected shape (..., N) with N above 0, got {shape_text(weights.shape)}")
    weights = weights.double()
    check_values("weights", weights, 0.0)
    largest = weights.amax(-1, keepdim=True)
    if not bool((largest > 0).all()):
        raise ValueError("weights: expected one above 0 in each row, got a row of zeros")
    return weights / largest
