"""The parser of commands and configurations, by LightningCLI and jsonargparse."""

import argparse
import logging
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jsonargparse
import pytorch_lightning as pl
from pytorch_lightning.callbacks import Checkpoint, ModelCheckpoint
from pytorch_lightning.cli import LightningArgumentParser, LightningCLI

# Short names of classes are found among those that are imported.
import torchonline.callbacks  # noqa: F401
from torchonline.command_line import COMMANDS
from torchonline.command_line.commands import OnlineTrainer
from torchonline.command_line.messages import one_line

DEFAULTS = {"model": "torchonline.models.NeuralLinearBandit", "data": "torchonline.models.LogDataModule"}
# Commands that begin with what fit has learnt.
FROM_CHECKPOINT = ("test", "evaluate", "export", "serve", "report")
# Options of the trainer that help shows. The others are there, too.
SHOWN = ("accelerator", "callbacks", "default_root_dir", "limit_train_batches", "logger", "max_epochs")
MORE = """\
--print_config prints the whole configuration, with all options of the trainer; --model.help CLASS and --data.help CLASS print the
options of a class. docs/command_line.md has examples. TORCHONLINE_TRACEBACK=1 in the environment shows where an error came
from."""


class Parser(LightningArgumentParser):
    """Parser that tells of an error in one line."""

    def error(self, message: str, ex: Exception | None = None) -> Any:
        print(f"torchonline: error: {one_line(message)}", file=sys.stderr)
        self.exit(2)


