"""Fitted transformers of scikit-learn as encoders."""

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import polars
import pytest
import torch
from sklearn.compose import ColumnTransformer, make_column_transformer
from sklearn.datasets import load_wine
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler
from torch import nn

from torchonline import bandit
from torchonline.export import to_program, to_torchscript
from torchonline.models import BanditHead, FittedTransformer, NeuralLinearBandit
from torchonline.models.checkpoints import packed

pytestmark = pytest.mark.fast

FRAME = pandas.DataFrame({"age": [20.0, 40.0, None, 30.0], "country": ["CH", "DE", "CH", "AT"], "id": [1, 2, 3, 4]})


def fitted(fill: bool = True, frame: Any = FRAME) -> ColumnTransformer:
    """A transformer of a number and a category."""
    numbers = make_pipeline(SimpleImputer(), StandardScaler()) if fill else StandardScaler()
    transformer = make_column_transformer((numbers, ["age"]), (OneHotEncoder(handle_unknown="ignore"), ["country"]))
    return transformer.fit(frame[["age", "country"]])


def head_on(encoder: nn.Module, dim: int = 4) -> BanditHead:
    """A head with three actions."""
    return BanditHead(encoder, bandit(dim, "binary", actions=3))


def test_features_are_those_of_the_transformer() -> None:
    """Of tables, dicts and lists of them; from sparse and dense outputs."""
    transformer = fitted()
    expected = torch.from_numpy(np.asarray(transformer.transform(FRAME[["age", "country"]])))
    encoder = FittedTransformer(transformer)
    assert (encoder.dim, encoder.columns) == (4, ["age", "country"])
    assert encoder.names[1:] == [f"onehotencoder__country_{name}" for name in ("AT", "CH", "DE")]
    rows = FRAME[["age", "country"]].to_dict("records")
    for inputs in (
        FRAME,
        rows,
        [{"country": "CH"} if row["country"] == "CH" and np.isnan(row["age"]) else row for row in rows],
    ):
        torch.testing.assert_close(encoder.lookup(inputs), expected)
    torch.testing.assert_close(encoder([rows[:2], rows[2:]]), expected.view(2, 2, 4))
    torch.testing.assert_close(encoder(rows[1]), expected[1])
    torch.testing.assert_close(encoder(FRAME.iloc[1]), expected[1])
    torch.testing.assert_close(encoder(expected), expected)
    transformer.sparse_threshold = 1.0
    sparse = FittedTransformer(transformer.fit(FRAME[["age", "country"]]))
    assert hasattr(transformer.transform(FRAME), "toarray")
    torch.testing.assert_close(sparse.lookup(FRAME), expected)
    frame = polars.from_pandas(FRAME)
    torch.testing.assert_close(encoder.lookup(frame), expected)


def test_a_gap_of_one_row_is_that_of_many() -> None:
    rows = [{"age": 20.0}, {"country": "CH"}, {"age": None, "country": None}, {"age": 40.0, "country": "DE"}]
    encoder = FittedTransformer(fitted())
    expected = encoder.lookup(rows)
    assert expected[0, 1:].tolist() == [0.0, 0.0, 0.0]
    for row, features in zip(rows, expected, strict=True):
        torch.testing.assert_close(encoder.lookup(row), features)


def test_a_head_learns_wine_from_rows() -> None:
    frame, labels = load_wine(return_X_y=True, as_frame=True)
    frame["strong"] = np.where(frame["alcohol"] > 13.0, "yes", "no")
    numbers = [name for name in frame if name != "strong"]
    transformer = make_column_transformer((StandardScaler(), numbers), (OneHotEncoder(), ["strong"])).fit(frame)
    encoder = FittedTransformer(transformer)
    head = head_on(encoder, encoder.dim)
    order = np.random.default_rng(0).permutation(len(frame))
    for row in order[:100]:
        inputs = frame.iloc[row].to_dict()
        k = head.select(inputs)
        head.step(inputs, k, float(k == labels[row]))
    test = order[100:]
    assert float((head.select(frame.iloc[test]).numpy() == labels.iloc[test]).mean()) > 0.8


def test_it_is_first_in_a_sequence() -> None:
    encoder = nn.Sequential(FittedTransformer(fitted(), dtype=torch.float32), nn.Linear(4, 2))
    head = head_on(encoder, 2)
    head.learn(FRAME, [0, 1, 2, 0], [1.0, 0.0, 0.0, 1.0])
    assert int(head.rounds) == 4
    assert encoder[0](FRAME).dtype == torch.float32


