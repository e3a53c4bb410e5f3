"""Heads on Hugging Face models: texts, tokens and images, training, checkpoints and files. Nothing is downloaded."""

import io
import pickle
import subprocess
import sys
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader

import torchonline
from torchonline.distributed import Ranks
from torchonline.export import to_torchscript
from torchonline.models import BanditHead, HuggingFaceEncoder, LoggedRounds, NeuralLinearBandit
from torchonline.models.checkpoints import packed, unpacked_head
from torchonline.models.replay import Replay
from torchonline.models.shared_rounds import SharedRounds

SIZES: dict[str, Any] = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16}
QUIET: dict[str, Any] = {"accelerator": "cpu", "logger": False, "enable_progress_bar": False}
QUIET |= {"enable_model_summary": False, "enable_checkpointing": False, "max_epochs": 1}


def bert(**options: Any) -> Any:
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    return BertModel(BertConfig(vocab_size=50, **SIZES, **options)).eval()


def vit() -> Any:
    from transformers import ViTConfig, ViTModel

    torch.manual_seed(0)
    return ViTModel(ViTConfig(image_size=8, patch_size=4, **SIZES)).eval()


def words(texts: list[str], **options: Any) -> dict[str, Tensor]:
    """Stand in for a tokenizer: a token for each letter, padded."""
    assert options == {"padding": True, "truncation": True, "return_tensors": "pt"}
    longest = max(map(len, texts))
    ids = [[3 + ord(letter) % 40 for letter in text] + [0] * (longest - len(text)) for text in texts]
    return {"input_ids": torch.tensor(ids), "attention_mask": (torch.tensor(ids) > 0).long()}


def policy(actions: int | None = 2, dim: int = 8) -> Any:
    return torchonline.bandit(dim, actions=actions, scale=False)


def head(output: Any = "mean", actions: int | None = 2, **options: Any) -> BanditHead:
    return BanditHead(bert(**options), policy(actions), output=output, processor=words)


class Toy(nn.Module):
    """Stand in for a model of transformers."""

    main_input_name = "input_ids"

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(50, 4)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> dict[str, Tensor]:
        return {"last_hidden_state": self.table(input_ids), "pooler_output": self.table(input_ids).amax(1)}


@pytest.mark.fast
def test_the_mean_leaves_out_padding() -> None:
    model = Toy()
    encoder = HuggingFaceEncoder(model, "mean", words)
    items = encoder.lookup([["ab", "c"], ["d", "efg"]])
    assert encoder.names == ("input_ids", "attention_mask")
    assert items.shape == (2, 2, 2, 3)
    found = encoder(items.flatten(0, 1))
    for row, text in zip(found, ("ab", "c", "d", "efg"), strict=True):
        ids = torch.tensor([3 + ord(letter) % 40 for letter in text])
        torch.testing.assert_close(row, model.table(ids).mean(0))
    torch.testing.assert_close(encoder(functional.pad(items.flatten(0, 1), (0, 4))), found)
    assert encoder.lookup([]).shape == (0, 2, 1)
    learner = BanditHead(model, policy(dim=4), output="mean", processor=words)
    learner.step("ab", learner.select("ab"), 1.0)
    assert int(learner.rounds) == 1


def test_outputs_are_those_of_the_model() -> None:
    tokens = words(["abc", "de"], padding=True, truncation=True, return_tensors="pt")
    model = bert()
    with torch.no_grad():
        expected = model(**tokens)
    hidden, mask = expected.last_hidden_state, tokens["attention_mask"].unsqueeze(-1)
    outputs: dict[Any, Tensor] = {
        "pooler_output": expected.pooler_output,
        "cls": hidden[:, 0],
        "mean": (hidden * mask).sum(1) / mask.sum(1),
        (lambda output, mask: output.last_hidden_state[:, 1]): hidden[:, 1],
        Last(): hidden[torch.arange(2), torch.tensor([2, 1])],
    }
    for output, wanted in outputs.items():
        torch.testing.assert_close(BanditHead(model, policy(), output=output).encode(tokens).detach(), wanted)


class Last(nn.Module):
    """The last token that is not padding."""

    def forward(self, output: Any, mask: Tensor) -> Tensor:
        hidden: Tensor = output.last_hidden_state
        return hidden[torch.arange(len(mask)), mask.sum(-1) - 1]