class Tool(LightningCLI):
    """LightningCLI with this library's commands and defaults.

    One configuration file has ``model``, ``data`` and ``trainer``, and serves all commands. Constructing an instance runs the
    command.

    Args:
        words: words of the command line, without the program's name.
    """

    def __init__(self, words: Sequence[str]) -> None:
        self.words = list(words)
        self.command = words[0] if words[0] in COMMANDS else ""
        # A report has the policy's pictures if a configuration has one.
        self.has_model = self.command != "report" or any(
            word.startswith(("-c", "--config", "--model")) for word in words
        )
        jsonargparse.set_parsing_settings(add_print_completion_argument=True)
        for name in ("pytorch_lightning", "lightning.pytorch", "lightning_fabric", "lightning.fabric"):
            logging.getLogger(name).setLevel(logging.WARNING)
        _forget_warnings()
        super().__init__(
            pl.LightningModule,
            pl.LightningDataModule,
            subclass_mode_model=True,
            subclass_mode_data=True,
            trainer_class=OnlineTrainer,
            trainer_defaults={
                "max_epochs": 1,
                "default_root_dir": "outputs",
                "log_every_n_steps": 1,
                "enable_model_summary": False,
            },
            seed_everything_default=0,
            save_config_kwargs={"overwrite": True},
            parser_class=Parser,
            parser_kwargs={
                "prog": "torchonline",
                **{
                    name: {
                        "prog": f"torchonline {name}",
                        "usage": f"python -m torchonline {name} [--config FILE] [options]",
                        "description": text[0].upper() + text[1:] + ".",
                        "epilog": MORE,
                    }
                    for name, text in COMMANDS.items()
                    if name in self.subcommands()
                },
            },
            auto_configure_optimizers=False,
            load_from_checkpoint_support=False,
            args=list(words),
        )

    def subcommands(self) -> dict[str, set[str]]:  # type: ignore[override]
        """Return the commands, or the one that is called: each takes its time to build."""
        skipped = {"model", "datamodule", "dataloaders", "train_dataloaders", "val_dataloaders", "weights_only"}
        return dict.fromkeys([self.command] if self.command else COMMANDS, skipped)

    def add_core_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Add model, data and trainer, with defaults of the classes."""
        self._add(parser, "model", pl.LightningModule, self.has_model)
        if self.command in ("serve", "report"):
            parser.add_argument("--data", type=dict | None, help="not used, so that all commands take one file")
        else:
            self._add(parser, "data", pl.LightningDataModule, True)
        parser.add_lightning_class_args(self.trainer_class, "trainer")
        parser.set_defaults({f"trainer.{name}": value for name, value in self.trainer_defaults.items()})
        for action in parser._actions:
            option = action.dest.removeprefix("trainer.")
            if option != action.dest and option.partition(".")[0] not in SHOWN:
                action.help = argparse.SUPPRESS

    def _add(self, parser: LightningArgumentParser, key: str, base: Any, is_needed: bool) -> None:
        """Add a class with its arguments, which begin with the default class."""
        parser.add_lightning_class_args(base, key, subclass_mode=True, required=is_needed)
        if is_needed:
            parser.set_defaults({key: {"class_path": DEFAULTS[key]}})

    def parse_arguments(self, parser: LightningArgumentParser, args: Any) -> None:
        self.config = parser.parse_args(args)

    def _parse_ckpt_path(self) -> None:
        """Do nothing: the configuration builds the model, and a checkpoint has its state."""

    def before_instantiate_classes(self) -> None:
        """Name the checkpoint that a command begins with."""
        config = self.config[self.subcommand]
        if self.subcommand in FROM_CHECKPOINT and self.has_model and not config.get("snapshot"):
            config["ckpt_path"] = _checkpoint(config["ckpt_path"], config["trainer"]["default_root_dir"])

    def instantiate_trainer(self, **kwargs: Any) -> pl.Trainer:
        """Build the trainer; a fit ends with the checkpoint ``last.ckpt``."""
        config = self._get(self.config_init, "trainer")
        callbacks = config["callbacks"] or []
        callbacks = list(callbacks) if isinstance(callbacks, (list, tuple)) else [callbacks]
        if self.subcommand != "fit":
            self.save_config_callback = None
            config["logger"] = config["logger"] or False
        if self.subcommand == "fit" and config["enable_checkpointing"] is not False and not any(isinstance(one, Checkpoint) for one in callbacks):
            callbacks.append(_last_checkpoint(config["default_root_dir"]))
        config["callbacks"] = callbacks
        if config["enable_progress_bar"] is None and not sys.stderr.isatty():
            config["enable_progress_bar"] = False
        return super().instantiate_trainer(**kwargs)

    def before_serve(self) -> None:
        """Tell the service how its learner is started."""
        self.trainer.words = self.words

    def after_fit(self) -> None:
        """Say what was learnt, and where it is."""
        rounds = dict(self.model.named_buffers()).get("rounds")
        learnt = "" if rounds is None else f"learnt {int(rounds)} rounds; "
        saved = getattr(self.trainer.checkpoint_callback, "best_model_path", "")
        print(f"{learnt}checkpoint: {saved or 'none'}")


def _last_checkpoint(folder: str) -> ModelCheckpoint:
    return ModelCheckpoint(dirpath=folder, filename="last", enable_version_counter=False, save_on_train_epoch_end=True)


def _checkpoint(given: str | None, folder: str) -> str | None:
    """Return the checkpoint to begin with; None for the state that a configuration makes."""
    if given == "new":
        return None
    path = Path(folder) / "last.ckpt" if given is None else Path(given)
    if not path.is_file():
        raise ValueError(
            f"ckpt_path: expected a checkpoint, as fit writes, got none at {path}; --ckpt_path new takes the model as it is made"
        )
    return str(path)


def _forget_warnings() -> None:
    """Leave out warnings that are about others' code, or wrong for online learners."""
    for category in (DeprecationWarning, FutureWarning):
        warnings.filterwarnings("ignore", category=category)
    warnings.filterwarnings("ignore", "(?s).*JsonargparseDeprecationWarning|.*was deprecated in v4")
    for text in (
        ".*does not have many workers",
        ".*defined a `validation_step` but have no `val_dataloader`",
        ".*Checkpoint directory .* exists and is not empty",
        ".*`torch.jit",
        ".*TensorBoard",
        ".*`tensorboardX` has been removed",
    ):
        warnings.filterwarnings("ignore", f"(?s){text}")
