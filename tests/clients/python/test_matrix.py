"""O07, Q21 on every driver: a row and its job commit together, and a refusal takes everything back."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any
from uuid import UUID, uuid4

import pytest
from conftest import Towpath
from drivers import DRIVERS, Transaction

import towpath as tp


@dataclass
class Resize:
    file: str


@dataclass
class Login:
    password: str


@tp.job("resize", priority=200)
def resize(args: Resize) -> None: ...


@tp.job("login")
def login(args: Login) -> None: ...


class Matrix:
    """A driver, and two schemas of the user's own."""

    def __init__(self, towpath: Towpath, name: str) -> None:
        self.towpath = towpath
        self.name = name
        self.mark = f"{name}:{uuid4()}"

    def run(self, work: Callable[[Transaction], Coroutine[Any, Any, Any]]) -> Any:
        async def opened() -> Any:
            async with DRIVERS[self.name](self.towpath.database_url) as transaction:
                return await work(transaction)

        return asyncio.run(opened())

    async def rows(self, transaction: Transaction) -> None:
        """One row in each of the user's schemas, found without naming them."""
        await value(transaction.sql("set local search_path to store, billing"))
        await value(transaction.sql(f"insert into orders (mark) values ('{self.mark}')"))
        await value(transaction.sql(f"insert into invoices (mark) values ('{self.mark}')"))

    def written(self) -> dict[str, int]:
        counts = {
            "orders": "select count(*) from store.orders where mark = %s",
            "invoices": "select count(*) from billing.invoices where mark = %s",
            "jobs": "select count(*) from towpath.job_queue where source_ref = %s",
            "events": "select count(*) from towpath.event_outbox where subject_ref = %s",
        }
        return {name: self.towpath.sql(sql, self.mark)[0] for name, sql in counts.items()}


ALL = {"orders": 1, "invoices": 1, "jobs": 1, "events": 1}
NONE = {"orders": 0, "invoices": 0, "jobs": 0, "events": 0}


async def value(given: Any) -> Any:
    """What a driver gives, awaited if it is to be awaited."""
    return await given if inspect.isawaitable(given) else given


@pytest.fixture(scope="module")
def schemas(towpath: Towpath) -> None:
    towpath.sql("create schema store create table orders (mark text)")
    towpath.sql("create schema billing create table invoices (mark text)")


@pytest.fixture(params=sorted(DRIVERS))
def matrix(towpath: Towpath, schemas: None, request: pytest.FixtureRequest) -> Matrix:
    return Matrix(towpath, request.param)


def test_commit_writes_rows_job_and_event(matrix: Matrix) -> None:
    async def work(transaction: Transaction) -> tuple[str, str]:
        await matrix.rows(transaction)
        job_id = await value(resize.enqueue(transaction.handle, Resize("a.png"), source_ref=matrix.mark))
        event_id = await value(
            tp.emit(transaction.handle, "orders", "placed", {"order": 7}, subject_ref=matrix.mark)
        )
        await value(transaction.commit())
        return job_id, event_id

    job_id, event_id = matrix.run(work)
    assert matrix.written() == ALL
    assert str(UUID(job_id)) == job_id and str(UUID(event_id)) == event_id
    [row] = matrix.towpath.sql(
        "select job_kind, payload_json, priority from towpath.job_queue where job_id = %s", job_id
    )
    assert row == ("resize", {"file": "a.png"}, 200)


def test_rollback_writes_nothing(matrix: Matrix) -> None:
    async def work(transaction: Transaction) -> None:
        await matrix.rows(transaction)
        await value(resize.enqueue(transaction.handle, Resize("a.png"), source_ref=matrix.mark))
        await value(tp.emit(transaction.handle, "orders", "placed", subject_ref=matrix.mark))

    matrix.run(work)
    assert matrix.written() == NONE


async def refused(
    matrix: Matrix, transaction: Transaction, wanted: type[tp.TowpathError], call: Callable[[], Any]
) -> tp.TowpathError:
    """Rows, then a refused call, which the program ignores and commits."""
    await matrix.rows(transaction)
    with pytest.raises(wanted) as raised:
        await value(call())
    assert raised.value.__cause__ is not None, "the driver's own error is the cause"
    try:
        await value(transaction.commit())
    except Exception:
        pass  # some drivers refuse to commit a failed transaction, others roll it back
    return raised.value


