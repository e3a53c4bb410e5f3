"""The data module of logs: files, their order, and a fit that is resumed in the middle of an epoch."""

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch

from torchonline import UCB, DisjointArms, RidgeRegression
from torchonline.models import BanditHead, LogDataModule, LoggedRounds, NeuralLinearBandit
from torchonline.off_policy import ips

COLUMNS: dict[str, Any] = {"context": ["a", "b"], "action": "arm", "reward": "paid", "probability": "p"}
QUIET: dict[str, Any] = {
    "accelerator": "cpu",
    "logger": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
    "enable_checkpointing": False,
}


def write(folder: Path, rounds: int = 60) -> Any:
    """Write a log into two CSV files and one Parquet file; return its frame."""
    pandas = importlib.import_module("pandas")
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(rounds, 6, generator=generator, dtype=torch.float64)
    arm = torch.arange(rounds) % 3
    frame = pandas.DataFrame({name: x[:, k].numpy() for k, name in enumerate("abcdef")})
    frame = frame.assign(
        arm=arm.numpy(), paid=(x[:, 0] * (arm - 1)).numpy(), p=1.0 / 3.0, at=torch.arange(rounds).numpy() // 2
    )
    frame[:20].to_csv(folder / "1.csv", index=False)
    frame[20:].to_csv(folder / "2.csv", index=False)
    frame.to_parquet(folder / "all.parquet")
    return frame


def rows_of(data: LogDataModule) -> LoggedRounds:
    batches = list(data.train_dataloader())
    return LoggedRounds(*(torch.cat(parts) for parts in zip(*batches, strict=True)))


@pytest.mark.fast
def test_files_are_read_in_order(tmp_path: Path) -> None:
    frame = write(tmp_path)
    files = [tmp_path / "1.csv", tmp_path / "2.csv"]
    data = LogDataModule(files, batch_size=7, dtype=torch.float64, **COLUMNS)
    rows = rows_of(data)
    assert len(data.train_dataloader()) == 9
    assert isinstance(next(iter(data.train_dataloader())), LoggedRounds)
    assert torch.equal(rows.inputs, torch.tensor(frame[["a", "b"]].to_numpy()))
    assert torch.equal(rows.action, torch.tensor(frame["arm"].to_numpy()))
    assert torch.equal(rows.reward, torch.tensor(frame["paid"].to_numpy()))
    assert torch.equal(rows.probability, torch.tensor(frame["p"].to_numpy()))
    same = rows_of(LogDataModule(str(tmp_path / "all.parquet"), dtype=torch.float64, **COLUMNS))
    assert all(torch.equal(one, other) for one, other in zip(same, rows, strict=True))
    whole = LogDataModule(tmp_path, **COLUMNS)
    assert [path.name for path in whole.files] == ["1.csv", "2.csv", "all.parquet"]
    assert {part.dtype for part in rows_of(whole)} == {torch.float64, torch.int64}
    assert len(rows_of(whole).action) == 120
    # The latest file first, put in order by the times; ties keep the order of the files.
    turned = LogDataModule(files[::-1], time="at", dtype=torch.float64, **COLUMNS)
    assert torch.equal(rows_of(turned).inputs, rows.inputs)
    without = LogDataModule(files, **(COLUMNS | {"probability": None}))
    assert next(iter(without.train_dataloader())).probability is None


def test_arms_with_features_of_their_own(tmp_path: Path) -> None:
    frame = write(tmp_path)
    columns = COLUMNS | {"context": [["a", "b"], ["c", "d"], ["e", "f"]]}
    data = LogDataModule(tmp_path / "all.parquet", dtype=torch.float64, **columns)
    inputs = torch.tensor(frame[list("abcdef")].to_numpy()).reshape(60, 3, 2)
    assert torch.equal(rows_of(data).inputs, inputs)
    log = data.bandit_log()
    assert (log.arms, log.context.shape) == (3, (60, 3, 2))
    assert torch.equal(log.context, inputs)
    assert ips(log, torch.full((60, 3), 1.0 / 3.0)).value == pytest.approx(float(frame["paid"].mean()), rel=1e-6)
    bandit = NeuralLinearBandit(
        BanditHead(torch.nn.Identity(), UCB(RidgeRegression(2, validate=False))), feedback="batch"
    )
    pl.Trainer(max_epochs=1, **QUIET).fit(
        bandit, datamodule=LogDataModule(tmp_path / "all.parquet", batch_size=20, **columns)
    )
    assert int(bandit.rounds) == 60


