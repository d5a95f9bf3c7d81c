"""The clients over HTTP: enqueue, emit, state, wait, cancel, tokens, streams; blocking and awaited."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from battery_jobs import Do, Wait, count, do, do_in_thread, wait
from conftest import Towpath, until
from workers import WorkerProcess, worker

import towpath as tp
from towpath import testing


class Both:
    """A client whose calls are awaited if they have to be, so that one test runs on both."""

    def __init__(self, towpath: Towpath, awaited: bool) -> None:
        self.towpath = towpath
        self.awaited = awaited

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            if not self.awaited:
                with tp.Client(self.towpath.url, self.towpath.token) as client:
                    given = getattr(client, name)(*args, **kwargs)
                    return list(given) if inspect.isgenerator(given) else given
            return asyncio.run(self._await(name, args, kwargs))

        return call

    async def _await(self, name: str, args: Any, kwargs: Any) -> Any:
        async with tp.AsyncClient(self.towpath.url, self.towpath.token) as client:
            given = getattr(client, name)(*args, **kwargs)
            return [item async for item in given] if inspect.isasyncgen(given) else await given


@pytest.fixture(params=[False, True], ids=["blocking", "awaited"])
def client(towpath: Towpath, request: pytest.FixtureRequest) -> Both:
    return Both(towpath, request.param)


@pytest.fixture(scope="module")
def working(towpath: Towpath, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerProcess]:
    with worker(
        towpath, tmp_path_factory.mktemp("client"), "battery_jobs", "--lease-seconds", "6"
    ) as process:
        yield process


def test_enqueue_wait_and_state(client: Both, working: WorkerProcess) -> None:
    job_id = client.enqueue(do, Do("return"), max_attempts=3, priority=7)
    ended = client.wait(job_id, timeout_seconds=60)
    assert (ended.kind, ended.state, ended.ended, ended.attempt, ended.max_attempts) == (
        "do",
        "succeeded",
        True,
        1,
        3,
    )
    assert (
        ended.created_at is not None
        and ended.finished_at is not None
        and ended.created_at <= ended.finished_at
    )
    assert client.job(job_id) == ended


def test_wait_gives_up_in_time(client: Both, working: WorkerProcess, tmp_path: Path) -> None:
    job_id = client.enqueue(wait, Wait(str(tmp_path)))
    until("the handler began", (tmp_path / "began-1").exists)
    running = client.wait(job_id, timeout_seconds=0.1)
    assert not running.ended and running.state in ("leased", "in_progress")
    assert client.cancel(job_id, "enough") == "cancelled"
    assert client.wait(job_id, timeout_seconds=60).state == "cancelled"
    with pytest.raises(tp.Conflict):
        client.cancel(job_id)


def test_enqueue_many_keeps_the_order(client: Both, working: WorkerProcess) -> None:
    key = str(uuid4())
    ids = client.enqueue_many(count, [({}, {"key": key, "run_at": None}), {}, ({}, {"key": key})])
    assert ids[0] == ids[2] != ids[1]


def test_refusals_are_errors_by_word(client: Both, working: WorkerProcess) -> None:
    with pytest.raises(tp.Invalid, match="password") as raised:
        client.enqueue("count", {"password": "1234"})
    assert raised.value.word == "invalid"
    with pytest.raises(tp.Invalid, match=r"jobs\[1\]|entry 1"):
        client.enqueue_many("count", [{}, {"password": "1234"}])
    with pytest.raises(tp.NotFound):
        client.job(uuid4())
    with pytest.raises(tp.Invalid, match="actor"):
        client.enqueue("count", {}, actor="ann")
    with pytest.raises(tp.Invalid):
        client.emit("orders", "placed", {"password": "1234"})


def test_emit(client: Both, towpath: Towpath) -> None:
    event_id = client.emit("orders", "placed", {"order": 7}, subject_ref="7")
    assert client.emit("orders", "placed", {"order": 7}, event_id=event_id) == event_id
    row = towpath.sql(
        "select event_domain, event_type, payload from towpath.event_outbox where event_id = %s", event_id
    )
    assert row == [("orders", "placed", {"order": 7})]


@pytest.mark.parametrize("job", [do, do_in_thread], ids=["coroutine", "thread"])
def test_follow_until_the_job_has_ended(client: Both, working: WorkerProcess, job: tp.Job[Do, Any]) -> None:
    """The stream has progress, what the handler appended, and the result; then it is closed."""
    job_id = client.enqueue(job, Do("append"))
    messages = client.follow(job_id)
    chunks = [message["value"] for message in messages if message["type"] == "chunk"]
    states = [message["value"] for message in messages if message["type"] == "job"]
    assert chunks == [{"n": 1}, {"n": 2}]
    assert any((state["percent"], state["message"]) == (50, "half way") for state in states)
    assert (states[-1]["state"], states[-1]["result"]) == ("succeeded", 1)


def test_a_job_token_reads_and_cancels_one_job(
    client: Both, towpath: Towpath, working: WorkerProcess, tmp_path: Path
) -> None:
    job_id, other = client.enqueue(wait, Wait(str(tmp_path))), client.enqueue(count, {})
    until("the handler began", (tmp_path / "began-1").exists)
    token = client.job_token(job_id, seconds=60)
    with tp.Client(towpath.url, token.token) as browser:
        assert browser.job(job_id).kind == "wait"
        with pytest.raises(tp.TowpathError):
            browser.job(other)
        with pytest.raises(tp.TowpathError):
            browser.enqueue(count, {})
        assert browser.cancel(job_id, "stopped in the browser") == "cancelled"
    until("the handler was cancelled", (tmp_path / "cancelled").exists)


def test_a_server_that_is_away(client: Both) -> None:
    with tp.Client("http://127.0.0.1:9", "tpx_any") as away, pytest.raises(tp.Unavailable) as raised:
        away.job(uuid4())
    assert isinstance(raised.value.__cause__, httpx.HTTPError)


def test_a_client_needs_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TOWPATH_URL", raising=False)
    with pytest.raises(tp.Invalid, match="no url"):
        tp.Client()


def test_jobs_run_in_the_tests_own_process(towpath: Towpath) -> None:
    """testing: what a transaction enqueued is seen in it, and runs with what it enqueues itself."""
    import psycopg

    @tp.job("second")
    def second(args: dict[str, int]) -> int:
        return args["n"]

    @tp.job("first")
    async def first(args: dict[str, int]) -> None:
        async with tp.AsyncClient(towpath.url, towpath.token) as client:
            await second.enqueue(client, {"n": args["n"] + 1})

    @tp.job("broken", max_attempts=1)
    def broken() -> None:
        raise ValueError("told to fail")

    @tp.job("hopeless")
    async def hopeless() -> None:
        raise tp.PermanentError("told to fail for good")

    @tp.job("later")
    def later(ctx: tp.Context) -> None:
        ctx.snooze(60)

    jobs: list[tp.Job[Any, Any]] = [first, second, broken, hopeless, later]
    server = {"url": towpath.url, "token": towpath.token}
    assert testing.run_until_drained(jobs, **server) == []
    with psycopg.connect(towpath.database_url) as connection:
        job_id = first.enqueue(connection, {"n": 1})
        [queued] = testing.expect_enqueued(connection, first, {"n": 1})
        assert (queued.id, queued.args) == (job_id, {"n": 1})
        with pytest.raises(AssertionError, match="no job is queued"):
            testing.expect_enqueued(connection, first, {"n": 2})
        for job in (broken, hopeless, later):
            job.enqueue(connection, None)
    ran = {attempt.kind: attempt for attempt in testing.run_until_drained(jobs, **server)}
    assert (ran["first"].outcome, ran["first"].args) == ("succeeded", {"n": 1})
    assert (ran["second"].outcome, ran["second"].result) == ("succeeded", 2)
    assert (ran["broken"].outcome, ran["broken"].error) == ("failed", "ValueError: told to fail")
    assert (ran["hopeless"].outcome, ran["later"].outcome) == ("permanent", "snoozed")
    assert len(ran) == 5


def test_expect_enqueued_on_an_awaited_handle(towpath: Towpath) -> None:
    import asyncpg

    async def seen() -> list[testing.Enqueued]:
        connection = await asyncpg.connect(towpath.database_url)
        transaction = connection.transaction()
        await transaction.start()
        await count.enqueue(connection, {"awaited": True})
        found = await testing.expect_enqueued(connection, count, {"awaited": True})
        await transaction.rollback()
        await connection.close()
        return found

    assert len(asyncio.run(seen())) == 1
