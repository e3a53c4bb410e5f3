"""Off-policy evaluation: replay of a log, and weighted means with a bootstrap."""

from typing import Any

import torch
from torch import Tensor

from torchonline.bandits.policies import Policy
from torchonline.core import checks
from torchonline.core.checks import check_shape, check_values, kind, positive_integer, shape_text
from torchonline.core.inputs import as_dense, check_floats, check_indices, check_tensor
from torchonline.export.programs import step_where


def propensities(strata: Tensor, actions: Tensor, arms: int, *, smoothing: float = 1.0) -> Tensor:
    r"""Return each arm's logging probability in each round, estimated within strata.

    .. math:: p_{ik} = \frac{n_{s_i k} + c}{n_{s_i} + cK}

    Here :math:`n_{sk}` counts the rounds of stratum s with logged arm k, and :math:`n_s` all rounds of stratum s. Condition:
    within a stratum, the logged arm is independent of the rewards of the arms.

    Args:
        strata: ``(N)`` or ``(N, m)`` with m above 0, integers. Rounds that agree in all m entries form a stratum.
        actions: logged arms, ``(N)``, int64 from 0 to K - 1.
        arms: number of arms K.
        smoothing: c, at least 0. With 0, an arm that was never logged in a stratum has probability 0 there.

    Returns:
        ``(N, K)``, float64. Rows sum to 1.

    Example:
        >>> propensities(torch.tensor([0, 0, 1]), torch.tensor([0, 1, 1]), 2, smoothing=0.0)
        tensor([[0.5000, 0.5000],
                [0.5000, 0.5000],
                [0.0000, 1.0000]], dtype=torch.float64)
    """
    actions = check_indices("actions", actions, positive_integer("arms", arms))
    if actions.dim() != 1:
        raise ValueError(f"actions: expected shape (N), got {shape_text(actions.shape)}")
    smoothing = checks.non_negative("smoothing", smoothing)
    if not isinstance(strata, Tensor) or strata.is_floating_point() or strata.is_complex():
        raise TypeError(f"strata: expected a tensor of integers, got {kind(strata)}")
    strata, n = as_dense("strata", strata), len(actions)
    if strata.dim() not in (1, 2) or len(strata) != n or strata.numel() == 0:
        raise ValueError(f"strata: expected shape ({n}) or ({n}, m) with m above 0, got {shape_text(strata.shape)}")
    _, stratum = torch.unique(strata, dim=0, return_inverse=True)
    counts = torch.bincount(stratum * arms + actions, minlength=(int(stratum.max()) + 1) * arms)
    counts = counts.reshape(-1, arms).double() + smoothing
    return (counts / counts.sum(1, keepdim=True))[stratum]


