"""Commands of the command line, as methods of a trainer."""

import os
import warnings
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch

from torchonline.command_line.evaluation import Table, evaluate_head, evaluate_replay
from torchonline.command_line.service import make_settings, number_of_actions, read_secret, run_service
from torchonline.command_line.tables import share_columns
from torchonline.core.messages import counted
from torchonline.export import to_archive, to_onnx, to_program, to_torchscript
from torchonline.feedback import DecisionLog, FeedbackLog, SQLDecisionLog, load_snapshot
from torchonline.models.batches import inputs_of
from torchonline.models.checkpoints import data_only, read_checkpoint
from torchonline.models.encoding import input_type
from torchonline.models.file_data import FileDataModule
from torchonline.models.log_data import LogDataModule
from torchonline.off_policy import BanditLog, from_decisions
from torchonline.policies.policy import Policy
from torchonline.privacy import private_learners
from torchonline.reporting import report
from torchonline.serving import ServiceSettings

# First bytes of a DecisionLog's file.
SQLITE = b"SQLite format 3\0"


class OnlineTrainer(pl.Trainer):
    """Lightning's trainer with the commands of this library."""

    def fit(  # type: ignore[override]
        self,
        model: pl.LightningModule,
        datamodule: pl.LightningDataModule | None = None,
        ckpt_path: str | None = None,
    ) -> None:
        """Learn from a log or a table, and write a checkpoint.

        Args:
            model: the model.
            datamodule: the data.
            ckpt_path: file of the checkpoint to continue from; none starts from a new model. No code in it runs.
        """
        if ckpt_path is not None:
            read_checkpoint(ckpt_path)
            ckpt_path = str(Path(ckpt_path).absolute())  # Lightning takes a path that begins with http for a URL
        if not any(parameter.requires_grad for parameter in model.parameters()):
            torch.set_num_threads(1)  # small products of matrices take more time in several threads
        super().fit(model, datamodule=datamodule, ckpt_path=ckpt_path, **data_only(pl.Trainer.fit))

    def save_checkpoint(self, filepath: str | Path, *args: Any, **kwargs: Any) -> None:
        """Write a checkpoint.

        Only the owner can read the checkpoint of a private learner.
        """
        super().save_checkpoint(filepath, *args, **kwargs)
        if private_learners(self.lightning_module):
            os.chmod(filepath, 0o600)  # fsspec accepts neither a mode nor a later umask

    def test(  # type: ignore[override]
        self,
        model: pl.LightningModule,
        datamodule: pl.LightningDataModule | None = None,
        ckpt_path: str | None = None,
        verbose: bool = True,
    ) -> Any:
        """Play a table of all arms' rewards, or predict targets, without learning.

        Args:
            model: the model.
            datamodule: the data, for example a TableDataModule.
            ckpt_path: checkpoint to start from (default: last.ckpt in the trainer's default_root_dir, where fit writes it); "new"
                uses the untrained model of the configuration.
            verbose: whether to print the results.
        """
        if isinstance(datamodule, LogDataModule):
            raise ValueError(
                "data: expected the rewards of all arms, from a TableDataModule, got a log; use evaluate for logs"
            )
        print(f"state: {ckpt_path or 'new'}")
        load_checkpoint(model, ckpt_path, datamodule)
        return super().test(model, datamodule=datamodule, verbose=verbose)

    def evaluate(
        self,
        model: pl.LightningModule,
        datamodule: pl.LightningDataModule | None = None,
        ckpt_path: str | None = None,
        decisions: str | None = None,
        delta: float = 0.05,
        reward_range: tuple[float, float] | None = None,
    ) -> None:
        """Estimate what a policy would have earned on another policy's log.

        The table also has the difference from what the other policy has earned.

        Args:
            model: the model, whose head is evaluated in its present state.
            datamodule: the log, with probabilities: a part that the model has not learnt.
            ckpt_path: checkpoint to start from (default: last.ckpt in the trainer's default_root_dir, where fit writes it); "new"
                uses the untrained model of the configuration.
            decisions: a service's log to evaluate on instead of data: its file, or the URL of its database.
            delta: probability that an interval misses, for example 0.05 for 95 % intervals.
            reward_range: smallest and largest possible reward. With it, the table also has an anytime-valid interval, which holds
                for finite logs, and intervals are finite where the tail is heavy.
        """
        head = get_head(load_checkpoint(model, ckpt_path, None if decisions else datamodule))
        print(f"state: {ckpt_path or 'new'}")
        print_table(evaluate_head(head, read_log(head, datamodule, decisions), delta, reward_range))

    def replay(
        self,
        model: pl.LightningModule,
        datamodule: pl.LightningDataModule | None = None,
        ckpt_path: str | None = None,
        decisions: str | None = None,
        delta: float = 0.05,
        reward_range: tuple[float, float] | None = None,
    ) -> None:
        """Let a new policy learn from a log as if it had made the decisions.

        In each round the policy chooses, and learns the reward if its choice is the logged action. The mean reward of these
        rounds, weighted by the logged probabilities, estimates what the policy would have earned while it learnt this way.

        Args:
            model: the model, whose head chooses and learns.
            datamodule: the log, with probabilities.
            ckpt_path: checkpoint to start from; none starts from a new model.
            decisions: a service's log to replay instead of data: its file, or the URL of its database.
            delta: probability that an interval misses, for example 0.05 for 95 % intervals. The intervals of IPS and SNIPS are
                heuristic, because the policy learns from the rounds.
            reward_range: smallest and largest possible reward. With it, the table also has an anytime-valid interval, which holds
                for finite logs and for a policy that learns.
        """
        head = get_head(load_checkpoint(model, ckpt_path, None if decisions else datamodule))
        print_table(evaluate_replay(head, read_log(head, datamodule, decisions), delta, reward_range))

    def export(
        self,
        model: pl.LightningModule,
        datamodule: pl.LightningDataModule | None = None,
        path: str = "head.pt",
        ckpt_path: str | None = None,
        snapshot: str | None = None,
    ) -> None:
        """Write the learnt policy as a file that runs without torchonline.

        Args:
            model: the model, whose head is written. For an OnlinePredictor, its learner is written: predict() returns the
                weights, and the file has no encoder, scaler or loss.
            datamodule: data, whose first inputs are the example for the file.
            path: file to write. The suffix determines the format: .pt for TorchScript; .pt2 for an archive of programs, or the
                program of a learner; .onnx for a folder of ONNX graphs.
            ckpt_path: checkpoint to start from (default: last.ckpt in the trainer's default_root_dir, where fit writes it); "new"
                uses the untrained model of the configuration.
            snapshot: a service's snapshot, such as outputs/serving/policy-v1.pt, which takes precedence over ckpt_path.
        """
        load_checkpoint(model, ckpt_path)
        state = load_learnt(get_head(model), snapshot) if snapshot else ckpt_path or "new"
        subject: Any = getattr(model, "head", getattr(model, "learner", None))
        if subject is None:
            raise ValueError(f"model: expected a model with a head or a learner, got {type(model).__name__}")
        file = Path(path)
        if file.suffix not in (".pt", ".pt2", ".onnx"):
            raise ValueError(f"path: expected a file that ends in .pt, .pt2 or .onnx, got {str(file)!r}")
        example = None
        if hasattr(model, "head") and datamodule is not None:
            datamodule.setup("fit")
            inputs = inputs_of(next(iter(datamodule.train_dataloader())))
            example = inputs[0].to(input_type(subject).dtype) if inputs.is_floating_point() else inputs[0]
        file.parent.mkdir(parents=True, exist_ok=True)
        if file.suffix == ".pt":
            to_torchscript(subject, file, example=example)
        elif file.suffix == ".onnx":
            to_onnx(subject, file, example=example)
        elif isinstance(subject, Policy):
            to_archive(subject, file, example=example)
        else:
            to_program(subject, file)
        whole = "" if hasattr(model, "head") else ", the learner's weights, without encoder, scaler and loss"
        print(f"state: {state}; wrote {file}{whole}")

    def serve(
        self,
        model: pl.LightningModule,
        datamodule: pl.LightningDataModule | None = None,
        ckpt_path: str | None = None,
        folder: str = "outputs/serving",
        host: str = "127.0.0.1",
        port: int = 8000,
        role: str = "all",
        reward_range: tuple[float, float] = (0.0, 1.0),
        window: float | None = None,
        default_reward: float | None = None,
        database: str = "",
        version: str = "v1",
        every: float = 0.5,
        skip_damaged: bool = False,
        hosts: list[str] | None = None,
        secret_file: str = "",
        undecided: int = 10_000,
        export: bool = False,
        largest: float | None = None,
        personalizer: bool = False,
        ignored: list[str] | None = None,
    ) -> None:
        """Answer requests for decisions over HTTP, and learn from their rewards.

        Args:
            model: the model, whose head decides and learns. Its encoder is not trained here.
            datamodule: not used.
            ckpt_path: checkpoint with the state before the first snapshot in folder (default: last.ckpt in the trainer's
                default_root_dir, where fit writes it); "new" uses the untrained model of the configuration.
            folder: folder of the log, decisions.db, and of the snapshots. An existing snapshot takes precedence over ckpt_path.
            host: address to listen at; 0.0.0.0 for other machines, too.
            port: port to listen at.
            role: all answers requests and starts a learner; replica only answers, as a second process on another port;
                learner only learns.
            reward_range: smallest and largest accepted reward.
            window: seconds after which a decision without a reward gets default_reward; none waits without limit.
            default_reward: reward of a decision whose window is over.
            database: URL of a PostgreSQL database for the log, instead of a file in folder.
            version: name of the encoder, which is stored in the log. Change it with the encoder: each version has a snapshot.
            every: seconds between two snapshots.
            skip_damaged: whether learning skips a damaged row of the log, which is never learnt. If false, it ends with an error
                that names the position.
            hosts: further names of the service that clients may send in the header Host, besides localhost and host; "*" for all.
            secret_file: file with a secret that clients must send as Authorization, Bearer SECRET; none disables the check.
            undecided: number of rewards of unknown ids that are kept until their decision is logged; 0 refuses them.
            export: whether GET /export returns the policy as a file.
            largest: largest accepted magnitude of a feature.
            personalizer: whether the service also answers requests of Azure Personalizer, below /personalizer.
            ignored: names of Personalizer's features that are not columns of the model and are left out.
        """
        head = get_head(load_checkpoint(model, ckpt_path))
        lowest, highest = reward_range
        settings = make_settings(
            head,
            folder,
            database=database,
            window=window,
            default_reward=default_reward,
            every=every,
            encoder=version,
            largest=largest,
            lowest=lowest,
            highest=highest,
            skip_damaged=skip_damaged,
            hosts=(*ServiceSettings.hosts, host, *(hosts or ())),
            secret=read_secret(secret_file),
            undecided=undecided,
            export=export,
            personalizer=personalizer,
            ignored=tuple(ignored or ()),
        )
        run_service(settings, role, host, port, ckpt_path or "new")

    def report(
        self,
        log: str,
        model: pl.LightningModule | None = None,
        datamodule: pl.LightningDataModule | None = None,
        path: str = "report.html",
        ckpt_path: str | None = None,
        snapshot: str | None = None,
        version: str | None = None,
        window: int = 500,
        alpha: float = 0.01,
        title: str = "Decision log",
    ) -> None:
        """Write an HTML page about a log of decisions.

        Args:
            log: a service's log: its file, decisions.db, or the URL of its database, not a CSV or Parquet file.
            model: the model, whose head's predictions and widths are also shown; none without --config.
            datamodule: not used.
            path: page to write.
            ckpt_path: checkpoint of the model (default: last.ckpt in the trainer's default_root_dir).
            snapshot: a service's snapshot, such as outputs/serving/policy-v1.pt, which takes precedence over ckpt_path.
            version: name of the encoder whose decisions the head's pictures cover; none for all.
            window: number of rewards in a window of the drift alarm.
            alpha: probability of a false drift alarm.
            title: title of the page.
        """
        head = None if model is None else get_head(load_checkpoint(model, None if snapshot else ckpt_path))
        load_learnt(head, snapshot)
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        with open_log(log) as decisions:
            options: Any = {"window": window, "alpha": alpha, "title": title}
            print(f"wrote {report(decisions, path, policy=head, encoder=version, **options)}")


