"""Hostile values in requests with values by name: each is refused where it is named, and alone."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pydantic")
pytest.importorskip("jsonargparse")
from pydantic import ValidationError

from torchonline.command_line.service import make_settings
from torchonline.models import table_head
from torchonline.serving.bodies import LONGEST_TEXT, decide_body
from torchonline.serving.replica import Replica

COLUMNS = {"age": "number", "born": "date", "zip": "category"}


@pytest.fixture
def replica(tmp_path: Path) -> Any:
    settings = make_settings(table_head(COLUMNS, "binary", ["home", "sale"]), str(tmp_path))
    log = settings.open_log()
    yield Replica(settings, log)
    log.close()


@pytest.mark.parametrize("born", [1e300, -1e18, 1.7e12, float("inf")])
def test_a_date_out_of_range_is_refused_before_it_meets_other_requests(replica: Replica, born: float) -> None:
    # In the policy, one such value would be an error for all requests of a batch, or a scale for all later rounds.
    with pytest.raises(ValueError, match=r"context: expected dates in 'born', got .* seconds since 1970"):
        replica.checked(None, {"born": born}, None)


@pytest.mark.parametrize("value", [[1], {"a": 1}, "8" * (LONGEST_TEXT + 1), "\ud800"])
def test_a_value_of_another_type_is_one_error(replica: Replica, value: Any) -> None:
    with pytest.raises(ValidationError) as error:
        decide_body(replica.settings).model_validate({"context": {"zip": value}})
    (one,) = error.value.errors()
    assert one["loc"] == ("context", "zip")
    assert "expected a number, a text of up to 4096 characters, a boolean or null" in one["msg"]


def test_values_of_all_types_are_taken_as_they_are(replica: Replica) -> None:
    given = {"age": 1, "born": None, "zip": True}
    body = decide_body(replica.settings).model_validate({"context": given})
    assert body.context == given
    assert [type(value) for value in body.context.values()] == [int, type(None), bool]
