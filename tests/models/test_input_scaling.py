"""A scaler in front of the encoder: by hand, in any unit, all or nothing, in files and in training."""

import copy
import math
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from tests.interruption import interrupted
from tests.learners import close, differences, snapshot
from torchonline import AdaptiveRidgeRegression, DisjointArms, RidgeRegression, StandardScaler
from torchonline.export import to_program, to_torchscript
from torchonline.models import BanditHead, LoggedRounds, NeuralLinearBandit, RoundLoader

pytestmark = pytest.mark.fast

DIM, WIDTH, ARMS = 3, 4, 3
UNITS, ORIGINS = torch.tensor([1.0, 1024.0, 0.25]), torch.tensor([0.0, 512.0, 1.0])
KINDS = ("arms", "models", "embeddings")
every_kind = pytest.mark.parametrize("kind", KINDS)


def head_of(kind: str, **options: Any) -> BanditHead:
    """A head of the same encoder each time."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        encoder = nn.Sequential(nn.Linear(DIM, WIDTH), nn.Tanh())
        embeddings = torch.randn(ARMS, WIDTH)
    actions: Any = {"arms": None, "models": ARMS, "embeddings": embeddings}[kind]
    scaler = options.pop("scaler", StandardScaler(DIM, intercept=False))
    return BanditHead(encoder, AdaptiveRidgeRegression(WIDTH), actions=actions, scaler=scaler, **options)


def rounds(kind: str, count: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    shape = (count, ARMS, DIM) if kind == "arms" else (count, DIM)
    action = torch.randint(ARMS, (count,), generator=generator)
    return torch.randn(shape, generator=generator) * UNITS + ORIGINS, action, torch.rand(count, generator=generator)


def taught(kind: str, count: int = 8) -> BanditHead:
    head = head_of(kind)
    head.step(*rounds(kind, count))
    return head


def state(head: BanditHead) -> dict[str, Tensor]:
    return snapshot(head.policy) | {f"scaler.{name}": value for name, value in snapshot(head.scaler).items()}


@every_kind
def test_a_round_by_hand(kind: str) -> None:
    """The encoder gets scaled inputs; the policy learns, and then the scaler; deciding changes nothing."""
    head, plain, scaler = head_of(kind), head_of(kind, scaler=None), StandardScaler(DIM, intercept=False)
    for k, inputs in enumerate(rounds(kind, ARMS)[0]):  # so that no arms tie: heads break ties by their own inputs
        plain.step(scaler(inputs).float(), k, 0.1 * k)
        head.step(inputs, k, 0.1 * k)
        scaler.step(inputs[k] if kind == "arms" else inputs)
    for inputs, action, reward in zip(*rounds(kind, 12), strict=True):
        scaled = scaler(inputs).float()
        before = state(head)
        assert torch.equal(head.select(inputs), plain.select(scaled))
        close(head(inputs), plain(scaled))
        close(head.probabilities(inputs), plain.probabilities(scaled))
        assert differences(before, state(head)) == []
        head.step(inputs, action, reward)
        plain.step(scaled, action, reward)
        scaler.step(inputs[action] if kind == "arms" else inputs)
        assert differences(snapshot(plain.policy), snapshot(head.policy)) == []
        assert differences(snapshot(scaler), snapshot(head.scaler)) == []


@every_kind
def test_several_rounds_are_rounds_in_order(kind: str) -> None:
    one, many = head_of(kind), taught(kind, 20)
    for inputs, action, reward in zip(*rounds(kind, 20), strict=True):
        one.step(inputs, action, reward)
    assert differences(state(one), state(many)) == []


@every_kind
def test_logs_are_learnt_in_order(kind: str) -> None:
    """The scaler moves with each round, so there are no blocks; arrays and lists are converted as in a step."""
    one, many = head_of(kind), taught(kind, 20)
    inputs, action, reward = rounds(kind, 20)
    one.learn(inputs.double().numpy(), action.tolist(), reward.numpy(), block_size=7)
    many_of_doubles = head_of(kind)
    many_of_doubles.step(inputs.double(), action, reward)
    assert differences(state(many_of_doubles), state(one)) == []
    two = head_of(kind)
    two.learn(inputs, action, reward)
    assert differences(state(many), state(two)) == []
    before = state(two)
    with pytest.raises(ValueError, match=r"^reward: expected finite"):
        two.learn(inputs, action, reward.index_fill(0, torch.tensor([19]), math.nan))
    assert differences(before, state(two)) == []


@every_kind
def test_units_do_not_matter(kind: str) -> None:
    """Powers of two round nothing; the origin stays, since moving it rounds.

    Of arms that tie, other units may have another one.
    """
    one, other = head_of(kind), head_of(kind)
    for inputs, _, reward in zip(*rounds(kind, 30), strict=True):
        action = one.select(inputs)
        probabilities = one.probabilities(inputs)
        assert torch.equal(probabilities, other.probabilities(inputs / UNITS))
        assert probabilities[other.select(inputs / UNITS)] > 0.0
        one.step(inputs, action, reward)
        other.step(inputs / UNITS, action, reward)
    assert differences(snapshot(one.policy), snapshot(other.policy)) == []


@pytest.mark.parametrize("rows", [1, 3])
@every_kind
def test_refused_steps_change_nothing(kind: str, rows: int) -> None:
    head = taught(kind)
    before = state(head)
    good = [value if rows > 1 else value[0] for value in rounds(kind, rows)]
    inputs, action, reward = good
    wrong = inputs.clone()
    wrong[..., -1] = math.inf  # tanh would hide it
    for name, arguments in (
        ("inputs", (wrong, action, reward)),
        ("inputs", (inputs[..., 1:], action, reward)),
        ("inputs", (inputs.long(), action, reward)),
        ("action", (inputs, action + ARMS, reward)),
        ("action", (inputs, 1.0 * action, reward)),
        ("reward", (inputs, action, reward * math.nan)),
        ("reward", (inputs, action, reward.expand(2, *reward.shape))),
        ("noise_scale", (inputs, action, reward, -1.0 + 0.0 * reward)),
        ("noise_scale", (inputs, action, reward, torch.ones(7))),
    ):
        given, scale = arguments[:3], arguments[3] if len(arguments) > 3 else None
        with pytest.raises((TypeError, ValueError), match=f"^{name}: expected "):
            head.step(*given, noise_scale=scale)
        assert differences(before, state(head)) == []
    head.step(*good)


@pytest.mark.slow
@pytest.mark.parametrize("width", [4, 100], ids=["snapshot", "no snapshot of the policy"])
def test_an_interrupted_step_is_all_or_nothing(width: int) -> None:
    """At every line: bit for bit the state before, or that after, and the head goes on."""

    def build() -> BanditHead:
        with torch.random.fork_rng():
            torch.manual_seed(0)
            encoder = nn.Linear(DIM, width)
        return BanditHead(encoder, RidgeRegression(width), scaler=StandardScaler(DIM, intercept=False))

    head, done = build(), build()
    inputs, action, reward = rounds("arms", 2)
    for each in (head, done):
        each.step(inputs[0], action[0], reward[0])
    start, line, given = state(head), 0, (inputs[1], action[1], reward[1])
    done.step(*given)
    after = state(done)
    while interrupted(lambda: head.step(*given), line):
        found = state(head)
        assert differences(start, found) == [] or differences(after, found) == [], f"torn at line {line}"
        head.policy.load_state_dict({name: value for name, value in start.items() if not name.startswith("scaler.")})
        head.scaler.load_state_dict({name.removeprefix("scaler."): v for name, v in start.items() if "scaler." in name})
        line += 1
    assert line > 60
    assert differences(after, state(head)) == []


@every_kind
def test_copies_and_states(kind: str) -> None:
    head, fresh = taught(kind), head_of(kind)
    fresh.load_state_dict(head.state_dict())
    for each in (twin := copy.deepcopy(head), fresh, head):
        each.step(*rounds(kind, 5))
    for each in (twin, fresh):
        assert differences(state(head), state(each)) == []


@pytest.mark.slow
@every_kind
def test_files_go_on_scaling(kind: str) -> None:
    """Both kinds of files verify themselves too."""
    head, (inputs, action, reward) = taught(kind).eval(), rounds(kind, 9)
    script: Any = to_torchscript(head, example=inputs[0])
    to_program(head, example=inputs[0])
    for each in (head, script):
        each.step(inputs[0], action[0], reward[0])
        each.step(inputs, action, reward)
    close(head(inputs), script(inputs))
    close(script.state_dict()["scaler.mean"], head.scaler.mean)


@pytest.mark.parametrize(
    ("error", "match", "options"),
    [
        (TypeError, "scaler: expected None or a StandardScaler", {"scaler": nn.Linear(3, 3)}),
        (ValueError, "scaler: expected None with feature_dims=3", {"feature_dims": 3}),
        (ValueError, "scaler: expected scaler and policy", {"scaler": StandardScaler(3, batch_shape=(2,))}),
        (ValueError, "scaler: expected scaler and policy", {"policy": RidgeRegression(4, batch_shape=(2,))}),
    ],
)
def test_bad_arguments_are_named(error: Any, match: str, options: dict[str, Any]) -> None:
    with pytest.raises(error, match=match):
        BanditHead(
            **({"encoder": nn.Linear(3, 4), "policy": RidgeRegression(4), "scaler": StandardScaler(3)} | options)
        )


def test_it_needs_no_encoder() -> None:
    """With the scaler's intercept, and arms with a model each."""
    head = BanditHead(nn.Identity(), DisjointArms(RidgeRegression(DIM + 1), ARMS), scaler=StandardScaler(DIM))
    inputs, action, reward = rounds("models", 5)
    head.step(inputs, action, reward)
    assert head.encode(inputs).shape == (5, DIM + 1)
    assert int(head.scaler.rounds) == 5


