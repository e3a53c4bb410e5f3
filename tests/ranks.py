"""One rank of several: what a shared learner does in a process group, for tests/test_distributed.py.

python -m tests.ranks RANK WORLD FILE SCENARIO... writes the findings of the rank to FILE.RANK, as JSON.
"""

import copy
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch import distributed

from tests import shared_learners
from tests.shared_learners import PRIVATE, Shared, difference, expect, has_blocks, learner_of, record_of
from torchonline import DPHDB, DPTOFW, OFUL, OONS, AnytimeHeavyTailUCB, DisjointArms, LocalGLB, Poisson, RidgeRegression
from torchonline.distributed import SharedLearner
from torchonline.distributed.ranks import Ranks, as_bytes, digest, packed
from torchonline.metrics import has_missed
from torchonline.privacy.learners.clock import one_rank_steps

D = torch.float64
TIMEOUT = timedelta(seconds=120)


def equal_on_all(policy: Any) -> bool:
    """Whether the ranks have one state, bit for bit."""
    learner = learner_of(policy)
    buffers = learner.public_buffers() if hasattr(learner, "public_buffers") else learner.state()
    states: list[Any] = [None] * distributed.get_world_size()
    distributed.all_gather_object(states, digest(list(buffers.values())))
    return len(set(states)) == 1


def raised(call: Callable[[], Any]) -> tuple[str, str] | None:
    """The class and the text of what a call raises."""
    try:
        call()
    except Exception as error:
        return type(error).__name__, str(error)
    return None


def compared(cases: list[Shared], rank: int, world: int, ways: tuple[str, ...], **options: Any) -> dict[str, Any]:
    """For each learner and way: how far it is from one process's, which rank 0 knows, and whether all ranks are equal."""
    found = {}
    for case in cases:
        references: dict[Any, Any] = {}
        for way in ways:
            if way == "sums" and not has_blocks(case.build(**options)):
                continue
            policy = shared_learners.together(case, rank, world, way, **options)
            gap = 0.0
            if rank == 0:
                reference = shared_learners.alone_in_blocks if way == "sums" else shared_learners.alone
                if reference not in references:
                    references[reference] = reference(case, world, **options)
                gap = difference(policy, references[reference])
            found[f"{case.name} {way}"] = (gap, equal_on_all(policy))
    return found


def estimators(rank: int, world: int) -> dict[str, Any]:
    """Every estimator, in every way that it can be shared; one variant of each class where the way says nothing of it."""
    cases = shared_learners.ESTIMATORS
    few = list({case.name.partition("(")[0]: case for case in reversed(cases)}.values())
    found = compared(cases if world == 2 else few, rank, world, ("leader",))
    return found | compared(few, rank, world, ("all",)) | compared(cases, rank, world, ("sums",))


def policies(rank: int, world: int) -> dict[str, Any]:
    """Policies over estimators, and learners made of policies and scalers."""
    found = compared(shared_learners.POLICIES, rank, world, ("leader",))
    found |= compared(shared_learners.COMPOSED, rank, world, ("leader", "all", "sums"))
    return found | compared(shared_learners.FROZEN, rank, world, ("sums",))


def batches(rank: int, world: int) -> dict[str, Any]:
    """Batches, and single precision."""
    cases = [case for case in shared_learners.ESTIMATORS + shared_learners.FROZEN if has_blocks(case.build())]
    return compared(cases, rank, world, ("leader", "sums"), batch_shape=(2,))


def single_precision(rank: int, world: int) -> dict[str, Any]:
    """Learners of float32 state."""
    cases = [case for case in shared_learners.ESTIMATORS if has_blocks(case.build())]
    return compared(cases, rank, world, ("leader", "all", "sums"), dtype=torch.float32)


def convex(rank: int, world: int) -> dict[str, Any]:
    """Convex learners, and a scaler."""
    return compared([*shared_learners.CONVEX, shared_learners.SCALER], rank, world, ("leader", "all"))