def bandit_of() -> NeuralLinearBandit:
    torch.manual_seed(0)
    encoder = torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.Tanh())
    arms = DisjointArms(RidgeRegression(4), actions=3)
    return NeuralLinearBandit(BanditHead(encoder, arms), train_encoder_every=20, replay_size=40, encoder_steps=3)


def test_a_fit_is_resumed_in_the_middle_of_an_epoch(tmp_path: Path) -> None:
    write(tmp_path)

    def data() -> LogDataModule:
        return LogDataModule(tmp_path / "all.parquet", batch_size=5, time="at", **COLUMNS)

    whole = bandit_of()
    pl.Trainer(max_epochs=1, **QUIET).fit(whole, datamodule=data())
    assert int(whole.rounds) == 60

    class Interrupted(Exception):
        pass

    class Stop(pl.Callback):
        def on_train_batch_end(
            self, trainer: pl.Trainer, module: Any, outputs: Any, batch: Any, batch_idx: int
        ) -> None:
            if batch_idx == 4:
                trainer.save_checkpoint(tmp_path / "middle.ckpt")
                raise Interrupted

    with pytest.raises(Interrupted):
        pl.Trainer(max_epochs=1, callbacks=[Stop()], **QUIET).fit(bandit_of(), datamodule=data())
    again = bandit_of()
    pl.Trainer(max_epochs=1, **QUIET).fit(again, datamodule=data(), ckpt_path=tmp_path / "middle.ckpt")
    for name, value in whole.state_dict().items():
        assert torch.equal(value, again.state_dict()[name]), name


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"files": []}, TypeError, "files: expected a path or a list of paths"),
        (
            {"files": "log.json"},
            ValueError,
            "files: expected files that end in .csv, .csv.gz, .tsv, .tsv.gz, .parquet, got",
        ),
        ({"files": "missing.csv"}, ValueError, "files: expected files that exist, got 'missing.csv'"),
        ({"context": "a"}, TypeError, "context: expected a list of columns, got str"),
        ({"context": []}, ValueError, "context: expected columns"),
        ({"context": [["a"], ["b", "c"]]}, ValueError, "context: expected columns, or lists of as many columns"),
        ({"context": ["a", ["b"]]}, ValueError, "context: expected columns, or lists of as many columns"),
        ({"context": [1, 2]}, TypeError, "context: expected names of columns"),
        ({"context": ["a", "paid"]}, ValueError, r"context: expected no column of the reward, .* got \['paid'\]"),
        ({"context": ["a", "arm"]}, ValueError, r"context: expected no column of the action, .* got \['arm'\]"),
        (
            {"context": [["p"], ["a"], ["b"]]},
            ValueError,
            r"context: expected no column of the probability, .* got \['p'\]",
        ),
        ({"context": ["b", "a", "b"]}, ValueError, r"context: expected each column once, got \['b'\] more than once"),
        ({"time": "name"}, ValueError, "time: expected a column of numbers or ISO dates, got 'name'"),
        ({"time": "gap"}, ValueError, "time: expected a column without gaps, got 'gap' with 20"),
        ({"context": ["a", "z"]}, ValueError, "files: expected the columns"),
        (
            {"context": ["name"]},
            TypeError,
            r"context: expected a column of finite numbers, got 'name' with text \('x'\)",
        ),
        ({"action": 0}, TypeError, "action: expected the name of a column, got int"),
        ({"action": "c"}, TypeError, "action: expected a column of integers, got 'c'"),
        (
            {"action": "name"},
            TypeError,
            r"action: expected integers from 0, got text in 'name'; .*pandas.factorize\(frame\['name'\]",
        ),
        (
            {"action": "from 1", "context": [["a"], ["b"], ["c"]]},
            ValueError,
            "action: expected integers from 0 to 2, got 1 to 3 in 'from 1', and no 0; actions count from 0",
        ),
        (
            {"reward": "gap"},
            ValueError,
            "reward: expected a column of finite numbers, got 'gap' with 20 gaps; fill gaps, or drop",
        ),
        ({"batch_size": 0}, ValueError, "batch_size: expected an integer above 0"),
        ({"dtype": torch.float16}, ValueError, "dtype: expected"),
    ],
)
def test_what_is_no_log(tmp_path: Path, changes: dict[str, Any], error: type[Exception], message: str) -> None:
    frame = write(tmp_path)
    frame["name"], frame["gap"], frame["from 1"] = "x", frame["paid"].where(frame["arm"] > 0), frame["arm"] + 1
    frame.to_parquet(tmp_path / "all.parquet")
    arguments = {"files": tmp_path / "all.parquet"} | COLUMNS | changes
    with pytest.raises(error, match=f"^{message}"):
        LogDataModule(**arguments).train_dataloader()
    with pytest.raises(ValueError, match=r"^probability: expected the name of a column"):
        LogDataModule(tmp_path / "all.parquet", **(COLUMNS | {"probability": None})).bandit_log()


