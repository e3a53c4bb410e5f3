"""``ParameterFree``: it trains, in a loop and under Lightning; goes on bit for bit; and refuses by name, whole."""

import copy
import io
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from tests.interruption import interrupted
from tests.learners import close
from torchonline import OONS, FreeGrad, MsMwC, MsMwCMaster, ParameterFree
from torchonline.baselines import DoG, ScheduleFree
from torchonline.convex.learner import ConvexLearner

pytestmark = pytest.mark.fast

D = torch.float64
DIM, ROWS, BATCH = 4, 256, 16
# Learners with what they must be told, here of Huber's loss, and how far above least squares 16 epochs of it may end; they
# begin at some 100 times as much. The last two spend most of that time on finding out how far away the solution is.
LEARNERS: dict[str, dict[str, Any]] = {
    "freegrad": {},
    "oons": {"lipschitz": 1.5},
    "cla": {},
    "ca-linear": {"lipschitz": 1.5, "horizon": 256},
    "ca-values": {"lipschitz": 1.5, "horizon": 256},
}
EXCESS = {"freegrad": 0.1, "oons": 0.02, "cla": 0.8, "ca-linear": 0.2, "ca-values": 8.0}
EPOCHS = 16
EACH = pytest.mark.parametrize("learner", list(LEARNERS))
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, D])