def refused(rank: int, world: int) -> dict[str, Any]:
    """What a constructor refuses, on all ranks."""
    found = {}
    for case in [*shared_learners.ESTIMATORS, *shared_learners.COMPOSED, *shared_learners.CONVEX]:
        policy = case.build()
        if not has_blocks(policy):
            found[case.name] = raised(lambda policy=policy: SharedLearner(policy, learn_on="sums"))
    for case in PRIVATE:
        for way in ("all", "sums"):
            found[f"{case} {way}"] = raised(lambda case=case, way=way: SharedLearner(case.build(), learn_on=way))
    found["restarts"] = raised(
        lambda: SharedLearner(DisjointArms(RidgeRegression(2, restart_every=5), 2), learn_on="sums")
    )
    found["class"] = raised(lambda: SharedLearner(OFUL(3) if rank == 0 else AnytimeHeavyTailUCB(3)))
    found["size"] = raised(lambda: SharedLearner(OFUL(3 + rank)))
    found["option"] = raised(lambda: SharedLearner(OFUL(3, delta=0.01 * (1 + rank))))
    found["link"] = raised(lambda: SharedLearner(LocalGLB(3, link=Poisson() if rank else None)))
    found["way"] = raised(lambda: SharedLearner(OFUL(3), learn_on="all" if rank == 0 else "leader"))
    return found


# What is wrong on one rank.


def bad_rounds() -> dict[str, tuple[Any, Callable[..., None]]]:
    """What builds a learner, and what makes a shared one observe something wrong."""
    ones, click = torch.ones(2, 3, dtype=D), LocalGLB(3)
    bad = torch.tensor([1.0, torch.nan, 1.0])
    return {
        "NaN": (OFUL(3), lambda shared: shared.observe(bad[None], 0, 1.0)),
        "NaN among others": (
            OFUL(3),
            lambda shared: shared.observe(ones.expand(4, 2, 3), [0, 1, 0, 1], torch.tensor([0, 1, torch.nan, 1])),
        ),
        "shape": (OFUL(3), lambda shared: shared.observe(torch.ones(2, 4, dtype=D), 1, 1.0)),
        "shape of a reward": (OFUL(3), lambda shared: shared.observe(ones, 1, torch.ones(2))),
        "type": (OFUL(3), lambda shared: shared.observe(ones, 1, "much")),
        "ragged": (OFUL(3), lambda shared: shared.observe([[1.0, 2.0, 3.0], [1.0]], 0, 1.0)),
        "no reward": (OFUL(3), lambda shared: shared.observe(ones, 1, None)),
        "impossible reward": (click, lambda shared: shared.observe(0.1 * ones, 1, 7.0)),
        "long features": (click, lambda shared: shared.observe(9.0 * ones, 1, 1.0)),
        "noise": (OFUL(3), lambda shared: shared.observe(ones, 1, 1.0, noise_scale=-1.0)),
        "arm": (OFUL(3), lambda shared: shared.observe(ones, 2, 1.0)),
        "action": (DisjointArms(RidgeRegression(3), 2), lambda shared: shared.observe(ones[0], 2, 1.0)),
        "gradient": (OONS(3, lipschitz=1.0), lambda shared: shared.observe(bad)),
    }


def good_round(shared: SharedLearner) -> None:
    """Observe a round that any of these learners takes."""
    x = torch.tensor([0.1, 0.2, 0.3], dtype=D)
    if isinstance(shared.policy, OONS):
        shared.observe(x)
    elif isinstance(shared.policy, DisjointArms):
        shared.observe(x, 1, 1.0)
    else:
        shared.observe(x[None], 0, 1.0)


def errors(rank: int, world: int) -> dict[str, Any]:
    """A wrong round on the last rank: all raise, nothing changes, and discard() helps."""
    found = {}
    for name, (policy, spoil) in bad_rounds().items():
        for way in ("leader", "all", "sums"):
            if way == "sums" and not has_blocks(policy):
                continue
            shared = SharedLearner(copy.deepcopy(policy), learn_on=way)
            good_round(shared)
            shared.sync()
            before = digest(shared._shared_state())
            good_round(shared)
            if rank == world - 1:
                spoil(shared)
            waiting = shared.pending
            error = raised(shared.sync)
            again = raised(shared.sync)
            is_same = digest(shared._shared_state()) == before and shared.pending == waiting
            if rank == world - 1:
                expect(shared.discard(), waiting)
            found[f"{name} {way}"] = (error, again == error and is_same, shared.sync(), equal_on_all(shared.policy))
    return found


