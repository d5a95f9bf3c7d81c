"""Clients of the HTTP API, blocking and awaited. One connection pool each, kept open."""

from __future__ import annotations

import asyncio
import functools
import os
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast
from uuid import UUID

import httpx

from . import calls, describe
from .arguments import dumps
from .backoff import Backoff
from .calls import Call, JobState, JobStatus, JobToken
from .errors import Invalid, TowpathError, Unavailable

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from .job import Entry, Job
    from .options import EmitOptions, EnqueueOptions

T = TypeVar("T")
A = TypeVar("A")

# Longer than any long poll of the server (60 seconds), so that a silent network ends a call.
_TIMEOUT = httpx.Timeout(75, connect=10)
# Connections stay open between calls; the server closes idle ones after longer than this.
_LIMITS = httpx.Limits(max_connections=100, max_keepalive_connections=20, keepalive_expiry=30)
# The longest that one call waits for a job's end.
_WAIT_SECONDS = 30


class _Connection:
    """Where the server is and how a request to it looks. The defaults are TOWPATH_URL and TOWPATH_TOKEN."""

    def __init__(self, url: str | None = None, token: str | None = None) -> None:
        url = url or os.environ.get("TOWPATH_URL")
        token = token or os.environ.get("TOWPATH_TOKEN")
        if not url or not token:
            missing = "url" if not url else "token"
            raise Invalid(
                f"the client has no {missing}",
                hint=f"Pass {missing}=… or set TOWPATH_{missing.upper()}; `towpath up --dev` prints both.",
            )
        self.url = url.rstrip("/")
        self.token = token

    def __repr__(self) -> str:
        return f"{type(self).__name__}(url={self.url!r})"

    def _settings(self, worker: str | None = None) -> dict[str, Any]:
        headers = {"authorization": f"Bearer {self.token}", "content-type": "application/json"}
        if worker is not None:
            headers["towpath-worker"] = worker
        return {"base_url": self.url, "headers": headers, "timeout": _TIMEOUT, "limits": _LIMITS}


def _content(call: Call[Any]) -> bytes | None:
    return None if call.body is None else dumps(call.body).encode()


def _answer(call: Call[T], response: httpx.Response) -> T:
    try:
        body: Any = response.json()
    except ValueError:
        body = None
    if response.is_success and (isinstance(body, dict) or call.any_json):
        try:
            return call.read(cast("dict[str, Any]", body))
        except (KeyError, TypeError) as error:
            raise TowpathError(
                f"{call.path}: the answer lacks {error}", hint="Check TOWPATH_URL and versions."
            ) from error
    raise calls.refusal(response.status_code, body)


def _unreachable(url: str, error: httpx.HTTPError) -> Unavailable:
    return Unavailable(
        f"cannot reach {url}: {error or type(error).__name__}",
        hint="Check that the server runs and TOWPATH_URL is right; then retry.",
    )