def test_texts_mappings_and_tensors_are_the_same_inputs() -> None:
    from transformers import BatchEncoding

    ours, texts = head(), ["abc", "de"]
    tokens = words(texts, padding=True, truncation=True, return_tensors="pt")
    arrays = {name: value.numpy() for name, value in tokens.items()}
    lists = {name: value.tolist() for name, value in tokens.items()}
    inputs = [texts, tuple(texts), tokens, BatchEncoding(tokens), arrays, lists, ours.encoder.lookup(texts)]
    wanted = ours.predict(inputs[0])
    assert wanted.shape == (2, 2)
    for same in inputs[1:]:
        assert torch.equal(ours.predict(same), wanted)
    torch.testing.assert_close(ours.predict("abc"), wanted[0])  # without padding
    for text in texts:
        ours.step(text, 0, 1.0)
    ours.learn(inputs[0], [0, 1], [1.0, 0.0])
    assert int(ours.rounds) == 4


def test_arms_may_be_texts() -> None:
    ours = head(actions=None)
    arms = ["a cat", "a dog", "a bird"]
    k = ours.select(arms)
    ours.step(arms, k, 1.0)
    torch.testing.assert_close(ours.chosen_features(arms, k), ours.encode(arms)[k])
    assert ours.select([arms, arms[::-1]]).shape == (2,)


@pytest.mark.parametrize(
    ("inputs", "error"),
    [
        ({"attention_mask": [[1]]}, "inputs: expected input_ids, attention_mask, token_type_ids, got attention_mask"),
        ({"input_ids": [[1]], "pixels": [[1]]}, "inputs: expected .*, got also pixels"),
        ({"input_ids": [[1]], "attention_mask": [[1, 1]]}, "inputs: expected attention_mask of the shape of input_ids"),
        ({"input_ids": [[1, 2], [3]]}, "inputs: expected input_ids as a tensor or lists of equal lengths, got"),
        ({"input_ids": ["a"]}, "inputs: expected input_ids as a tensor or lists of equal lengths, got"),
        ({"input_ids": None}, "inputs: expected input_ids as a tensor or lists of equal lengths, got"),
        ({"input_ids": [[10**30]]}, "inputs: expected input_ids as a tensor or lists of equal lengths, got"),
        ({"input_ids": 3}, r"inputs: expected input_ids of shape \(\.\.\., L\), got \(\)"),
        ({"input_ids": [[1.5]]}, r"inputs: expected input_ids of integers, got torch\.float32"),
        ({"input_ids": [[1]], "attention_mask": [[0.5]]}, "inputs: expected attention_mask of integers"),
        ({"input_ids": [[1, 2]], "attention_mask": [[0, 1]]}, "inputs: expected padding at the end"),
        ({"input_ids": [[1, 2]], "attention_mask": [[1, -1]]}, "inputs: .*expected an attention mask of .*, got -1"),
        (["a", ["b"]], r"inputs: expected lists of equal length, got the shapes \(\), \(1\)"),
        ([1, 2], "inputs: expected what the processor takes, got int, for which it raised TypeError"),
        (torch.ones(2, 4, dtype=torch.int64), "inputs: .*expected the rows input_ids, attention_mask, token_type_ids"),
        (torch.full((3, 4), 7), "inputs: .*expected an attention mask of 0 and 1 in row 1, got 7"),
    ],
)
def test_bad_inputs_are_refused_by_name(inputs: Any, error: str) -> None:
    ours = head()
    before = {name: value.clone() for name, value in ours.state_dict().items()}
    for call in (ours.select, lambda inputs: ours.step(inputs, 0, 1.0)):
        with pytest.raises(ValueError, match=f"^{error}"):
            call(inputs)
    assert all(torch.equal(before[name], value) for name, value in ours.state_dict().items())