def replay(policy: Policy, arms: Tensor, actions: Tensor, rewards: Tensor, groups: Tensor, orders: Tensor) -> Tensor:
    r"""Replay a log: the policy learns where its choice is the logged arm.

    In each group of rounds, the policy chooses in all rounds from one state. Then it learns, in the order of the log, from the
    rounds in which its choice is the logged arm. Other rewards stay hidden. The call changes the policy.

    Guarantee. With the weights

    .. math:: w_i = \frac{1[\text{choice}_i = \text{action}_i]}{p_i},\qquad p_i = P(\text{action}_i \mid \text{context}_i),

    the mean of :math:`w_i r_i` is unbiased for the mean, over the rounds of the stream, of the expected reward of the policy's
    choice, if the :math:`p_i > 0` are correct; if, given the context, the logged arm is independent of the rewards of the arms;
    and if groups are independent of each other. So rounds whose logged arms depend on each other, such as those of a person who
    stays on one treatment, must be in one group: otherwise a match reveals the next round's logged arm. The estimated value is
    that of a learner that sees the reward of about one round in K, and learns K times more slowly than one that acts.

    Cost: for each group one choice, and as many steps as the largest number of matches of one learner of a fleet.

    Args:
        policy: on the CPU, like all tensors, with batch shape ``*B``, in its initial state unless it is meant to know more than
            the stream. A fleet with a history needs room for one round more than any learner learns from.
        arms: features, ``(N, K, d)``; K above 0.
        actions: logged arms, ``(N)``, int64.
        rewards: rewards of the logged arms, ``(N)``.
        groups: group of each round, ``(N)``, int64 from 0 to G - 1.
        orders: order of the groups for each learner, ``(*B, n)``, int64, without repeats.

    Returns:
        The choices, ``(*B, N)``, int64; -1 in the rounds of groups that are not in a learner's order.

    Example:
        >>> logged = torch.arange(100) % 2
        >>> policy = OFUL(2, noise_scale=0.1)
        >>> arms = torch.eye(2).expand(100, 2, 2)
        >>> choices = replay(policy, arms, logged, logged.double(), torch.arange(100), torch.arange(100))
        >>> choices[-5:], int(policy.estimator.rounds)  # 51 matches
        (tensor([1, 1, 1, 1, 1]), 51)

    Reference:
        Li, Chu, Langford and Wang, Unbiased offline evaluation of contextual-bandit-based news article recommendation algorithms,
        WSDM 2011. Their log is uniform, so accepted rounds are distributed as in a live run. Here rounds with a likely logged arm
        are learnt more often. The weights correct the mean reward for that, but not what the policy has learnt. For policies that
        change: Dudik, Erhan, Langford and Li, Doubly robust policy evaluation and optimization, Statistical Science 2014.
    """
    checks.instance_of("policy", policy, Policy, "a Policy")
    state, dim, batch = policy.estimator.theta_hat, policy.estimator.dim, policy.estimator.batch_shape
    if not state.is_cpu:
        raise ValueError(f"policy: expected one on the CPU, got one on {state.device}")
    arms, rewards = check_tensor("arms", arms, state), check_tensor("rewards", rewards, state, is_real=True)
    if arms.dim() != 3 or arms.size(-1) != dim or arms.size(1) == 0:
        raise ValueError(f"arms: expected a tensor of shape (N, K, {dim}) with K above 0, got {kind(arms)}")
    size = len(arms)
    actions, groups = check_indices("actions", actions, arms.size(1)), check_indices("groups", groups, size)
    check_values("arms", arms)
    check_values("rewards", rewards)
    for name, value in (("actions", actions), ("rewards", rewards), ("groups", groups)):
        check_shape(name, value, (size,))
    counts = torch.bincount(groups)
    if not bool((counts > 0).all()):
        raise ValueError(f"groups: expected every number from 0 to {len(counts) - 1}, got no {int(counts.argmin())}")
    orders = check_indices("orders", orders, len(counts))
    if orders.dim() != len(batch) + 1 or orders.shape[:-1] != batch:
        raise ValueError(f"orders: expected shape {shape_text((*batch, 'n'))}, got {shape_text(orders.shape)}")
    if bool((orders.sort(-1).values.diff(dim=-1) == 0).any()):
        raise ValueError("orders: expected each group at most once for one learner, got a repeated group")
    starts = counts.cumsum(0) - counts
    rows = groups.argsort(dim=0, stable=True)
    choices = torch.full((*batch, size + 1), -1)  # the last column takes the padding of short groups
    for group in orders.unbind(-1):
        count = counts[group]
        place = torch.arange(int(count.max()))
        present = place < count.unsqueeze(-1)
        # For the choice, a group is padded with its first round.
        index = rows[starts[group].unsqueeze(-1) + place.where(present, 0)]
        choice = policy.select(arms[index])
        choices.scatter_(-1, index.where(present, size), choice)
        match = present & (choice == actions[index])
        # Move the matches to the front, in their order.
        index = index.gather(-1, (~match).long().argsort(dim=-1, stable=True))
        matches = match.sum(-1)
        for number in range(int(matches.max())):
            row, learn = index[..., number], number < matches
            step_where(learn, policy, arms[row, actions[row]], rewards[row])
    return choices[..., :size]