def with_change(shared: SharedLearner, rank: int, change: Callable[[], None], who: int) -> dict[str, Any]:
    """What all say when one rank's state was changed from outside, and whether broadcast() helps."""
    good_round(shared)
    shared.sync()
    if rank == who:
        change()
    before = digest(shared._shared_state())
    good_round(shared)
    error = raised(shared.sync)
    is_same = digest(shared._shared_state()) == before and shared.pending == 1
    shared.broadcast()
    return {"error": error, "is_same": is_same, "rounds": shared.sync(), "equal": equal_on_all(shared.policy)}


def strangers(rank: int, world: int) -> dict[str, Any]:
    """Somebody steps one rank's policy alone, or writes its buffers."""
    found: dict[str, Any] = {}
    for way in ("leader", "all", "sums"):
        for who in (0, world - 1):
            shared = SharedLearner(AnytimeHeavyTailUCB(3), learn_on=way)
            step = lambda shared=shared: shared.policy.step(torch.ones(1, 3, dtype=D), 0, 1.0)  # noqa: E731
            found[f"step on rank {who}, {way}"] = with_change(shared, rank, step, who)
    flags = SharedLearner(LocalGLB(3))
    found["a flag"] = with_change(flags, rank, lambda: flags.learner.misspecified.fill_(True), 1)
    signs = SharedLearner(OFUL(3))
    found["a sign of 0"] = with_change(signs, rank, lambda: signs.learner.theta_hat.mul_(-1.0), 1)
    return found


@contextmanager
def learning(learner: Any, learn: Callable[..., None]) -> Iterator[None]:
    """Give a learner another ``step``, which gets its own first."""
    own = learner.step
    learner.step = lambda *arguments, **named: learn(own, *arguments, **named)
    try:
        yield
    finally:
        del learner.step


def other_processors(rank: int, world: int) -> dict[str, Any]:
    """One rank's last bit differs after learning, as on another kind of processor."""
    found = {}
    for who in (0, world - 1):
        shared = SharedLearner(AnytimeHeavyTailUCB(3), learn_on="all")
        good_round(shared)
        shared.sync()

        def learn(own: Any, *arguments: Any, shared: SharedLearner = shared, who: int = who, **named: Any) -> None:
            own(*arguments, **named)
            if rank == who:
                theta = shared.learner.theta_hat
                theta.copy_(torch.nextafter(theta, theta + 1.0))

        before = digest(shared._shared_state())
        good_round(shared)
        with learning(shared.learner, learn):
            error = raised(shared.sync)
        is_same = digest(shared._shared_state()) == before and shared.pending == 1
        found[str(who)] = (error, is_same, shared.sync(), equal_on_all(shared.policy))
    return found


def refused_blocks(rank: int, world: int) -> dict[str, Any]:
    """Rounds that no float can resolve together: the check of the block refuses them, in all ways alike."""
    found = {}
    for way in ("leader", "all", "sums"):
        for policy in (OFUL(3), DisjointArms(RidgeRegression(3), 2)):
            shared = SharedLearner(policy, learn_on=way)
            good_round(shared)
            shared.sync()
            before = digest(shared._shared_state())
            good_round(shared)
            x = torch.randn(12, 3, generator=torch.Generator().manual_seed(rank), dtype=D)
            x = x * torch.tensor([1.0, 1e9, 1e-9]) + 1e9
            x = x if isinstance(policy, DisjointArms) else x.unsqueeze(-2)
            shared.observe(x, torch.zeros(12, dtype=torch.int64), torch.ones(12))
            error = raised(shared.sync)
            is_same = digest(shared._shared_state()) == before and shared.pending == 13
            shared.discard()
            good_round(shared)
            found[f"{type(policy).__name__} {way}"] = (error, is_same, shared.sync(), equal_on_all(shared.policy))
    return found