def test_bad_arguments_are_refused_by_name() -> None:
    with pytest.raises(
        AttributeError, match=r"^output: expected .* last_hidden_state, pooler_output, mean, cls, got 'pool'"
    ):
        head("pool").select("abc")
    with pytest.raises(TypeError, match=r"^encoder: expected .*; give output=\.\.\. for a Hugging Face model"):
        BanditHead(bert(), policy()).select(torch.ones(3, dtype=torch.int64))
    with pytest.raises(TypeError, match=r"^encoder: expected a Hugging Face model of input_ids, .*, got Linear"):
        BanditHead(nn.Linear(2, 8), policy(), output="mean")
    with pytest.raises(TypeError, match=r"^output: expected a name, a function or a module, got int"):
        head(3)
    with pytest.raises(TypeError, match=r"^processor: expected a tokenizer or another function, got str"):
        BanditHead(bert(), policy(), output="mean", processor="words")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^output: expected .*, got None"):
        BanditHead(bert(), policy(), processor=words)
    with pytest.raises(
        TypeError, match=r"^inputs: expected a tensor or a mapping with input_ids.*, got str; give processor"
    ):
        BanditHead(bert(), policy(), output="mean").select("abc")


def test_token_types_are_only_where_the_model_has_them() -> None:
    from transformers import GPT2Config, GPT2Model, RobertaConfig, RobertaModel

    torch.manual_seed(0)
    gpt = GPT2Model(GPT2Config(vocab_size=50, n_embd=8, n_layer=1, n_head=2, bos_token_id=1, eos_token_id=1)).eval()
    roberta = RobertaModel(
        RobertaConfig(vocab_size=50, **SIZES)
    ).eval()  # counts positions from tokens that are not padding
    tokens = words(["abc", "de"], padding=True, truncation=True, return_tensors="pt")
    for model, count in ((gpt, 2), (roberta, 3)):
        encoder = HuggingFaceEncoder(model, "mean")
        assert len(encoder.names) == count
        with torch.no_grad():
            alone = model(input_ids=tokens["input_ids"][1:, :2]).last_hidden_state.mean(1)[0]
            torch.testing.assert_close(encoder(encoder.lookup(tokens))[1], alone)


def test_images() -> None:
    from transformers import BatchFeature

    model, images = vit(), torch.rand(2, 3, 8, 8)

    def halves(images: list[Any], return_tensors: str) -> BatchFeature:
        return BatchFeature(
            {"pixel_values": torch.stack([0.5 * image for image in images])}, tensor_type=return_tensors
        )

    ours = BanditHead(model, policy(), output="pooler_output", processor=halves)
    assert ours.feature_dims == 3
    wanted = ours.predict(0.5 * images)
    assert torch.equal(ours.predict({"pixel_values": 0.5 * images}), wanted)
    assert torch.equal(ours.predict(BatchFeature({"pixel_values": 0.5 * images.double()})), wanted)
    assert torch.equal(ours.encoder.lookup(list(images)), 0.5 * images)
    assert not ours.pads


# Training.


def texts(count: int, seed: int = 0) -> list[str]:
    generator = torch.Generator().manual_seed(seed)
    return ["abcdefgh"[: 1 + int(k)] for k in torch.randint(8, (count,), generator=generator)]


def batches(count: int = 4, size: int = 10) -> list[Any]:
    """Batches of texts of other lengths, with the rewards of two actions: the first is for short texts."""
    found: list[Any] = []
    for number in range(count):
        some = texts(size, number)
        is_short = torch.tensor([float(len(text) < 5) for text in some])
        found.append((some, torch.stack([is_short, 1.0 - is_short], -1)))
    return found


def fitted(ours: BanditHead, rounds: list[Any]) -> NeuralLinearBandit:
    torch.manual_seed(1)
    bandit = NeuralLinearBandit(ours, train_encoder_every=15, encoder_steps=2, encoder_batch_size=4)
    pl.Trainer(**QUIET).fit(bandit.train(), DataLoader(rounds, batch_size=None))
    return bandit


def test_a_fit_takes_texts_of_other_lengths_in_each_batch() -> None:
    raw = fitted(head(), batches())
    tokens = [(words(some, padding=True, truncation=True, return_tensors="pt"), rewards) for some, rewards in batches()]
    mapped = fitted(head(), [{"inputs": inputs, "rewards": rewards} for inputs, rewards in tokens])
    assert int(raw.rounds) == 40
    assert raw.replay is not None
    assert raw.replay.inputs.shape[1:] == (3, 8)
    for name, value in raw.state_dict().items():
        assert name == "seed" or torch.equal(value, mapped.state_dict()[name]), name
    (decided,) = pl.Trainer(**QUIET).predict(raw, DataLoader([tokens[0][0]], batch_size=None))  # type: ignore[misc]
    assert torch.equal(decided["action"], raw.head.select(tokens[0][0]))