# Training of the encoder.


def fit(module: NeuralLinearBandit, batch_size: int, kind: str, log: bool = False) -> None:
    inputs, action, reward = rounds(kind, 60)
    table = nn.functional.one_hot(action, ARMS) * reward[:, None]
    logs = DataLoader([LoggedRounds(inputs, action, reward)], batch_size=None)
    loader: Any = logs if log else RoundLoader(inputs, table, batch_size=batch_size)
    quiet: dict[str, Any] = {"accelerator": "cpu", "logger": False, "enable_progress_bar": False}
    quiet |= {"enable_model_summary": False, "enable_checkpointing": False}
    pl.Trainer(max_epochs=1, **quiet).fit(module, loader)


def module_of(kind: str, **options: Any) -> NeuralLinearBandit:
    module = NeuralLinearBandit(head_of(kind), replay_size=20, encoder_steps=3, **options)
    module.seed.fill_(7)
    return module


@every_kind
def test_batches_do_not_matter(kind: str) -> None:
    one, other = module_of(kind, train_encoder_every=25), module_of(kind, train_encoder_every=25)
    fit(one, 60, kind)
    fit(other, 7, kind)
    assert differences(state(one.head), state(other.head)) == []


@pytest.mark.parametrize("log", [False, True])
@every_kind
def test_the_replay_is_learnt_again_as_the_scaler_is_now(kind: str, log: bool) -> None:
    """It holds raw inputs. The scaler sees each round once."""
    module = module_of(kind, train_encoder_every=60)
    fit(module, 60, kind, log)
    head = module.head
    assert int(head.scaler.rounds) == 60
    inputs, action, reward = module.replay.in_order()
    first = rounds(kind, 60)[0][40:]
    assert torch.equal(
        inputs if kind != "arms" else inputs.squeeze(1), first if kind != "arms" else chosen(first, inputs)
    )
    again = head_of(kind, scaler=None)
    again.encoder.load_state_dict(head.encoder.state_dict())
    again.step(head.scaler(inputs).float(), action, reward)
    for name, value in snapshot(again.policy).items():
        close(snapshot(head.policy)[name], value, 1e-6)