def interrupts(rank: int, world: int) -> dict[str, Any]:
    """Ctrl-C on a rank that has just learnt: nothing is, and the next sync goes on."""
    # A process in the background of a shell ignores Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    found = {}
    for way, who in (("leader", 0), ("all", 0), ("all", 1)):
        shared = SharedLearner(OFUL(3), learn_on=way)
        good_round(shared)
        shared.sync()

        def learn(own: Any, *arguments: Any, who: int = who, **named: Any) -> None:
            own(*arguments, **named)
            if rank == who:
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(10.0)  # the signal ends it

        before = digest(shared._shared_state())
        good_round(shared)
        with learning(shared.learner, learn):
            try:
                error = raised(shared.sync)
            except KeyboardInterrupt:
                error = ("KeyboardInterrupt", "")
        is_same = digest(shared._shared_state()) == before and shared.pending == 1
        found[f"{way} {who}"] = (error, is_same, shared.sync(), equal_on_all(shared.policy))
    return found


def doubts(rank: int, world: int) -> dict[str, Any]:
    """An interrupt when the leader's state is on its way: whoever may have learnt keeps no rounds to learn twice."""
    found: dict[str, Any] = {}
    for way in ("leader", "all", "sums"):
        shared = SharedLearner(OFUL(3), learn_on=way)
        good_round(shared)
        own = shared._learn_together

        def learn(*arguments: Any, own: Any = own) -> Any:
            outcome = own(*arguments)
            if rank == 1:
                raise KeyboardInterrupt
            return outcome

        shared._learn_together = learn  # type: ignore[method-assign]
        with suppress(KeyboardInterrupt):
            shared.sync()
        del shared._learn_together
        found[way] = [shared.pending, raised(shared.sync), shared.pending]
        if rank == 1:
            shared.discard()
        shared.broadcast()
        found[way] += [shared.sync(), int(shared.learner.rounds), equal_on_all(shared.policy)]
    return found


# Private learners.


def private(rank: int, world: int) -> dict[str, Any]:
    """Every private learner, in all records of all ranks: beside one process with the same seed."""
    found = {}
    for case in PRIVATE:
        has_seed = dict(case.options).get("noise_source", "torch") == "torch"
        seed = {"seed": 3} if has_seed else {}
        shared, single = SharedLearner(case.build(**seed)), case.build(**seed)
        missing = dict.fromkeys(list(record_of(single, 0))[:1])
        secrets = secret_bits(shared.learner)
        noise = torch.get_rng_state()
        for sync, rows in enumerate(((1,) * world, (2, 0, 1, 3)[:world], (0,) * world)):
            for i in range(rows[rank]):
                # A record is missing now and then.
                record = record_of(shared.learner, 100 * sync + 10 * rank + i) if i != 1 else missing
                shared.observe(**record)
            expect(shared.sync(), sum(rows))
            for other in range(world):
                with one_rank_steps():
                    for i in range(rows[other]):
                        single.step(**(record_of(single, 100 * sync + 10 * other + i) if i != 1 else missing))
        learner = shared.learner
        delta = 1e-3
        found[str(case)] = {
            "difference": difference(learner, single) if has_seed and rank == 0 else 0.0,
            "equal": equal_on_all(learner),
            "rounds": int(learner.rounds),
            "spent": [learner.privacy_spent(delta), learner.privacy_spent(delta, continuations=1)],
            "of one process": [single.privacy_spent(delta), single.privacy_spent(delta, continuations=1)],
            "ledger": repr(learner.privacy_ledger()) == repr(single.privacy_ledger()),
            "secrets stay": rank == 0 or secret_bits(learner) == secrets,
            "draws nothing": rank == 0 or torch.equal(noise, torch.get_rng_state()),
            "step": raised(lambda learner=learner: learner.step(None)),
        }
    return found


def secret_bits(learner: Any) -> int:
    """The bits of a learner's secret buffers."""
    public = learner.public_buffers()
    return digest([value for name, value in learner.state().items() if name not in public])


