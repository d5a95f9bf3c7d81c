"""Arguments of jobs: typed on both sides, JSON between them."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timezone
from decimal import Decimal
from enum import Enum
from typing import Any, Literal, TypedDict
from uuid import UUID

import pydantic
import pytest

import towpath as tp
from towpath import describe


class Size(Enum):
    SMALL = "small"


@dataclass
class Line:
    item: str
    price: Decimal


@dataclass
class Order:
    id: UUID
    at: datetime
    size: Size
    lines: list[Line]
    how: Literal["fast", "slow"] = "fast"
    notes: dict[str, int] = field(default_factory=dict)
    tags: frozenset[str] = frozenset()
    pair: tuple[int, str] | None = None
    weight: float = 1.0


class Model(pydantic.BaseModel):
    at: datetime
    count: int = 1


class Typed(TypedDict):
    file: str


@tp.job("order", key="k")
def order(args: Order, ctx: tp.Context) -> int: ...


@tp.job("model")
async def model(args: Model) -> None: ...


@tp.job("typed")
async def typed(args: Typed, ctx: tp.AsyncContext) -> None: ...


@tp.job("tick")
async def tick(ctx: tp.AsyncContext) -> None: ...


ORDER = Order(
    UUID(int=7),
    datetime(2027, 1, 1, tzinfo=timezone.utc),
    Size.SMALL,
    [Line("a", Decimal("1.10"))],
    "slow",
    {"n": 1},
    frozenset({"x"}),
    (1, "a"),
    2,
)


def there_and_back(job: tp.Job[Any, Any], args: Any) -> Any:
    return job.read_args(describe.job(job, args, {})["payload"])


def test_a_dataclass_comes_back_as_it_was() -> None:
    assert there_and_back(order, ORDER) == ORDER


def test_a_pydantic_model_comes_back_as_it_was() -> None:
    args = Model(at=datetime(2027, 1, 1, tzinfo=timezone.utc), count=3)
    assert there_and_back(model, args) == args


def test_a_dictionary_and_no_arguments() -> None:
    assert there_and_back(typed, {"file": "a"}) == {"file": "a"}
    assert describe.job(tick, None, {})["payload"] == {}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"id": 7}, "args.id: 7 is no UUID"),
        ({"at": "noon"}, "args.at: 'noon' is no datetime"),
        ({"size": "large"}, "args.size: 'large' is no Size"),
        ({"lines": [{"item": 1, "price": "1"}]}, r"args.lines\[0\].item: expected str, got int"),
        ({"lines": {}}, "args.lines: expected an array, got dict"),
        ({"how": "never"}, "args.how: expected one of"),
        ({"notes": {"n": True}}, "args.notes.n: expected int, got bool"),
        ({"pair": [1]}, "args.pair: expected 2 values, got 1"),
    ],
)
def test_what_does_not_fit_is_named(change: dict[str, Any], said: str) -> None:
    payload = describe.job(order, ORDER, {})["payload"]
    with pytest.raises(tp.Invalid, match=said):
        order.read_args({**payload, **change})


def test_a_missing_field_is_named_and_an_added_one_ignored() -> None:
    with pytest.raises(tp.Invalid, match="size"):
        order.read_args({"id": str(UUID(int=7)), "at": "2027-01-01T00:00:00Z", "lines": []})
    payload = describe.job(order, ORDER, {})["payload"]
    assert order.read_args({**payload, "added": 1}) == ORDER


def test_options_are_checked_and_defaults_apply() -> None:
    assert describe.job(order, ORDER, {})["key"] == "k"
    assert describe.job(order, ORDER, {"key": "other"})["key"] == "other"
    assert "key" not in describe.job(order, ORDER, {"key": None})
    with pytest.raises(tp.Invalid, match="priorty is not an option"):
        describe.job(order, ORDER, {"priorty": 1})
    with pytest.raises(tp.Invalid, match="no time zone"):
        describe.job(order, ORDER, {"run_at": datetime(2027, 1, 1)})


@pytest.mark.parametrize("args", [[1], "text", {"a": object()}, {"a": "\0"}])
def test_arguments_that_are_no_json_object_are_refused(args: Any) -> None:
    with pytest.raises(tp.Invalid):
        describe.job("any", args, {})
