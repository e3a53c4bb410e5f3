"""One learner over several processes, on ``torch.distributed``."""

import inspect
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, distributed, nn

from torchonline.bandits.blocks import Log, check_log
from torchonline.bandits.composed import ComposedPolicy
from torchonline.bandits.disjoint import DisjointArms
from torchonline.bandits.estimator import Estimator
from torchonline.bandits.policies import Policy
from torchonline.bandits.scaled import ScaledPolicy
from torchonline.core.checks import one_of, positive_integer
from torchonline.core.inputs import ArrayLike
from torchonline.core.learner import Learner
from torchonline.core.stepping import all_or_nothing
from torchonline.privacy.learners.base import PrivateLearner
from torchonline.privacy.learners.clock import one_rank_steps

WAYS = ("leader", "all", "sums")


class SharedLearner(nn.Module):
    r"""One learner over several processes: each decides and observes, and all learn together.

    A round of a rank, and now and then a sync of all ranks::

        k = shared.select(arms)             # from the state of the last sync
        shared.observe(arms[k], reward)     # queued
        shared.sync()                       # collective: all ranks learn all queued rounds

    After each sync, all ranks have the same state, bit for bit. Rounds are exchanged, or sums of rounds; differences of states
    never are, because a confidence set holds for rounds that are learnt once each. How :meth:`sync` learns:

    - ``"leader"``: the first rank gets the rounds of all ranks in the order of the ranks, learns them by ``policy.learn``, and
      sends its state to the others. It is right on processors of different kinds, and for every learner.
    - ``"all"``: every rank gets and learns all rounds in the same order. Ranks compare a digest of their states at each sync,
      because processors of different kinds round differently: if the digests differ, nothing is learnt, and all ranks raise.
    - ``"sums"``: each rank sums what its own rounds add, block by block from a common state, and the sums are added. A sync
      sends 2 d^2 + d + 3 numbers a block, or a few times as many for links, whatever the number of ranks or rounds, and each
      rank computes with its own rounds only. For learners with blocks (``has_blocks``), in coordinates that do not move.

    Guarantee: that of :meth:`Estimator.learn` for the learner, of all ranks' rounds in one order. Conditions: no row of data goes
    to two ranks (DistributedSampler pads by repeating rows), the noise of a round is independent of the rounds learnt before it,
    those of other ranks included, and no rounds are dropped because of their rewards.

    A private learner is learnt on the leader alone. Records go to the leader; only its :meth:`public_state` comes back. Each
    queued record takes its step. One that is refused takes its step as ``step(None)``.

    Errors in the rounds of one rank are raised by the sync of all ranks, as a ValueError that names the rank. No state has
    changed then, and all rounds stay queued; :meth:`discard` drops those of a rank. If a rank dies, the sync of the others raises
    when the connection breaks, or after the timeout of the process group. Constructor, :meth:`broadcast` and :meth:`sync` are
    collective: all ranks call them in the same order. Without a process group there is one rank.

    Cost of a sync: docs/distributed.md has a model and measurements.

    Args:
        policy: any learner of the library: a policy, an estimator, arms with a model each, a convex or a private learner, the
            same on each rank. The constructor sends the first rank's state to all.
        learn_on: ``"leader"``, ``"all"`` or ``"sums"``.
        block_size: rounds in a block, as in :meth:`Estimator.learn`.
        group: a process group; None for the default group.

    Raises:
        TypeError, ValueError: an argument is wrong, or the learner cannot learn in this way.

    Example:
        >>> from torchonline import OFUL
        >>> shared = SharedLearner(OFUL(2))
        >>> shared.observe(torch.tensor([0.0, 1.0]), 1.0)
        >>> shared.sync(), shared.pending
        (1, 0)
        >>> shared.select(torch.eye(2))
        tensor(0)
    """

    def __init__(
        self,
        policy: nn.Module,
        *,
        learn_on: str = "leader",
        block_size: int | None = None,
        group: Any = None,
    ) -> None:
        super().__init__()
        if not isinstance(policy, (Policy, Learner)):
            raise TypeError(f"policy: expected a policy or another learner, got {type(policy).__name__}")
        self.policy: Any = policy
        self.learn_on = one_of("learn_on", learn_on, WAYS)
        self.block_size = None if block_size is None else positive_integer("block_size", block_size)
        self.ranks = Ranks(group)
        self._check_way()
        self._queue: list[dict[str, Any]] = []
        self._signature = inspect.signature(type(policy).step)
        self.broadcast()

    def extra_repr(self) -> str:
        return f"learn_on={self.learn_on!r}, pending={self.pending}"

    @property
    def learner(self) -> Any:
        """The learner whose buffers are the state: the policy's estimator, or the policy."""
        return self.policy.estimator if isinstance(self.policy, Policy) else self.policy

    @property
    def pending(self) -> int:
        """The number of this rank's rounds that wait for a sync, as far as their shapes tell."""
        return sum(map(self._rounds_of, self._queue))

    def forward(self, *arguments: Any) -> Any:
        """Return the policy's scores, or a convex learner's decision, from the state of the last sync."""
        return self.policy(*arguments)

    def select(self, arms: ArrayLike, mask: ArrayLike | None = None) -> Tensor:
        """Return the index of the chosen arm, from the state of the last sync: see :meth:`Policy.select`."""
        index: Tensor = self.policy.select(arms, mask)
        return index

    def decide(self, arms: ArrayLike, mask: ArrayLike | None = None) -> tuple[Tensor, Tensor]:
        """Choose an arm, and return its probability too: see :meth:`Policy.decide`."""
        decision: tuple[Tensor, Tensor] = self.policy.decide(arms, mask)
        return decision

    def observe(self, *arguments: Any, **named: Any) -> None:
        """Queue a round, or several in order, with the arguments of the policy's ``step``.

        Values are checked by :meth:`sync`, so that all ranks hear of a wrong one.

        Raises:
            TypeError: the arguments are not those of ``step``.
        """
        try:
            bound = self._signature.bind(self.policy, *arguments, **named)
        except TypeError as error:
            raise TypeError(f"observe() {error}") from None
        values = dict(list(bound.arguments.items())[1:])
        # Copies: the caller may write into the tensors before the sync.
        self._queue.append({name: v.detach().clone() if isinstance(v, Tensor) else v for name, v in values.items()})

    def discard(self) -> int:
        """Drop this rank's queued rounds, and return how many there were."""
        dropped = self.pending
        self._queue.clear()
        return dropped

    def broadcast(self) -> None:
        """Send the first rank's state to all ranks, as after a load on that rank alone. Collective."""
        self._send_state()

    def sync(self) -> int:
        """Let all ranks learn all queued rounds, and return how many there were. Collective.

        Raises:
            ValueError: a queued round of some rank is wrong. It is raised by all ranks, and no state has changed.
            RuntimeError: the ranks' states differ, because one was written from outside, or learnt with other rounding.
        """
        rounds, error = self._checked_rounds()
        ways = {"leader": self._sync_on_leader, "all": self._sync_on_all, "sums": self._sync_by_sums}
        count = ways[self.learn_on](rounds, _Header(_count(rounds), error, digest(self._shared_state())))
        self._queue.clear()
        return count

    def _sync_on_leader(self, rounds: Any, header: "_Header") -> int:
        told, failure = None, None
        gathered = self.ranks.gather((rounds, header))
        if gathered is not None:
            try:
                told = self._outcome_of(gathered)
            except BaseException as error:
                failure, told = error, _Outcome(0, f"{type(error).__name__}: {error}", False)
        outcome: _Outcome = self.ranks.broadcast_object(told)
        if failure is not None and not isinstance(failure, Exception):
            raise failure  # an interrupt; the other ranks have heard of it
        if outcome.is_learnt:
            self._send_state()
        if outcome.error is not None:
            if outcome.is_learnt:  # private records have taken their steps
                self._queue.clear()
            raise error_of(outcome.error) from failure
        return outcome.count

    def _outcome_of(self, gathered: list[tuple[Any, "_Header"]]) -> "_Outcome":
        """Learn the rounds of all ranks, on the leader."""
        headers = [header for _, header in gathered]
        if (problem := _problem(headers)) is not None:
            return _Outcome(0, problem, False)
        refused = self._learn([rounds for rounds, _ in gathered])
        return _Outcome(sum(header.count for header in headers), refused, True)

    def _sync_on_all(self, rounds: Any, header: "_Header") -> int:
        gathered = self.ranks.all_gather((rounds, header))
        headers = [header for _, header in gathered]
        if (problem := _problem(headers)) is not None:
            raise error_of(problem)
        before = [tensor.clone() for tensor in self._shared_state()]
        told, failure = "", None
        try:
            self._learn([rounds for rounds, _ in gathered])
        except BaseException as error:
            told, failure = f"{type(error).__name__}: {error}", error
        results = self.ranks.all_gather((told, digest(self._shared_state())))
        told = next((text for text, _ in results if text), "")
        if not told and len({state for _, state in results}) > 1:
            told = (
                "RuntimeError: state: expected the same on all ranks after learning the same rounds, got others, since "
                'processors of different kinds round differently; use learn_on="leader"'
            )
        if told:
            self._put_back(before)
            if failure is not None and not isinstance(failure, Exception):
                raise failure
            raise error_of(told) from failure
        return sum(header.count for header in headers)

    def _sync_by_sums(self, rounds: Any, header: "_Header") -> int:
        headers = self.ranks.all_gather(header)
        if (problem := _problem(headers)) is not None:
            raise error_of(problem)
        counts = [header.count for header in headers]
        before = [tensor.clone() for tensor in self._shared_state()]
        told, failure = "", None
        try:
            with torch.no_grad(), self._summed(), _locks(self.policy):
                learn = self.policy if isinstance(self.policy, ComposedPolicy) else self.learner
                all_or_nothing(self.learner, self._shared_state(), True, self._learn_share, learn, rounds, counts)
        except Exception as error:
            told, failure = f"{type(error).__name__}: {error}", error
        told = next((text for text in self.ranks.all_gather(told) if text), "")
        if told:
            self._put_back(before)
            raise error_of(told) from failure
        self._send_state()
        return sum(counts)

    def _learn_share(self, learner: Any, rounds: Any, counts: list[int]) -> None:
        """Learn this rank's share of each block, while its sums are added to those of the others."""
        done, total, dims = 0, sum(counts), self.learner.batch_dims
        taken = [0] * len(counts)
        while done < total:
            size = min(_rows_of_next_block(learner, done, self.block_size), total - done)
            shares = shares_of(counts, taken, size)
            first, rows = taken[self.ranks.rank], shares[self.ranks.rank]
            some = _Rounds(*(None if part is None else part.narrow(dims, first, rows) for part in rounds))
            scale = learner._own_scale(some.reward) if some.noise_scale is None else some.noise_scale
            if some.action is not None:
                learner._learn_actions_block(some.x, some.action, some.reward, scale, size)
            else:
                learner._learn_block(some.x, some.reward, scale, None)
            taken = [before + share for before, share in zip(taken, shares, strict=True)]
            done += size

    @contextmanager
    def _summed(self) -> Iterator[None]:
        """Add the sums of blocks to those of the other ranks."""
        learner = self.learner.policy.estimator if isinstance(self.learner, ComposedPolicy) else self.learner
        learner.__dict__["_workers"] = Workers(self.ranks)
        try:
            yield
        finally:
            del learner.__dict__["_workers"]

    def _check_way(self) -> None:
        """Raise if the learner cannot learn in the way that is asked for."""
        learner, way = self.learner, self.learn_on
        if isinstance(learner, PrivateLearner) and way != "leader":
            raise ValueError(
                f'learn_on: expected "leader" for {type(learner).__name__}, whose noise one rank draws once, got {way!r}'
            )
        if way == "sums":
            why = ""
            if not getattr(learner, "has_blocks", False):
                why = "which has no sums over rounds to add"
            elif isinstance(learner, ComposedPolicy) and not learner._learns_blocks_now():
                why = "whose features move"
            elif isinstance(learner, DisjointArms) and learner.estimator.restart_every is not None:
                why = "whose arms start anew at rounds of their own"
            if why:
                raise ValueError(
                    f'learn_on: expected "leader" or "all" for {type(learner).__name__}, {why}, got "sums"'
                )

    def _checked_rounds(self) -> tuple[Any, str | None]:
        """Return this rank's rounds in one piece, and what is wrong with them, if anything."""
        try:
            if not _has_log(self.policy):
                return [dict(one) for one in self._queue], None
            logs = [self._log(**one) for one in self._queue]
            return _joined(self.learner, logs), None
        except (TypeError, ValueError) as error:
            return None, f"{type(error).__name__}: rank {self.ranks.rank}: {error}"

    def _log(self, action: Any = None, noise_scale: Any = None, **rest: Any) -> "_Rounds":
        (x, reward), name = rest.values(), "context" if isinstance(self.policy, DisjointArms) else "x"
        log = Log(self.learner, x, reward, noise_scale, None, action, name)
        return _Rounds(*check_log(log))

    def _rounds_of(self, one: dict[str, Any]) -> int:
        x = next(iter(one.values()))
        if not _has_log(self.policy) or not hasattr(x, "shape"):
            return 1
        return 1 if len(x.shape) <= self.learner.batch_dims + 1 else x.shape[self.learner.batch_dims]

    def _learn(self, of_ranks: list[Any]) -> str | None:
        """Learn the rounds of all ranks in order. Return what was refused, of a private learner."""
        if _has_log(self.policy):
            rounds = _joined(self.learner, of_ranks)
            options = {"block_size": self.block_size}
            if rounds.action is not None:
                self.policy.learn(rounds.x, rounds.action, rounds.reward, rounds.noise_scale, **options)
            else:
                self.policy.learn(rounds.x, rounds.reward, rounds.noise_scale, **options)
            return None
        if isinstance(self.learner, PrivateLearner):
            return self._step_private(of_ranks)
        before = [tensor.clone() for tensor in self._shared_state()]
        try:
            for rank, queue in enumerate(of_ranks):
                for one in queue:
                    _named(rank, self.policy.step, one)
        except BaseException:
            self._put_back(before)
            raise
        return None

    def _step_private(self, of_ranks: list[Any]) -> str | None:
        """Let each record take its step; return the first error of a record that was refused."""
        refused = None
        with one_rank_steps():
            for rank, queue in enumerate(of_ranks):
                for one in queue:
                    try:
                        _named(rank, self.policy.step, one)
                    except (TypeError, ValueError) as error:
                        refused = refused or f"{type(error).__name__}: {error}"
                        self.policy.step(None)
        return refused

    def _shared_state(self) -> list[Tensor]:
        """Return the tensors that all ranks have in common."""
        learner = self.learner
        if isinstance(learner, PrivateLearner):
            return list(learner.public_buffers().values())
        return list(learner.state().values())

    def _put_back(self, before: list[Tensor]) -> None:
        with torch.no_grad(), _locks(self.policy):
            for tensor, old in zip(self._shared_state(), before, strict=True):
                tensor.copy_(old)

    def _send_state(self) -> None:
        """Write the first rank's state over that of the others."""
        state = self._shared_state()
        sent = self.ranks.broadcast(state)
        if self.ranks.rank > 0:
            with torch.no_grad(), _locks(self.policy):
                all_or_nothing(self.learner, state, True, _write, state, sent)


