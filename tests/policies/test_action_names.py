"""Names of actions in policies: a name stands for the id of its arm wherever an id does."""

import copy
import io
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor

import torchonline
from tests.learners import differences, snapshot
from torchonline import OFUL, DisjointArms, FixedArms, RadiusSelector, RidgeRegression
from torchonline.distributed import SharedLearner
from torchonline.export import to_program, to_torchscript
from torchonline.models import BanditHead

NAMES = ["home", "sale", "news"]


def named(names: Any = NAMES, **options: Any) -> DisjointArms:
    return torchonline.bandit(2, actions=names, **options)


def fixed(names: Any = NAMES) -> FixedArms:
    return FixedArms(OFUL(3), torch.eye(3), names=names)


def head(names: Any = NAMES) -> BanditHead:
    return BanditHead(torch.nn.Linear(2, 2).double(), torchonline.bandit(2, actions=names, scale=False))


MAKERS: dict[str, Callable[..., Any]] = {"disjoint": named, "fixed": fixed, "head": head}
every_kind = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)


def arms_of(policy: Any) -> Any:
    return policy.policy if isinstance(policy, BanditHead) else policy


def inputs_of(policy: Any, *shape: int) -> Tensor | None:
    return None if isinstance(policy, FixedArms) else torch.ones(*shape, 2, dtype=torch.float64)


def remove(policy: Any, which: Any) -> None:
    arms = arms_of(policy)
    (arms.remove_arms if isinstance(arms, FixedArms) else arms.remove_actions)(which)


def add(policy: Any, names: Any) -> list[int]:
    arms = arms_of(policy)
    if isinstance(arms, FixedArms):
        return arms.add_arms(torch.ones(len(names), 3), names=names)
    return arms.add_actions(names)


FORMS: dict[str, Callable[[list[str]], Any]] = {
    "list": list,
    "tuple": tuple,
    "array": np.array,
    "objects": lambda names: np.array(names, dtype=object),
    "series": pd.Series,
    "categories": lambda names: pd.Series(names, dtype="category"),
}


@every_kind
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_names_learn_what_their_ids_do(make: Any, form: Any) -> None:
    one = make()
    two, rewards = copy.deepcopy(one), [1.0, 0.0, 0.5]
    for policy, actions in ((one, form(["sale", "news", "sale"])), (two, [1, 2, 1])):
        policy.step(inputs_of(policy), actions[0], 1.0)
        policy.step(inputs_of(policy, 3), actions, rewards)
        policy.learn(inputs_of(policy, 3), actions, rewards)
    assert differences(snapshot(arms_of(one)), snapshot(arms_of(two))) == []
    assert one.action_names == NAMES
    assert one.name_of(one.select(inputs_of(one))) == one.select_name(inputs_of(one))


def test_names_come_back_in_the_shape_of_the_decisions() -> None:
    policy = named()
    x = torch.randn(2, 3, 2)
    assert policy.select_name(x) == [[NAMES[k] for k in row] for row in policy.select(x).tolist()]
    mask = torch.tensor([False, False, True])
    assert policy.select_name(x[0, 0], mask) == "news"
    assert policy.name_of([[0, 2]]) == [["home", "news"]]
    assert policy.name_of(np.int64(1)) == "sale"
    with pytest.raises(ValueError, match=r"^action: expected the id of an arm, one of 0, 1, 2, got 3$"):
        policy.name_of(3)


def test_batches_share_the_names() -> None:
    arms = DisjointArms(RidgeRegression(1, batch_shape=(2,)), NAMES)
    arms.step(torch.ones(2, 1), ["sale", "news"], torch.ones(2))
    arms.step(torch.ones(2, 2, 1), [["sale", "sale"], ["home", "home"]], torch.ones(2, 2))
    assert arms.estimator.rounds.tolist() == [[0, 3, 0], [2, 0, 1]]


def test_a_selector_of_the_radius_takes_names() -> None:
    arms = RadiusSelector(RidgeRegression(2), NAMES)
    arms.step(torch.eye(2), ["sale", "home"], [0.0, 1.0])
    assert arms.estimator.rounds.tolist() == [1, 1, 0]


def test_decisions_are_opened_by_name() -> None:
    policy = named()
    x = torch.ones(2)
    policy.close(policy.open(x, "news"), 1.0)
    assert policy.estimator.rounds.tolist() == [0, 0, 1]