def private_refusals(rank: int, world: int) -> dict[str, Any]:
    """Records of a wrong shape or type take their steps, and so do those of NaN; the end of the budget."""
    shared = SharedLearner(DPTOFW(3, horizon=3 * world + 1, epsilon=1.0, delta=1e-3, seed=1))
    ones = torch.ones(2, 3, dtype=D)
    found: dict[str, Any] = {}
    for name, record in {"shape": torch.ones(5), "type": "secret words", "nan": torch.nan * ones}.items():
        shared.observe(record if rank == world - 1 else ones)
        error = raised(shared.sync)
        found[name] = (error, shared.pending, int(shared.learner.rounds), equal_on_all(shared.learner))
    for name in ("end", "after the end"):
        shared.observe(ones)
        error = raised(shared.sync)
        found[name] = (error, shared.pending, int(shared.learner.rounds), equal_on_all(shared.learner))
    found["spent"] = shared.learner.privacy_spent(1e-3, continuations=1)
    return found


def private_messages(rank: int, world: int) -> dict[str, Any]:
    """What leaves a rank: records go to the first rank only, and their messages' sizes tell nothing."""
    seen: list[tuple[str, Any]] = []
    watch(seen)
    try:
        shared = SharedLearner(DPHDB(3, arms=2, horizon=50, warmup=2, epsilon=1.0, delta=1e-3))
        sizes = []
        for value in (0.0, 12345.678, 3):
            shared.observe(torch.full((3,), float(value), dtype=D), int(value) % 2, value)
            shared.observe([[value, value, 1e-300]], [0], [value])
            shared.observe(*((None,) if value == 3 else (torch.ones(3), 1, 0.5)))  # a record may be missing
            sizes.append(packed(shared._rounds.checked(shared._queue, rank)).numel())
            shared.sync()
    finally:
        unwatch()
    secrets = [value for name, value in shared.learner.state().items() if name not in shared.learner.public_buffers()]
    large = [value for value in secrets if value.numel() > 2 and bool(value.any())]
    sent = [as_bytes(tensor).numpy().tobytes() for kind, tensor in seen if kind in ("broadcast", "all_gather")]
    return {
        "sizes": sizes,
        "calls": [kind for kind, _ in seen],
        "leaks": sum(value.numpy().tobytes() in message for value in large for message in sent),
        "secrets": len(large) if rank == 0 else 0,
        "broadcast": sorted({tensor.numel() for kind, tensor in seen if kind == "broadcast"}),
        "public": sum(value.nbytes for value in shared.learner.public_buffers().values()),
    }


COLLECTIVES = ("broadcast", "all_gather", "gather", "all_reduce")
ORIGINALS = {name: getattr(distributed, name) for name in COLLECTIVES}


def watch(seen: list[tuple[str, Any]]) -> None:
    """Note what the collectives of torch are given, and how large it is."""
    for name in COLLECTIVES:

        def noted(*arguments: Any, name: str = name, **named: Any) -> Any:
            own = arguments[1] if name == "all_gather" else arguments[0]
            seen.append((name, own.clone()))
            return ORIGINALS[name](*arguments, **named)

        setattr(distributed, name, noted)


def unwatch() -> None:
    for name, original in ORIGINALS.items():
        setattr(distributed, name, original)


def messages(rank: int, world: int) -> dict[str, Any]:
    """The collectives of a sync, and the bytes that a rank gives to each."""
    found: dict[str, Any] = {}
    for way, policy in (("leader", OFUL(8)), ("all", OFUL(8)), ("sums", OFUL(8)), ("sums", AnytimeHeavyTailUCB(8))):
        shared = SharedLearner(policy, learn_on=way)
        for rows in (0, 2):
            seen: list[tuple[str, Any]] = []
            for _ in range(rows):
                shared.observe(torch.ones(1, 8, dtype=D), 0, 1.0)
            watch(seen)
            try:
                shared.sync()
            finally:
                unwatch()
            found[f"{type(policy).__name__} {way} {rows}"] = [(name, tensor.nbytes) for name, tensor in seen]
    return found