def chosen(arms: Tensor, kept: Tensor) -> Tensor:
    """Those of the raw arms that the replay has kept."""
    return torch.stack([next(x for x in some if torch.equal(x, one[0])) for some, one in zip(arms, kept, strict=True)])


def test_hyper_parameters_name_the_scaler() -> None:
    found = module_of("models").hparams
    assert found["input_scaler"] == "StandardScaler"
    assert found["input_scaler_intercept"] is False


@pytest.mark.parametrize(
    "as_input", [lambda x: x, torch.Tensor.numpy, torch.Tensor.tolist], ids=["tensor", "array", "list"]
)
@every_kind
def test_inputs_far_from_0_keep_their_digits(kind: str, as_input: Any) -> None:
    """Seconds since 1970, say: the scaler gets them in float64, above an encoder in float32."""
    head, near = head_of(kind), head_of(kind)
    for inputs, action, reward in zip(*rounds(kind, 9), strict=True):
        inputs = (64.0 * inputs.double()).round() / 64.0  # the sum below rounds nothing
        head.step(as_input(inputs + 2.0**30), action, reward)
        near.step(inputs, action, reward)
        head.select(as_input(inputs + 2.0**30))
    torch.testing.assert_close(head.scaler.squares, near.scaler.squares, rtol=2e-3, atol=0.0)


@every_kind
def test_a_decision_refuses_what_the_scaler_would_clip(kind: str) -> None:
    head, inputs = taught(kind), rounds(kind, 1)[0][0]
    inputs[..., -1] = math.inf
    for decide in (head.select, head.probabilities, head.select_with_probability):
        with pytest.raises(ValueError, match=r"^inputs: expected finite values"):
            decide(inputs)


def test_inputs_too_large_for_the_type_of_the_scaler_are_refused() -> None:
    head = BanditHead(nn.Identity(), RidgeRegression(2), scaler=StandardScaler(2, intercept=False, dtype=torch.float32))
    with pytest.raises(ValueError, match=r"^inputs: expected"):
        head.step(torch.full((1, 2), 1e90, dtype=torch.float64), 0, 1.0)
