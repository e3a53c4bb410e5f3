"""Random calls: no state that a refusal has changed, and no error that is not the library's own."""

from tests import fuzz


def test_refusals_change_nothing_and_name_what_is_wrong() -> None:
    """The same as ``python -m tests.fuzz``, with few calls."""
    said: list[str] = []
    counts = fuzz.run(1000, seed=1000, say=said.append)
    assert said == []
    assert counts["answered"] > 300
    assert counts["refused"] > 200
