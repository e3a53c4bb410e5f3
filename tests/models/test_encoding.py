"""Tests of what heads and modules do around an encoder: copies, types and errors."""

import logging
from typing import Any

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from torch import Tensor, nn

from torchonline import OFUL, FreeGrad
from torchonline.export import to_program, to_torchscript
from torchonline.models import BanditHead, NeuralLinearBandit, OnlinePredictor, RoundLoader

logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
pytestmark = [
    # Lightning 2.6 itself uses what torch 2.13 has deprecated.
    pytest.mark.filterwarnings("ignore:`isinstance.treespec, LeafSpec.` is deprecated:FutureWarning"),
]

FEATURES, DIM, ARMS = 4, 3, 5
QUIET: dict[str, Any] = {"accelerator": "cpu", "logger": False, "enable_progress_bar": False}
QUIET |= {"enable_model_summary": False, "enable_checkpointing": False}


class Pure(nn.Module):
    """Pixels to features."""

    def __init__(self, width: int = DIM) -> None:
        super().__init__()
        self.layer = nn.Linear(FEATURES, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer((x - 128.0) / 255.0)


class InPlace(Pure):
    """The same features, by an encoder that writes into its input."""

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x.sub_(128.0).div_(255.0))


def models_head(encoder: nn.Module) -> BanditHead:
    return BanditHead(encoder, OFUL(DIM), actions=ARMS)


def embeddings_head(encoder: nn.Module) -> BanditHead:
    return BanditHead(encoder, OFUL(DIM), actions=torch.eye(ARMS, DIM))


def arms_head(encoder: nn.Module) -> BanditHead:
    return BanditHead(encoder, OFUL(DIM))


HEADS = [models_head, embeddings_head, arms_head]


def twins(make: Any) -> tuple[BanditHead, BanditHead]:
    """Return a head whose encoder writes into its input, and one whose encoder does not."""
    torch.manual_seed(0)
    head = make(InPlace())
    pure = Pure()
    pure.load_state_dict(head.encoder.state_dict())
    return head, make(pure)


def pixels(make: Any, *lead: int) -> Tensor:
    shape = (*lead, ARMS, FEATURES) if make is arms_head else (*lead, FEATURES)
    return torch.randint(256, shape, generator=torch.Generator().manual_seed(sum(lead))).float()


def same_state(one: nn.Module, other: nn.Module) -> bool:
    states = one.state_dict(), other.state_dict()
    return all(torch.equal(states[0][name], states[1][name]) for name in states[1])


def looks(head: BanditHead, x: Any) -> list[Tensor]:
    """Return all that a head says of two decisions without learning."""
    torch.manual_seed(0)
    found = [head.encode(x), head(x), head.predict(x), *head.interval(x), head.select(x), head.probabilities(x)]
    return [*found, *head.select_with_probability(x), head.chosen_features(x, torch.zeros(2, dtype=torch.int64))]


