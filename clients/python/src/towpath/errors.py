"""Errors by their wire word, whether PostgreSQL or the HTTP API refused."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any


class TowpathError(Exception):
    """A call that Towpath refused or could not answer.

    `word` is the code of the error, `detail` the cause, for people, and `hint` the next step or None.
    """

    word: str = "internal"

    def __init_subclass__(cls) -> None:
        # GateClosed is gate_closed.
        cls.word = re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()

    def __init__(self, detail: str, *, word: str | None = None, hint: str | None = None) -> None:
        super().__init__(f"{detail}\n{hint}" if hint else detail)
        self.word = word or type(self).word
        self.detail = detail
        self.hint = hint


class GateClosed(TowpathError):
    """An operator closed the gate that the call needs."""


class Invalid(TowpathError):
    """An argument is missing, malformed or too large."""


class NotAuthorised(TowpathError):
    """The token or the database login does not have this right."""


class NotFound(TowpathError):
    """What the call names does not exist, or no longer exists."""


class Conflict(TowpathError):
    """The state of what the call names does not allow it."""


class LeaseLost(TowpathError):
    """Another worker holds the job now, or the job has ended: stop working on it."""


class NoSubscription(TowpathError):
    """The executor has no enabled subscription."""


class Paused(TowpathError):
    """The kind is paused."""


class Unavailable(TowpathError):
    """The server could not be reached or cannot answer now. Retry."""


# The class of a word that is not its own name.
_OTHER_WORDS: dict[type[TowpathError], tuple[str, ...]] = {
    Invalid: ("invalid_value", "unknown_key", "malformed", "too_large"),
    NotAuthorised: ("unauthenticated",),
    Unavailable: ("busy", "too_slow", "internal"),
}
WORDS: dict[str, type[TowpathError]] = {
    word: kind
    for kind in TowpathError.__subclasses__()
    for word in (kind.word, *_OTHER_WORDS.get(kind, ()))
}
"""Which class a word of the wire becomes."""
# TP001 and so on, in this order.
_RAISED = (
    "gate_closed", "invalid", "invalid_value", "unknown_key", "not_authorised",
    "not_found", "conflict", "lease_lost", "no_subscription", "paused",
)  # fmt: skip
SQLSTATES = {f"TP{number:03}": word for number, word in enumerate(_RAISED, 1)}
"""Which word an SQLSTATE is."""


class PermanentError(Exception):
    """Raised by a handler: retrying cannot help, so the job becomes a dead letter at once."""


class Snooze(Exception):
    """Raised by a handler: run again in `seconds`, without counting this attempt."""

    def __init__(self, seconds: float, message: str | None = None) -> None:
        super().__init__(message or f"snoozed for {seconds} seconds")
        self.seconds = seconds
        self.message = message


class RetryAfter(Exception):
    """Raised by a handler: the attempt failed; retry it in `seconds`."""

    def __init__(self, seconds: float, message: str | None = None) -> None:
        super().__init__(message or f"retry after {seconds} seconds")
        self.seconds = seconds


def from_word(word: str, detail: str, hint: str | None = None) -> TowpathError:
    """The error for a word of the wire."""
    return WORDS.get(word, TowpathError)(detail, word=word, hint=hint)


def from_driver(error: BaseException) -> TowpathError | None:
    """The error that a database driver wraps, or None if Towpath did not raise it."""
    for cause in _causes(error):
        state: Any = getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None)
        word = SQLSTATES.get(state) if isinstance(state, str) else None
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
