"""What the client asks the HTTP API, and how it reads the answers. No I/O: both clients send these."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, Literal, TypeVar, cast
from uuid import UUID

from .errors import TowpathError, from_word
from .options import http_job, without_actor

T = TypeVar("T")

JobState = Literal[
    "queued", "leased", "in_progress", "retry_waiting", "succeeded", "dead_letter", "cancelled", "cleaned"
]
"""The words for where a job stands."""

ENDED = frozenset({"succeeded", "dead_letter", "cancelled", "cleaned"})


@dataclass(frozen=True)
class Call(Generic[T]):
    """One request, and what its answer means."""

    method: str
    path: str
    read: Callable[[dict[str, Any]], T]
    body: Mapping[str, Any] | None = None
    any_json: bool = False
    """Whether the answer may be something else than an object."""


@dataclass(frozen=True)
class JobStatus:
    """A job as it is now."""

    id: str
    kind: str
    state: JobState
    attempt: int
    max_attempts: int
    percent: int | None
    message: str | None
    result: Any
    error: str | None
    scheduled_at: datetime | None
    created_at: datetime | None
    finished_at: datetime | None
    stream: str | None

    @property
    def ended(self) -> bool:
        """Whether it succeeded, became a dead letter or was cancelled."""
        return self.state in ENDED


@dataclass(frozen=True)
class JobToken:
    """A token for a browser: it may read one job and its stream, and cancel it."""

    token: str
    expires_at: datetime
    stream: str


def enqueue(job: Mapping[str, Any]) -> Call[str]:
    return Call("POST", "/api/v1/jobs/enqueue", lambda answer: answer["job_id"], http_job(job))


def enqueue_many(jobs: Sequence[Mapping[str, Any]]) -> Call[list[str]]:
    return Call("POST", "/api/v1/jobs/enqueue_many", _ids, {"jobs": [http_job(job) for job in jobs]})


def _ids(answer: dict[str, Any]) -> list[str]:
    """The ids in order."""
    return [row["job_id"] for row in answer["jobs"]]


def emit(event: Mapping[str, Any]) -> Call[str]:
    return Call("POST", "/api/v1/events", lambda answer: answer["event_id"], without_actor(event))


def job(job_id: str | UUID, wait: int | None = None) -> Call[JobStatus]:
    return Call("GET", f"/api/v1/jobs/{job_id}" + (f"?wait={wait}" if wait else ""), _state)


def result(job_id: str | UUID) -> Call[Any]:
    return Call("GET", f"/api/v1/jobs/{job_id}/result", lambda answer: answer, any_json=True)


def cancel(job_id: str | UUID, reason: str | None) -> Call[JobState]:
    body = {} if reason is None else {"reason": reason}
    return Call("POST", f"/api/v1/jobs/{job_id}/cancel", lambda answer: answer["state"], body)


def job_token(job_id: str | UUID, seconds: int | None) -> Call[JobToken]:
    body = {} if seconds is None else {"seconds": seconds}
    return Call("POST", f"/api/v1/jobs/{job_id}/token", _token, body)


def _token(answer: dict[str, Any]) -> JobToken:
    return JobToken(answer["token"], moment(answer["expires_at"]), answer["stream"])


def _state(answer: dict[str, Any]) -> JobStatus:
    return JobStatus(
        id=answer["job_id"],
        kind=answer["kind"],
        state=answer["state"],
        attempt=answer["attempt"],
        max_attempts=answer["max_attempts"],
        percent=answer.get("percent"),
        message=answer.get("message"),
        result=answer.get("result"),
        error=answer.get("error"),
        scheduled_at=_moment_or_none(answer.get("scheduled_at")),
        created_at=_moment_or_none(answer.get("created_at")),
        finished_at=_moment_or_none(answer.get("finished_at")),
        stream=answer.get("stream"),
    )


def _moment_or_none(text: str | None) -> datetime | None:
    return None if text is None else moment(text)


def moment(text: str) -> datetime:
    """Python 3.10 knows no Z, and six digits of a second at most."""
    head, _, rest = text.replace("Z", "+00:00").partition(".")
    if not rest:
        return datetime.fromisoformat(head)
    digits, sign = (rest.partition("+")[0], "+") if "+" in rest else (rest.partition("-")[0], "-")
    return datetime.fromisoformat(f"{head}.{digits[:6]:0<6}{sign}{rest[len(digits) + 1 :]}")


def refusal(status: int, answer: Any) -> TowpathError:
    """The error of an answer that is no success."""
    if isinstance(answer, dict) and "error" in answer:
        known = cast("dict[str, Any]", answer)
        return from_word(str(known["error"]), str(known.get("detail", known["error"])), known.get("hint"))
    word = (
        "unavailable" if status in (429, 500, 502, 503, 504) else "not_found" if status == 404 else "internal"
    )
    return from_word(word, f"the server answered {status}", "Check TOWPATH_URL.")