@every_kind
@pytest.mark.parametrize(
    ("action", "error", "message"),
    [
        ("hom", ValueError, r"^action: expected one of 'home', 'sale', 'news', got 'hom'; did you mean 'home'\?$"),
        ("SALE", ValueError, r"got 'SALE'; did you mean 'sale'\?$"),
        ("zzzz", ValueError, r"^action: expected one of 'home', 'sale', 'news', got 'zzzz'$"),
        (["home", "sal", "home"], ValueError, r"got 'sal'; did you mean 'sale'\?$"),
        (["home", None, "home"], TypeError, r"^action: expected names of actions only, got None among them$"),
        (["home", 1, "home"], TypeError, r"^action: expected names of actions only, got 1 among them$"),
    ],
)
def test_unknown_names_are_refused_and_change_nothing(make: Any, action: Any, error: Any, message: str) -> None:
    policy = make()
    policy.step(inputs_of(policy), "home", 1.0)
    before = snapshot(arms_of(policy))
    shape, reward = ((), 1.0) if isinstance(action, str) else ((3,), [1.0] * 3)
    for learn in (policy.step, policy.learn):
        with pytest.raises(error, match=message):
            learn(inputs_of(policy, *shape), action, reward)
    assert differences(before, snapshot(arms_of(policy))) == []


@pytest.mark.parametrize("make", [lambda: named(3), lambda: fixed(None), lambda: OFUL(2), lambda: head(3)])
def test_policies_without_names_say_how_to_give_them(make: Any) -> None:
    policy = make()
    inputs = torch.eye(2) if isinstance(policy, OFUL) else inputs_of(policy)
    for action in ("home", np.array("home")):
        with pytest.raises(
            TypeError, match=r"^action: expected integers, .* no names, got 'home'; give names .*actions="
        ):
            policy.step(inputs, action, 1.0)
    assert policy.action_names is None
    for ask in (policy.select_name, policy.name_of):
        with pytest.raises(TypeError, match=r"^actions: expected a policy whose actions have names"):
            ask(0 if ask == policy.name_of else inputs)


@every_kind
def test_a_removed_name_stays_with_its_id(make: Any) -> None:
    policy = make()
    remove(policy, ["home"])
    assert policy.action_names == ["sale", "news"]
    assert arms_of(policy).was_removed("home")
    assert not arms_of(policy).was_removed("sale")
    assert not arms_of(policy).was_removed("never")
    before = snapshot(arms_of(policy))
    with pytest.raises(ValueError, match=r"one of 1, 2, got 0 \('home'\), which was removed$"):
        policy.step(inputs_of(policy), "home", 1.0)
    for bad, message in ((["home"], "the name of arm 0, which was removed"), (["sale"], "the name of arm 1$")):
        with pytest.raises(ValueError, match=rf"^(actions|names): expected new names, got .*{message}"):
            add(policy, bad)
    assert differences(before, snapshot(arms_of(policy))) == []
    assert add(policy, ["promo", "extra"]) == [3, 4]
    assert policy.action_names == ["sale", "news", "promo", "extra"]
    assert policy.name_of([0, 4]) == ["home", "extra"]
    policy.step(inputs_of(policy), "extra", 1.0)
    with pytest.raises(ValueError, match=r"expected one of 'sale', 'news', 'promo', 'extra', got 'hame'$"):
        policy.step(inputs_of(policy), "hame", 1.0)


def test_names_and_numbers_do_not_mix() -> None:
    policy, plain = named(), named(2)
    for count in (1, 2):
        with pytest.raises(TypeError, match=r"^actions: expected names of the new arms, because the others have names"):
            policy.add_actions(count)
    with pytest.raises(TypeError, match=r"^actions: expected no names, because the other arms have none, got 'a'"):
        plain.add_actions(["a"])
    with pytest.raises(TypeError, match=r"^actions: expected a list of ids or names of arms, got str"):
        policy.remove_actions("home")
    with pytest.raises(ValueError, match=r"^actions: expected one of .* got 'hom'; did you mean 'home'"):
        policy.remove_actions(["hom"])
    arms = fixed()
    with pytest.raises(TypeError, match=r"^names: expected names of the new arms"):
        arms.add_arms(torch.ones(1, 3))
    with pytest.raises(ValueError, match=r"^names: expected 1 names, one for each arm, got 2"):
        arms.add_arms(torch.ones(1, 3), names=["a", "b"])
    with pytest.raises(ValueError, match=r"^names: expected 3 names"):
        fixed(["a"])


@every_kind
def test_copies_files_and_resets_keep_the_names(make: Any) -> None:
    policy = make()
    policy.step(inputs_of(policy), "news", 1.0)  # so that the names have been read
    remove(policy, ["home"])
    add(policy, ["promo"])
    file = io.BytesIO()
    torch.save(policy.state_dict(), file)
    file.seek(0)
    state = torch.load(file, weights_only=True)
    assert all(isinstance(value, Tensor) for value in state.values())
    loaded = make()
    loaded.load_state_dict(state)
    policy.reset()
    for twin in (policy, loaded, copy.deepcopy(policy), pickle.loads(pickle.dumps(policy))):
        assert twin.action_names == ["sale", "news", "promo"]
        assert add(twin, ["late"]) == [4]
        twin.step(inputs_of(twin), "late", 1.0)
    assert loaded.action_names == policy.action_names
    copied = copy.deepcopy(policy)
    add(copied, ["own"])
    assert policy.action_names == ["sale", "news", "promo", "late"]