def test_logs_are_learnt() -> None:
    bandit, rounds = NeuralLinearBandit(head(), train_encoder_every=None), batches()
    action = torch.zeros(10, dtype=torch.int64)
    log: Any = [LoggedRounds(some, action, rewards[:, 0]) for some, rewards in rounds]  # type: ignore[arg-type]
    pl.Trainer(**QUIET).fit(bandit.train(), DataLoader(log, batch_size=None))
    other = head()
    for some, rewards in rounds:
        other.learn(some, action, rewards[:, 0])
    assert torch.equal(bandit.head.theta_hat, other.theta_hat)


def test_the_replay_pads_only_what_may_be_padded() -> None:
    replay, some = Replay(3, pads=True), torch.ones(2, 3, dtype=torch.int64)
    reward = torch.zeros(2)
    for length in (2, 5, 3):
        replay.check_inputs(torch.ones(2, 3, length, dtype=torch.int64), 2)
        replay.push(some.unsqueeze(-1).expand(2, 3, length), reward.long(), reward)
    assert replay.in_order()[0].sum(-1)[:, 0].tolist() == [5, 3, 3]
    with pytest.raises(ValueError, match=r"^inputs: expected features of shape \(3, 5\)"):
        replay.check_inputs(torch.ones(2, 2, 5, dtype=torch.int64), 2)
    fixed = Replay(3)
    fixed.push(torch.ones(2, 4), reward.long(), reward)
    with pytest.raises(ValueError, match=r"^inputs: expected features of shape \(4\)"):
        fixed.check_inputs(torch.ones(2, 5), 1)


def test_ranks_share_texts_of_other_lengths() -> None:
    shared, learnt = SharedRounds(Ranks(), pads=True), []
    for length in (2, 4):
        shared.add(torch.ones(3, 2, length, dtype=torch.int64), torch.zeros(3, dtype=torch.int64), torch.zeros(3))
    shared.sync(learnt.append, [torch.zeros(1)])
    assert learnt[0][0].sum(-1)[:, 0].tolist() == [2, 2, 2, 4, 4, 4]


def test_adapters_alone_are_trained() -> None:
    from peft import LoraConfig, get_peft_model

    for task in (None, "FEATURE_EXTRACTION"):
        model = get_peft_model(bert(), LoraConfig(r=2, target_modules=["query"], task_type=task))  # type: ignore[arg-type]
        ours = BanditHead(model, policy(), output="mean", processor=words)
        before = {name: value.detach().clone() for name, value in ours.encoder.named_parameters()}
        bandit = fitted(ours, batches(2))
        moved = {name for name, value in bandit.head.encoder.named_parameters() if not torch.equal(value, before[name])}
        assert moved
        assert all("lora" in name for name in moved)
        assert ours.encoder.names == ("input_ids", "attention_mask", "token_type_ids")
        again = unpacked_head(packed(ours))  # type: ignore[arg-type]
        again.load_state_dict(ours.state_dict())
        assert torch.equal(again.predict(ours.encoder.lookup("abc")), ours.predict("abc"))


def test_half_precision() -> None:
    ours = BanditHead(bert().bfloat16(), policy(), output="mean", processor=words)
    assert ours.encode("abc").dtype == torch.bfloat16
    bandit = fitted(ours, batches(2))
    assert bandit.head.theta_hat.dtype == torch.float64
    assert bool(bandit.head.theta_hat.isfinite().all())


def test_a_compiled_model() -> None:
    plain, ours = head(), BanditHead(torch.compile(bert(), backend="eager"), policy(), output="mean", processor=words)
    assert ours.encoder.names == plain.encoder.names
    torch.testing.assert_close(ours.encode(["abc", "de"]), plain.encode(["abc", "de"]))
    again = unpacked_head(packed(ours))  # type: ignore[arg-type]
    assert type(again.encoder.model) is type(plain.encoder.model)


# Checkpoints.