def self_normalised_mean(values: Tensor, weights: Tensor) -> Tensor:
    r"""Return :math:`\sum w_i v_i / \sum w_i` over the last dimension.

    With importance weights, this mean is consistent whenever the plain mean of :math:`w_i v_i` is unbiased. Values are ``(N)``,
    of magnitude up to 5.6e102; weights are ``(..., N)``, from 0 to 5.6e102 and not all 0. The result is ``(...)``, float64.

    Example:
        >>> self_normalised_mean(torch.tensor([1.0, 2.0, 6.0]), torch.tensor([1.0, 1.0, 2.0]))
        tensor(3.7500, dtype=torch.float64)
    """
    values, weights = _checked(values, weights)
    return (weights * values).sum(-1) / weights.sum(-1)


def effective_sample_size(weights: Tensor) -> Tensor:
    r"""Return the effective sample size :math:`(\sum w_i)^2 / \sum w_i^2`.

    Weights are ``(..., N)``, from 0 to 5.6e102 and not all 0. The result is ``(...)``, float64, from 1 to N.

    Example:
        >>> effective_sample_size(torch.tensor([1.0, 1.0, 0.0, 4.0]))
        tensor(2., dtype=torch.float64)
    """
    weights = _checked_weights(weights)
    return weights.sum(-1) ** 2 / (weights**2).sum(-1)


def bootstrap_means(values: Tensor, weights: Tensor, groups: Tensor, *, draws: int = 2000, seed: int = 0) -> Tensor:
    """Return self-normalised means of bootstrap resamples of whole groups.

    A resample draws as many groups as there are, with replacement. All rows of ``weights`` get the same resamples, so their
    differences can be taken draw by draw. If the values have infinite variance, the bootstrap of a mean is not consistent
    (Athreya, Annals of Statistics 1987). Its quantiles are then not a confidence interval, however many draws there are.

    A resample in which no weight is above 0 has no mean, and leaving it out would change the law of the draws: it is a
    ValueError. If m of G groups have a weight above 0, each draw is such a resample with probability
    :math:`(1 - m/G)^G < e^{-m}`.

    Args:
        values: ``(N)``, of magnitude up to 5.6e102.
        weights: ``(..., N)``, from 0 to 5.6e102 and not all 0.
        groups: group of each value, ``(N)``, int64 from 0 to N - 1.
        draws: number of resamples.
        seed: seed of the draws, which have their own generator.

    Returns:
        ``(draws, ...)``, float64.

    Example:
        >>> values, groups = torch.tensor([0.0, 1.0, 2.0, 3.0], dtype=torch.float64), torch.tensor([0, 0, 1, 1])
        >>> bootstrap_means(values, torch.ones(4, dtype=torch.float64), groups, draws=1000).unique()
        tensor([0.5000, 1.5000, 2.5000], dtype=torch.float64)
    """
    values, weights = _checked(values, weights)
    groups = check_indices("groups", groups, len(values))
    check_shape("groups", groups, values.shape)
    positive_integer("draws", draws)
    generator = torch.Generator().manual_seed(checks.seed_number(seed))
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
            f"means; in one row only {few} of {count} groups have a weight above 0"
        )
    return torch.stack(sums) / size


def _checked(values: Any, weights: Any) -> tuple[Tensor, Tensor]:
    """Return the checked values in float64 and the scaled weights."""
    weights, values = _checked_weights(weights), check_floats("values", values).double()
    check_shape("values", values, tuple(weights.shape[-1:]))
    check_values("values", values)
    return values, weights


def _checked_weights(weights: Any) -> Tensor:
    """Return the checked weights in float64, divided by the largest of their row."""
    weights = check_floats("weights", weights).double()
    if weights.dim() == 0 or weights.size(-1) == 0:
        raise ValueError(f"weights: expected shape (..., N) with N above 0, got {shape_text(weights.shape)}")
    check_values("weights", weights, 0.0)
    largest = weights.amax(-1, keepdim=True)
    if not bool((largest > 0).all()):
        raise ValueError("weights: expected one above 0 in each row, got a row of zeros")
    return weights / largest  # sums and squares do not overflow
