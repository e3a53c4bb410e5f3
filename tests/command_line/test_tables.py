"""The command line on a messy table: proposals, the saved configuration, files, settings of a service, and errors."""

import logging
import os
import random
import re
import shlex
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from tests.features.texts import bits
from torchonline.command_line import main
from torchonline.command_line.tables import with_head, with_saved
from torchonline.export import Runner
from torchonline.features import ColumnEncoder, reader
from torchonline.feedback import follow

# Lightning calls jsonargparse in ways that the latest one warns of.
pytestmark = pytest.mark.filterwarnings("ignore")
ROLES = "--data.action offer --data.reward bought --data.probability p"
FIT = f"fit --data.files log.csv {ROLES} --data.part [0,0.5]"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a log, in which commands run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(logging, "shutdown", lambda handlers=(): None)
    (tmp_path / "log.csv").write_text(messy())
    return tmp_path


def messy(rounds: int = 200) -> str:
    """Return a log whose rewards depend on the offer and the country."""
    dice = random.Random(0)
    lines = ["id,age,country,income,since,member,note,zip,offer,bought,p"]
    for i in range(rounds):
        country = dice.choice(["CH", "DE", "Z\u00fcrich", "", "NA"])
        offer = dice.choice(["mug", "book", "none"])
        bought = "yes" if dice.random() < (0.9 if (country == "CH") == (offer == "mug") else 0.2) else "no"
        income = dice.choice([f'"${dice.uniform(1e3, 9e4):,.2f}"', "", "n/a"])
        since = f"{dice.randint(1, 28)}.{dice.randint(1, 12)}.{dice.randint(2000, 2023)}"
        note = '"said ""no"", twice"' if i % 7 == 0 else dice.choice(["", "a b", "c"])
        age, member = dice.choice([dice.randint(18, 80), ""]), dice.choice(["T", "F"])
        lines.append(
            f"u{i},{age},{country},{income},{since},{member},{note},0{dice.randint(8000, 8009)},{offer},{bought},0.333"
        )
    return "\n".join(lines) + "\n"


def run(words: str) -> int:
    return main(shlex.split(words))


def configuration(path: str = "outputs/config.yaml") -> Any:
    return yaml.safe_load(Path(path).read_text())


