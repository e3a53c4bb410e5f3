"""Replay of a log by a learning policy, and propensities from counts."""

import torch
from torch import Tensor

from torchonline.core import checks
from torchonline.core.checks import check_shape, check_values, kind, positive_integer, shape_text
from torchonline.core.inputs import as_dense, check_indices, check_tensor
from torchonline.export.programs import step_where
from torchonline.policies.rules import Rule


def propensities(strata: Tensor, actions: Tensor, arms: int, *, smoothing: float = 1.0) -> Tensor:
    r"""Estimate each arm's logging probability in each round by counts in strata.

    .. math:: p_{ik} = \frac{n_{s_i k} + c}{n_{s_i} + cK}

    :math:`n_{sk}` counts the rounds of stratum s with logged arm k, and :math:`n_s` all rounds of stratum s. Condition: within a
    stratum, the logged arm is independent of the arms' rewards.

    Args:
        strata: integers, ``(N)`` or ``(N, m)`` with m above 0. Rounds that agree in all m entries form a stratum.
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


def replay(policy: Rule, arms: Tensor, actions: Tensor, rewards: Tensor, groups: Tensor, orders: Tensor) -> Tensor:
    r"""Replay a log: the policy learns the rounds in which it chooses the logged arm.

    In each group of rounds, the policy chooses in all rounds from the same state. Then it learns, in the order of the log, the
    rounds in which its choice is the logged arm. Other rewards stay hidden. The policy changes in place.

    Guarantee. With the weights

    .. math:: w_i = \frac{1[\text{choice}_i = \text{action}_i]}{p_i},\qquad p_i = P(\text{action}_i \mid \text{context}_i),

    the mean of :math:`w_i r_i` is unbiased for the mean, over the rounds of the stream, of the expected reward of the policy's
    choice, if

    - the :math:`p_i > 0` are correct;
    - given the context, the logged arm is independent of the arms' rewards;
    - groups are independent of each other.

    So rounds whose logged arms depend on each other must be in one group, for example the rounds of a person who stays on one
    treatment. In separate groups, a match would reveal the next round's logged arm. The estimate is the value of a learner that
    sees the reward of about one round in K, and so learns K times more slowly than a learner that acts.

    Cost: for each group one choice, and as many steps as the largest number of matches of one learner of a batch.

    Args:
        policy: on the CPU, like all tensors, with batch shape ``*B``. It should be in its initial state, unless it is meant to
            start with prior knowledge. A batch of learners with a history needs room for one round more than any learner learns.
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
        are learnt more often. The weights correct the mean reward for this, but not the policy's state. For policies that change:
        Dudik, Erhan, Langford and Li, Doubly robust policy evaluation and optimization, Statistical Science 2014.
    """
    checks.instance_of("policy", policy, Rule, "a rule of choice, such as UCB")
    state, dim, batch = policy.estimator.theta_hat, policy.estimator.dim, policy.estimator.batch_shape
    if not state.is_cpu:
        raise ValueError(f"policy: expected a policy on the CPU, got one on {state.device}")
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
    choices = torch.full((*batch, size + 1), -1)  # the last column absorbs the padding of short groups
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