def checkpoint(folder: Path, model: Any, output: Any = "mean") -> Any:
    ours = BanditHead(model, policy(), output=output, processor=words)
    trainer, bandit = pl.Trainer(**QUIET), NeuralLinearBandit(ours, train_encoder_every=None)
    trainer.fit(bandit.train(), DataLoader(batches(1), batch_size=None))
    trainer.save_checkpoint(folder / "a.ckpt")
    return bandit, NeuralLinearBandit.load_from_checkpoint(folder / "a.ckpt")


def test_a_checkpoint_rebuilds_the_model(tmp_path: Path) -> None:
    bandit, again = checkpoint(tmp_path, bert(), Last())
    tokens = words(["abc", "de"], padding=True, truncation=True, return_tensors="pt")
    assert torch.equal(again.head.predict(tokens), bandit.head.predict(tokens))
    assert again.head.encoder.model.config == bandit.head.encoder.model.config
    with pytest.raises(TypeError, match=r"^inputs: .*; give processor"):
        again.head.select("abc")
    again.head.encoder.processor = words
    assert torch.equal(again.head.predict("abc"), bandit.head.predict("abc"))
    hyper = bandit.hparams
    assert (hyper["encoder"], hyper["encoder_model"], hyper["encoder_output"]) == (
        "HuggingFaceEncoder",
        "BertModel",
        "Last",
    )


def test_other_models_are_packed() -> None:
    """With partial functions of torch.nn.functional, with tied weights, and with enumerations."""
    from transformers import SiglipVisionConfig, SiglipVisionModel, T5Config, T5EncoderModel

    tall = T5EncoderModel(T5Config(vocab_size=50, d_model=8, d_kv=4, d_ff=16, num_layers=1, num_heads=2))
    for model in (tall, SiglipVisionModel(SiglipVisionConfig(image_size=8, patch_size=4, **SIZES)), vit()):
        ours = BanditHead(model, policy(), output="mean")
        again = unpacked_head(packed(ours))  # type: ignore[arg-type]
        assert len(list(again.parameters())) == len(list(ours.parameters()))
        again.load_state_dict(ours.state_dict())
        items = torch.ones(2, 2, 5, dtype=torch.int64) if model is tall else torch.rand(2, 3, 8, 8)
        assert torch.equal(again.encode(items), ours.encode(items))


def test_a_layer_may_be_a_value() -> None:
    encoder = nn.Linear(4, 8)
    encoder.__dict__["norm_layer"] = nn.BatchNorm2d  # as torchvision's ResNet does
    again = unpacked_head(packed(BanditHead(encoder, policy())))  # type: ignore[arg-type]
    assert vars(again.encoder)["norm_layer"] is nn.BatchNorm2d


def test_a_function_of_ones_own_is_not_packed() -> None:
    reason = packed(head(lambda output, mask: output.pooler_output))
    assert isinstance(reason, str)
    assert "lambda" in reason


CALLED: list[Any] = []


class Trap(nn.Module):
    """A class of modules, which a file may name but not call."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__()
        CALLED.append(arguments)


class Reduced:
    """Pickled as a call of a function."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.call = function, arguments

    def __reduce__(self) -> Any:
        return self.call


def crafted(attack: Any) -> bytes:
    file = io.BytesIO()
    torch.save(attack, file)
    return file.getvalue()


def configuration() -> Any:
    from transformers import BertConfig

    return BertConfig


def shadowed(modules: Any) -> BanditHead:
    """Return a head whose encoder has a value in the place of its method ``modules``, which a load calls."""
    ours = BanditHead(nn.Linear(4, 2), policy())
    ours.encoder.__dict__["modules"] = modules
    return ours


def interpreter() -> nn.Module:
    """Return a module that runs a graph of its attributes, without its constructor."""
    from torch.export.unflatten import InterpreterModule

    found = InterpreterModule.__new__(InterpreterModule)
    nn.Module.__init__(found)
    return found