def settings(words: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the settings with which a service would run."""
    found: list[Any] = []
    monkeypatch.setattr(
        "torchonline.command_line.commands.run_service", lambda settings, *rest: found.append((settings, rest))
    )
    assert run(words) == 0
    return found[0]


def test_fit_evaluate_export_and_serve(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only the first command names the columns. The others begin with the saved configuration."""
    assert run(FIT) == 0, capsys.readouterr().err
    out = capsys.readouterr().out
    for line in (
        r"columns: ColumnEncoder\(",
        r"^ *age +number .*edges.*gaps",
        r"^ *country +category +4 values",
        r"^ *income +number .*unit='\$'.*gaps",
        r"^ *since +date +dmy",
        r"^ *member +boolean",
        r"^ *zip +category",
        r"^ *id +dropped: nearly each row has a text of its own",
        r"actions: book, mug, none; rewards: binary",
        r"learnt 100 rounds; checkpoint: .*last\.ckpt",
    ):
        assert re.search(line, out, re.MULTILINE), (line, out)
    head = configuration()["model"]["init_args"]["head"]["init_args"]
    assert (head["actions"], head["rewards"]) == (["book", "mug", "none"], "binary")
    assert head["columns"]["income"]["unit"] == "$"
    assert list(head["columns"]) == ["age", "country", "income", "since", "member", "note", "zip"]

    assert run("evaluate --data.part [0.5,1]") == 0, capsys.readouterr().err
    captured = capsys.readouterr()
    assert "log: 100 rounds, 3 actions" in captured.out
    assert "doubly robust" in captured.out
    assert "failed" not in captured.out
    assert "got some that it has" not in captured.err
    rows = {line[:18].strip(): float(line[18:].split()[0]) for line in captured.out.splitlines() if " to " in line}
    assert rows["doubly robust"] > rows["as logged"]
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        assert run("evaluate") == 0
    assert "part [0,0.5] of the files: the results are too good" in capsys.readouterr().err

    assert run("export --path head.pt") == 0, capsys.readouterr().err
    file = torch.jit.load(folder / "head.pt")
    encoder = ColumnEncoder(head["columns"], missing=head["missing"])
    numbers, texts = {"age": 30.0}, {"country": "CH", "income": "$1,234.50", "zip": "08001"}
    codes = file.encoder.lookup_row(numbers, texts)
    assert bits(codes) == bits(encoder.lookup({**numbers, **texts}))
    assert reader.read_schema(file.encoder.schema) == encoder.reader.schema
    assert run("export --path head.pt2") == 0, capsys.readouterr().err
    program = Runner.load(folder / "head.pt2")
    assert program.about["schema"] == encoder.reader.schema
    assert program.select(reader.codes_of({**numbers, **texts}, program.about["schema"])) == file.select(codes)

    made, (role, *_) = settings("serve --role replica", monkeypatch)
    assert (made.names, made.actions, role) == (("book", "mug", "none"), 3, "replica")
    assert made.columns.reader.schema == encoder.reader.schema
    assert file.select(codes) == made.head.select({**numbers, **texts})
    assert made.largest == max(1e6, 1e3 * max(head["columns"]["income"]["edges"]))
    assert int(made.head.policy.rounds if hasattr(made.head.policy, "rounds") else made.head.rounds) == 100


def test_the_log_of_a_service_is_evaluated_and_its_snapshot_exported(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Decisions that are left out are counted, and a snapshot goes before the checkpoint."""
    assert run(FIT) == 0, capsys.readouterr().err
    made, _ = settings("serve --role replica", monkeypatch)
    policy = made.make_policy()
    codes = made.columns.lookup({"age": 30.0, "country": "CH"})
    with made.open_log() as log:
        for i in range(20):
            log.decide(f"visit {i}", codes, i % 3, 1.0 / 3.0, encoder=made.encoder)
            if i not in (15, 18):
                log.reward(f"visit {i}", float(i % 2))
        assert follow(policy, log, made.snapshot, encoder=made.encoder).learnt == 18
    capsys.readouterr()
    assert run(f"evaluate --decisions {made.folder / 'decisions.db'}") == 0, capsys.readouterr().err
    out = capsys.readouterr().out
    assert "left out: 5 of 20 decisions, from the first one without a reward; rewards missing: 2\n" in out
    assert "log: 15 rounds, 3 actions" in out
    assert run(f"export --path learnt.pt --snapshot {made.snapshot}") == 0, capsys.readouterr().err
    assert f"state: {made.snapshot}; wrote learnt.pt" in capsys.readouterr().out
    state, learnt = torch.jit.load(folder / "learnt.pt").state_dict(), policy.state_dict()
    shared = state.keys() & learnt.keys()
    assert shared
    assert all(torch.equal(state[name], learnt[name]) for name in shared)
    fitted = made.make_policy().state_dict()
    assert any(not torch.equal(state[name], fitted[name]) for name in shared)
    assert run("export --path learnt.pt --snapshot none.pt") == 2
    assert "snapshot: expected a file, and --config for its policy, got 'none.pt'" in capsys.readouterr().err


def test_a_second_fit_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(f"{FIT} --trainer.default_root_dir here") == 0, capsys.readouterr().err
    words = "--config here/config.yaml --ckpt_path here/last.ckpt --data.part [0.5,1] --trainer.max_epochs 2"
    assert run(f"fit {words}") == 0, capsys.readouterr().err
    assert "learnt 100 new rounds, 200 in all" in capsys.readouterr().out
    assert run("evaluate --trainer.default_root_dir=here --data.part [0.9,1]") == 0
    assert "log: 20 rounds, 3 actions" in capsys.readouterr().out


def test_kinds_and_words_for_gaps_on_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    kinds = '{"zip": null, "age": {"kind": "number", "fill": 50}, "note": "text", "member": "category"}'
    assert run(f"{FIT} --data.kinds '{kinds}' --data.missing [n/a]") == 0, capsys.readouterr().err
    columns = configuration()["model"]["init_args"]["head"]["init_args"]["columns"]
    assert {"zip", "id"}.isdisjoint(columns)
    assert (columns["age"]["fill"], columns["note"]["kind"], columns["member"]["kind"]) == (50.0, "text", "category")
    assert configuration()["model"]["init_args"]["head"]["init_args"]["missing"] == ["n/a"]
    assert run("evaluate --data.part [0.5,1]") == 0, capsys.readouterr().err


def test_columns_and_actions_by_hand(capsys: pytest.CaptureFixture[str]) -> None:
    """What is given is not proposed, and actions keep their order."""
    own = '--model.head.columns \'{"age": "number", "country": "category"}\' --model.head.actions \'[none, mug, book, pen]\''
    assert run(f"{FIT} {own}") == 0, capsys.readouterr().err
    head = configuration()["model"]["init_args"]["head"]["init_args"]
    assert head["actions"] == ["none", "mug", "book", "pen"]
    assert head["rewards"] == "binary"
    assert run(f"{FIT} --model.head.actions '[none, mug]'") == 2
    assert re.search(r"action: expected .*'book'", capsys.readouterr().err)


def test_integers_and_real_rewards(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = "".join(f"{i % 9},{i % 3},{(i % 5) - 1.5},0.33\n" for i in range(60))
    (folder / "log.csv").write_text("age,offer,bought,p\n" + lines)
    assert run(FIT) == 0, capsys.readouterr().err
    head = configuration()["model"]["init_args"]["head"]["init_args"]
    assert (head["actions"], head["rewards"]) == (3, "real")
    (folder / "log.csv").write_text(
        "age,offer,bought,p\n" + lines.replace("-1.5", "0.25").replace(".5", ".05").replace("2.05", "1")
    )
    assert run(FIT) == 0, capsys.readouterr().err


BAD = """\
age,member,offer,bought,p
1,yes,a,1,0.5
old,no,b,0,0.5
3,perhaps,,1,0.5
4,no,a,lots,0.5
5,no,b,0,
"""


@pytest.mark.parametrize("command", ["fit", "evaluate --ckpt_path new", "replay", "export --ckpt_path new"])
def test_one_line_names_all_bad_columns(command: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "log.csv").write_text(BAD)
    columns = '--model.head.columns \'{"age": "number", "member": "boolean"}\''
    head = f"{columns} --model.head.actions '[a, b]' --model.head.rewards binary"
    assert run(f"{command} --data.files log.csv {ROLES} {head}") == 2
    err = capsys.readouterr().err
    assert len(err.strip().splitlines()) == 1
    for part in (
        "'age', got 'old' in row 2",
        "'member', got 'perhaps' in row 3",
        "in 'offer', got nan in row 3",
        "in 'bought', got",
        "in 'p', got nan in row 5",
        "mend the values",
    ):
        assert part in err
    assert not list(folder.rglob("*.ckpt"))
    assert not list(folder.rglob("*.pt"))


def test_a_proposal_that_fails_names_all_bad_columns(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [f"{i},{'yes' if i % 2 else 'no'},a,1,0.5" for i in range(40)]
    rows[3], rows[5] = "x,no,a,1,0.5", "5,perhaps,b,0,0.5"
    (folder / "log.csv").write_text("\n".join(["age,member,offer,bought,p", *rows]))
    assert run(FIT) == 2
    err = capsys.readouterr().err
    assert "expected numbers in 'age', got 'x' in row " in err
    assert "booleans in 'member', got 'perhaps' in row " in err
    assert not list(folder.rglob("*.ckpt"))


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (FIT.replace("log.csv", "no.csv"), "files: expected files that exist, got 'no.csv'"),
        (FIT.replace("offer", "ofer"), "files: expected the columns .*, got none of 'ofer' in log.csv"),
        (f'{FIT} --data.kinds \'{{"agee": "number"}}\'', "columns: expected columns of the table, .*, got 'agee'"),
        (f'{FIT} --data.kinds \'{{"age": "nubmer"}}\'', "one of .* as the kind of 'age', got 'nubmer'"),
        (f"{FIT} --data.context [age,nope]", "files: expected the columns .*'nope'"),
        (FIT.replace("--data.probability p", ""), r"context: expected '\*' to match only inputs, got 'p'"),
        (f"{FIT} --model.head.rewards many", "model.head.rewards: Expected a typing.Literal"),
        (
            f'{FIT} --model.head.products \'{{"a": ["age"], "b": ["nope"]}}\'',
            "columns: expected some of .*, got 'nope'",
        ),
        ("evaluate", "Key 'data.(files|action|reward)' is required|arguments are required|expected"),
        ("serve --ckpt_path new", "model.head: expected a head, or the log of a LogDataModule"),
    ],
)
def test_errors_in_one_line(words: str, error: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(words) == 2
    err = capsys.readouterr().err
    assert re.search(error, err), err
    assert len(err.strip().splitlines()) == 1
    assert not os.path.exists("outputs/last.ckpt")


def test_words_of_a_command(folder: Path) -> None:
    head = "--model.head=torchonline.models.builders.table_head"
    assert with_head(["fit"]) == ["fit", head]
    assert with_head(["fit", "--model.head.actions", "3"]) == ["fit", head, "--model.head.actions", "3"]
    for chosen in (["--model", "X"], ["--model.head", "X"], ["--model.head.policy", "X"], ["--print_config"], ["-h"]):
        assert with_head(["fit", *chosen]) == ["fit", *chosen]
    (folder / "own.yaml").write_text("model: {head: X}")
    (folder / "data.yaml").write_text("data: {files: x}")
    assert with_head(["fit", "--config", "own.yaml"]) == ["fit", "--config", "own.yaml"]
    assert with_head(["fit", "-c=data.yaml"]) == ["fit", "-c=data.yaml", head]
    assert with_head(["report", "--log", "x"]) == ["report", "--log", "x"]
    assert with_saved(["serve", "--port", "1"], "out") == ["serve", "--port", "1"]
    (folder / "out").mkdir()
    (folder / "out" / "config.yaml").write_text("model: {}")
    assert with_saved(["serve", "--port", "1"], "out") == ["serve", "--config=out/config.yaml", "--port", "1"]
    for given in (["-c", "x"], ["--config=x"], ["--model.head", "x"], ["-h"]):
        assert with_saved(["serve", *given], "out") == ["serve", *given]


ODD = [
    "08000",
    "7",
    "1e3",
    "12e03",
    "yes",
    "null",
    "12:30",
    "0x1f",
    "[1]",
    "~",
    "a: b",
    "#",
    "NaN",
    "1_000",
    "",
    "Z\u00fcrich",
    "- x",
]


def test_texts_like_numbers_stay_texts(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Values, names of columns and names of actions are the same after the configuration is saved and read."""
    lines = ['"2020","a.b","1e5",yes,"a b",offer,bought,p']
    for i in range(120):
        one = ODD[i % len(ODD)]
        lines.append(f'"{one}","{one}","{one}","{one}",{i % 7},{["1e3", "08000", "no"][i % 3]},{i % 2},0.3')
    (folder / "log.csv").write_text("\n".join(lines))
    kinds = '{"2020": "category", "a.b": "category", "1e5": {"kind": "category", "values": ["08000", "1e3"]}, "yes": "category"}'
    assert run(f"{FIT} --data.kinds '{kinds}' --data.missing '[\"1e9\", \"no\"]'") == 0, capsys.readouterr().err
    head = configuration()["model"]["init_args"]["head"]["init_args"]
    assert list(head["columns"]) == ["2020", "a.b", "1e5", "yes", "a b"]
    for name in ("2020", "a.b", "yes"):
        assert sorted(head["columns"][name]["values"]) == sorted(one for one in ODD if one)
    assert head["columns"]["1e5"]["values"] == ["08000", "1e3"]
    assert head["actions"] == ["08000", "1e3", "no"]
    assert run("evaluate --data.part [0.5,1]") == 0, capsys.readouterr().err
    assert run("export --path head.pt") == 0, capsys.readouterr().err
    schema = reader.read_schema(torch.jit.load(folder / "head.pt").encoder.schema)
    assert [column["name"] for column in schema["columns"]] == list(head["columns"])
    assert [column.get("values") for column in schema["columns"]] == [
        one.get("values") for one in head["columns"].values()
    ]
    assert run("fit --config outputs/config.yaml") == 0, capsys.readouterr().err
    assert configuration()["model"]["init_args"]["head"]["init_args"] == head