class TestEncodersThatWriteIntoTheirInput:
    @pytest.mark.parametrize("make", HEADS)
    def test_looking_changes_no_input(self, make: Any) -> None:
        head, pure = twins(make)
        inputs = pixels(make, 2)
        array = inputs.numpy()  # on the same memory
        expected = looks(pure, inputs)
        for given in (inputs, array):
            assert all(map(torch.equal, looks(head, given), expected))
            assert torch.equal(inputs, pixels(make, 2))

    @pytest.mark.parametrize("make", HEADS)
    def test_learning_changes_no_input_and_learns_the_features_decided_on(self, make: Any) -> None:
        head, pure = twins(make)
        for act, lead in (("step", ()), ("step", (6,)), ("learn", (6,))):
            inputs = pixels(make, *lead)
            for one in (head, pure):
                getattr(one, act)(inputs, torch.ones(lead, dtype=torch.int64), torch.ones(lead))
            assert torch.equal(inputs, pixels(make, *lead))
        assert same_state(head, pure)

    def test_tensors_of_inference_mode(self) -> None:
        """They have no version counter, and refuse writes outside of the mode."""
        head, pure = twins(models_head)
        with torch.inference_mode():
            inputs = pixels(models_head).clone()
            head.select(inputs)
        assert torch.equal(head(inputs), pure(inputs))
        head.step(inputs, 0, 1.0)
        assert torch.equal(inputs, pixels(models_head))

    def test_gradients_in_the_inputs(self) -> None:
        head, pure = twins(models_head)
        found = []
        for one in (head, pure):
            inputs = pixels(models_head).requires_grad_()
            one.encode(inputs).sum().backward()
            found.append(inputs.grad)
        assert torch.equal(*found)

    @pytest.mark.parametrize("make", [embeddings_head, arms_head])
    def test_files(self, make: Any) -> None:
        """The file has the copy too."""
        head, pure = twins(make)
        example = pixels(make)
        scripted = to_torchscript(head, example=example)
        assert torch.equal(example, pixels(make))
        for inputs in (pixels(make, 2), pixels(make, 3)):
            before = inputs.clone()
            scripted.select(inputs)
            torch.testing.assert_close(scripted(inputs), pure(inputs))
            for one in (scripted, pure):
                one.step(inputs, torch.zeros(len(inputs), dtype=torch.int64), torch.ones(len(inputs)))
            assert torch.equal(inputs, before)
        for name, value in pure.policy.state_dict().items():
            torch.testing.assert_close(scripted.policy.state_dict()[name], value)

    def test_programs(self) -> None:
        head, pure = twins(embeddings_head)
        example = pixels(embeddings_head)
        program = to_program(head, example=example).module()
        past, inputs = pixels(embeddings_head), pixels(embeddings_head, 1)
        mask, reward = torch.ones(1, ARMS, dtype=torch.bool), torch.tensor(1.0, dtype=torch.float64)
        program(past, torch.tensor(2), reward, torch.tensor(True), inputs, mask)
        pure.step(past, torch.tensor(2), reward)
        learnt = dict(program.named_buffers())["policy.policy.estimator.theta_hat"]
        torch.testing.assert_close(learnt, pure.theta_hat)
        assert torch.equal(past, example)
        assert torch.equal(inputs, pixels(embeddings_head, 1))

    @pytest.mark.parametrize("feedback", ["round", "batch"])
    @pytest.mark.parametrize("make", HEADS)
    def test_under_lightning_the_replay_holds_raw_inputs(self, make: Any, feedback: str) -> None:
        raw, tables, states = pixels(make, 20), torch.rand(20, ARMS), []
        given = raw.clone()
        for head in twins(make):
            options: dict[str, Any] = {"train_encoder_every": 10, "encoder_steps": 2, "feedback": feedback}
            bandit = NeuralLinearBandit(head, **options)
            bandit.seed.fill_(1)
            trainer = pl.Trainer(max_epochs=1, **QUIET)
            trainer.fit(bandit, RoundLoader(given, tables, batch_size=5))
            trainer.validate(bandit, RoundLoader(given, tables, batch_size=5), verbose=False)
            trainer.predict(bandit, [given])
            states.append(bandit)
        assert torch.equal(given, raw)
        assert same_state(*states)
        assert states[0].replay is not None
        kept = states[0].replay.inputs[:20]
        assert torch.equal(kept, raw if make is not arms_head else kept)
        assert float(kept.max()) > 128.0

    def test_of_a_predictor(self) -> None:
        raw, targets, models = pixels(models_head, 20), torch.rand(20), []
        given = raw.clone()
        for encoder in (head.encoder for head in twins(models_head)):
            model = OnlinePredictor(FreeGrad(DIM), encoder=encoder)
            trainer = pl.Trainer(max_epochs=1, **QUIET)
            trainer.fit(model, RoundLoader(given, targets, batch_size=5))
            trainer.test(model, RoundLoader(given, targets, batch_size=5), verbose=False)
            model(given)
            models.append(model)
        assert torch.equal(given, raw)
        assert same_state(*models)


def embedding_head(encoder: nn.Module | None = None) -> BanditHead:
    return BanditHead(encoder or nn.Sequential(nn.Embedding(50, DIM), nn.Flatten()), OFUL(DIM), actions=ARMS)


