"""EnqueueOptions of enqueue and emit: their names, checked, and how SQL and HTTP spell them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, TypedDict
from uuid import UUID

from .errors import Invalid


class EnqueueOptions(TypedDict, total=False):
    """EnqueueOptions of enqueue, the parameters of the SQL function `towpath.enqueue`."""

    key: str | None
    run_at: datetime | None
    priority: int | None
    max_attempts: int | None
    executor: str | None
    domain: str | None
    source_ref: str | None
    target_ref: str | None
    payload_ref: str | None
    actor: str | None
    run_id: UUID | str | None


class EmitOptions(TypedDict, total=False):
    """EnqueueOptions of emit, the parameters of the SQL function `towpath.emit`."""

    stream: str | None
    subject_table: str | None
    subject_ref: str | None
    ordering_key: str | None
    actor: str | None
    event_id: UUID | str | None


# The SQL type of each parameter that is no text.
SQL_TYPES = {
    "payload": "jsonb",
    "run_at": "timestamptz",
    "priority": "integer",
    "max_attempts": "integer",
    "run_id": "uuid",
    "event_id": "uuid",
    "jobs": "jsonb",
    "events": "jsonb",
    "p_filter": "jsonb",
    "p_limit": "integer",
    "p_cursor": "uuid",
    "p_job_id": "uuid",
}

_HTTP_NAMES = {
    "kind": "job_kind",
    "payload": "payload_json",
    "key": "idempotency_key",
    "run_at": "scheduled_at",
    "domain": "event_domain",
}


def checked(options: Mapping[str, Any], known: type[Any]) -> dict[str, Any]:
    """The options that are set, as JSON values. An unknown name is a mistake."""
    names = known.__annotations__
    unknown = [name for name in options if name not in names]
    if unknown:
        raise Invalid(f"{unknown[0]} is not an option", hint=f"Use one of {', '.join(names)}.")
    return {name: _plain(name, value) for name, value in options.items() if value is not None}


def _plain(name: str, value: Any) -> Any:
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise Invalid(
                f"{name}: {value} has no time zone",
                hint="Use an aware time, as in datetime.now(timezone.utc).",
            )
        return value.isoformat()
    return str(value) if isinstance(value, UUID) else value


def http_job(job: Mapping[str, Any]) -> dict[str, Any]:
    """A job as the HTTP API spells it."""
    return {_HTTP_NAMES.get(name, name): value for name, value in without_actor(job).items()}


def without_actor(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """What goes over HTTP. There the actor is the holder of the token, and no other can be chosen."""
    if "actor" in row:
        raise Invalid(
            "actor: over HTTP it is the holder of the token", hint="Omit actor, or pass a database handle."
        )
    return row