@pytest.mark.parametrize(
    ("rows", "error"),
    [
        ({"age": 3.0, "land": "CH"}, "^rows: expected columns 'age', 'country', got 'land'"),
        (FRAME[["age"]], "^rows: expected columns 'country', got a table with 'age'"),
        ({"age": "x", "country": "CH"}, "^rows: expected what the ColumnTransformer takes, which raised ValueError"),
        ({"age": 10**400, "country": "CH"}, "^rows: expected what the ColumnTransformer takes, which raised Overflow"),
        ({"country": "CH"}, "^rows: expected finite features.*got NaN or infinity in 'standardscaler__age'"),
        ([1.0, 2.0], "^rows: expected a table, or dicts of values.*got float"),
        (np.ones((2, 4)), "^rows: expected a table, or dicts of values.*got float"),
        ([[{"age": 1.0}], [{"age": 1.0}, {"age": 2.0}]], "^rows: expected a table, or dicts of values.*got list"),
        (torch.ones(3), "^inputs: expected what the encoder takes.*features: expected 4 in the last dimension"),
    ],
)
def test_wrong_rows_are_refused_by_name(rows: Any, error: str) -> None:
    head = head_on(FittedTransformer(fitted(fill=False)))
    with pytest.raises((TypeError, ValueError), match=error):
        head.select(rows)


@pytest.mark.parametrize(
    ("transformer", "error"),
    [
        (StandardScaler, "^transformer: expected a fitted transformer, with a method transform, got type"),
        (None, "^transformer: expected a fitted transformer, with a method transform, got None"),
        (StandardScaler(), "^transformer: expected one fitted on a table.*got a StandardScaler that is not fitted"),
        (make_pipeline(StandardScaler()), "^transformer: .*got a Pipeline that is not fitted"),
        (StandardScaler().fit(np.ones((2, 2))), "^transformer: .*got a StandardScaler without column names"),
        (FunctionTransformer().fit(FRAME), "^transformer: expected one whose get_feature_names_out names all features"),
    ],
)
def test_what_is_no_fitted_transformer_is_refused_by_name(transformer: Any, error: str) -> None:
    with pytest.raises((TypeError, ValueError), match=error):
        FittedTransformer(transformer)


class Text(FunctionTransformer):
    """Returns text."""

    def get_feature_names_out(self, names: Any = None) -> Any:
        return ["country"]


def test_features_that_are_no_numbers_or_too_many_are_refused_by_name() -> None:
    encoder = FittedTransformer(Text().fit(FRAME[["country"]]))
    with pytest.raises(ValueError, match=r"^transformer: expected numbers as features"):
        encoder.lookup(FRAME)
    encoder = FittedTransformer(Text().fit(FRAME[["age", "id"]]))
    with pytest.raises(ValueError, match=r"^transformer: expected features of shape \(4, 1\), got \(4, 2\)"):
        encoder.lookup(FRAME.fillna(0.0))


def test_files_refuse_it_and_say_what_to_do() -> None:
    head = head_on(FittedTransformer(fitted()))
    wanted = "got FittedTransformer, which runs in Python only; torchonline.features.ColumnEncoder can be exported"
    with pytest.raises(ValueError, match=wanted):
        to_torchscript(head, example=torch.zeros(4, dtype=torch.float64))
    with pytest.raises(ValueError, match=wanted):
        to_program(head, example=torch.zeros(4, dtype=torch.float64))


def test_copies_and_pickles_hold_the_transformer_and_checkpoints_do_not(tmp_path: Path) -> None:
    head = head_on(FittedTransformer(fitted()))
    head.step({"age": 20.0, "country": "CH"}, 1, 1.0)
    for twin in (copy.deepcopy(head), pickle.loads(pickle.dumps(head))):
        torch.testing.assert_close(twin.predict(FRAME), head.predict(FRAME))
    assert isinstance(packed(head), str)
    with pytest.raises(
        TypeError, match=r"^head: expected a BanditHead, which the checkpoint could not hold.*pass head="
    ):
        NeuralLinearBandit(head=packed(head))  # type: ignore[arg-type]
    torch.save(head.state_dict(), tmp_path / "state.pt")
    state = torch.load(tmp_path / "state.pt", weights_only=True)
    twin = head_on(FittedTransformer(fitted()))
    twin.load_state_dict(state)
    torch.testing.assert_close(twin.predict(FRAME), head.predict(FRAME))
    other = head_on(FittedTransformer(fitted(frame=FRAME.replace("AT", "FR"))))
    with pytest.raises(ValueError, match=r"^state_dict: expected a state with the features.*country_FR.*with others"):
        other.load_state_dict(state)
    assert int(other.rounds) == 0
