"""The worker: claims jobs in batches, runs their handlers at once, and tells the server how they ended.

claim loop    long polls for as many jobs as there are free places
handlers      coroutines on the loop, other functions in threads
Ends          acks, failures and releases in batches; kept while the server is away
extend loop   extends all leases with one call; a lost one cancels its handler
heartbeat     tells the server that this worker lives, and its kinds
"""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import signal
import socket
import time
import traceback
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

from .arguments import dumps, to_json
from .backoff import Backoff
from .calls import Call
from .client import AsyncClient
from .context import AsyncContext, Context
from .ends import End, Ends
from .errors import (
    GateClosed,
    Invalid,
    LeaseLost,
    NotAuthorised,
    Paused,
    PermanentError,
    RetryAfter,
    Snooze,
    TowpathError,
    Unavailable,
)
from .job import Job
from .threads import Then, Threads

log = logging.getLogger("towpath.worker")

AnyContext = Context | AsyncContext
Next = Callable[[], Awaitable[Any]]
Middleware = Callable[[AnyContext, Next], Awaitable[Any]]
"""`async def around(ctx, next)`: runs around each handler and returns what `await next()` returned."""

# What a server that is away or not ready answers; the call is tried again.
_PASSING = (Unavailable, GateClosed, Paused)
# The server's limit for one claim.
_CLAIM_JOBS_MAX = 100
# Below the server's 30 seconds.
_CLAIM_WAIT_SECONDS = 20
# How long a claim waits for more free places, unless half of them are free.
_GATHER_SECONDS = 0.005
# A claim that is in flight when the worker stops may still answer for so long; its jobs are released.
_CLAIM_GRACE_SECONDS = 1.0
_HEARTBEAT_SECONDS = 10.0
# A running job is extended at least this often, because that is also how its worker learns of a cancel.
_EXTEND_SECONDS_MAX = 5.0
# The server's limit for one extension.
_EXTEND_JOBS_MAX = 1000
# So many ends may wait for a server that is away; then no more jobs are claimed.
_ENDS_MAX = 1000
# The least time for the last ends to reach the server.
_LAST_ENDS_SECONDS = 5.0
# The same in every language: below what one request may have. The server keeps a result of more than 64 KiB as a
# payload.
_RESULT_BYTES_MAX = 2 << 20


class Held:
    """An attempt that this worker holds: until its end is known to the server."""

    def __init__(self, job: Job[Any, Any], context: AnyContext, entry_id: int | None) -> None:
        self.job = job
        self.context = context
        self.lease: dict[str, Any] = {"job_id": context.id, "attempt": context.attempt}
        self.entry_id = entry_id
        # Of a handler that runs on the loop.
        self.task: asyncio.Task[None] | None = None
        # Nothing more is said about it: the lease is lost, or the worker gave it up.
        self.dropped = False

    def drop(self) -> None:
        """Cancels the handler; whatever it returns is ignored."""
        self.dropped = True
        self.context.lose()
        if self.job.is_async and self.task is not None:
            self.task.cancel()