def problem(dtype: torch.dtype = D) -> tuple[Tensor, Tensor, float]:
    """A regression with noise: rows, responses, and the mean squared error of least squares."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(ROWS, DIM, generator=generator, dtype=D)
    noise = 0.5 * torch.randn(ROWS, 1, generator=generator, dtype=D)
    y = x @ torch.tensor([[3.0], [-2.0], [0.5], [0.0]], dtype=D) + 4.0 + noise
    rows = torch.cat([x, torch.ones(ROWS, 1, dtype=D)], -1)
    best = (rows @ torch.linalg.lstsq(rows, y).solution - y).square().mean().item()
    return x.to(dtype), y.to(dtype), best


def head_of(dtype: torch.dtype = D, seed: int = 0) -> nn.Linear:
    torch.manual_seed(seed)
    return nn.Linear(DIM, 1, dtype=dtype)


def loss_of(head: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return nn.functional.huber_loss(head(x), y)


def train(head: nn.Module, optimizer: ParameterFree, steps: int, start: int = 0) -> None:
    """Plain steps on the batches of the problem in turn; with a closure, which all learners take."""
    x, y, _ = problem(next(head.parameters()).dtype)
    for t in range(start, start + steps):
        rows = slice(t * BATCH % ROWS, t * BATCH % ROWS + BATCH)

        def closure(rows: slice = rows) -> Tensor:
            optimizer.zero_grad()
            loss = loss_of(head, x[rows], y[rows])
            loss.backward()
            return loss

        optimizer.step(closure)


def bits(head: nn.Module, optimizer: ParameterFree) -> dict[str, Tensor]:
    """A copy of all that evolves."""
    state = {name: value.detach().clone() for name, value in head.state_dict().items()}
    for index, saved in enumerate(optimizer.state_dict()["learners"]):
        state |= {f"{index} centre": saved["centre"], f"{index} rate": torch.tensor(saved["rate"])}
        state |= {f"{index} {name}": value for name, value in saved["learner"].items()}
    return state


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(
        value.dtype == other[name].dtype and torch.equal(value, other[name]) for name, value in one.items()
    )


@pytest.mark.slow
@DTYPES
@EACH
def test_it_trains_in_a_loop(learner: str, dtype: torch.dtype) -> None:
    x, y, best = problem(dtype)
    head = head_of(dtype)
    before = (head(x) - y).square().mean().item()
    train(head, ParameterFree(head.parameters(), learner=learner, **LEARNERS[learner]), EPOCHS * ROWS // BATCH)
    after = (head(x) - y).square().mean().item()
    assert best <= after + 1e-6 <= (1.0 + EXCESS[learner]) * best < 0.1 * before


def test_it_is_the_learner_around_the_first_parameters() -> None:
    """Two parameters of different shapes, one never in the loss, are one vector: the centre plus the decision."""
    weight, unused = nn.Parameter(torch.randn(2, 3, dtype=D)), nn.Parameter(torch.randn(2, dtype=D))
    optimizer = ParameterFree([weight, unused], length_scale=0.1)
    centre, before, learner = weight.detach().clone(), unused.detach().clone(), FreeGrad(8, length_scale=0.1)
    for _ in range(20):
        optimizer.zero_grad()
        (weight - 1.0).abs().sum().backward()
        gradient = torch.cat([weight.grad.reshape(-1), torch.zeros(2, dtype=D)])
        assert optimizer.step() is None
        learner.step(gradient)
        assert torch.equal(weight.detach(), centre + learner.predict()[:6].view(2, 3))
        assert torch.equal(unused.detach(), before)
    assert torch.equal(optimizer.centres[0], torch.cat([centre.reshape(-1), before]))
    assert torch.equal(optimizer.learners[0].predict(), learner.predict())


def test_a_gradient_that_is_missing_again_counts_as_zeros() -> None:
    """Not as the last one, and neither do the places that a sparse gradient leaves out."""
    one, other = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(3, dtype=D))
    optimizer, learner = ParameterFree([one, other]), FreeGrad(5)
    sparse = torch.tensor([0.0, 4.0, 0.0], dtype=D)
    for grads in ((torch.ones(2), torch.ones(3, dtype=D)), (torch.ones(2), None), (None, sparse.to_sparse())):
        one.grad, other.grad = grads
        optimizer.step()
        dense = [
            torch.zeros(n, dtype=D) if g is None else g.to_dense().to(D) for g, n in zip(grads, (2, 3), strict=True)
        ]
        learner.step(torch.cat(dense))
        assert torch.equal(optimizer.learners[0].predict(), learner.predict())


def test_each_parameter_is_clamped_to_its_own_type() -> None:
    """A group of several types, whose decision is above the range of one."""
    half, single = nn.Parameter(torch.zeros(1, dtype=torch.float16)), nn.Parameter(torch.zeros(1))
    optimizer = ParameterFree([half, single], lr=1e6)
    half.grad, single.grad = -torch.ones(1, dtype=torch.float16), -torch.ones(1)
    optimizer.step()
    assert half.item() == torch.finfo(torch.float16).max < single.item()


def test_a_group_without_a_gradient_is_left_alone() -> None:
    """And groups have options of their own."""
    one, other = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(3, dtype=torch.bfloat16))
    optimizer = ParameterFree([{"params": [one], "length_scale": 0.5}, {"params": [other]}], length_scale=2.0)
    (one.sum()).backward()
    for _ in range(3):
        optimizer.step()
    assert [int(learner.rounds) for learner in optimizer.learners] == [3, 0]
    assert [learner.length_scale for learner in optimizer.learners] == [0.5, 2.0]
    assert torch.equal(other.detach(), torch.ones(3, dtype=torch.bfloat16))
    assert bool((one < 1.0).all())
    (other.sum()).backward()
    optimizer.step()
    assert [int(learner.rounds) for learner in optimizer.learners] == [4, 1]
    assert bool((other < 1.0).all())
    assert {learner.decision.dtype for learner in optimizer.learners} == {D}


def test_a_state_that_cannot_be_right_is_refused_by_name() -> None:
    parameter = nn.Parameter(torch.zeros(2))
    optimizer = ParameterFree([parameter])
    parameter.grad = torch.ones(2)
    optimizer.step()
    good = optimizer.state_dict()
    (saved,), (group,) = good["learners"], good["param_groups"]
    bad: list[dict[str, Any]] = [
        {"learners": 5},
        {"learners": [5]},
        {"param_groups": [5]},
        {"param_groups": [{name: value for name, value in group.items() if name != "params"}]},
        {"learners": [saved | {"centre": torch.full((2,), torch.nan, dtype=D)}]},
        *({"learners": [saved | {"rate": rate}]} for rate in (float("nan"), -1.0, "1")),
        *(
            {"learners": [{key: value for key, value in saved.items() if key != name}]}
            for name in ("centre", "learner")
        ),
    ]
    for change in bad:
        with pytest.raises(ValueError, match=r"^state_dict: expected "):
            optimizer.load_state_dict(good | change)
    after = optimizer.state_dict()
    assert torch.equal(after["learners"][0]["centre"], saved["centre"])
    optimizer.load_state_dict(good)


def test_a_group_may_be_added_later() -> None:
    """Around what its parameters are by then; after a copy and a load, too."""
    one, other = nn.Parameter(torch.ones(2)), nn.Parameter(torch.zeros(3))
    optimizer = copy.deepcopy(ParameterFree([one]))
    optimizer.load_state_dict(optimizer.state_dict())
    with torch.no_grad():
        other += 7.0
    optimizer.add_param_group({"params": other, "lipschitz": 3.0})
    assert torch.equal(optimizer.centres[1], torch.full((3,), 7.0, dtype=D))
    assert optimizer.learners[1].lipschitz == 3.0
    with pytest.raises(TypeError, match="momentum: "):
        optimizer.add_param_group({"params": nn.Parameter(torch.ones(1)), "momentum": 0.1})
    assert len(optimizer.param_groups) == len(optimizer.learners) == len(optimizer.centres) == 2


def test_a_group_is_added_with_its_learner_or_not_at_all() -> None:
    """An interrupt at any line adds nothing, and the group may be added after it."""
    optimizer = ParameterFree([nn.Parameter(torch.zeros(2))])
    parameter, line = nn.Parameter(torch.ones(1)), 0
    while interrupted(lambda: optimizer.add_param_group({"params": parameter}), line, at_with=False):
        assert len(optimizer.param_groups) == len(optimizer.learners) == len(optimizer.centres) == 1
        line += 1
    assert line > 20
    assert len(optimizer.param_groups) == len(optimizer.learners) == len(optimizer.centres) == 2


@DTYPES
@EACH
def test_a_saved_state_goes_on_bit_for_bit(learner: str, dtype: torch.dtype) -> None:
    """Through a file, into a head and an optimizer that began elsewhere: float64 learners under float32 parameters too."""

    def build(seed: int) -> tuple[nn.Linear, ParameterFree]:
        head = head_of(dtype, seed)
        groups = [{"params": [head.weight]}, {"params": [head.bias]}]
        return head, ParameterFree(groups, learner=learner, **LEARNERS[learner])

    head, optimizer = build(0)
    train(head, optimizer, 9)
    file = io.BytesIO()
    torch.save({"head": head.state_dict(), "optimizer": optimizer.state_dict()}, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=True)
    again, twin = build(1)
    again.load_state_dict(loaded["head"])
    twin.load_state_dict(loaded["optimizer"])
    assert same(bits(head, optimizer), bits(again, twin))
    for one, its in ((head, optimizer), (again, twin)):
        train(one, its, 9, start=9)
    assert same(bits(head, optimizer), bits(again, twin))
    assert twin.learners[0].decision.dtype == D


def test_a_state_is_a_copy() -> None:
    head = head_of()
    optimizer = ParameterFree(head.parameters())
    state, before = optimizer.state_dict(), bits(head, optimizer)
    weights = copy.deepcopy(head.state_dict())
    train(head, optimizer, 5)
    assert not same(bits(head, optimizer), before)
    optimizer.load_state_dict(state)
    head.load_state_dict(weights)
    assert same(bits(head, optimizer), before)


@EACH
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda pair: pickle.loads(pickle.dumps(pair))])
def test_copies_go_on_alone(copied: Callable[[Any], Any], learner: str) -> None:
    head = head_of()
    optimizer = ParameterFree(head.parameters(), learner=learner, **LEARNERS[learner])
    train(head, optimizer, 5)
    before = bits(head, optimizer)
    again, twin = copied((head, optimizer))
    train(again, twin, 5, start=5)
    assert same(bits(head, optimizer), before)
    train(head, optimizer, 5, start=5)
    assert same(bits(head, optimizer), bits(again, twin))


def test_a_state_that_does_not_fit_changes_nothing() -> None:
    head = head_of()
    optimizer = ParameterFree(head.parameters())
    train(head, optimizer, 3)
    before = bits(head, optimizer)
    other = head_of(seed=1)
    wrong = {
        "expected a state of ParameterFree": torch.optim.SGD(other.parameters(), lr=0.1).state_dict(),
        "state_dict: expected 1 groups, got 2": ParameterFree(
            [{"params": [p]} for p in other.parameters()]
        ).state_dict(),
        "expected 2 parameters, together .5., in group 0, got 1, together .4.": ParameterFree(
            [other.weight]
        ).state_dict(),
        "length_scale: the state of group 0 was learnt with 0.5, this one has 1.0": ParameterFree(
            other.parameters(), length_scale=0.5
        ).state_dict(),
        "learner: the state of group 0 was learnt with 'oons', this one has 'freegrad'": ParameterFree(
            other.parameters(), learner="oons", lipschitz=1.0
        ).state_dict(),
    }
    broken = ParameterFree(other.parameters()).state_dict()
    del broken["learners"][0]["learner"]["first_gradient_norm"]
    wrong["first_gradient_norm"] = broken
    for text, centre in (("got torch.complex128 of shape .5.", torch.ones(5) * 1j), ("got NoneType", None)):
        broken = ParameterFree(other.parameters()).state_dict()
        broken["learners"][0]["centre"] = centre if centre is None else centre.to(torch.complex128)
        wrong[f"expected the centre of group 0 as a tensor, {text}"] = broken
    for text, state in wrong.items():
        with pytest.raises((ValueError, RuntimeError), match=text):
            optimizer.load_state_dict(state)
        assert same(bits(head, optimizer), before)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, 1e200])
def test_a_gradient_that_is_no_number_changes_nothing(bad: float) -> None:
    """Not the groups before it either."""
    one, other = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(3, dtype=D))
    optimizer = ParameterFree([{"params": [one]}, {"params": [other]}])
    holder = nn.ParameterList([one, other])
    for _ in range(3):
        one.grad, other.grad = torch.ones(2), torch.ones(3, dtype=D)
        optimizer.step()
    before = bits(holder, optimizer)
    other.grad[1] = bad
    with pytest.raises(ValueError, match="gradients of group 1: expected"):
        optimizer.step()
    other.grad = torch.tensor([1.0, bad, 0.0], dtype=D).to_sparse()
    with pytest.raises(ValueError, match="gradients of group 1: expected"):
        optimizer.step()
    assert same(bits(holder, optimizer), before)
    other.grad = torch.ones(3, dtype=D)
    optimizer.step()
    assert [int(learner.rounds) for learner in optimizer.learners] == [4, 4]


P = nn.Parameter(torch.ones(2))


@pytest.mark.parametrize(
    ("params", "options", "refusal", "text"),
    [
        ([P], {"learner": "sgd"}, ValueError, "learner: expected one of 'freegrad', 'oons', .* got 'sgd'"),
        ([P], {"learner": 3}, TypeError, "learner: expected one of"),
        (
            [P],
            {"momentum": 0.1},
            TypeError,
            r"momentum: expected an option of learner 'freegrad' \(length_scale, lipschitz, restarts, per_coordinate, "
            r"initial_wealth, validate\)",
        ),
        ([P], {"lr": -0.1}, ValueError, "lr: expected a number of at least 0, got -0.1"),
        ([P], {"lr": 1e200}, ValueError, "lr: expected a magnitude from 1e-50 to 1e50"),
        ([P], {"lr": None}, TypeError, "lr: expected a number, got NoneType"),
        ([P], {"maximize": True}, TypeError, "maximize: expected an option of learner 'freegrad'"),
        ([P], {"dtype": D}, TypeError, "dtype: expected an option of learner 'freegrad'"),
        ([P], {"length_scale": -1.0}, ValueError, "length_scale: expected a number above 0, got -1.0"),
        ([P], {"lipschitz": "1"}, TypeError, "lipschitz: expected a number, got str"),
        ([P], {"learner": "oons"}, TypeError, "lipschitz: expected a value, which learner 'oons' needs, got none"),
        ([P], {"learner": "oons", "lipschitz": 1.0, "preset": "x"}, ValueError, "preset: expected one of"),
        ([], {}, ValueError, "empty parameter list"),
        ([nn.Parameter(torch.ones(0))], {}, ValueError, "params: expected at least one value in a group, got none"),
        ([nn.Parameter(torch.ones(2, dtype=torch.complex64))], {}, TypeError, "params: expected real floating-point"),
        ([P, nn.Parameter(torch.ones(2, device="meta"))], {}, ValueError, "on one device, got cpu and meta"),
        (
            [nn.Parameter(torch.ones(2049))],
            {"learner": "oons", "lipschitz": 1.0},
            ValueError,
            "params: expected at most 2048 values in a group of learner 'oons', .* got 2049; 'freegrad' is O.d.",
        ),
    ],
)
def test_what_is_wrong_is_refused_by_name(params: list, options: dict, refusal: type, text: str) -> None:
    with pytest.raises(refusal, match=text):
        ParameterFree(params, **options)


def test_a_sketch_may_be_large() -> None:
    optimizer = ParameterFree(
        [nn.Parameter(torch.ones(3000))], learner="oons", lipschitz=1.0, form="sketch", sketch_size=2
    )
    assert optimizer.learners[0].dim == 3000


def test_it_says_what_it_was_told() -> None:
    text = repr(ParameterFree([P], length_scale=0.5))
    assert all(line in text for line in ("learner: freegrad", "length_scale: 0.5", "lipschitz: None"))
    assert "lr: 1.0" in text


def test_hooks_and_averages_of_torch_work() -> None:
    """What stands on any torch optimizer: step hooks, an averaged model, gradients set to None."""
    head, seen = head_of(), []
    optimizer = ParameterFree(head.parameters())
    optimizer.register_step_post_hook(lambda *_: seen.append(1))
    average = torch.optim.swa_utils.AveragedModel(head)
    train(head, optimizer, 3)
    average.update_parameters(head)
    optimizer.zero_grad()
    optimizer.step()
    assert len(seen) == 4
    assert int(optimizer.learners[0].rounds) == 3


class Regression(pl.LightningModule):
    """A linear head under automatic optimization."""

    def __init__(self, learner: str, dtype: torch.dtype, seed: int = 0) -> None:
        super().__init__()
        self.head, self.learner = head_of(dtype, seed), learner

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        return loss_of(self.head, *batch)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return ParameterFree(self.parameters(), learner=self.learner, **LEARNERS[self.learner])


def fit(module: Regression, epochs: int, checkpoint: Path | None = None) -> tuple[pl.Trainer, ParameterFree]:
    x, y, _ = problem(module.head.weight.dtype)
    trainer = pl.Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(module, DataLoader(TensorDataset(x, y), batch_size=BATCH), ckpt_path=checkpoint)
    return trainer, trainer.optimizers[0]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*does not have many workers")
@DTYPES
@EACH
def test_it_trains_and_resumes_under_lightning(learner: str, dtype: torch.dtype, tmp_path: Path) -> None:
    """The same as a plain loop, bit for bit; and so is a run that stops and is resumed by another module."""
    whole = Regression(learner, dtype)
    _, optimizer = fit(whole, 2)
    head = head_of(dtype)
    plain = ParameterFree(head.parameters(), learner=learner, **LEARNERS[learner])
    train(head, plain, 2 * ROWS // BATCH)
    assert same(bits(whole.head, optimizer), bits(head, plain))

    first = Regression(learner, dtype)
    trainer, _ = fit(first, 1)
    trainer.save_checkpoint(tmp_path / "last.ckpt")
    second = Regression(learner, dtype, seed=1)
    trainer, resumed = fit(second, 2, tmp_path / "last.ckpt")
    assert trainer.global_step == 2 * ROWS // BATCH
    assert same(bits(second.head, resumed), bits(head, plain))


def counted(head: nn.Module, calls: list[Tensor]) -> Callable[[], Tensor]:
    """A closure that notes at which parameters it was called; with dropout, so that random numbers matter."""
    x, y, _ = problem()

    def closure() -> Tensor:
        calls.append(torch.cat([p.detach().reshape(-1).clone() for p in head.parameters()]))
        dropped = nn.functional.dropout(x, 0.5)
        loss = loss_of(head, dropped, y)
        loss.backward()
        return loss

    return closure


def test_values_are_asked_at_the_queries() -> None:
    """The closure sees each query, the centre, and the play point last, whose loss and gradient are there afterwards."""
    head, twin_head = head_of(), head_of()
    optimizer = ParameterFree(head.parameters(), learner="ca-values", **LEARNERS["ca-values"])
    learner = copy.deepcopy(optimizer.learners[0])
    centre = optimizer.centres[0].clone()
    x, y, _ = problem()
    for t in range(4):
        calls: list[Tensor] = []
        torch.manual_seed(t)
        dropped = nn.functional.dropout(x, 0.5)
        after = torch.get_rng_state()
        torch.manual_seed(t)
        loss = optimizer.step(counted(head, calls))
        assert torch.equal(torch.get_rng_state(), after)
        points = torch.cat([learner.queries(), learner.predict().unsqueeze(0)]) + centre
        close(torch.stack(calls), points)
        gradients, values = [], []
        for point in points:
            nn.utils.vector_to_parameters(point, twin_head.parameters())
            value = loss_of(twin_head, dropped, y)
            gradients.append(torch.cat([g.reshape(-1) for g in torch.autograd.grad(value, [*twin_head.parameters()])]))
            values.append(value.detach())
        # The same sums, but on memory of another layout, where they may be rounded otherwise.
        close(loss.detach(), values[-1])
        close(torch.cat([p.grad.reshape(-1) for p in head.parameters()]), gradients[-1])
        learner.step(torch.stack(gradients[:-1]), torch.stack(values[:-1]))
        close(optimizer.learners[0].decision, learner.decision)
        close(nn.utils.parameters_to_vector(head.parameters()).detach(), centre + learner.predict())


def test_values_of_one_group_while_others_stand() -> None:
    head = head_of()
    groups = [{"params": [head.weight], "learner": "ca-values", **LEARNERS["ca-values"]}, {"params": [head.bias]}]
    optimizer = ParameterFree(groups)
    calls: list[Tensor] = []
    for _ in range(3):
        calls.clear()
        before = nn.utils.parameters_to_vector(head.parameters()).detach()
        optimizer.step(counted(head, calls))
        bias = torch.stack(calls)[:, -1]
        assert torch.equal(bias, before[-1].expand_as(bias))
    assert len(calls) == optimizer.learners[0].points + 1
    assert [int(learner.rounds) for learner in optimizer.learners] == [3, 3]


def test_a_closure_that_fails_changes_nothing() -> None:
    """None, or one that returns nothing, or a value that is no number, or raises half way."""
    head = head_of()
    optimizer = ParameterFree(head.parameters(), learner="ca-values", **LEARNERS["ca-values"])
    train(head, optimizer, 3)
    before, calls = bits(head, optimizer), []

    def nothing() -> None:
        return None

    def no_number() -> Tensor:
        head.weight.sum().backward()
        return head.weight.sum() * torch.nan

    def half_way() -> Tensor:
        calls.append(1)
        if len(calls) == 3:
            raise RuntimeError("half way")
        return head.weight.sum()

    def several_numbers() -> Tensor:
        return head.weight.flatten()

    for closure, refusal, text in (
        (several_numbers, ValueError, "closure: expected the loss as one number, got torch.float"),
        (None, TypeError, "closure: expected a function that returns the loss, which 'ca-values' needs, got None"),
        (nothing, TypeError, "closure: expected a function that returns the loss, got one that returns None"),
        (no_number, ValueError, "values of group 0: expected finite values, got nan"),
        (half_way, RuntimeError, "half way"),
    ):
        with pytest.raises(refusal, match=text):
            optimizer.step(closure)
        assert same(bits(head, optimizer), before)
    optimizer.step(lambda: torch.tensor(1.0))
    assert same(bits(head, optimizer), before), "a group without a gradient"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_parameters_stay_finite(dtype: torch.dtype) -> None:
    """What a learner in double precision has room for, a parameter may not: it gets its largest number."""
    parameter = torch.nn.Parameter(torch.zeros(2, dtype=dtype))
    optimizer = ParameterFree([parameter])
    for _ in range(400):
        parameter.grad = torch.ones_like(parameter)
        optimizer.step()
    assert parameter.tolist() == [-torch.finfo(dtype).max] * 2
    for _ in range(400):
        parameter.grad = -torch.ones_like(parameter)
        optimizer.step()
    assert parameter.min() > -1.0


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_a_centre_is_finite(value: float) -> None:
    with pytest.raises(ValueError, match=r"^params: expected finite values"):
        ParameterFree([torch.nn.Parameter(torch.tensor([1.0, value]))])


def test_it_takes_a_class_of_learners() -> None:
    """The group is the learner's, its options are checked, and a file of weights goes on with it."""
    head, options = head_of(), {"learner": DoG, "initial_distance": 0.1}
    optimizer, centre = ParameterFree(head.parameters(), **options), nn.utils.parameters_to_vector(head.parameters())
    centre, learner = centre.detach().clone(), DoG(DIM + 1, initial_distance=0.1)
    x, y, _ = problem()
    for _ in range(5):
        optimizer.zero_grad()
        loss_of(head, x, y).backward()
        learner.step(torch.cat([p.grad.flatten() for p in head.parameters()]))
        optimizer.step()
        assert torch.equal(nn.utils.parameters_to_vector(head.parameters()).detach(), centre + learner.predict())
    file = io.BytesIO()
    torch.save((head.state_dict(), optimizer.state_dict()), file)
    file.seek(0)
    saved = torch.load(file, weights_only=True)
    twin = head_of(seed=1)
    other = ParameterFree(twin.parameters(), **options)
    twin.load_state_dict(saved[0])
    other.load_state_dict(saved[1])
    train(head, optimizer, 5)
    train(twin, other, 5)
    assert same(bits(head, optimizer), bits(twin, other))
    assert other.param_groups[0]["learner"] is DoG
    with pytest.raises(
        ValueError, match=r"learnt with 'torchonline.baselines.convex.dog.DoG', this one has 'freegrad'"
    ):
        ParameterFree(twin.parameters()).load_state_dict(saved[1])
    with pytest.raises(TypeError, match=r"lipschitz: expected an option of learner 'torchonline.*DoG'"):
        ParameterFree(twin.parameters(), learner=DoG, lipschitz=1.0)
    with pytest.raises(ValueError, match="params: expected at most 2048 values"):
        ParameterFree([nn.Parameter(torch.ones(2049))], learner=OONS, lipschitz=1.0)
    for cls in (MsMwC, MsMwCMaster):
        with pytest.raises(ValueError, match="learner: expected a class whose first argument is dim"):
            ParameterFree(twin.parameters(), learner=cls)
    for other in (nn.Linear, ConvexLearner):
        with pytest.raises(
            TypeError, match=f"learner: expected one of .* or a class of ConvexLearner, got {other.__name__}"
        ):
            ParameterFree(twin.parameters(), learner=other)


