"""A catalogue's choices are those of its policy among all items, if the index finds the best one."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.composed_policies import ExactIndex
from tests.learners import close, differences, snapshot
from torchonline import (
    OFUL,
    UCB,
    AdaptiveRidgeRegression,
    CatalogueArms,
    DiscountedHeavyTailRegression,
    EpsilonGreedy,
    Greedy,
    LocalGLB,
    RidgeRegression,
    Softmax,
    ThompsonSampling,
)
from torchonline.baselines import BMMRegression
from torchonline.export import to_program, to_torchscript
from torchonline.models import BanditHead

pytestmark = pytest.mark.fast

D = torch.float64
SIZE = 4
MAKERS: dict[str, Callable[..., Any]] = {
    "OFUL": lambda dim, **o: OFUL(dim, **o),
    "LocalGLB": lambda dim, **o: LocalGLB(dim, feature_bound=40.0, **o),
    "heavy tails": lambda dim, **o: UCB(DiscountedHeavyTailRegression(dim, discount=0.95, **o)),
    "raised": lambda dim, **o: UCB(AdaptiveRidgeRegression(dim, floor=0.2, **o)),
    "Greedy": lambda dim, **o: Greedy(RidgeRegression(dim, **o)),
}
ROUNDS = 15


def catalogue(count: int = 300, seed: int = 0) -> Tensor:
    """Embeddings whose lengths vary by a factor of 10."""
    generator = torch.Generator().manual_seed(seed)
    items = torch.randn(count, SIZE, generator=generator, dtype=D)
    return items * (0.1 + 0.9 * torch.rand(count, 1, generator=generator, dtype=D) ** 4)


def contexts(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=D)


def features(policy: CatalogueArms, x: Tensor) -> Tensor:
    """The features of all items, by the definition."""
    if policy.combine == "product":
        return x.unsqueeze(-2) * policy.items
    return torch.einsum("...c,ne->...nce", x, policy.items).flatten(-2)


def play(policy: CatalogueArms, x: Tensor, batch: tuple[int, ...] = ()) -> CatalogueArms:
    for t, each in enumerate(x):
        torch.manual_seed(t)
        item = policy.select(each)
        policy.step(each, item, torch.full(batch, float(t % 3 == 0), dtype=D))
    return policy


# The same scores and choices.


@pytest.mark.parametrize("batch", [(), (2,)])
@pytest.mark.parametrize("combine", ["product", "outer"])
@pytest.mark.parametrize("name", MAKERS)
def test_scores_are_those_of_the_policy(name: str, combine: str, batch: tuple[int, ...]) -> None:
    width = SIZE if combine == "product" else 3
    dim = SIZE if combine == "product" else 3 * SIZE
    items = catalogue(60)
    policy = CatalogueArms(MAKERS[name](dim, batch_shape=batch), items, combine=combine)
    play(policy, contexts(ROUNDS, *batch, width), batch)
    for x in (contexts(*batch, width, seed=2), contexts(*batch, 5, width, seed=3)):
        arms = features(policy, x)
        close(policy(x), policy.policy(arms), 1e-9)
        close(policy.predict(x), policy.policy.predict(arms), 1e-9)
        for mine, theirs in zip(policy.interval(x), policy.policy.interval(arms), strict=True):
            close(mine, theirs, 1e-9)
        best = policy.policy(arms).amax(-1)
        indexed = CatalogueArms(policy.policy, items, ExactIndex(items), combine=combine, per_query=60)
        for each in (policy, indexed):
            close(policy.policy(arms).gather(-1, each.select(x).unsqueeze(-1)).squeeze(-1), best, 1e-9)


@pytest.mark.parametrize("make", [Greedy, ThompsonSampling])
def test_one_query_suffices_for_linear_scores(make: Any) -> None:
    items, x = catalogue(), contexts(100, SIZE)
    policy = play(CatalogueArms(make(RidgeRegression(SIZE)), items, ExactIndex(items), per_query=1), x[:20])
    for t, each in enumerate(x):
        found = []
        for candidates in (policy.candidates, None):
            torch.manual_seed(t)
            found.append(CatalogueArms(policy.policy, items, candidates).select(each))
        assert found[0] == found[1]


@pytest.mark.parametrize("combine", ["product", "outer"])
def test_a_choice_loses_no_more_than_is_proved(combine: str) -> None:
    """With an exact index and all axes, it beats all scores whose radius is smaller by the root of e."""
    items, dim = catalogue(), SIZE if combine == "product" else 2 * SIZE
    x = contexts(60, dim if combine == "product" else 2)
    options: dict[str, Any] = {"combine": combine, "per_query": 1, "directions": SIZE}
    policy = play(CatalogueArms(OFUL(dim), items, ExactIndex(items), **options), x)
    for each in x:
        arms = features(policy, each)
        score = policy.policy(arms)[policy.select(each)]
        estimate, bonus = policy.estimator.estimate_and_bonus(arms)
        assert score >= (estimate + bonus / SIZE**0.5).max() - 1e-9
        assert score >= estimate.max() - 1e-9


def test_few_items_are_scored_and_the_best_is_found() -> None:
    """Of 20000 items, 72 are scored in a decision."""
    items, x = catalogue(20000), contexts(100, SIZE)
    asked = []

    def index(queries: Tensor, k: int) -> Tensor:
        asked.append(len(queries) * k)
        return (queries @ items.T).topk(k).indices

    policy = CatalogueArms(OFUL(SIZE), items, index, per_query=8)
    play(policy, x)
    assert sum(asked) == 100 * 8 * (1 + 2 * SIZE)
    exact = CatalogueArms(policy.policy, items)
    found = [policy.select(each) == exact.select(each) for each in x]
    assert sum(found) >= 95


def test_a_mask_hides_items() -> None:
    items, x = catalogue(), contexts(SIZE)
    for candidates in (None, ExactIndex(items)):
        policy = play(CatalogueArms(OFUL(SIZE), items, candidates, per_query=5), contexts(5, SIZE))
        mask = torch.rand(300, generator=torch.Generator().manual_seed(0)) < 0.5
        assert mask[policy.select(x, mask)]
        # All candidates are hidden: all items are scored.
        alone = torch.zeros(2, 300, dtype=torch.bool)
        alone[0, 17], alone[1, 203] = True, True
        assert policy.select(x.expand(2, -1), alone).tolist() == [17, 203]
        assert policy.probabilities(x, alone[1])[203] == 1.0


def test_an_index_may_find_less() -> None:
    """An id of -1 is no item, as in faiss."""
    items, x = catalogue(), contexts(SIZE)
    none = CatalogueArms(OFUL(SIZE), items, lambda queries, k: np.full((len(queries), k), -1))
    one = CatalogueArms(OFUL(SIZE), items, lambda queries, k: np.array([[-1, 7]] * len(queries), np.int32))
    assert none.select(x) == CatalogueArms(OFUL(SIZE), items).select(x)
    assert one.select(x) == 7
    assert one.probabilities(x).nonzero().tolist() == [[7]]


@pytest.mark.parametrize(
    "make",
    [
        lambda: EpsilonGreedy(RidgeRegression(SIZE), epsilon=0.5),
        lambda: Softmax(RidgeRegression(SIZE)),
        lambda: ThompsonSampling(RidgeRegression(SIZE), draws=50),
    ],
)
def test_propensities_are_those_of_probabilities(make: Callable[[], Any]) -> None:
    items = catalogue()
    policy = play(CatalogueArms(make(), items, ExactIndex(items), per_query=6), contexts(10, SIZE))
    x = contexts(40, SIZE, seed=5)
    torch.manual_seed(0)
    probabilities = policy.probabilities(x)
    torch.manual_seed(0)
    item, propensity = policy.select_with_probability(x)
    close(probabilities.sum(-1), torch.ones(40, dtype=D), 1e-12)
    close(probabilities.gather(-1, item.unsqueeze(-1)).squeeze(-1), propensity, 1e-12)
    assert (propensity > 0.0).all()
    assert probabilities.count_nonzero() <= 40 * 6 * policy._draws()


# The rounds.


def test_a_round_is_one_of_the_chosen_features() -> None:
    items, x = catalogue(), contexts(20, SIZE)
    actions, rewards = torch.arange(20) % 7, contexts(20)
    policies = [CatalogueArms(OFUL(SIZE), items) for _ in range(3)]
    rule = OFUL(SIZE)
    rule.estimator.step(x * items[actions], rewards)
    policies[0].step(x, actions, rewards)
    for each in zip(x, actions, rewards, strict=True):
        policies[1].step(*each)
    policies[2].policy.estimator.step(policies[2].chosen_features(x, actions), rewards)
    for policy in policies:
        assert not differences(snapshot(policy.policy), snapshot(rule))
    policies[0].learn(x, actions, rewards)
    rule.learn((x * items[actions]).unsqueeze(-2), 0 * actions, rewards)
    assert not differences(snapshot(policies[0].policy), snapshot(rule))


def test_a_decision_opens_before_its_reward() -> None:
    policy = CatalogueArms(UCB(AdaptiveRidgeRegression(SIZE)), catalogue())
    x = contexts(SIZE)
    opened = policy.policy.open(policy.chosen_features(x, 3).unsqueeze(-2), 0)
    before = policy.policy.estimator.width(policy.chosen_features(x, 3))
    policy.policy.close(opened, 1.0)
    assert policy.rounds == 1
    close(policy.policy.estimator.width(policy.chosen_features(x, 3)), before, 1e-9)


def test_a_head_encodes_the_context() -> None:
    items, encoder = catalogue(), torch.nn.Linear(7, SIZE)
    head = BanditHead(encoder, CatalogueArms(OFUL(SIZE), items, ExactIndex(items)))
    raw = torch.ones(7)
    item = head.select(raw)
    head.step(raw, item, 1.0)
    assert head.rounds == 1
    assert item == head.policy.select(encoder(raw).detach()) or head.predict(raw)[item] > 0.0


def test_a_longer_catalogue_goes_on_with_the_same_statistics() -> None:
    items, x = catalogue(400), contexts(10, SIZE)
    policy = play(CatalogueArms(OFUL(SIZE), items[:300]), x)
    longer = CatalogueArms(policy.policy, items)
    assert longer.rounds == 10
    close(longer(x[0])[:300], policy(x[0]), 1e-12)


# The embeddings.


def test_embeddings_are_shared_and_not_saved(tmp_path: Path) -> None:
    file = np.memmap(tmp_path / "items.bin", np.float32, "w+", shape=(50, SIZE))
    file[:] = catalogue(50).numpy()
    file.flush()
    for items in (
        catalogue(50),
        catalogue(50).half(),
        np.memmap(tmp_path / "items.bin", np.float32, "r", 0, (50, SIZE)),
    ):
        policy = CatalogueArms(OFUL(SIZE), items)
        address = items.data_ptr() if isinstance(items, Tensor) else items.ctypes.data
        assert policy.items.data_ptr() == address
        assert copy.deepcopy(policy).items.data_ptr() == address
        assert not any("items" in name for name, _ in (*policy.named_buffers(), *policy.state_dict().items()))
        close(policy(contexts(SIZE)), policy.policy(contexts(SIZE) * policy.items.double()), 1e-9)
        play(policy, contexts(3, SIZE))


def test_queries_have_the_type_of_the_items() -> None:
    seen = []

    def index(queries: Tensor, k: int) -> list[list[int]]:
        seen.append((queries.dtype, queries.dim(), queries.requires_grad, k))
        return [[0, 1]] * len(queries)

    policy = CatalogueArms(OFUL(SIZE), catalogue(3).float(), index)
    policy.select(contexts(2, 5, SIZE).requires_grad_())
    assert set(seen) == {(torch.float32, 2, False, 3)}


# Refusals.


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda m, k: torch.zeros(m + 1, k, dtype=torch.int64), r"candidates: expected indices of shape \(\d+, k\)"),
        (lambda m, k: torch.zeros(m, dtype=torch.int64), r"candidates: expected indices of shape \(\d+, k\)"),
        (lambda m, k: torch.zeros(m, 0, dtype=torch.int64), r"candidates: expected indices of shape \(\d+, k\)"),
        (lambda m, k: torch.full((m, k), 300), "candidates: expected indices from -1 to 299, got 300 to 300"),
        (lambda m, k: torch.full((m, k), -2), "candidates: expected indices from -1 to 299, got -2 to -2"),
        (lambda m, k: torch.zeros(m, k), "candidates: expected torch.int64, got torch.float32"),
        (lambda m, k: np.zeros((m, k)), "candidates: expected an int64 tensor or integers, got ndarray of float64"),
        (lambda m, k: None, "candidates: expected an int64 tensor or integers, got NoneType"),
    ],
)
def test_bad_answers_of_an_index_are_refused(answer: Any, message: str) -> None:
    policy = CatalogueArms(OFUL(SIZE), catalogue(), lambda queries, k: answer(len(queries), k))
    before = snapshot(policy)
    with pytest.raises((TypeError, ValueError), match=message):
        policy.select(contexts(SIZE))
    assert not differences(before, snapshot(policy))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: CatalogueArms(OFUL(5), catalogue()), r"items: expected shape \(n, e\) with e 5, got \(300, 4\)"),
        (lambda: CatalogueArms(OFUL(6), catalogue(), combine="outer"), "with e a divisor of 6, got"),
        (lambda: CatalogueArms(OFUL(4), torch.zeros(0, 4)), r"items: expected shape \(n, e\) with n > 0, got \(0, 4\)"),
        (lambda: CatalogueArms(OFUL(4), torch.zeros(4)), r"items: expected shape \(n, e\)"),
        (lambda: CatalogueArms(OFUL(4), torch.zeros(3, 4).long()), "items: expected floats, got torch.int64"),
        (lambda: CatalogueArms(OFUL(4), torch.full((3, 4), torch.nan)), "items: expected finite"),
        (lambda: CatalogueArms(OFUL(4), "text"), "items: expected"),
        (lambda: CatalogueArms(OFUL(4), catalogue(), 3), "candidates: expected a callable or None, got int"),  # type: ignore[arg-type]
        (lambda: CatalogueArms(OFUL(4), catalogue(), combine="sum"), "combine: expected"),
        (lambda: CatalogueArms(OFUL(4), catalogue(), per_query=0), "per_query: expected"),
        (lambda: CatalogueArms(OFUL(4), catalogue(), directions=0), "directions: expected"),
        (lambda: CatalogueArms(UCB(BMMRegression(4, horizon=9)), catalogue()), "with its own predictor"),
        (lambda: CatalogueArms(torch.nn.Linear(4, 1), catalogue()), "policy: expected a rule of choice"),  # type: ignore[arg-type]
    ],
)
def test_bad_arguments_are_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        make()


@pytest.mark.parametrize("export", [to_torchscript, to_program, torch.jit.script])
def test_exports_refuse_it_and_take_its_policy(export: Any) -> None:
    policy = CatalogueArms(OFUL(SIZE), catalogue())
    with pytest.raises(ValueError, match="CatalogueArms"):
        export(policy)


def test_a_file_of_the_policy_chooses_among_candidates() -> None:
    """What a server without Python does with the answer of its index."""
    items, x = catalogue(), contexts(SIZE)
    policy = play(CatalogueArms(OFUL(SIZE), items), contexts(10, SIZE))
    file = to_torchscript(policy.policy)
    found = torch.arange(0, 300, 3)
    mask = torch.zeros(300, dtype=torch.bool)
    mask[found] = True
    assert found[file.select(x * items[found])] == policy.select(x, mask)


def test_no_decisions_ask_nothing() -> None:
    policy = CatalogueArms(OFUL(SIZE), catalogue(), lambda queries, k: pytest.fail("asked"))
    x = contexts(2, 0, SIZE)
    assert policy.select(x).shape == (2, 0)
    assert policy.select_with_probability(x)[1].shape == (2, 0)
    assert policy.probabilities(x).shape == (2, 0, 300)