class Ranks:
    """The ranks of a process group, the first of which is the leader; or one rank without a group.

    Args:
        group: a process group; None for the default group.
    """

    def __init__(self, group: Any = None) -> None:
        has_group = distributed.is_available() and distributed.is_initialized()
        if group is not None and not has_group:
            raise ValueError("group: expected None without torch.distributed.init_process_group(), got a group")
        self.group = group
        self.rank = distributed.get_rank(group) if has_group else 0
        self.size = distributed.get_world_size(group) if has_group else 1
        if self.rank < 0:
            raise ValueError("group: expected one that this process belongs to, got another")
        self.leader = distributed.get_global_rank(group, 0) if group is not None else 0
        # Where tensors are while they travel.
        self.device = torch.device("cpu")
        if self.size > 1 and "nccl" in str(distributed.get_backend(group)):
            self.device = torch.device("cuda", torch.cuda.current_device())

    # A group does not travel to another process, and a copy of a learner stays in its own.
    def __deepcopy__(self, memo: dict[int, Any]) -> "Ranks":
        return self

    def gather(self, value: Any) -> list[Any] | None:
        """Return the values of all ranks on the leader, None on the others."""
        if self.size == 1:
            return [value]
        found: list[Any] | None = [None] * self.size if self.rank == 0 else None
        distributed.gather_object(value, found, dst=self.leader, group=self.group)
        return found

    def all_gather(self, value: Any) -> list[Any]:
        """Return the values of all ranks, in their order."""
        if self.size == 1:
            return [value]
        found: list[Any] = [None] * self.size
        distributed.all_gather_object(found, value, group=self.group)
        return found

    def broadcast_object(self, value: Any) -> Any:
        """Return the leader's value."""
        if self.size == 1:
            return value
        box = [value]
        distributed.broadcast_object_list(box, src=self.leader, group=self.group)
        return box[0]

    def broadcast(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Return the leader's tensors, of the same shapes and types, bit for bit."""
        if self.size == 1:
            return list(tensors)
        parts = [as_bytes(tensor).to(self.device) for tensor in tensors]
        sizes = [part.numel() for part in parts]
        flat = torch.cat(parts)
        distributed.broadcast(flat, src=self.leader, group=self.group)
        pieces = zip(flat.split(sizes), tensors, strict=True)
        return [piece.clone().view(like.dtype).reshape(like.shape).to(like.device) for piece, like in pieces]

    def reduce(self, flat: Tensor, operation: Any) -> Tensor:
        """Return a reduction of the ranks' tensors, by all ranks."""
        moved = flat.to(self.device, copy=True)
        if self.size > 1:
            distributed.all_reduce(moved, operation, group=self.group)
        return moved.to(flat.device)


class Workers:
    """The ranks that learn a block together: what :meth:`Estimator._totals` and its like call.

    Args:
        ranks: of the learner.
    """

    def __init__(self, ranks: Ranks) -> None:
        self.ranks = ranks

    def totals(self, sums: list[Tensor]) -> list[Tensor]:
        """Return sums over the rounds of all ranks, in one reduction."""
        flat = torch.cat([part.reshape(-1).to(torch.float64) for part in sums])
        pieces = self.ranks.reduce(flat, distributed.ReduceOp.SUM).split([part.numel() for part in sums])
        return [piece.reshape(part.shape).to(part.dtype) for piece, part in zip(pieces, sums, strict=True)]

    def most(self, values: Tensor) -> Tensor:
        """Return the largest values of all ranks."""
        return self.ranks.reduce(values, distributed.ReduceOp.MAX)

    def first_says(self, condition: bool) -> bool:
        """Return the leader's condition."""
        (told,) = self.ranks.broadcast([torch.tensor([condition])])
        return bool(told)


class _Rounds(NamedTuple):
    """Rounds of a rank: ``(*B, n, d)``, and ``(*B, n)`` for the rest."""

    x: Tensor
    reward: Tensor
    noise_scale: Tensor | None
    action: Tensor | None


class _Header(NamedTuple):
    """What a rank says of its rounds and state before a sync."""

    count: int
    error: str | None
    digest: int


class _Outcome(NamedTuple):
    """What the leader says of a sync: rounds, what was wrong, and whether the state has moved."""

    count: int
    error: str | None
    is_learnt: bool


def digest(tensors: Sequence[Tensor]) -> int:
    """Return a number that differs if bits of some tensors differ, except with odds of about 2^-60."""
    total = 0
    for tensor in tensors:
        flat = as_bytes(tensor)
        words = torch.nn.functional.pad(flat, (0, -flat.numel() % 8)).view(torch.int64)
        place = torch.arange(1, words.numel() + 1, device=words.device)
        # Integers wrap around. An odd factor of each word loses none of its bits; the shift mixes high bits into low ones.
        mixed = (words ^ (words >> 29)) * (2 * place * 0x2545F4914F6CDD1 + 1)
        total = (total * 0x9E3779B97F4A7C15 + int((mixed ^ (mixed >> 32)).sum())) % 2**64
    return total


def as_bytes(tensor: Tensor) -> Tensor:
    """Return a tensor's memory, uint8, in one dimension."""
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


def shares_of(counts: Sequence[int], taken: Sequence[int], size: int) -> list[int]:
    """Return how many of a block's rounds each rank has: in proportion to what all have, ``size`` in all."""
    left = [count - before for count, before in zip(counts, taken, strict=True)]
    total = sum(left)
    shares = [size * rest // total for rest in left]
    for rank, rest in enumerate(left):
        if sum(shares) < size and shares[rank] < rest:
            shares[rank] += 1
    return shares


def _rows_of_next_block(learner: Any, done: int, block_size: int | None) -> int:
    """Return the size of the next block of all ranks, which ends no later than an epoch."""
    if isinstance(learner, DisjointArms):
        # Each arm gets a part of the block.
        arms = learner.estimator.dim * learner.actions
        return block_size or min(max(arms, int(learner.rounds.min()) // 8), 8192 * learner.actions)
    estimator = learner.estimator if isinstance(learner, ScaledPolicy) else learner
    size: int = estimator._rows_of_next_block(done, block_size, None)
    if estimator.restart_every is not None:
        size = min(size, estimator.restart_every - int(estimator.rounds.max()))
    return size


def _has_log(policy: Any) -> bool:
    """Return whether rounds of a policy are rows of features, so that they can be joined."""
    return isinstance(policy, (Policy, Estimator, ScaledPolicy, DisjointArms))


def _joined(learner: Any, parts: list[_Rounds]) -> _Rounds:
    """Return the rounds of several queues or ranks in order."""
    dims = learner.batch_dims
    if not parts:
        like = {"dtype": learner._state().dtype, "device": learner._state().device}
        reward = torch.empty((*learner.batch_shape, 0, *learner.output_shape), **like)
        x = torch.empty((*learner.batch_shape, 0, learner.dim), **like)
        return _Rounds(x, reward, None, reward.to(torch.int64) if isinstance(learner, DisjointArms) else None)
    scales: list[Any] = [part.noise_scale for part in parts]
    if any(scale is not None for scale in scales):
        pairs = zip(scales, parts, strict=True)
        scales = [learner._own_scale(part.reward) if scale is None else scale for scale, part in pairs]
    columns = ([part.x for part in parts], [part.reward for part in parts], scales, [part.action for part in parts])
    return _Rounds(*(None if column[0] is None else torch.cat(column, dims) for column in columns))


def _count(rounds: Any) -> int:
    if rounds is None:
        return 0
    return rounds.reward.numel() and rounds.x.size(-2) if isinstance(rounds, _Rounds) else len(rounds)


def _problem(headers: Sequence[_Header]) -> str | None:
    """Return why a sync cannot begin, the same on all ranks, or None."""
    errors = [header.error for header in headers if header.error is not None]
    if errors:
        return f"{errors[0]}; no rank has learnt anything, and discard() drops a rank's queued rounds"
    strangers = [rank for rank, header in enumerate(headers) if header.digest != headers[0].digest]
    if strangers:
        return (
            f"RuntimeError: state: expected the same on all ranks, got another on rank {strangers[0]} than on rank 0; call "
            "broadcast() on all ranks to go on from that of rank 0"
        )
    return None


def told(error: BaseException | None, rank: int) -> str | None:
    """Return what a rank tells the others of an error: the reverse of :func:`error_of`."""
    return None if error is None else f"{type(error).__name__}: rank {rank}: {error}"


def error_of(text: str) -> Exception:
    """Return the error that a rank has told of."""
    kind, _, message = text.partition(": ")
    known: dict[str, type[Exception]] = {"ValueError": ValueError, "TypeError": TypeError}
    return known.get(kind, RuntimeError)(message)


def _named(rank: int, step: Any, arguments: dict[str, Any]) -> None:
    """Call a step, whose errors then name the rank."""
    try:
        step(**arguments)
    except (TypeError, ValueError) as error:
        raise type(error)(f"rank {rank}: {error}") from error


def _write(tensors: list[Tensor], values: list[Tensor]) -> None:
    for tensor, value in zip(tensors, values, strict=True):
        tensor.copy_(value)


@contextmanager
def _locks(policy: Any) -> Iterator[None]:
    """Hold the locks of a policy's learners."""
    with ExitStack() as stack:
        for learner in (part for part in policy.modules() if isinstance(part, Learner)):
            stack.enter_context(learner._lock)
        yield