def test_a_learner_that_asks_elsewhere_takes_a_closure() -> None:
    """The parameters are at its decision between steps, and the loss that a step returns is there."""
    head = head_of()
    centre = nn.utils.parameters_to_vector(head.parameters()).detach().clone()
    optimizer = ParameterFree(head.parameters(), learner=ScheduleFree, step_size=0.1)
    learner = ScheduleFree(DIM + 1, step_size=0.1)
    x, y, _ = problem()

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = loss_of(head, x, y)
        loss.backward()
        return loss

    with pytest.raises(TypeError, match=r"closure: expected a function that returns the loss, which .*ScheduleFree"):
        optimizer.step()
    point = head_of()
    for _ in range(5):
        before = float(loss_of(head, x, y).detach())
        assert float(optimizer.step(closure).detach()) == before
        point.zero_grad()
        nn.utils.vector_to_parameters(centre + learner.queries()[0], point.parameters())
        loss_of(point, x, y).backward()
        learner.step(torch.cat([p.grad.flatten() for p in point.parameters()]))
        close(nn.utils.parameters_to_vector(head.parameters()).detach(), centre + learner.predict())


def test_a_group_whose_parameters_change_moves_the_new_ones() -> None:
    old, new = (nn.Parameter(torch.ones(3)) for _ in range(2))
    optimizer = ParameterFree([old])
    for parameter in (old, new):
        optimizer.param_groups[0]["params"] = [parameter]
        parameter.grad = torch.ones(3)
        optimizer.step()
    assert (new < old).all()
    new.data, new.grad = new.data.half(), None
    for _ in range(400):  # until the decision exceeds the range of the new type
        new.grad = torch.full((3,), -1.0, dtype=torch.float16)
        optimizer.step()
    assert torch.equal(new, torch.full((3,), torch.finfo(torch.float16).max, dtype=torch.float16))