REBUILD: Any = torch._tensor._rebuild_from_type_v2  # type: ignore[attr-defined]
ATTACKS: dict[str, Callable[[], Any]] = {
    "a module": lambda: Reduced(Trap, 1),
    "a configuration": lambda: Reduced(configuration(), 7),
    "a function": lambda: Reduced(functional.relu, torch.ones(2)),
    "a builtin": lambda: Reduced(functional.gelu, torch.ones(2)),
    "by way of torch": lambda: Reduced(REBUILD, Trap, torch.Tensor, (1,), {}),
    "by two ways": lambda: Reduced(REBUILD, REBUILD, torch.Tensor, (Trap, torch.Tensor, (1,), {}), {}),
    "inside a list": lambda: [1, {"a": (Reduced(Trap), 2)}],
    "from memory": lambda: [Trap, Reduced(Trap)],
    "another function": lambda: Reduced(pickle.loads, b"."),
    "eval": lambda: Reduced(eval, "CALLED.append(1)"),
    "a getter": lambda: Reduced(getattr, Trap, "__init__"),
    "a class as a method": lambda: shadowed(Trap),
    "a partial class as a method": lambda: shadowed(partial(Trap, 1)),
    "an interpreter": lambda: shadowed(interpreter()),
}


@pytest.mark.parametrize("name", list(ATTACKS))
def test_a_crafted_head_calls_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data = crafted(ATTACKS[name]())
    CALLED.clear()
    for function in ("relu", "gelu"):
        monkeypatch.setattr(functional, function, CALLED.append)
    with pytest.raises(ValueError, match=r"^head: expected (instances of classes only|classes of modules)"):
        unpacked_head(data)
    assert CALLED == []


def test_what_a_call_returned_is_not_called() -> None:
    data = with_pickle(crafted(torch.ones(1)), b"\x80\x02ccollections\nOrderedDict\n)R)R.")
    with pytest.raises(ValueError, match=r"^head: expected instances of classes only, got a call of \?"):
        unpacked_head(data)


def test_names_are_not_imported_for_a_file() -> None:
    """The package of transformers imports a class when its name is looked up."""
    import transformers  # noqa: F401

    lazy = "transformers.models.yoso"
    assert lazy not in sys.modules
    data = with_pickle(crafted(torch.ones(1)), b"\x80\x02ctransformers\nYosoModel\nq\x00.")
    with pytest.raises(
        ValueError, match=r"^head: expected classes of modules that are imported, got transformers\.YosoModel"
    ):
        unpacked_head(data)
    assert lazy not in sys.modules


def with_pickle(data: bytes, pickled: bytes) -> bytes:
    """Return a file of torch.save with another pickle."""
    file = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as new:
        for name in old.namelist():
            new.writestr(name, pickled if name.endswith("data.pkl") else old.read(name))
    return file.getvalue()


# Files.


def test_a_traced_file_takes_texts_of_any_length(tmp_path: Path) -> None:
    ours = head()
    ours.step("abc", 1, 1.0)
    to_torchscript(ours, tmp_path / "head.pt", example="abc", trace_encoder=True)
    file = torch.jit.load(tmp_path / "head.pt")
    for some in ("a", "abcdefgh", ["ab", "c", "defgh"]):
        items = ours.encoder.lookup(some)
        torch.testing.assert_close(file(items), ours(some))
        assert torch.equal(file.select(items), ours.select(some))
    reward = torch.tensor(1.0)
    program = f"""
import sys, torch
file = torch.jit.load({str(tmp_path / "head.pt")!r})
print(int(file.select(torch.tensor({items.tolist()}))[2]), "torchonline" in sys.modules, "transformers" in sys.modules)
"""
    run = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout.split() == [str(int(ours.select(some)[2])), "False", "False"]
    ours.step("abcd", 0, reward)
    assert file.step(ours.encoder.lookup("abcd"), torch.tensor(0), reward)
    torch.testing.assert_close(file(items), ours(some))


def test_what_cannot_be_scripted_is_named() -> None:
    with pytest.raises(
        ValueError, match=r"^module: expected an encoder that TorchScript can compile, got BertEmbeddings, "
    ):
        to_torchscript(head(), example="abc")
    with pytest.raises(ValueError, match=r"^trace_encoder: expected False for a OFUL, which has no encoder"):
        to_torchscript(torchonline.OFUL(2), trace_encoder=True)


def test_a_trace_that_differs_is_refused() -> None:
    """An encoder with a branch on the number of its inputs."""

    class Branch(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x if x.size(0) == 1 else 2.0 * x

    ours = BanditHead(Branch(), policy())
    with pytest.raises(RuntimeError, match=r"^export: "):
        to_torchscript(ours, example=torch.rand(8), trace_encoder=True)