def load_checkpoint(model: pl.LightningModule, path: str | None, data: Any = None) -> pl.LightningModule:
    """Load a checkpoint, if given, into a model, and return the model.

    Args:
        model: the model.
        path: the checkpoint, or None.
        data: rounds that the model should not have learnt. A warning tells if the checkpoint's fits used some of them.
    """
    if path is not None:
        found = read_checkpoint(path)
        try:
            model.on_load_checkpoint(found)
            model.load_state_dict(found["state_dict"])
        except (KeyError, RuntimeError, TypeError) as error:
            reason = " ".join(str(error).split())
            raise ValueError(
                f"ckpt_path: expected a checkpoint of the model of this configuration, got {path}: {reason[:200]}"
            ) from error
        share_columns(model, data)
        if isinstance(data, FileDataModule):
            data.load_state_dict(found.get(type(data).__qualname__, {}))
            parts = ", ".join(f"[{first:g},{last:g}]" for first, last in data.learnt_parts())
            if parts:
                warnings.warn(
                    f"data: expected rounds that the model has not learnt, got some that it has, part {parts} of the files: the "
                    "results are too good; learn one --data.part and evaluate on another",
                    stacklevel=1,
                )
            if data.may_be_learnt():
                warnings.warn(
                    "data: expected the same files and time as in the checkpoint's fits, got some of the files in another order: "
                    "some of these rounds may have been learnt, and the results may be too good",
                    stacklevel=1,
                )
    return model.eval()


