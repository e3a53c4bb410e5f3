"""Parser of commands and configurations, on LightningCLI and jsonargparse."""

import argparse
import contextlib
import logging
import os
import random
import sys
import textwrap
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
import yaml  # type: ignore[import-untyped]
from jsonargparse import set_dumper
from pytorch_lightning.callbacks import Checkpoint, ModelCheckpoint
from pytorch_lightning.cli import LightningArgumentParser, LightningCLI, SaveConfigCallback

from torchonline.callbacks import PrivacySpendLogger
from torchonline.command_line import COMMANDS
from torchonline.command_line.commands import OnlineTrainer, read_checkpoint
from torchonline.command_line.messages import one_line
from torchonline.command_line.tables import CONFIGURATION, goes_on, propose_head, share_columns, with_head, with_saved
from torchonline.core.messages import counted

# Short class names resolve to imported classes only.
from torchonline.models import LearnerStrategy, NeuralLinearBandit, OnlinePredictor, TableDataModule  # noqa: F401

DEFAULTS = {"model": "torchonline.models.NeuralLinearBandit", "data": "torchonline.models.LogDataModule"}
LOGGERS = ("pytorch_lightning", "lightning.pytorch", "lightning_fabric", "lightning.fabric")
# Folder of what a fit writes.
ROOT = "outputs"
# Commands that start from a checkpoint of fit.
FROM_CHECKPOINT = ("test", "evaluate", "export", "serve", "report")
# The rounds that the values printed at the end of a fit cover.
WINDOWS = {
    "regret": " (all rounds)",
    "regret_per_round": " (mean over the last batch)",
    "loss": " (mean over the last batch)",
    "mean_loss": " (mean over all rounds)",
}
# Arguments that SHARED_OPTIONS explains.
LISTED_BELOW = ("help", "config", "print_config", "seed_everything", "model", "data", "trainer")
SHARED_OPTIONS = [
    (
        "-c, --config FILE",
        "YAML file with model, data and trainer; several files are merged, and later options override them",
    ),
    ("--model.NAME VALUE", "option of the model: --model.head.policy.actions 3, or --model CLASS for another class"),
    ("--data.NAME VALUE", "option of the data: --data.files my.csv, --data.part [0,0.5], or --data CLASS"),
    ("--trainer.default_root_dir FOLDER", "folder of last.ckpt, logs and the saved configuration (default: outputs)"),
    (
        "--trainer.NAME VALUE",
        "option of Lightning's Trainer: max_epochs (default: 1), callbacks, logger, accelerator, ...",
    ),
    ("--model.help CLASS", "options of a model, such as NeuralLinearBandit (the default) or OnlinePredictor"),
    ("--data.help CLASS", "options of data: LogDataModule (the default) reads logs, TableDataModule tables"),
    ("--trainer.callbacks.help CLASS", "options of a callback, such as RegretLogger"),
    ("--seed_everything N", "seed of random draws (default: 0)"),
    ("--print_config", "print the whole configuration, with all options, and exit"),
]
# Help texts that replace Lightning's, which do not apply.
OWN_HELP = {
    (
        "fit",
        "ckpt_path",
    ): "checkpoint to continue from, such as outputs/last.ckpt, with a max_epochs that includes its epochs; "
    "none starts from a new model"
}
FOOTER = """\
The page "The command line" of the documentation has examples.
TORCHONLINE_TRACEBACK=1 in the environment shows the traceback of an error."""


class Dumper(yaml.SafeDumper):
    """Writer of YAML that quotes texts which begin like a number.

    jsonargparse's loader takes "1e5" and "08001" for numbers, which YAML's own writer leaves bare.
    """

    def represent_str(self, data: str) -> Any:
        """Return the node of a text."""
        style = "'" if data.startswith(tuple("+-.0123456789")) else None
        return self.represent_scalar("tag:yaml.org,2002:str", data, style)


Dumper.add_representer(str, Dumper.represent_str)
set_dumper("yaml", lambda data: yaml.dump(data, Dumper=Dumper, allow_unicode=True, sort_keys=False))


