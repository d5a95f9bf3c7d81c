"""Arguments of jobs: between a typed Python value and a JSON object.

Dataclasses, pydantic models, typed dictionaries and plain dictionaries. Pydantic is told by its methods, so it
is not imported.
"""

from __future__ import annotations

import dataclasses
import json
import types
from collections.abc import Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from typing import Any, Literal, Union, cast, get_args, get_origin, get_type_hints, is_typeddict
from uuid import UUID

from .errors import Invalid


def to_json(value: Any) -> Any:
    """A value as JSON knows it."""
    if isinstance(value, str) and "\0" in value:
        raise Invalid(
            "a text has a zero byte, which PostgreSQL cannot store", hint="Remove it, or encode the text."
        )
    if value is None or isinstance(value, (bool, int, float, str)):
        return value.value if isinstance(value, Enum) else value
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_json(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in cast("Mapping[Any, Any]", value).items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [to_json(item) for item in cast("Sequence[Any]", value)]
    if isinstance(value, Enum):
        return to_json(value.value)
    if isinstance(value, (datetime, date, time)):
        return value.isoformat()
    if isinstance(value, (UUID, Decimal)):
        return str(value)
    raise Invalid(
        f"a value of type {type(value).__name__} is no JSON",
        hint="Pass strings, numbers, lists, dictionaries or dataclasses.",
    )


def to_payload(args: Any) -> dict[str, Any]:
    """The arguments of a job as its payload; None is no arguments."""
    payload: Any = {} if args is None else to_json(args)
    if not isinstance(payload, dict):
        raise Invalid(
            f"arguments of type {type(args).__name__} are no JSON object",
            hint="Use a dataclass, a pydantic model or a dictionary.",
        )
    return cast("dict[str, Any]", payload)


def dumps(value: Any) -> str:
    """Compact JSON. NaN is refused: PostgreSQL cannot store it."""
    try:
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    except ValueError as error:
        raise Invalid(f"the value is no JSON: {error}") from error


def from_json(wanted: Any, value: Any, path: str = "args") -> Any:
    """A JSON value as `wanted`, an annotation. Raises Invalid with the path of what does not fit."""
    if wanted is Any or wanted is None or wanted is object:
        return value
    if hasattr(wanted, "model_validate"):
        try:
            return wanted.model_validate(value)
        except ValueError as error:
            raise Invalid(f"{path}: {error}") from error
    if dataclasses.is_dataclass(wanted) and isinstance(wanted, type):
        return _from_object(wanted, value, path)
    return _from_plain(wanted, value, path)


def _from_object(wanted: type[Any], value: Any, path: str) -> Any:
    """A dataclass. Keys without a field are left out, so that a newer producer may add one."""
    if not isinstance(value, dict):
        raise Invalid(f"{path}: expected an object, got {type(value).__name__}")
    items = cast("dict[str, Any]", value)
    hints = get_type_hints(wanted)
    given = {
        field.name: from_json(hints[field.name], items[field.name], f"{path}.{field.name}")
        for field in dataclasses.fields(wanted)
        if field.init and field.name in items
    }
    try:
        return wanted(**given)
    except TypeError as error:
        raise Invalid(f"{path}: {error}") from error


_PARSED: dict[Any, Any] = {
    datetime: datetime.fromisoformat,
    date: date.fromisoformat,
    time: time.fromisoformat,
    UUID: UUID,
    Decimal: Decimal,
}


def _from_plain(wanted: Any, value: Any, path: str) -> Any:
    origin = get_origin(wanted)
    if origin in (Union, types.UnionType):
        return _from_union(get_args(wanted), value, path)
    if origin is Literal:
        if value not in get_args(wanted):
            raise Invalid(f"{path}: expected one of {get_args(wanted)}, got {value!r}")
        return value
    if is_typeddict(wanted):
        wanted = dict
    if origin is not None:
        return _from_generic(origin, get_args(wanted), value, path)
    if wanted in _PARSED or isinstance(wanted, type) and issubclass(wanted, Enum):
        try:
            return _PARSED.get(wanted, wanted)(value.replace("Z", "+00:00") if wanted is datetime else value)
        except (ValueError, TypeError, AttributeError, ArithmeticError) as error:
            raise Invalid(f"{path}: {value!r} is no {wanted.__name__}") from error
    if wanted is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if (
        wanted in (int, float)
        and isinstance(value, bool)
        or isinstance(wanted, type)
        and not isinstance(value, wanted)
    ):
        raise Invalid(f"{path}: expected {wanted.__name__}, got {type(value).__name__}")
    return value


def _from_union(members: tuple[Any, ...], value: Any, path: str) -> Any:
    if value is None and type(None) in members:
        return None
    problem: Invalid | None = None
    for member in members:
        if member is type(None):
            continue
        try:
            return from_json(member, value, path)
        except Invalid as error:
            problem = error
    raise problem or Invalid(f"{path}: expected null")


def _from_generic(made_by: Any, members: tuple[Any, ...], value: Any, path: str) -> Any:
    """A list, set, tuple or mapping with known members."""
    if isinstance(made_by, type) and issubclass(made_by, Mapping):
        if not isinstance(value, dict):
            raise Invalid(f"{path}: expected an object, got {type(value).__name__}")
        items = cast("dict[str, Any]", value)
        return {key: from_json(members[-1], item, f"{path}.{key}") for key, item in items.items()}
    if not isinstance(value, list):
        raise Invalid(f"{path}: expected an array, got {type(value).__name__}")
    rows = cast("list[Any]", value)
    if made_by is tuple and Ellipsis not in members:
        if len(rows) != len(members):
            raise Invalid(f"{path}: expected {len(members)} values, got {len(rows)}")
        return tuple(
            from_json(member, row, f"{path}[{n}]") for n, (member, row) in enumerate(zip(members, rows))
        )
    made: Any = [from_json(members[0], row, f"{path}[{n}]") for n, row in enumerate(rows)]
    wanted: Any = made_by if made_by in (set, frozenset, tuple) else list
    return wanted(made)