class Wrapped(nn.Module):
    """An embedding that another module holds, behind a part without parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.drop = nn.Dropout(0.5)
        self.bag = nn.EmbeddingBag(50, DIM)

    def forward(self, x: Tensor) -> Tensor:
        return self.drop(self.bag(x))


class TestIntegers:
    @pytest.mark.parametrize("kind", ["layers", "wrapped", "scripted", "compiled"])
    def test_an_embedding_takes_them_as_they_come(self, kind: str) -> None:
        torch.manual_seed(0)
        encoder: Any = Wrapped() if kind == "wrapped" else nn.Sequential(nn.Embedding(50, DIM), nn.Flatten())
        if kind == "scripted":
            encoder = torch.jit.script(encoder)
        if kind == "compiled":
            encoder = torch.compile(encoder, backend="eager")
        head = embedding_head(encoder)
        expected = head(torch.tensor([3]))
        given = [[3], (3,), np.array([3]), np.array([3], dtype=np.int32), np.array([3], dtype=np.uint8)]
        for inputs in given:
            assert torch.equal(head(inputs), expected)
            assert torch.equal(head.select(inputs), head.select(torch.tensor([3])))
        for inputs in given:
            head.step(inputs, 1, 0.0)
        head.learn([[3], [4]], [0, 1], [1.0, 0.0])
        head.learn(np.array([[3], [4]]), [0, 1], [1.0, 0.0])
        assert int(head.rounds) == 9

    def test_an_embedding_for_each_arm(self) -> None:
        head = BanditHead(nn.Sequential(nn.Embedding(50, DIM), nn.Flatten()), OFUL(DIM))
        items = np.arange(6)[:, None]
        assert torch.equal(head(items), head(torch.from_numpy(items)))
        head.step(items.tolist(), 2, 1.0)

    def test_other_encoders_get_them_as_numbers(self) -> None:
        head = models_head(Pure())
        expected = head(torch.tensor([1.0, 2.0, 3.0, 4.0]))
        assert torch.equal(head([1, 2, 3, 4]), expected)
        assert torch.equal(head(np.arange(1, 5)), expected)

    def test_what_an_embedding_cannot_look_up_is_named(self) -> None:
        head = embedding_head()
        with pytest.raises(ValueError, match=r"^inputs: expected what the encoder takes, got .* torch.float32"):
            head.select([3.5])
        with pytest.raises(ValueError, match=r"^inputs: .* raised IndexError: index out of range"):
            head.select([50])
        with pytest.raises(ValueError, match=r"^inputs: expected integers up to"):
            head.select(np.array([2**64 - 1], dtype=np.uint64))
        with pytest.raises(TypeError, match=r"^inputs: expected"):
            head.select(["three"])


class Failing(nn.Module):
    """An encoder that raises an error."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error

    def forward(self, x: Tensor) -> Tensor:
        raise self.error


class TestErrorsOfEncoders:
    def images(self, **options: Any) -> BanditHead:
        layers = nn.Sequential(nn.Conv2d(3, 2, 3), nn.Flatten(), nn.Linear(2 * 4 * 4, DIM))
        return BanditHead(layers, OFUL(DIM), actions=ARMS, **options)

    def test_a_forgotten_feature_dims_is_named(self) -> None:
        head, image = self.images(), torch.rand(3, 6, 6)
        looks = (head.encode, head, head.select, head.predict, head.interval, head.probabilities)
        for look in (*looks, head.select_with_probability):
            with pytest.raises(
                ValueError, match=r"batch of torch.float32 of shape \(18, 6\) for feature_dims=1"
            ) as found:
                look(image)
            assert isinstance(found.value.__cause__, RuntimeError)
            assert "3 for images" in str(found.value)
        before = {name: value.clone() for name, value in head.state_dict().items()}
        for learn in (head.step, head.learn):
            with pytest.raises(ValueError, match=r"got \(3, 6, 6\) under feature_dims=1"):
                learn(image, 0, 1.0)
            with pytest.raises(ValueError, match="for feature_dims=1"):
                learn(torch.rand(2, 6), [0, 1], [1.0, 1.0])
        assert all(torch.equal(value, before[name]) for name, value in head.state_dict().items())
        assert self.images(feature_dims=3).select(image).shape == ()

    @pytest.mark.parametrize(
        "error", [MemoryError(), torch.cuda.OutOfMemoryError(), KeyboardInterrupt(), OSError("disk")]
    )
    def test_what_is_not_about_inputs_is_raised_as_it_is(self, error: BaseException) -> None:
        head = models_head(Failing(error))
        with pytest.raises(type(error)) as found:
            head.select(pixels(models_head))
        assert found.value is error

    def test_an_error_without_text(self) -> None:
        with pytest.raises(ValueError, match=r"the encoder raised RuntimeError: \. feature_dims"):
            models_head(Failing(RuntimeError())).select(pixels(models_head))