class Parser(LightningArgumentParser):
    """Parser that prints an error in one line."""

    def error(self, message: str, ex: Exception | None = None) -> Any:
        if not self.exit_on_error:  # a parser of one class; its caller adds the path of keys
            return super().error(message, ex)
        print(f"torchonline: error: {one_line(message)}", file=sys.stderr)
        self.exit(2)

    def format_help(self, *formatter: Any) -> str:
        """Return the most important options. The full list fills pages."""
        command = self.prog.rpartition(" ")[2]
        if command not in COMMANDS:
            return super().format_help(*formatter)
        own = [action for action in self._actions if "." not in action.dest and action.dest not in LISTED_BELOW]
        rows = [(f"--{one.dest} {one.dest.upper()}", OWN_HELP.get((command, one.dest), _help_text(one))) for one in own]
        text = [self.usage or "", "", self.description or "", ""]
        for option, explained in [*rows, *(row for row in SHARED_OPTIONS if _applies_to(row, command))]:
            text += textwrap.wrap(explained, 118, initial_indent=f"  {option:<34} ", subsequent_indent=" " * 37)
        return "\n".join([f"usage: {text[0]}", *text[1:], "", FOOTER, ""])


def _help_text(action: argparse.Action) -> str:
    default = "" if action.default is None else f" (default: {action.default})"
    return f"{' '.join((action.help or '').split()).rstrip('.')}{default}"


def _applies_to(row: tuple[str, str], command: str) -> bool:
    """Return whether a row of SHARED_OPTIONS applies to a command."""
    return not (row[0].startswith("--data") and command in ("serve", "report")) and (
        command == "fit" or row[0] not in ("--trainer.NAME VALUE", "--trainer.callbacks.help CLASS")
    )


def run_command(words: Sequence[str]) -> None:
    """Run a command, and restore the process's settings."""
    with _restore_process():
        for name in LOGGERS:
            logging.getLogger(name).setLevel(logging.WARNING)
        choose_warnings()
        Tool(words)


@contextlib.contextmanager
def _restore_process() -> Iterator[None]:
    """Restore log levels, threads, random state and Lightning's seed on exit."""
    levels = {name: logging.getLogger(name).level for name in LOGGERS}
    threads, interval = torch.get_num_threads(), sys.getswitchinterval()
    numbers = random.getstate(), np.random.get_state(), torch.get_rng_state()
    variables = {name: os.environ.get(name) for name in ("PL_GLOBAL_SEED", "PL_SEED_WORKERS")}
    try:
        yield
    finally:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)
        torch.set_num_threads(threads)
        sys.setswitchinterval(interval)
        random.setstate(numbers[0])
        np.random.set_state(numbers[1])
        torch.set_rng_state(numbers[2])
        for name, value in variables.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