class Client(_Connection):
    """A blocking client. Threads may share it."""

    def __init__(self, url: str | None = None, token: str | None = None) -> None:
        super().__init__(url, token)
        self._http = httpx.Client(**self._settings())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections."""
        self._http.close()

    def send(self, call: Call[T]) -> T:
        """Sends one call."""
        try:
            response = self._http.request(call.method, call.path, content=_content(call))
        except httpx.HTTPError as error:
            raise _unreachable(self.url, error) from error
        return _answer(call, response)

    def enqueue(self, job: Job[A, Any] | str, args: A, **options: Unpack[EnqueueOptions]) -> str:
        """Enqueues a job and returns its id. For a kind that is defined elsewhere, pass its name."""
        return self.send(calls.enqueue(describe.job(job, args, options)))

    def enqueue_many(self, job: Job[A, Any] | str, entries: Sequence[Entry[A]]) -> list[str]:
        """Enqueues up to 1,000 jobs and returns their ids in order."""
        return self.send(calls.enqueue_many(describe.jobs(job, entries)))

    def emit(self, domain: str, type: str, payload: Any = None, **options: Unpack[EmitOptions]) -> str:
        """Emits an event and returns its id."""
        return self.send(calls.emit(describe.event(domain, type, payload, options)))

    def job(self, job_id: str | UUID) -> JobStatus:
        """A job as it is now."""
        return self.send(calls.job(job_id))

    def wait(self, job_id: str | UUID, timeout_seconds: float | None = None) -> JobStatus:
        """Waits until a job has ended, or the time is over, and returns it as it is then: `ended` says which.

        A server that is away is asked again until then.
        """
        deadline, backoff = _deadline(timeout_seconds), Backoff()
        while True:
            try:
                status = self.send(calls.job(job_id, _wait_seconds(deadline)))
            except Unavailable:
                if time.monotonic() >= deadline:
                    raise
                time.sleep(min(backoff.next(), max(0.0, deadline - time.monotonic())))
                continue
            backoff = Backoff()
            if status.ended or time.monotonic() >= deadline:
                return status

    def result(self, job_id: str | UUID) -> Any:
        """What the handler of a job returned, also if it is larger than 64 KiB. Raises NotFound if there is none."""
        return self.send(calls.result(job_id))

    def cancel(self, job_id: str | UUID, reason: str | None = None) -> JobState:
        """Cancels a job, running or not, and returns its state. Its handler is told by its next extension."""
        return self.send(calls.cancel(job_id, reason))

    def job_token(self, job_id: str | UUID, seconds: int | None = None) -> JobToken:
        """A token for a browser that follows this one job."""
        return self.send(calls.job_token(job_id, seconds))

    def follow(self, job_id: str | UUID, offset: str = "-1") -> Iterator[dict[str, Any]]:
        """The messages of a job's stream, from `offset` on, until the job has ended.

        Needs the extra `towpath[streams]`.
        """
        from .streams import follow

        return follow(self, str(job_id), offset)


class AsyncClient(_Connection):
    """The same, awaited."""

    def __init__(
        self, url: str | None = None, token: str | None = None, *, worker: str | None = None
    ) -> None:
        super().__init__(url, token)
        self._http = httpx.AsyncClient(**self._settings(worker))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Closes the connections."""
        await self._http.aclose()

    async def send(self, call: Call[T]) -> T:
        """Sends one call."""
        try:
            response = await self._http.request(call.method, call.path, content=_content(call))
        except httpx.HTTPError as error:
            raise _unreachable(self.url, error) from error
        return _answer(call, response)

    async def enqueue(self, job: Job[A, Any] | str, args: A, **options: Unpack[EnqueueOptions]) -> str:
        """Enqueues a job and returns its id. For a kind that is defined elsewhere, pass its name."""
        return await self.send(calls.enqueue(describe.job(job, args, options)))

    async def enqueue_many(self, job: Job[A, Any] | str, entries: Sequence[Entry[A]]) -> list[str]:
        """Enqueues up to 1,000 jobs and returns their ids in order."""
        return await self.send(calls.enqueue_many(describe.jobs(job, entries)))

    async def emit(self, domain: str, type: str, payload: Any = None, **options: Unpack[EmitOptions]) -> str:
        """Emits an event and returns its id."""
        return await self.send(calls.emit(describe.event(domain, type, payload, options)))

    async def job(self, job_id: str | UUID) -> JobStatus:
        """A job as it is now."""
        return await self.send(calls.job(job_id))

    async def wait(self, job_id: str | UUID, timeout_seconds: float | None = None) -> JobStatus:
        """Waits until a job has ended, or the time is over, and returns it as it is then: `ended` says which.

        A server that is away is asked again until then.
        """
        deadline, backoff = _deadline(timeout_seconds), Backoff()
        while True:
            try:
                status = await self.send(calls.job(job_id, _wait_seconds(deadline)))
            except Unavailable:
                if time.monotonic() >= deadline:
                    raise
                await asyncio.sleep(min(backoff.next(), max(0.0, deadline - time.monotonic())))
                continue
            backoff = Backoff()
            if status.ended or time.monotonic() >= deadline:
                return status

    async def result(self, job_id: str | UUID) -> Any:
        """What the handler of a job returned, also if it is larger than 64 KiB. Raises NotFound if there is none."""
        return await self.send(calls.result(job_id))

    async def cancel(self, job_id: str | UUID, reason: str | None = None) -> JobState:
        """Cancels a job, running or not, and returns its state. Its handler is told by its next extension."""
        return await self.send(calls.cancel(job_id, reason))

    async def job_token(self, job_id: str | UUID, seconds: int | None = None) -> JobToken:
        """A token for a browser that follows this one job."""
        return await self.send(calls.job_token(job_id, seconds))

    def follow(self, job_id: str | UUID, offset: str = "-1") -> AsyncIterator[dict[str, Any]]:
        """The messages of a job's stream, from `offset` on, until the job has ended.

        Needs the extra `towpath[streams]`.
        """
        from .streams import follow_async

        return follow_async(self, str(job_id), offset)


@functools.cache
def default_client() -> Client:
    """The client of jobs that are enqueued without a handle: TOWPATH_URL and TOWPATH_TOKEN."""
    return Client()


def _deadline(timeout_seconds: float | None) -> float:
    return float("inf") if timeout_seconds is None else time.monotonic() + timeout_seconds


def _wait_seconds(deadline: float) -> int:
    """Whole seconds for the server to wait; a last part of a second is rounded up."""
    left = deadline - time.monotonic()
    return max(1, min(_WAIT_SECONDS, int(left) + 1)) if left < _WAIT_SECONDS else _WAIT_SECONDS