def test_actions_that_may_count_from_1_are_warned_of(tmp_path: Path) -> None:
    frame = write(tmp_path)
    frame.assign(arm=frame["arm"] + 1).to_csv(tmp_path / "log.csv", index=False)
    data = LogDataModule(tmp_path / "log.csv", **COLUMNS)
    for read in (data.train_dataloader, data.bandit_log):
        with pytest.warns(UserWarning, match=r"^action: expected integers from 0, got 1 to 3 in 'arm', and no 0"):
            read()
    with pytest.raises(ValueError, match=r"^action: expected integers from 0 to 2, got 1 to 3 .* subtract 1"):
        data.bandit_log(arms=3)
    assert data.bandit_log(arms=4).arms == 4


def test_a_day_without_rounds_is_no_matter(tmp_path: Path) -> None:
    frame = write(tmp_path)
    frame[:0].to_csv(tmp_path / "0.csv", index=False)
    files = [tmp_path / name for name in ("0.csv", "1.csv", "2.csv")]
    rows, expected = (rows_of(LogDataModule(some, **COLUMNS)) for some in (files, files[1:]))
    assert all(torch.equal(one, other) for one, other in zip(rows, expected, strict=True))


def test_dates_in_csv_files_sort_as_dates(tmp_path: Path) -> None:
    dates = ["2024-01-02 10:00:00", "2024-01-02 09:00:00.5", "2024-01-02T09:00:00+02:00"]
    text = "\n".join(["a,arm,paid,p,at", *(f"{i + 1},0,1,0.5,{date}" for i, date in enumerate(dates))])
    (tmp_path / "log.csv").write_text(text)
    data = LogDataModule(tmp_path / "log.csv", **(COLUMNS | {"context": ["a"], "time": "at"}))
    assert rows_of(data).inputs.squeeze(1).tolist() == [3.0, 2.0, 1.0]
    assert data.bandit_log().time.diff().tolist() == [7200.5, 3599.5]


@pytest.mark.parametrize("name", ["0.csv", "0.parquet"])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("")
    with pytest.raises(ValueError, match=rf"^files: expected files that pandas can read, got '.*{name}'"):
        LogDataModule(tmp_path / name, **COLUMNS).setup()


def test_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="pip install pandas pyarrow"):
        LogDataModule(tmp_path / "1.csv", **COLUMNS).setup()