def load_learnt(head: Any, snapshot: str | None) -> str | None:
    """Load a service's snapshot, if given, into a head, and return the snapshot."""
    if snapshot is not None:
        if head is None or not Path(snapshot).is_file():
            raise ValueError(f"snapshot: expected a file, and --config for its policy, got {snapshot!r}")
        load_snapshot(snapshot, head)
    return snapshot


def print_table(table: Table) -> None:
    """Print a table. Raise if an estimator has failed."""
    print(table)
    if table.failed:
        raise ValueError(
            f"estimators: expected a value from each, got none from {', '.join(table.failed)}; the table has the reasons"
        )


def get_head(model: Any) -> Any:
    """Return the head of a model, or raise a ValueError if it has none."""
    head = getattr(model, "head", None)
    if head is None:
        raise ValueError(f"model: expected a model with a head, such as NeuralLinearBandit, got {type(model).__name__}")
    return head


def open_log(log: str) -> FeedbackLog:
    """Open the log of a service.

    Args:
        log: an existing file, or the URL of a database.
    """
    if "://" in log:
        return SQLDecisionLog(log)
    if not Path(log).is_file():
        raise ValueError(f"log: expected a log of decisions, got none at {log}")
    with open(log, "rb") as file:
        if file.read(len(SQLITE)) != SQLITE:
            raise ValueError(
                f"log: expected a service's log, such as decisions.db, or the URL of its database, got {log}, which is neither; "
                "for logs in CSV and Parquet files, use evaluate or replay with --data"
            )
    return DecisionLog(log)


def read_log(head: Any, data: Any, decisions: str | None) -> BanditLog:
    """Read a log for off-policy evaluation of a head.

    Args:
        head: the head, which knows the number of actions.
        data: a LogDataModule, which is read unless ``decisions`` is given.
        decisions: a service's log, see :func:`open_log`, or None.
    """
    arms = number_of_actions(head)
    if decisions is not None:
        with open_log(decisions) as log:
            found, counts = from_decisions(log, arms=arms), log.counts()
        if left := counts["decisions"] - len(found):
            print(
                f"left out: {left} of {counted(counts['decisions'], 'decision')}, from the first one without a reward; "
                f"rewards missing: {counts['open']}"
            )
        return found
    if not isinstance(data, LogDataModule):
        raise ValueError(f"data: expected a log, from a LogDataModule, got {type(data).__name__}")
    data.setup()
    return data.bandit_log(arms=arms)