def test_a_load_takes_names_and_keeps_them_if_the_state_has_none() -> None:
    policy, plain, other = named(), named(3), named(["a", "b", "c"])
    state = policy.state_dict()
    for taker in (plain, other):
        taker.load_state_dict(state)
        assert taker.action_names == NAMES
    old = named(3).state_dict()
    assert not any("name" in key for key in old)
    policy.load_state_dict(old)
    assert policy.action_names == NAMES
    removed = named(4)
    removed.remove_actions([1])
    policy.load_state_dict(removed.state_dict())
    assert dict(zip(policy.action_ids, policy.action_names or (), strict=True)) == {0: "home", 2: "sale", 3: "news"}
    assert policy.add_actions(["promo"]) == [4]
    policy.step(torch.ones(2), "sale", 1.0)
    assert policy.estimator.rounds.tolist() == [0, 1, 0, 0]


@pytest.mark.parametrize(
    "data",
    [b'{"0": "a", "1": "b"}', b'{"0": "a", "1": "b", "2": "b"}', b'{"0": "a", "1": "b", "2": "c", "3": "d"}', b"x"],
)
def test_a_state_with_wrong_names_is_refused_and_changes_nothing(data: bytes) -> None:
    policy = named()
    policy.step(torch.ones(2), "sale", 1.0)
    bad = named().state_dict() | {"name_bytes": torch.tensor(list(data), dtype=torch.uint8)}
    before = policy.state_dict()
    with pytest.raises(RuntimeError, match=r"name_bytes: expected "):
        policy.load_state_dict(bad)
    assert {key: value.tolist() for key, value in policy.state_dict().items()} == {
        key: value.tolist() for key, value in before.items()
    }
    assert policy.action_names == NAMES


def test_a_file_of_another_dtype_or_device_keeps_the_names() -> None:
    policy = named().to(torch.float32)
    assert policy.action_names == NAMES
    policy.step(torch.ones(2), "sale", 1.0)
    assert named().to("meta").action_names is None  # whose bytes are gone
    empty = named(["a", "b", "c"]).to("meta").to_empty(device="cpu")
    empty.load_state_dict(named().state_dict())
    assert empty.action_names == NAMES


@every_kind
def test_a_torchscript_file_tells_the_names_also_those_of_a_newer_state(make: Any) -> None:
    policy = make(["home", 'a "b" \\', "日本"])
    example = {} if isinstance(policy, FixedArms) else {"example": torch.ones(2, dtype=torch.float64)}
    file = io.BytesIO()
    torch.jit.save(to_torchscript(policy, **example), file)
    file.seek(0)
    scripted: Any = torch.jit.load(file)
    assert scripted.names() == policy.action_names
    assert scripted.name_of(scripted.select(inputs_of(policy))) == [policy.select_name(inputs_of(policy))]
    remove(policy, ["home"])
    add(policy, ["promo"])
    scripted.load_state_dict(policy.state_dict(), strict=False)
    assert scripted.names() == policy.action_names == ['a "b" \\', "日本", "promo"]
    assert scripted.name_of(torch.tensor([[0, 1], [3, -1]])) == ["home", 'a "b" \\', "promo", ""]


def test_a_file_without_names_has_none() -> None:
    for policy in (named(3), OFUL(2)):
        scripted: Any = to_torchscript(policy)
        assert (scripted.names(), scripted.name_of(torch.tensor([0, 1]))) == ([], ["", ""])
        assert not any("name_bytes" in key for key in scripted.state_dict())


@pytest.mark.slow
def test_a_program_keeps_the_names_in_its_state() -> None:
    program = to_program(DisjointArms(RidgeRegression(1), NAMES))
    assert bytes(program.state_dict["policy.name_bytes"].tolist()).decode().startswith('{"0": "home"')


def test_shared_learners_know_the_names() -> None:
    arms = DisjointArms(RidgeRegression(2), NAMES)
    shared = SharedLearner(arms)
    shared.observe(torch.ones(2), "sale", 1.0)
    shared.observe(torch.ones(2, 2), ["sale", "news"], [1.0, 0.0])
    assert shared.sync() == 3
    assert arms.estimator.rounds.tolist() == [0, 2, 1]
    shared.observe(torch.ones(2), "sal", 1.0)
    with pytest.raises(ValueError, match=r"did you mean 'sale'"):
        shared.sync()
    catalogue = fixed()
    shared = SharedLearner(catalogue)
    shared.observe(None, "sale", 1.0)
    assert shared.sync() == 1


def test_the_repr_and_the_plot_show_names() -> None:
    assert "actions=3 ('home', 'sale', 'news')" in repr(named())
    assert "arms=3 ('home', 'sale', 'news')" in repr(fixed())
    policy = named(["home", "a $x$ b", "y" * 100])
    _, axes = policy.plot_confidence(torch.ones(2))
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert labels == ["home", r"a \$x\$ b", "y" * 37 + "..."]
    axes.figure.canvas.draw()
    _, axes = policy.plot_confidence(torch.ones(2), names=["1", "2", "3"])
    assert [label.get_text() for label in axes.get_yticklabels()] == ["1", "2", "3"]