def warm_up(rank: int, world: int) -> dict[str, Any]:
    """DPHDB chooses on all ranks alike, in its warm-up and after it, as it does in one process."""
    options: dict[str, Any] = {"arms": 2, "horizon": 60, "warmup": 2 * world, "epsilon": 5.0, "delta": 1e-3, "seed": 5}
    shared, single = SharedLearner(DPHDB(3, **options)), DPHDB(3, **options)
    contexts = torch.randn(8, world, 3, generator=torch.Generator().manual_seed(0), dtype=D)
    chosen, alike = [], []
    for x in contexts:
        mine, all_arms = shared.select(x[rank]), shared.select(x)
        alike.append(torch.equal(all_arms, single.select(x)) and bool(mine == all_arms[rank]))
        chosen.append(all_arms.tolist())
        shared.observe(x[rank], mine, x[rank, 0])
        shared.sync()
        with one_rank_steps():
            for other in range(world):
                single.step(x[other], all_arms[other], x[other, 0])
    refusal = raised(lambda: shared.learner.released()) if rank else None
    return {"chosen": chosen, "alike": alike, "released": refusal, "equal": equal_on_all(shared.learner)}


def followers(rank: int, world: int) -> dict[str, Any]:
    """What a private learner of another rank says of itself, saves, and does after the group."""
    options: dict[str, Any] = {"horizon": 20, "epsilon": 1.0, "delta": 1e-3}
    own = DPTOFW(3, **options)
    found: dict[str, Any] = {}
    with one_rank_steps():
        own.step(None)  # a run of each rank's own, before it joins
    before = [own.privacy_spent(1e-3), own.privacy_spent(1e-3, continuations=2)]
    shared = SharedLearner(own)
    shared.observe(torch.ones(2, 3, dtype=D))
    shared.sync()
    spent = shared.learner.privacy_spent(1e-3)
    steps = 1 + world
    one, two = (shared.learner.privacy_ledger(m, steps=steps).epsilon(1e-3) for m in (1, 2))
    # The first rank has one run; another one has its own run besides.
    found["spent"] = abs(spent - (one if rank == 0 else two)) < 1e-9
    found["grew"] = spent > before[0]
    state = shared.state_dict()
    found["tag"] = int(state["policy.tag"]) == -1
    fresh = DPTOFW(3, **options)
    found["load"] = raised(
        lambda: fresh.load_state_dict({name.removeprefix("policy."): v for name, v in state.items()})
    )
    twin = copy.deepcopy(shared.learner)
    with one_rank_steps():
        found["step"] = raised(lambda: shared.learner.step(None))
        found["step of a copy"] = raised(lambda: twin.step(None))
    # The first rank's state, loaded by all.
    states: list[Any] = [None] * world
    distributed.all_gather_object(states, shared.state_dict() if rank == 0 else None)
    shared.load_state_dict(states[0])
    shared.broadcast()
    shared.observe(torch.ones(2, 3, dtype=D))
    found["rounds"] = raised(shared.sync) or int(shared.learner.rounds)
    found["equal"] = equal_on_all(shared.learner)
    return found


# Groups, copies, threads.


def groups(rank: int, world: int) -> dict[str, Any]:
    """Two groups of the world learn apart; a member of neither cannot join."""
    first, rest = distributed.new_group([0, 1]), distributed.new_group([world - 2, world - 1])
    found: dict[str, Any] = {}
    for name, group, members in (("first", first, (0, 1)), ("rest", rest, (world - 2, world - 1))):
        if rank not in members:
            found[name] = raised(lambda group=group: SharedLearner(OFUL(3), group=group))
            continue
        for way in ("leader", "all", "sums"):
            shared = SharedLearner(OFUL(3), learn_on=way, group=group)
            for _ in range(rank + 1):
                good_round(shared)
            found[f"{name} {way}"] = (shared.sync(), shared.ranks.rank, shared.ranks.size)
            states = Ranks(group).all_gather(digest(shared._shared_state()))
            expect(len(set(states)), 1)
    return found