class Worker:
    """Runs jobs until it is stopped.

    It registers the kinds for the token's executor itself. `executor` is checked against the token's.
    """

    def __init__(
        self,
        jobs: Iterable[Job[Any, Any]],
        *,
        url: str | None = None,
        token: str | None = None,
        concurrency: int = 32,
        executor: str | None = None,
        lease_seconds: int = 60,
        drain_seconds: float = 30,
        middleware: Sequence[Middleware] = (),
    ) -> None:
        self._jobs: dict[str, Job[Any, Any]] = {}
        for job in jobs:
            if self._jobs.setdefault(job.kind, job) is not job:
                raise Invalid(f"two handlers for the kind {job.kind}", hint="Give each kind one handler.")
        if not self._jobs:
            raise Invalid("a worker needs a job", hint='Decorate a function with @job("kind") and pass it.')
        if concurrency < 1 or lease_seconds < 1 or drain_seconds < 0:
            raise Invalid("concurrency and lease_seconds must be positive, drain_seconds not negative")
        self.concurrency = concurrency
        self.executor = executor
        self.lease_seconds = lease_seconds
        self.drain_seconds = drain_seconds
        self.middleware = list(middleware)
        self.wait_seconds = _CLAIM_WAIT_SECONDS
        self._server = {"url": url, "token": token}
        self._held: dict[str, Held] = {}
        self._running: set[Held] = set()
        self._stopping = asyncio.Event()
        self._freed = asyncio.Event()
        self._threads = Threads(concurrency)

    def stop(self) -> None:
        """Stops claiming; `run` returns when the running handlers have ended or `drain_seconds` are over.

        Call it on the worker's event loop.
        """
        self._stopping.set()

    async def run(self) -> None:
        """Works until `stop` or a signal (SIGINT, SIGTERM). A second signal ends the process at once.

        Raises what cannot pass: a token that is not valid, or an executor without a subscription.
        """
        self._loop = asyncio.get_running_loop()
        signals = self._listen_for_signals()
        name = f"{socket.gethostname()[:40]}-{os.getpid()}"
        try:
            async with AsyncClient(**self._server, worker=name) as client:
                self._client = client
                self._ends = Ends(client, self._let_go)
                loops = (self._ends.run, self._extend_loop, self._heartbeat_loop)
                background = [asyncio.create_task(loop()) for loop in loops]
                for task in background:
                    # Without one of them no job would end well, so the worker stops and raises its error.
                    task.add_done_callback(lambda _: self.stop())
                try:
                    if await self._register():
                        await self._claim_loop()
                finally:
                    await self._drain()
                    for task in background:
                        task.cancel()
                    self._threads.close()
                for failure in await asyncio.gather(*background, return_exceptions=True):
                    if not isinstance(failure, asyncio.CancelledError) and failure is not None:
                        raise failure
        finally:
            for number in signals:
                self._loop.remove_signal_handler(number)

    def _listen_for_signals(self) -> list[signal.Signals]:
        handled: list[signal.Signals] = []
        for number in (signal.SIGINT, signal.SIGTERM):
            try:
                self._loop.add_signal_handler(number, self._signalled, number)
                handled.append(number)
            except (NotImplementedError, RuntimeError, ValueError):
                pass  # not the main thread, or Windows: the caller stops the worker
        return handled

    def _signalled(self, number: signal.Signals) -> None:
        if self._stopping.is_set():
            os._exit(128 + number)
        log.info("stopping; waiting up to %s seconds for %d jobs", self.drain_seconds, len(self._running))
        self.stop()

    async def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        return await self._client.send(Call("POST", f"/api/v1/{path}", dict[str, Any], body))

    async def _register(self) -> bool:
        """Subscribes the token's executor to the kinds. False if the worker was stopped meanwhile."""
        backoff = Backoff()
        while not self._stopping.is_set():
            try:
                body = {"kinds": sorted(self._jobs), "concurrency": self.concurrency}
                answer = await self._post("executors/register", body)
            except _PASSING as error:
                log.warning("cannot register, trying again: %s", error)
                await self._pause(backoff.next())
                continue
            except NotAuthorised as error:
                if error.word == "unauthenticated":
                    raise
                # A token that may not register can still claim what an operator subscribed its executor to.
                log.info("not registered: %s", error)
            else:
                self._check_executor(answer["executor"])
            log.info("working on %s, %d at once", ", ".join(sorted(self._jobs)), self.concurrency)
            return True
        return False

    def _check_executor(self, registered: str) -> None:
        if self.executor not in (None, registered):
            raise NotAuthorised(
                f"the token belongs to the executor {registered}, not to {self.executor}",
                hint=f"Create one with: towpath executor token create {self.executor} --register",
            )

    async def _claim_loop(self) -> None:
        backoff = Backoff()
        while await self._has_free_place():
            began = time.monotonic()
            try:
                claimed = await self._claim(min(self.concurrency - len(self._running), _CLAIM_JOBS_MAX))
            except _PASSING as error:
                log.warning("cannot claim, trying again: %s", error)
                await self._pause(backoff.next())
                continue
            if not claimed and time.monotonic() - began < 1:
                # A server that is about to stop answers at once.
                await self._pause(backoff.next())
                continue
            backoff.reset()
            if self._stopping.is_set():
                self._release(claimed)
            else:
                for job in claimed:
                    self._begin(job)

    async def _has_free_place(self) -> bool:
        """Waits for a free place. False if the worker was stopped.

        Where one handler has ended, others end soon: a claim for many costs as much as a claim for one.
        """
        gathered = False
        while not self._stopping.is_set():
            free = self.concurrency - len(self._running)
            if free > 0 and len(self._ends) < _ENDS_MAX:
                if gathered or 2 * free >= self.concurrency:
                    return True
                gathered = True
                await asyncio.sleep(_GATHER_SECONDS)
                continue
            self._freed.clear()
            await self._unless_stopped(self._freed.wait())
        return False

    async def _claim(self, limit: int) -> list[dict[str, Any]]:
        body = {
            "kinds": sorted(self._jobs),
            "limit": limit,
            "wait_seconds": self.wait_seconds,
            "lease_seconds": self.lease_seconds,
        }
        claiming = asyncio.ensure_future(self._post("jobs/claim", body))
        await self._unless_stopped(asyncio.wait({claiming}))
        if not claiming.done():
            await asyncio.wait({claiming}, timeout=_CLAIM_GRACE_SECONDS)
        if not claiming.done():
            # The server releases what it would have answered.
            claiming.cancel()
            await asyncio.wait({claiming})
            return []
        return claiming.result()["jobs"]

    async def _unless_stopped(self, waiting: Awaitable[Any]) -> None:
        """Waits for something or for `stop`, whichever is first."""
        tasks = [asyncio.ensure_future(waiting), asyncio.ensure_future(self._stopping.wait())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()

    async def _pause(self, seconds: float) -> None:
        await self._unless_stopped(asyncio.sleep(seconds))

    def _release(self, claimed: list[dict[str, Any]]) -> None:
        """Gives back jobs that never began."""
        for job in claimed:
            self._ends.add(End("release", {"job_id": job["job_id"], "attempt": job["attempt"]}))

    def _begin(self, claimed: dict[str, Any]) -> None:
        job = self._jobs[claimed["job_kind"]]
        held = Held(job, self._context(job, claimed), claimed.get("entry_id"))
        self._held[held.context.id] = held
        self._running.add(held)
        if job.is_async or self.middleware:
            held.task = asyncio.create_task(self._attempt(held))
        else:
            self._threads.submit(lambda: self._attempt_in_thread(held))

    def _context(self, job: Job[Any, Any], claimed: dict[str, Any]) -> AnyContext:
        if job.is_async:
            context = AsyncContext(claimed, self._report)
            context.client = self._client
            return context
        return Context(claimed, self._report, self._wait_in_thread)

    def _wait_in_thread(self, report: Awaitable[None]) -> None:
        async def reported() -> None:
            await report

        asyncio.run_coroutine_threadsafe(reported(), self._loop).result()

    async def _attempt(self, held: Held) -> None:
        """Runs the handler on the loop, or in a thread within its middleware."""
        try:
            end = self._success(held, await self._call(held))
        except BaseException as error:
            end = self._end_by(held, error)
        self._ended(held, end)

    def _attempt_in_thread(self, held: Held) -> Then:
        """Runs the handler in this thread, and nothing of it on the loop."""
        try:
            self._read_args(held)
            end = self._success(held, held.job.invoke(held.context.args, held.context))
        except BaseException as error:
            end = self._end_by(held, error)
        return lambda: self._ended(held, end)

    def _end_by(self, held: Held, error: BaseException) -> End | None:
        """How an attempt ended whose handler raised; None if nothing is to be said about it."""
        if isinstance(error, LeaseLost):
            log.warning("%s %s: %s", held.job.kind, held.context.id, error)
            return None
        if isinstance(error, asyncio.CancelledError):
            # Unless it was dropped, the handler cancelled itself, or a library did: that is a failure like another.
            return None if held.dropped else self._failure(held, "CancelledError: the handler was cancelled")
        if isinstance(error, Snooze):
            body = {**held.lease, "seconds": max(0, round(error.seconds)), "note": error.message or ""}
            return End("snooze", body)
        if isinstance(error, RetryAfter):
            return self._failure(held, _text(error), retry_after_seconds=max(0.0, error.seconds))
        if isinstance(error, PermanentError):
            return self._failure(held, _text(error), permanent=True)
        if isinstance(error, (Exception, SystemExit)):
            log.info("%s %s failed", held.job.kind, held.context.id, exc_info=error)
            return self._failure(held, _text(error))
        raise error

    def _ended(self, held: Held, end: End | None) -> None:
        """Says how the attempt ended, unless somebody else has the job."""
        self._running.discard(held)
        self._freed.set()
        if end is None or held.dropped:
            self._let_go(held.context.id)
        else:
            self._tell(held, end)

    def _tell(self, held: Held, end: End) -> None:
        self._ends.add(end)

    async def _call(self, held: Held) -> Any:
        """Calls the handler through the middleware."""
        job, context = held.job, held.context
        self._read_args(held)
        if job.is_async and not self.middleware:
            return await job.invoke(context.args, context)

        async def handler() -> Any:
            if job.is_async:
                return await job.invoke(context.args, context)
            return await self._threads.run(job.invoke, context.args, context)

        call: Next = handler
        for around in reversed(self.middleware):
            call = functools.partial(around, context, call)
        return await call()

    def _read_args(self, held: Held) -> None:
        try:
            held.context.args = held.job.read_args(held.context.payload)
        except Invalid as error:
            raise PermanentError(f"the arguments do not fit: {error}") from error

    def _success(self, held: Held, result: Any) -> End:
        body = dict(held.lease)
        if held.entry_id is not None:
            body["entry_id"] = held.entry_id
        if result is None:
            return End("ack", body)
        try:
            body["result"] = to_json(result)
            size = len(dumps(body["result"]).encode())
        except (Invalid, UnicodeEncodeError) as error:
            return self._failure(held, f"result: {error}", permanent=True)
        if size > _RESULT_BYTES_MAX:
            said = f"the result has {size} bytes, at most {_RESULT_BYTES_MAX} are kept; store it elsewhere and return a reference"
            return self._failure(held, said, permanent=True)
        return End("ack", body, size)

    def _failure(self, held: Held, error: str, **more: Any) -> End:
        return End("fail", {**held.lease, "error": error[:8000], **more})

    def _let_go(self, job_id: str) -> None:
        """The server knows how it ended, or will find out by itself."""
        self._held.pop(job_id, None)
        self._freed.set()

    async def _report(self, path: str, body: dict[str, Any]) -> None:
        """Progress and appends of a handler. While the server is away, progress is left out and appends wait."""
        backoff = Backoff()
        while True:
            try:
                await self._post(f"jobs/{path}", body)
                return
            except _PASSING as error:
                if path == "progress":
                    log.info("progress not stored: %s", error)
                    return
                await asyncio.sleep(backoff.next())

    async def _extend_loop(self) -> None:
        """Extends every lease three times before it would end; also to learn of cancelled jobs."""
        backoff = Backoff()
        every = wait = min(self.lease_seconds / 3, _EXTEND_SECONDS_MAX)
        while True:
            await asyncio.sleep(wait)
            try:
                await self._extend([held.lease for held in self._held.values()])
                wait = every
                backoff.reset()
            except TowpathError as error:
                log.warning("cannot extend leases, trying again: %s", error)
                wait = backoff.next()

    async def _extend(self, leases: list[dict[str, Any]]) -> None:
        for at in range(0, len(leases), _EXTEND_JOBS_MAX):
            body = {"jobs": leases[at : at + _EXTEND_JOBS_MAX], "seconds": self.lease_seconds}
            for job_id in (await self._post("jobs/extend_many", body))["lost"]:
                held = self._held.get(job_id)
                if held is not None and held in self._running:
                    log.warning("%s %s: the lease is lost; cancelling its handler", held.job.kind, job_id)
                    held.drop()

    async def _heartbeat_loop(self) -> None:
        while True:
            try:
                await self._post("jobs/heartbeat", {"status": "ok", "kinds": sorted(self._jobs)})
            except TowpathError as error:
                log.info("no heartbeat: %s", error)
            await asyncio.sleep(_HEARTBEAT_SECONDS)

    async def _drain(self) -> None:
        """Waits for running handlers, gives up those that do not end, and tells the server the rest."""
        self._stopping.set()
        deadline = time.monotonic() + self.drain_seconds
        while self._running and (left := deadline - time.monotonic()) > 0:
            self._freed.clear()
            await asyncio.wait({freed := asyncio.ensure_future(self._freed.wait())}, timeout=left)
            freed.cancel()
        for held in list(self._running):
            log.warning(
                "%s %s did not end in time; another worker will run it", held.job.kind, held.context.id
            )
            held.drop()
            said = f"the worker stopped, and the handler did not end within {self.drain_seconds} seconds"
            self._ends.add(self._failure(held, said, retry_after_seconds=0))
        left = max(_LAST_ENDS_SECONDS, deadline - time.monotonic())
        try:
            await asyncio.wait_for(self._ends.all_told(), left)
        except asyncio.TimeoutError:
            log.error(
                "the server does not know how %d jobs ended; they run again when their leases end",
                len(self._ends),
            )


def work(jobs: Iterable[Job[Any, Any]], **options: Any) -> None:
    """Runs a worker until a signal stops it: `Worker(jobs, **options).run()`."""
    asyncio.run(_work(jobs, options))


async def _work(jobs: Iterable[Job[Any, Any]], options: dict[str, Any]) -> None:
    await Worker(jobs, **options).run()


def _text(error: BaseException) -> str:
    """As Python prints it: the class, with its module unless that is built in, and the message.

    Without what PostgreSQL cannot store.
    """
    printed = "".join(traceback.format_exception_only(type(error), error)).strip()
    return printed.replace("\0", "").encode(errors="replace").decode()
