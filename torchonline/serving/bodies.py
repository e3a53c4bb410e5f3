"""Bodies of requests to decide and to reward."""

from typing import Annotated, Any

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StrictBool,
    StrictFloat,
    StrictInt,
    ValidationError,
    WrapValidator,
    create_model,
    model_validator,
)

from torchonline.feedback.records import LONGEST_ID
from torchonline.serving.settings import ServiceSettings

Name = Annotated[str, Field(min_length=1, max_length=LONGEST_ID)]
Number = StrictFloat | StrictInt
# Characters of a text among the values of a row.
LONGEST_TEXT = 4096


def explained(value: Any, check: Any) -> Any:
    """Check a value of a row, with one error instead of one for each type."""
    try:
        return check(value)
    except ValidationError:
        raise ValueError(f"expected a number, a text of up to {LONGEST_TEXT} characters, a boolean or null") from None


Text = Annotated[str, Field(max_length=LONGEST_TEXT)]
Value = Annotated[StrictBool | Number | Text | None, WrapValidator(explained)]


class Body(BaseModel):
    """Base class of requests. It refuses unknown names, such as a misspelt mask."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def has_few_names(cls, values: Any) -> Any:
        """Refuse too many names with one error instead of one for each."""
        if isinstance(values, dict) and len(values) > len(cls.model_fields):
            raise ValueError(f"expected the names {', '.join(cls.model_fields)}, got {len(values)} names")
        return values


def decide_body(settings: ServiceSettings) -> Any:
    """Return the model of a decision request, with lists of the right length.

    Without an id the service generates one. With an id, a repeated call gets the same answer.
    """
    dim, actions = settings.dim, settings.actions
    row: Any = Annotated[list[Number], Field(min_length=dim, max_length=dim, fail_fast=True)]
    if settings.columns is not None:
        count = len(settings.columns.column_names)
        row = Annotated[dict[str, Value], Field(max_length=count, fail_fast=True)]
    fewest = 0 if settings.has_arms else actions
    booleans = Annotated[list[StrictBool], Field(min_length=fewest, max_length=actions, fail_fast=True)]
    fields: Any = {"id": (Name | None, None), "context": (row, ...), "mask": (booleans | None, None)}
    if settings.has_arms:
        # With columns, the context has the values that all arms share.
        fields["context"] = (row | None, None)
        fields["actions"] = (Annotated[list[row], Field(min_length=1, max_length=actions, fail_fast=True)], ...)
    elif settings.names:
        names = Annotated[list[Name], Field(min_length=1, max_length=actions, fail_fast=True)]
        fields["actions"] = (names | None, None)
    return create_model("DecideBody", __base__=Body, **fields)


class RewardBody(Body):
    """Request with a reward for a decision."""

    id: Name
    value: Number