def objects(rank: int, world: int) -> dict[str, Any]:
    """Values of all kinds travel."""
    ranks = Ranks()
    value = {"rank": rank, "x": torch.arange(3 + rank), "half": torch.ones(2, dtype=torch.bfloat16), "none": None}
    gathered, all_gathered = ranks.gather(value), ranks.all_gather(value)
    said = ranks.broadcast_object({"from": rank, "x": torch.full((rank + 1,), 7.0)})
    error, rows = ranks.agree(None, rank, -1, 2**64 - 1)
    wrong = ranks.agree(None if rank != 1 else "ValueError: rank 1: wrong", 5)
    return {
        "gathered": None if gathered is None else [(part["rank"], part["x"].tolist()) for part in gathered],
        "all_gathered": [(part["rank"], part["x"].tolist(), str(part["half"].dtype)) for part in all_gathered],
        "said": (said["from"], said["x"].tolist()),
        "agree": (error, rows),
        "wrong": wrong,
    }


def copies(rank: int, world: int) -> dict[str, Any]:
    """deepcopy, a state that one rank has loaded, and a state dict that all load."""
    shared = SharedLearner(AnytimeHeavyTailUCB(3))
    good_round(shared)
    twin = copy.deepcopy(shared)
    found: dict[str, Any] = {"twin": (twin.pending, twin.sync(), int(twin.learner.rounds), int(shared.learner.rounds))}
    shared.sync()
    if rank == 0:
        shared.load_state_dict(twin.state_dict())
        shared.policy.step(torch.ones(1, 3, dtype=D), 0, 2.0)
    shared.broadcast()
    found["broadcast"] = (int(shared.learner.rounds), equal_on_all(shared.policy), digest(shared._shared_state()))
    other = SharedLearner(AnytimeHeavyTailUCB(3), learn_on="sums")
    other.load_state_dict(shared.state_dict())
    good_round(other)
    found["load"] = (other.sync(), int(other.learner.rounds), equal_on_all(other.policy))
    return found


def threads(rank: int, world: int) -> dict[str, Any]:
    """Threads choose while syncs run, and another observes."""
    return {way: with_threads(way) for way in ("leader", "all", "sums")}


def with_threads(way: str) -> Any:
    shared = SharedLearner(AnytimeHeavyTailUCB(3), learn_on=way)
    arms, wrong, is_over = torch.eye(3, dtype=D), [], threading.Event()

    def choose() -> None:
        while not is_over.is_set():
            if (error := raised(lambda: shared.select(arms))) is not None:
                wrong.append(error)

    def observe() -> None:
        for _ in range(30):
            shared.observe(arms, 0, 1.0)
            time.sleep(0.001)

    choosing, observing = threading.Thread(target=choose), threading.Thread(target=observe)
    choosing.start()
    observing.start()
    learnt = sum(shared.sync() for _ in range(10))
    observing.join()
    learnt += shared.sync()
    is_over.set()
    choosing.join()
    return wrong, learnt, shared.pending, int(shared.learner.rounds), equal_on_all(shared.policy)


def late(rank: int, world: int) -> dict[str, Any]:
    """A rank that does not come: the others raise after the timeout of their group, and nothing has changed."""
    group = distributed.new_group([0, 1], timeout=timedelta(seconds=10))
    found: dict[str, Any] = {}
    if rank < 2:
        shared = SharedLearner(OFUL(3), group=group)
        good_round(shared)
        start = time.monotonic()
        if rank == 0:
            error = raised(shared.sync)
            found["error"] = error is not None and error[0]
            found["time"] = time.monotonic() - start < 90.0
            found["state"] = (int(shared.learner.rounds), shared.pending)
    distributed.barrier()
    return found


