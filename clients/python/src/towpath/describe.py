"""Jobs and events by the names of the SQL functions `towpath.enqueue` and `towpath.emit`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .arguments import to_payload
from .options import EmitOptions, EnqueueOptions, checked

if TYPE_CHECKING:
    from .job import Job


def job(definition: Job[Any, Any] | str, args: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """A job of a definition, whose defaults apply, or of a kind."""
    kind = definition if isinstance(definition, str) else definition.kind
    defaults = EnqueueOptions() if isinstance(definition, str) else definition.defaults
    return {"kind": kind, "payload": to_payload(args), **checked({**defaults, **options}, EnqueueOptions)}


def jobs(definition: Job[Any, Any] | str, entries: Sequence[Any]) -> list[dict[str, Any]]:
    """Many of them; each entry is the arguments, or a tuple of the arguments and the options."""
    pairs: list[Any] = [entry if isinstance(entry, tuple) else (entry, {}) for entry in entries]
    return [job(definition, args, options) for args, options in pairs]


def event(domain: str, type: str, payload: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """An event."""
    return {"domain": domain, "type": type, "payload": to_payload(payload), **checked(options, EmitOptions)}