class Tool(LightningCLI):
    """LightningCLI with this library's commands and defaults.

    One configuration file has ``model``, ``data`` and ``trainer``, and serves all commands. Constructing an instance runs the
    command.

    Args:
        words: words of the command line, without the program's name.
    """

    def __init__(self, words: Sequence[str]) -> None:
        self.command = words[0]
        # A report shows the policy's pictures if a configuration is given.
        self.has_model = self.command != "report" or any(
            word.startswith(("-c", "--config", "--model")) for word in words
        )
        begins = self.command in (*FROM_CHECKPOINT, "replay") or (self.command == "fit" and goes_on(words))
        if begins and self.has_model:
            words = with_saved(words, ROOT)
        words = with_head(words)
        super().__init__(
            pl.LightningModule,
            pl.LightningDataModule,
            subclass_mode_model=True,
            subclass_mode_data=True,
            trainer_class=OnlineTrainer,
            trainer_defaults={
                "max_epochs": 1,
                "default_root_dir": ROOT,
                "log_every_n_steps": 1,
                "enable_model_summary": False,
            },
            seed_everything_default=0,
            save_config_callback=SavedConfiguration,
            save_config_kwargs={"overwrite": True, "save_to_log_dir": False},
            parser_class=Parser,
            parser_kwargs={
                "prog": "torchonline",
                self.command: {
                    "prog": f"torchonline {self.command}",
                    "usage": f"python -m torchonline {self.command} [--config FILE] [options]",
                    "description": COMMANDS[self.command][0].upper() + COMMANDS[self.command][1:] + ".",
                },
            },
            auto_configure_optimizers=False,
            load_from_checkpoint_support=False,
            args=words,
        )

    def subcommands(self) -> dict[str, set[str]]:  # type: ignore[override]
        """Return the called command only, because building a parser for each takes time."""
        skipped = {"model", "datamodule", "dataloaders", "train_dataloaders", "val_dataloaders", "weights_only"}
        return {self.command: skipped}

    def add_core_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Add model, data and trainer, with default classes."""
        self._add(parser, "model", pl.LightningModule, self.has_model)
        if self.command in ("serve", "report"):
            parser.add_argument(
                "--data", type=dict | None, help="not used; accepted so that all commands share one file"
            )
        else:
            self._add(parser, "data", pl.LightningDataModule, True)
        parser.add_lightning_class_args(self.trainer_class, "trainer")
        parser.set_defaults({f"trainer.{name}": value for name, value in self.trainer_defaults.items()})

    def _add(self, parser: LightningArgumentParser, key: str, base: Any, is_needed: bool) -> None:
        """Add a class and its arguments, with a default class."""
        parser.add_lightning_class_args(base, key, subclass_mode=True, required=is_needed)
        if is_needed:
            parser.set_defaults({key: {"class_path": DEFAULTS[key]}})

    def parse_arguments(self, parser: LightningArgumentParser, args: Any) -> None:
        self.config = parser.parse_args(args)

    def instantiate_classes(self) -> None:
        """Build model, data and trainer. Data that the head was proposed from is kept."""
        super().instantiate_classes()
        self.datamodule = self.read or self.datamodule
        share_columns(self.model, self.datamodule)

    def _parse_ckpt_path(self) -> None:
        """Do nothing: the configuration builds the model; a checkpoint has its state."""

    def before_instantiate_classes(self) -> None:
        """Set the checkpoint that a command starts from."""
        config = self.config[self.subcommand]
        # Data that has been read for the proposal of a head.
        self.read = propose_head(config)
        continues = self.subcommand in ("fit", "replay") and config["ckpt_path"]
        begins = self.subcommand in FROM_CHECKPOINT and self.has_model and not config.get("snapshot")
        if continues or begins:
            config["ckpt_path"] = _find_checkpoint(config["ckpt_path"], config["trainer"]["default_root_dir"])
        if continues and config["ckpt_path"]:
            read_checkpoint(config["ckpt_path"])

    def instantiate_trainer(self, **kwargs: Any) -> pl.Trainer:
        """Build the trainer. A fit ends with the checkpoint ``last.ckpt``."""
        config = self._get(self.config_init, "trainer")
        callbacks = config["callbacks"] or []
        callbacks = list(callbacks) if isinstance(callbacks, (list, tuple)) else [callbacks]
        if self.subcommand != "fit":
            self.save_config_callback = None
            config["logger"] = config["logger"] or False
        if (
            self.subcommand == "fit"
            and config["enable_checkpointing"] is not False
            and not any(isinstance(one, Checkpoint) for one in callbacks)
        ):
            callbacks.append(_last_checkpoint(config["default_root_dir"]))
        self.counter = RoundCounter()
        config["callbacks"] = [*callbacks, self.counter]
        if config["enable_progress_bar"] is None and not sys.stderr.isatty():
            config["enable_progress_bar"] = False
        return super().instantiate_trainer(**kwargs)

    def after_fit(self) -> None:
        """Print the logged values, a budget that ended the fit, rounds and checkpoint."""
        trainer: Any = self.trainer
        for name, value in trainer.progress_bar_metrics.items():
            print(f"{name}: {value:.4g}{WINDOWS.get(name, '')}")
        budgets = [one for one in trainer.callbacks if isinstance(one, PrivacySpendLogger) and one.has_stopped]
        progress = trainer.fit_loop.epoch_loop.batch_progress
        if budgets and not progress.is_last_batch:
            taken, all_batches = progress.current.completed, trainer.num_training_batches
            print(
                f"the privacy budget, stop_at {budgets[0].stop_at:g}, ended the fit after {taken} of "
                f"{counted(all_batches, 'batch')}: one "
                "more might exceed it"
            )
        saved = getattr(trainer.checkpoint_callback, "best_model_path", "")
        print(f"{self._learnt_rounds()}checkpoint: {saved or 'none'}")

    def _learnt_rounds(self) -> str:
        """Return the number of learnt rounds as text, if counted. Warn if it is 0."""
        before, rounds = self.counter.rounds, rounds_of(self.model)
        if before is None or rounds is None:
            return ""
        if rounds == before:
            warnings.warn(
                f"fit: expected new rounds, got none: {before} were learnt before. A checkpoint counts its epochs; "
                f"--trainer.max_epochs {self.trainer.current_epoch + 1} makes one more",
                stacklevel=1,
            )
        if before == 0:
            return f"learnt {counted(rounds, 'round')}; "
        return f"learnt {counted(rounds - before, 'new round')}, {rounds} in all; "


class SavedConfiguration(SaveConfigCallback):
    """Callback that saves the configuration of a fit where its checkpoint is.

    It does so when the checkpoint is written, so that a fit that fails changes neither.
    """

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Do nothing: nothing has been learnt yet."""

    def on_save_checkpoint(self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: Any) -> None:
        self.on_train_end(trainer, pl_module)

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if trainer.is_global_zero:
            self.save_config(trainer, pl_module, "fit")

    def save_config(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        folder = Path(trainer.default_root_dir)
        folder.mkdir(parents=True, exist_ok=True)
        text = self.parser.dump(self.config, skip_unset=False)
        (folder / CONFIGURATION).write_text(text, encoding="utf-8")


class RoundCounter(pl.Callback):
    """Callback at the start of a fit, after the checkpoint is loaded.

    It stores the model's number of rounds, and lets the log be read by the names in the checkpoint.
    """

    rounds: int | None = None

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.rounds = rounds_of(pl_module)
        share_columns(pl_module, getattr(trainer, "datamodule", None))


def rounds_of(model: pl.LightningModule) -> int | None:
    """Return a model's number of learnt rounds, or None if it does not count them."""
    rounds = dict(model.named_buffers()).get("rounds")
    return None if rounds is None else int(rounds)


def _last_checkpoint(folder: str) -> ModelCheckpoint:
    return ModelCheckpoint(dirpath=folder, filename="last", enable_version_counter=False, save_on_train_epoch_end=True)


def _find_checkpoint(given: str | None, folder: str) -> str | None:
    """Return the checkpoint to start from, or None for a new state."""
    if given == "new":
        return None
    path = Path(folder) / "last.ckpt" if given is None else Path(given)
    if given is not None and "://" in given:
        read_checkpoint(given)  # refuses it
    if not path.is_file():
        raise ValueError(
            f"ckpt_path: expected a checkpoint, as fit writes, got none at {path}; --ckpt_path new uses the untrained model"
        )
    return str(path)


def choose_warnings() -> None:
    """Show deprecations, except those that Lightning or torch cause.

    Hide also Lightning's hints that do not apply to online learners.
    """
    # Do not filter by our modules: a deprecated option of a configuration warns in the module that builds the object.
    warnings.filterwarnings("default", category=DeprecationWarning)
    for category in (DeprecationWarning, FutureWarning):
        for module in ("pytorch_lightning", "lightning", "lightning_fabric", "torch", "torchmetrics"):
            warnings.filterwarnings("ignore", category=category, module=rf"{module}(\.|$)")
    for text in (
        ".*does not have many workers",
        ".*defined a `validation_step` but have no `val_dataloader`",
        ".*Checkpoint directory .* exists and is not empty",
        ".*`torch.jit",
        ".*TensorBoard",
        ".*`tensorboardX` has been removed",
    ):
        warnings.filterwarnings("ignore", f"(?s){text}")
