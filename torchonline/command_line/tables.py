"""Heads that are proposed for the columns of a log."""

import inspect
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import yaml  # type: ignore[import-untyped]
from jsonargparse import ArgumentParser, Namespace

from torchonline.core.messages import listed
from torchonline.models.builders import table_head
from torchonline.models.encoding import column_encoder
from torchonline.models.log_data import LogDataModule

HEAD = f"{table_head.__module__}.{table_head.__name__}"
# A model for each of so many actions takes seconds and memory: the column may be another one.
MOST_ACTIONS = 1000
# Name of the file with the configuration of a fit.
CONFIGURATION = "config.yaml"
# Words of the command line that choose another model or head.
OTHER_HEADS = ("--model", "--model.head", "--model.class_path", "--model.head.class_path")


def with_saved(words: Sequence[str], folder: str) -> list[str]:
    """Return a command line with the configuration of the last fit.

    Its own options follow, and take precedence. If it has a configuration or a model, it is returned unchanged.

    Args:
        words: the words, of a command that begins with what ``fit`` has learnt.
        folder: the trainer's default root directory, where ``fit`` saves its configuration. That of a named checkpoint, if it is
            beside it, takes precedence.
    """
    folder = _value_of("--trainer.default_root_dir", words) or folder
    folders = [Path(_value_of("--ckpt_path", words) or folder).parent, Path(folder)]
    path = next((one / CONFIGURATION for one in folders if (one / CONFIGURATION).is_file()), None)
    is_given = any(
        word.split("=")[0] in ("-c", "--config", "-h", "--help") or word.startswith("--model") for word in words
    )
    if is_given or path is None:
        return list(words)
    # The saved part is one of the saved files.
    is_new = _value_of("--data.files", words) and not _value_of("--data.part", words)
    return [words[0], f"--config={path}", *(["--data.part=[0,1]"] if is_new else []), *words[1:]]


def goes_on(words: Sequence[str]) -> bool:
    """Return whether a command line has a checkpoint, from which a fit goes on."""
    return (_value_of("--ckpt_path", words) or "null") not in ("null", "new")


def _value_of(option: str, words: Sequence[str]) -> str:
    """Return the last value of an option of a command line, or ""."""
    found = ""
    for word, after in zip(words, [*words[1:], ""], strict=True):
        if word.split("=")[0] == option:
            found = word.partition("=")[2] or after
    return found


def with_head(words: Sequence[str]) -> list[str]:
    """Return the words of a command line, with ``table_head`` if they choose no head."""
    own = {f"--model.head.{name}" for name in inspect.signature(table_head).parameters}
    given = [word.split("=")[0] for word in words if word.startswith("--model")]
    chosen = [word for word in given if word in OTHER_HEADS or (word.startswith("--model.head.") and word not in own)]
    is_asked = {"-h", "--help", "--model.help", "--data.help", "--print_config"} & {
        word.split("=")[0] for word in words
    }
    if chosen or is_asked or any(map(_has_head, _configurations(words))) or (words[0] == "report" and not given):
        return list(words)
    return [words[0], *_at_end(list(words[1:]))]


def _at_end(words: list[str]) -> list[str]:
    """Insert the head after the configurations, and before its own options."""
    place = next((i for i, word in enumerate(words) if word.startswith("--model.head.")), len(words))
    return [*words[:place], f"--model.head={HEAD}", *words[place:]]


def _configurations(words: Sequence[str]) -> list[str]:
    """Return the configuration files on a command line."""
    found = [word.partition("=")[2] for word in words if word.startswith(("--config=", "-c="))]
    return found + [after for word, after in pairwise(words) if word in ("-c", "--config")]


def _has_head(path: str) -> bool:
    """Return whether a configuration chooses a model or a head.

    True for a wrong file, which the parser reports.
    """
    try:
        found = yaml.safe_load(Path(path).read_text())
        model = found.get("model") or {}
        return isinstance(model, str) or "head" in {**model, **(model.get("init_args") or {})} or "class_path" in model
    except (OSError, ValueError, AttributeError, TypeError, yaml.YAMLError):
        return True


def propose_head(config: Any) -> LogDataModule | None:
    """Complete the head of a configuration from its log, in place; return the data.

    The columns, rewards and actions of a ``table_head`` that are None are proposed from the log. So ``fit`` saves a
    configuration that says what was proposed. Without a log, or with the log of a service, each arm has its own row.
    """
    model = config.get("model")
    head = None if model is None else model.get("init_args", {}).get("head")
    if head is None or not str(head.get("class_path", "")).endswith(f".{table_head.__name__}"):
        return None
    wanted = head["init_args"]
    if wanted["columns"] is not None and wanted["actions"] is not None and wanted["rewards"] is not None:
        return None
    has_log = config.get("data") is not None and not config.get("decisions")
    if not has_log and wanted["columns"] is not None:
        return None
    data = _data_of(config) if has_log else None
    if not isinstance(data, LogDataModule):
        raise ValueError(
            "model.head: expected a head, or the log of a LogDataModule from which columns are proposed, got neither"
        )
    if wanted["columns"] is None:
        data.encoder = data.propose()
        wanted["columns"] = {column.pop("name"): column for column in data.encoder.columns}
        wanted["missing"] = list(data.missing)
        print(f"columns: {data.encoder}")
    else:
        data.encoder = table_head(wanted["columns"], missing=wanted["missing"]).encoder
    log = data.raw_log()
    if len(log.names) > MOST_ACTIONS and wanted["actions"] is None:
        got = f"{len(log.names)} in {data.names['action']!r}"
        raise ValueError(
            f"action: expected at most {MOST_ACTIONS} actions, got {got}: is this the column of the actions? If so, list them in "
            "--model.head.actions"
        )
    if wanted["actions"] is None:  # integers from 0 need no names
        is_count = log.names == list(map(str, range(len(log.names))))
        wanted["actions"] = len(log.names) if is_count else log.names
    if wanted["rewards"] is None:
        is_unit = bool(((log.reward >= 0.0) & (log.reward <= 1.0)).all())
        is_binary = bool(((log.reward == 0.0) | (log.reward == 1.0)).all())
        wanted["rewards"] = "binary" if is_binary else "unit" if is_unit else "real"
    print(f"actions: {listed(log.names, str)}; rewards: {wanted['rewards']}")
    return data


def _data_of(config: Any) -> Any:
    """Return the data module of a configuration, or None."""
    given = config.get("data")
    if given is None:
        return None
    parser = ArgumentParser(exit_on_error=False)
    parser.add_subclass_arguments(pl.LightningDataModule, "data")
    return parser.instantiate(
        parser.parse_object({"data": given.as_dict() if isinstance(given, Namespace) else given})
    )["data"]


def share_columns(model: Any, data: Any) -> None:
    """Let a log be read by the columns and the action names of a model's head."""
    head = getattr(model, "head", None)
    encoder = None if head is None else column_encoder(head.encoder)
    if encoder is not None and isinstance(data, LogDataModule):
        data.encoder = encoder
        data.actions = head.action_names  # type: ignore[union-attr]