def coverage(rank: int, world: int) -> dict[str, Any]:
    """How many of 200 confidence sets of each learner ever miss, learnt in sums at delta = 0.1 from own choices."""
    runs, rounds, found = 200, 30, {}
    generator = torch.Generator().manual_seed(50 + rank)
    for name, build in {
        "OFUL": lambda **o: OFUL(2, noise_scale=0.5, **o),
        "AnytimeHeavyTailUCB": lambda **o: AnytimeHeavyTailUCB(2, noise_scale=0.5, **o),
        "LocalGLB": lambda **o: LocalGLB(2, theta_bound=2.0, **o),
        "OFUL, half the radius": lambda **o: OFUL(2, noise_scale=0.5, radius_scale=0.5, **o),
    }.items():
        shared = SharedLearner(build(delta=0.1, batch_shape=(runs,)), learn_on="sums")
        theta = torch.randn(runs, 2, generator=torch.Generator().manual_seed(7), dtype=D)
        theta = theta / theta.norm(dim=-1, keepdim=True)
        missed = torch.zeros(runs, dtype=torch.bool)
        for _ in range(rounds):
            for _ in range(1 + rank):
                arms = torch.randn(runs, 4, 2, generator=generator, dtype=D)
                arms = arms / arms.norm(dim=-1, keepdim=True)
                chosen = shared.select(arms)
                x = arms.take_along_dim(chosen[:, None, None], 1).squeeze(1)
                mean = (x * theta).sum(-1)
                if name == "LocalGLB":
                    reward = torch.bernoulli(torch.sigmoid(mean), generator=generator)
                elif name == "AnytimeHeavyTailUCB":  # two points, with a standard deviation of 1/2
                    rare = torch.rand(runs, generator=generator, dtype=D) < 0.02
                    reward = mean + 0.5 * torch.where(rare, 7.0, -1.0 / 7.0)
                else:
                    reward = mean + 0.5 * torch.randn(runs, generator=generator, dtype=D)
                shared.observe(arms, chosen, reward)
            shared.sync()
            missed |= has_missed(shared.learner, theta)
        found[name] = (int(missed.sum()), int(shared.learner.rounds.max()), equal_on_all(shared.policy))
    return found


def dying(rank: int, world: int) -> dict[str, Any]:
    """The last rank ends in the middle of a sync; then, of the others, the first one does."""
    pair = distributed.new_group([0, 1])
    found: dict[str, Any] = {}
    for name, group, members, victim in (("last", None, range(world), world - 1), ("first", pair, range(2), 0)):
        if rank not in members:
            continue
        shared = SharedLearner(OFUL(3), learn_on="all", group=group)
        good_round(shared)
        shared.sync()
        before = digest(shared._shared_state())
        good_round(shared)
        Path(f"{sys.argv[3]}.{rank}").write_text(json.dumps({"dying": found}))

        def learn(own: Any, *arguments: Any, victim: int = victim, **named: Any) -> None:
            if rank == victim:
                os._exit(3)
            own(*arguments, **named)

        start = time.monotonic()
        with learning(shared.learner, learn):
            error = raised(shared.sync)
        again = raised(shared.sync)
        found[name] = {
            "error": error is not None and error[0],
            "time": time.monotonic() - start < 100.0,
            "is_same": digest(shared._shared_state()) == before and shared.pending == 1,
            "again": again is not None,
        }
        Path(f"{sys.argv[3]}.{rank}").write_text(json.dumps({"dying": found}))
    os._exit(0)  # without waiting for whoever is gone


def main() -> None:
    rank, world, file = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=world, timeout=TIMEOUT)
    found = {}
    for name in sys.argv[4:]:
        start = time.perf_counter()
        found[name] = SCENARIOS[name](rank, world)
        print(name, f"{time.perf_counter() - start:.1f}", flush=True)
    Path(f"{file}.{rank}").write_text(json.dumps(found))
    distributed.destroy_process_group()


SCENARIOS: dict[str, Callable[[int, int], dict[str, Any]]] = {
    scenario.__name__: scenario
    for scenario in (estimators, policies, batches, single_precision, convex, refused)
    + (errors, strangers, other_processors, refused_blocks, interrupts, doubts)
    + (private, private_refusals, private_messages, warm_up, followers)
    + (groups, objects, copies, threads, messages, late, coverage, dying)
}

if __name__ == "__main__":
    main()