def test_refusal_rolls_everything_back(matrix: Matrix) -> None:
    async def work(transaction: Transaction) -> tp.TowpathError:
        return await refused(
            matrix,
            transaction,
            tp.Invalid,
            lambda: login.enqueue(transaction.handle, Login("1234"), source_ref=matrix.mark),
        )

    error = matrix.run(work)
    assert error.word == "invalid"
    assert 'the key "password" is not allowed' in error.detail
    assert error.hint is not None and "payload_put" in error.hint
    assert matrix.written() == NONE


def test_refused_row_of_many_rolls_everything_back(matrix: Matrix) -> None:
    async def work(transaction: Transaction) -> tp.TowpathError:
        many = [Resize("a.png"), (Resize("b.png"), tp.EnqueueOptions(priority=-1))]
        return await refused(
            matrix, transaction, tp.Invalid, lambda: resize.enqueue_many(transaction.handle, many)
        )

    before = matrix.towpath.sql("select count(*) from towpath.job_queue")
    assert "jobs[1]" in matrix.run(work).detail
    assert matrix.written() == NONE
    assert matrix.towpath.sql("select count(*) from towpath.job_queue") == before


def test_refused_event_rolls_everything_back(matrix: Matrix) -> None:
    async def work(transaction: Transaction) -> tp.TowpathError:
        return await refused(
            matrix, transaction, tp.NotAuthorised, lambda: tp.emit(transaction.handle, "towpath", "x")
        )

    assert matrix.run(work).word == "not_authorised"
    assert matrix.written() == NONE


@pytest.fixture
def closed_gate(towpath: Towpath) -> Iterator[None]:
    towpath.command("gate", "close", "queue.job_substrate.enabled", "--why", "test")
    yield
    towpath.command("gate", "open", "queue.job_substrate.enabled", "--why", "test")


def test_closed_gate_rolls_everything_back(matrix: Matrix, closed_gate: None) -> None:
    async def work(transaction: Transaction) -> tp.TowpathError:
        call = lambda: resize.enqueue(transaction.handle, Resize("a.png"), source_ref=matrix.mark)
        return await refused(matrix, transaction, tp.GateClosed, call)

    error = matrix.run(work)
    assert error.hint is not None and "towpath gate open" in error.hint
    assert matrix.written() == NONE


def test_key_that_is_taken_answers_the_first_job(matrix: Matrix) -> None:
    async def work(transaction: Transaction) -> list[str]:
        args = Resize("a.png")
        ids = [await value(resize.enqueue(transaction.handle, args, key=matrix.mark, source_ref=matrix.mark))]
        ids += await value(resize.enqueue_many(transaction.handle, [(args, {"key": matrix.mark}), args]))
        await value(transaction.commit())
        return ids

    first, again, other = matrix.run(work)
    assert first == again != other
    assert matrix.run(work)[:2] == [first, first], "also from another transaction"
    assert matrix.written()["jobs"] == 1


def test_every_option_arrives(matrix: Matrix) -> None:
    run_at, run_id = datetime(2999, 1, 1, 7, 30, tzinfo=timezone.utc), uuid4()

    async def work(transaction: Transaction) -> str:
        job_id = await value(
            resize.enqueue(
                transaction.handle,
                Resize("ä \\ ' \" %s $1 :p"),
                key=matrix.mark,
                run_at=run_at,
                priority=7,
                max_attempts=3,
                executor="external_worker",
                domain="orders",
                source_ref="s",
                target_ref="t",
                payload_ref=None,
                actor="ann",
                run_id=run_id,
            )
        )
        await value(transaction.commit())
        return job_id

    columns = "idempotency_key, scheduled_at, priority, max_attempts, executor, event_domain, source_ref, target_ref, actor, run_id"
    [row] = matrix.towpath.sql(
        f"select {columns}, payload_json from towpath.job_queue where job_id = %s", matrix.run(work)
    )
    assert row == (
        matrix.mark,
        run_at,
        7,
        3,
        "external_worker",
        "orders",
        "s",
        "t",
        "ann",
        run_id,
        {"file": "ä \\ ' \" %s $1 :p"},
    )


def test_the_callers_cursor_keeps_its_rows(towpath: Towpath) -> None:
    import psycopg

    with psycopg.connect(towpath.database_url) as connection, connection.cursor() as cursor:
        cursor.execute("select generate_series(1, 3)")
        resize.enqueue(cursor, Resize("a.png"))
        assert cursor.fetchall() == [(1,), (2,), (3,)]


def test_what_is_no_handle_is_refused() -> None:
    with pytest.raises(tp.Invalid, match="no database handle"):
        resize.enqueue(object(), Resize("a.png"))  # type: ignore[call-overload]
