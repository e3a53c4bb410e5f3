"""Bandit heads on the Hugging Face Hub."""

import json
import os
from pathlib import Path
from typing import Any

from torchonline.core.checks import instance_of
from torchonline.core.messages import install_extra
from torchonline.models.bandit_head import BanditHead
from torchonline.models.checkpoints import facts, packed, unpacked_head
from torchonline.models.encoding import hugging_face_encoder

try:
    from huggingface_hub import ModelCard, ModelHubMixin, snapshot_download
    from safetensors.torch import load_model, save_model
except ImportError as error:
    raise ImportError(
        f"HubHead: expected huggingface_hub and safetensors, got no {error.name}; {install_extra('huggingface')}"
    ) from error

# The files of a head: its modules without the encoder's numbers, and all numbers.
MODULES, NUMBERS = "head.pt", "model.safetensors"
CARD = """\
---
{{ card_data }}
---

# {{ policy }} on {{ encoder_model | default(encoder) }}

A bandit head of torchonline. It chooses among arms by the features of an encoder, learns from one reward at a time and knows how
uncertain it is. It has learnt {{ rounds }} rounds, and goes on learning from where it is loaded.

```python
from torchonline.models.hub import HubHead

head = HubHead.from_pretrained("the name of this repository").head
```

| Setting | Value |
|---|---|
{% for setting, value in settings.items() %}| {{ setting }} | {{ value | replace("|", "\\\\|") }} |
{% endfor %}
"""


class HubHead(ModelHubMixin, library_name="torchonline", tags=["bandit", "online-learning"], model_card_template=CARD):
    """Bandit head on the Hugging Face Hub, or in a folder of the same files.

    ``HubHead(head).push_to_hub("name")`` and ``save_pretrained(folder)`` write four files: ``model.safetensors`` with all
    numbers of encoder and policy; ``head.pt`` with the modules, as in a checkpoint of
    :class:`~torchonline.models.NeuralLinearBandit`; ``config.json`` with the settings; and ``README.md``, the model card. A
    tokenizer or image processor adds its own. ``HubHead.from_pretrained(name).head`` continues from the saved round. It runs no
    code from the files. The classes of the encoder must be imported already. The processor is loaded by its own class:
    ``head.encoder.processor = AutoTokenizer.from_pretrained(name)``.

    It needs the ``huggingface`` extra.

    Args:
        head: any head that holds no user-defined functions.

    Raises:
        TypeError: a part of the head cannot be saved; the error names it.

    Example:
        >>> import torchonline
        >>> head = BanditHead(torch.nn.Linear(4, 2), torchonline.bandit(2, actions=3))
        >>> head.step(torch.rand(4), 1, 1.0)
        >>> _ = HubHead(head).save_pretrained(folder / "head")
        >>> HubHead.from_pretrained(folder / "head").head.rounds
        tensor(1)
    """

    def __init__(self, head: BanditHead) -> None:
        self.head: BanditHead = instance_of("head", head, BanditHead, "a BanditHead")

    def _save_pretrained(self, save_directory: Path) -> None:
        modules = packed(self.head)
        if isinstance(modules, str):
            raise TypeError(f"head: expected importable classes and no functions of your own, got {modules}")
        save_model(self.head, str(save_directory / NUMBERS))
        (save_directory / MODULES).write_bytes(modules)
        (save_directory / "config.json").write_text(json.dumps({"bandit_head": self._settings()}, indent=2) + "\n")
        processor: Any = getattr(hugging_face_encoder(self.head.encoder), "processor", None)
        if hasattr(processor, "save_pretrained"):
            processor.save_pretrained(save_directory)

    @classmethod
    def _from_pretrained(cls, *, model_id: str, **options: Any) -> "HubHead":
        if not os.path.isdir(model_id):
            model_id = snapshot_download(model_id, allow_patterns=[MODULES, NUMBERS], **options)
        head = unpacked_head(Path(model_id, MODULES).read_bytes())
        load_model(head, str(Path(model_id, NUMBERS)))
        return cls(head)

    def generate_model_card(self, *arguments: Any, **options: Any) -> ModelCard:
        """Return the model card: what the head is, its settings and its number of rounds."""
        settings = self._settings()
        return super().generate_model_card(*arguments, settings=settings, **settings, **options)

    def _settings(self) -> dict[str, Any]:
        return facts(self.head) | {"rounds": self.head.rounds.tolist()}
