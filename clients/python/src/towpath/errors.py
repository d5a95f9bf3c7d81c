"""Errors by their wire word, whether PostgreSQL or the HTTP API refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar


class TowpathError(Exception):
    """A call that Towpath refused or could not answer.

    `word` is the wire's name for the cause, `detail` says what happened, `hint` is the next step or None.
    """

    word: str = "internal"

    def __init__(self, detail: str, *, word: str | None = None, hint: str | None = None) -> None:
        super().__init__(f"{detail}\n{hint}" if hint else detail)
        self.word = word or type(self).word
        self.detail = detail
        self.hint = hint


class GateClosed(TowpathError):
    """An operator closed the gate that the call needs."""

    word = "gate_closed"


class Invalid(TowpathError):
    """An argument is missing, malformed or too large."""

    word = "invalid"


class NotAuthorised(TowpathError):
    """The token or the database login does not have this right."""

    word = "not_authorised"


class NotFound(TowpathError):
    """What the call names does not exist, or no longer exists."""

    word = "not_found"


class Conflict(TowpathError):
    """The state of what the call names does not allow it."""

    word = "conflict"


class LeaseLost(TowpathError):
    """Another worker holds the job now, or the job has ended: stop working on it."""

    word = "lease_lost"


class NoSubscription(TowpathError):
    """The executor has no enabled subscription."""

    word = "no_subscription"


class Paused(TowpathError):
    """The kind is paused."""

    word = "paused"


class Unavailable(TowpathError):
    """The server could not be reached or cannot answer now. Retry."""

    word = "unavailable"


class PermanentError(Exception):
    """Raised by a handler: retrying cannot help, so the job becomes a dead letter at once."""


class Snooze(Exception):
    """Raised by a handler: run again in `seconds`, without counting this attempt."""

    def __init__(self, seconds: float, note: str | None = None) -> None:
        super().__init__(f"snoozed for {seconds} seconds")
        self.seconds = seconds
        self.note = note


class RetryAfter(Exception):
    """Raised by a handler: the attempt failed; retry it in `seconds`."""

    def __init__(self, seconds: float, reason: str | None = None) -> None:
        super().__init__(reason or f"retry after {seconds} seconds")
        self.seconds = seconds


class _Words:
    """Which class a word of the wire or an SQLSTATE becomes."""

    words: ClassVar[dict[str, type[TowpathError]]] = {
        "gate_closed": GateClosed,
        "invalid": Invalid,
        "invalid_value": Invalid,
        "unknown_key": Invalid,
        "malformed": Invalid,
        "too_large": Invalid,
        "not_authorised": NotAuthorised,
        "unauthenticated": NotAuthorised,
        "not_found": NotFound,
        "conflict": Conflict,
        "lease_lost": LeaseLost,
        "no_subscription": NoSubscription,
        "paused": Paused,
        "busy": Unavailable,
        "too_slow": Unavailable,
        "unavailable": Unavailable,
        "internal": Unavailable,
    }
    sqlstates: ClassVar[dict[str, str]] = {
        "TP001": "gate_closed",
        "TP002": "invalid",
        "TP003": "invalid_value",
        "TP004": "unknown_key",
        "TP005": "not_authorised",
        "TP006": "not_found",
        "TP007": "conflict",
        "TP008": "lease_lost",
        "TP009": "no_subscription",
        "TP010": "paused",
    }


def from_word(word: str, detail: str, hint: str | None = None) -> TowpathError:
    """The error for a word of the wire."""
    return _Words.words.get(word, TowpathError)(detail, word=word, hint=hint)


def from_driver(error: BaseException) -> TowpathError | None:
    """The error that a database driver wraps, or None if Towpath did not raise it."""
    for cause in _causes(error):
        state: Any = getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None)
        word = _Words.sqlstates.get(state) if isinstance(state, str) else None
        if word is None:
            continue
        diag: Any = getattr(cause, "diag", None)
        if diag is not None:
            return from_word(word, str(diag.message_primary), diag.message_hint)
        message: Any = getattr(cause, "message", None)
        if message is not None:
            return from_word(word, str(message), getattr(cause, "hint", None))
    return None


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error and what it wraps: SQLAlchemy keeps the driver's error in `orig`, Django as the cause."""
    seen: list[BaseException] = []
    waiting: list[Any] = [error]
    while waiting:
        cause = waiting.pop(0)
        if isinstance(cause, BaseException) and cause not in seen:
            seen.append(cause)
            yield cause
            waiting += [getattr(cause, "orig", None), cause.__cause__]
