"""Hugging Face models as encoders of a bandit head."""

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from torchonline.core.backend import is_readable
from torchonline.core.checks import shape_text
from torchonline.core.messages import listed
from torchonline.export.copies import uncompiled

# What a text model may take for each token, in the order of an item's rows. A missing mask is 1, missing types are 0.
TOKENS = ("input_ids", "attention_mask", "token_type_ids")
# Dimensions of one item of another model's main input: pixels (C, H, W), samples (T), mel features (F, T).
OTHERS = {"pixel_values": 3, "input_values": 1, "input_features": 2}


class HuggingFaceEncoder(nn.Module):
    """Encoder that is a Hugging Face model, of texts, images or sound.

    ``BanditHead(model, policy, output=..., processor=...)`` builds it. The head, its replay, its logs and its files see one
    tensor for each item, as :meth:`lookup` returns it:

    - a text of L tokens is an int64 tensor ``(rows, L)`` with the rows ``names``: ``input_ids``, and ``attention_mask`` and
      ``token_type_ids`` if the model takes them. Columns of zeros at the end are padding, which changes the features only up to
      rounding. Padding at the start is refused, because it moves the positions of the tokens.
    - an image is its ``pixel_values``, ``(C, H, W)``; sound is its ``input_values`` or ``input_features``.

    Cost: one pass of the model. torch.compile the model, not this module.

    Args:
        model: a model whose first input is ``input_ids``, ``pixel_values``, ``input_values`` or ``input_features``: a
            transformers model, also inside peft's adapters or ``torch.compile``.
        output: the features, ``(n, m)``, in the model's output. ``"mean"``: the mean of ``last_hidden_state`` over the tokens
            that are not padding, as in sentence-transformers, or over an image's patches. ``"cls"``: its first token. Another
            string is the name of an entry, such as ``"pooler_output"``. A function or module is called with the output and the
            attention mask ``(n, L)``, or None without a mask. A checkpoint holds a module, but not a user-defined function.
        processor: tokenizer, image processor or feature extractor, for raw inputs; or None. A tokenizer is called with
            ``padding=True`` and ``truncation=True``. Files and checkpoints do not hold the processor.

    Example:
        >>> from transformers import BertConfig, BertModel
        >>> tiny = BertConfig(vocab_size=9, hidden_size=4, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8)
        >>> encoder = HuggingFaceEncoder(BertModel(tiny), "mean")
        >>> tokens = encoder.lookup({"input_ids": [[2, 5, 3], [2, 3, 0]], "attention_mask": [[1, 1, 1], [1, 1, 0]]})
        >>> tokens.shape, encoder(tokens).shape
        (torch.Size([2, 3, 3]), torch.Size([2, 4]))
    """

    if TYPE_CHECKING:

        def __call__(self, inputs: Tensor) -> Tensor: ...

    # Most items of a log in one pass: attention takes memory for each pair of tokens.
    items_at_once = 64

    def __init__(
        self, model: nn.Module, output: str | Callable[..., Tensor], processor: Callable[..., Any] | None = None
    ) -> None:
        super().__init__()
        main = getattr(model, "main_input_name", None)
        if not isinstance(model, nn.Module) or main not in ("input_ids", *OTHERS):
            wanted, got = listed(["input_ids", *OTHERS], str), f"{type(model).__name__}, main_input_name {main}"
            raise TypeError(f"encoder: expected a Hugging Face model of {wanted}, got {got}")
        if not isinstance(output, str) and not callable(output):
            raise TypeError(f"output: expected a name, a function or a module, got {type(output).__name__}")
        if processor is not None and not callable(processor):
            raise TypeError(f"processor: expected a tokenizer or another function, got {type(processor).__name__}")
        self.model, self.output, self.processor = model, output, processor
        config = getattr(model, "config", None)
        taken = set(inspect.signature(_without_adapters(model).forward).parameters)
        if not hasattr(config, "type_vocab_size"):
            taken.discard("token_type_ids")  # without types, as in GPT-2, zeros would mean token 0
        self.is_text = main == "input_ids"
        self.names: tuple[str, ...] = tuple(name for name in TOKENS if name in taken) if self.is_text else (main,)
        self.feature_dims: int = 2 if self.is_text else OTHERS[main]
        self.pads = "attention_mask" in self.names
        self.pad_token = getattr(config, "pad_token_id", None) or 0

    def extra_repr(self) -> str:
        return f"names={listed(self.names, str)}, output={self.output!r}" if isinstance(self.output, str) else ""

    def lookup(self, inputs: Any) -> Tensor:
        """Return inputs as the tensor that the head and its files take.

        Its shape is ``(..., rows, L)`` for texts and ``(..., C, H, W)`` for images. Python only.

        Args:
            inputs: a mapping of tensors, arrays or lists by name, such as a ``BatchEncoding``, of equal shape ``(..., L)``; or,
                with a processor, one raw item, a list of raw items, or such lists of equal length.

        Raises:
            TypeError: inputs are raw, and there is no processor.
            ValueError: a name is missing or unknown, the shapes differ, tokens are not integers, a text has padding at the start,
                or the processor refuses the inputs.
        """
        if isinstance(inputs, Mapping):
            return self._packed(inputs)
        if self.processor is None:
            raise TypeError(
                f"inputs: expected a tensor or a mapping with {listed(self.names, str)}, got {type(inputs).__name__}; give "
                "processor=..., or set the encoder's processor, for raw inputs"
            )
        items, lead = _flat(inputs)
        if not items:
            if not self.is_text:
                raise ValueError("inputs: expected at least one item, got an empty list")
            return torch.zeros(*lead, len(self.names), 1, dtype=torch.int64, device=self._like().device)
        options: Any = {"padding": True, "truncation": True} if self.is_text else {}
        try:
            read = self.processor(items, return_tensors="pt", **options)
        except (TypeError, ValueError) as error:
            got = f"{type(items[0]).__name__}, for which it raised {type(error).__name__}: {error}"
            raise ValueError(f"inputs: expected what the processor takes, got {got}") from error
        found = self._packed(read)
        return found.reshape(*lead, *found.shape[1:])

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the features of items, ``(n, m)``.

        Args:
            inputs: items as :meth:`lookup` returns them, ``(n, rows, L)`` or ``(n, C, H, W)``.

        Raises:
            AttributeError: the model's output has no entry of the name ``output``.
            ValueError: a row of ``inputs`` is missing, or its attention mask has other values than 0 and 1.
        """
        if not self.is_text:
            return self._features(self.model(**{self.names[0]: inputs}), None)
        if inputs.size(-2) != len(self.names):
            rows = listed(self.names, str)
            raise ValueError(f"inputs: expected the rows {rows}, got shape {shape_text(inputs.shape)}")
        values = dict(zip(self.names, inputs.unbind(-2), strict=True))
        mask = values.get("attention_mask")
        if mask is not None:
            if mask.is_cpu and is_readable(mask) and len(wrong := mask[mask.clamp(0, 1) != mask]):
                raise ValueError(f"inputs: expected an attention mask of 0 and 1 in row 1, got {int(wrong[0])}")
            values["input_ids"] = torch.where(mask != 0, values["input_ids"], self.pad_token)
        return self._features(self.model(**values), mask)

    def _features(self, output: Any, mask: Tensor | None) -> Tensor:
        name: Any = self.output
        if not isinstance(name, str):
            found: Tensor = name(output, mask)
            return found
        entry = "last_hidden_state" if name in ("mean", "cls") else name
        entries = output if isinstance(output, Mapping) else {}
        if entry not in entries:
            known = [key for key, value in entries.items() if isinstance(value, Tensor)]
            known += ["mean", "cls"] if "last_hidden_state" in known else []
            raise AttributeError(f"output: expected a function or one of {listed(known, str)}, got {name!r}")
        part: Tensor = entries[entry]
        if name == entry:
            return part
        states = part.flatten(2).mT if part.dim() == 4 else part  # a convolution has (n, m, H, W)
        if name == "cls":
            return states[:, 0]
        if mask is None:
            return states.mean(1)
        weight = mask.unsqueeze(-1).to(states.dtype)
        return (states * weight).sum(1) / weight.sum(1).clamp_min(1)

    def _packed(self, inputs: Mapping[str, Any]) -> Tensor:
        """Return a mapping as one tensor."""
        main = self.names[0]
        if main not in inputs or (unknown := [name for name in inputs if name not in self.names]):
            got = listed(inputs, str) if main not in inputs else f"also {listed(unknown, str)}"
            raise ValueError(f"inputs: expected {listed(self.names, str)}, got {got}")
        like = self._like()
        given = {name: self._converted(name, value, like) for name, value in inputs.items()}
        for name, value in given.items():
            if value.shape != given[main].shape:
                expected = f"the shape of {main}, {shape_text(given[main].shape)}"
                raise ValueError(f"inputs: expected {name} of {expected}, got {shape_text(value.shape)}")
        if not self.is_text:
            return given[main].to(like.dtype)
        mask = given.get("attention_mask")
        if mask is not None and bool((mask[..., :1].logical_not() & mask.any(-1, True)).any()):
            raise ValueError('inputs: expected padding at the end, as of padding_side="right", got some at the start')
        ids = given[main].long()
        missing = {"attention_mask": torch.ones_like(ids), "token_type_ids": torch.zeros_like(ids)}
        return torch.stack([given[name].long() if name in given else missing[name] for name in self.names], -2)

    def _converted(self, name: str, value: Any, like: Tensor) -> Tensor:
        """Return an entry of a mapping as a tensor, or raise an error that names it."""
        try:
            found = torch.as_tensor(value, device=like.device)
        except (TypeError, ValueError, RuntimeError, OverflowError) as error:
            raise ValueError(f"inputs: expected {name} as a tensor or lists of equal lengths, got {error}") from error
        if self.is_text and found.numel() and (found.is_floating_point() or found.is_complex()):
            raise ValueError(f"inputs: expected {name} of integers, got {found.dtype}")
        if found.dim() < self.feature_dims - self.is_text:
            raise ValueError(f"inputs: expected {name} of shape (..., L), got {shape_text(found.shape)}")
        return found

    def _like(self) -> Tensor:
        """Return a tensor of the model's device and dtype."""
        return next(parameter for parameter in self.model.parameters() if parameter.is_floating_point())


def _without_adapters(model: Any) -> Any:
    """Return the model inside ``torch.compile`` and peft's adapters."""
    model = uncompiled(model)
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def _flat(items: Any) -> tuple[list[Any], tuple[int, ...]]:
    """Return the items of nested lists, and their leading shape."""
    if getattr(getattr(items, "dtype", None), "kind", None) in ("U", "O", "T"):  # an array or a column of texts
        items = items.tolist()
    if not isinstance(items, (list, tuple)):
        return [items], ()
    parts = [_flat(part) for part in items]
    shapes = {shape for _, shape in parts} or {()}
    if len(shapes) > 1:
        raise ValueError(f"inputs: expected lists of equal length, got the shapes {listed(sorted(shapes), shape_text)}")
    return [item for flat, _ in parts for item in flat], (len(items), *shapes.pop())
