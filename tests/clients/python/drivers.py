"""Every driver the package knows, behind one interface, so that one test runs on all of them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import asyncpg
import psycopg
from psycopg.rows import dict_row
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session


@dataclass
class Transaction:
    """An open transaction: the handle that the package gets, and plain SQL on the same connection."""

    handle: Any
    sql: Callable[[str], Any]
    commit: Callable[[], Any]


Open = Callable[[str], AbstractAsyncContextManager[Transaction]]
DRIVERS: dict[str, Open] = {}


def driver(opens: Callable[[str], AsyncIterator[Transaction]]) -> Callable[[str], AsyncIterator[Transaction]]:
    """Each opens a connection in a transaction; leaving without `commit` rolls back."""
    DRIVERS[opens.__name__] = asynccontextmanager(opens)
    return opens


@driver
async def psycopg_connection(url: str) -> AsyncIterator[Transaction]:
    with psycopg.connect(url) as connection:
        yield Transaction(connection, connection.execute, connection.commit)
        connection.rollback()


@driver
async def psycopg_cursor(url: str) -> AsyncIterator[Transaction]:
    with psycopg.connect(url) as connection, connection.cursor() as cursor:
        yield Transaction(cursor, cursor.execute, connection.commit)
        connection.rollback()


@driver
async def psycopg_connection_with_other_rows(url: str) -> AsyncIterator[Transaction]:
    with psycopg.connect(url, row_factory=dict_row, cursor_factory=psycopg.RawCursor) as connection:
        yield Transaction(connection, connection.execute, connection.commit)
        connection.rollback()


@driver
async def psycopg_async_connection(url: str) -> AsyncIterator[Transaction]:
    async with await psycopg.AsyncConnection.connect(url) as connection:
        yield Transaction(connection, connection.execute, connection.commit)
        await connection.rollback()


@driver
async def psycopg_async_cursor(url: str) -> AsyncIterator[Transaction]:
    async with await psycopg.AsyncConnection.connect(url) as connection, connection.cursor() as cursor:
        yield Transaction(cursor, cursor.execute, connection.commit)
        await connection.rollback()


@driver
async def asyncpg_connection(url: str) -> AsyncIterator[Transaction]:
    connection = await asyncpg.connect(url)
    transaction = connection.transaction()
    await transaction.start()
    done = False

    async def commit() -> None:
        nonlocal done
        done = True
        await transaction.commit()

    yield Transaction(connection, connection.execute, commit)
    if not done:
        await transaction.rollback()
    await connection.close()


@driver
async def asyncpg_pooled_connection_with_codecs(url: str) -> AsyncIterator[Transaction]:
    async def with_json(connection: Any) -> None:
        await connection.set_type_codec("jsonb", encoder=json.dumps, decoder=json.loads, schema="pg_catalog")

    async with (
        asyncpg.create_pool(url, min_size=1, max_size=1, init=with_json) as pool,
        pool.acquire() as connection,
    ):
        transaction = connection.transaction()
        await transaction.start()
        done = False

        async def commit() -> None:
            nonlocal done
            done = True
            await transaction.commit()

        yield Transaction(connection, connection.execute, commit)
        if not done:
            await transaction.rollback()


@driver
async def sqlalchemy_connection(url: str) -> AsyncIterator[Transaction]:
    engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    with engine.connect() as connection:
        yield Transaction(connection, lambda sql: connection.execute(text(sql)), connection.commit)
    engine.dispose()


@driver
async def sqlalchemy_session(url: str) -> AsyncIterator[Transaction]:
    engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    with Session(engine) as session:
        yield Transaction(session, lambda sql: session.execute(text(sql)), session.commit)
    engine.dispose()


@driver
async def sqlalchemy_async_connection_on_asyncpg(url: str) -> AsyncIterator[Transaction]:
    engine = create_async_engine(url.replace("postgresql:", "postgresql+asyncpg:"))
    async with engine.connect() as connection:
        yield Transaction(connection, lambda sql: connection.execute(text(sql)), connection.commit)
    await engine.dispose()


@driver
async def sqlalchemy_async_session_on_asyncpg(url: str) -> AsyncIterator[Transaction]:
    engine = create_async_engine(url.replace("postgresql:", "postgresql+asyncpg:"))
    async with AsyncSession(engine) as session:
        yield Transaction(session, lambda sql: session.execute(text(sql)), session.commit)
    await engine.dispose()


@driver
async def sqlalchemy_async_session_on_psycopg(url: str) -> AsyncIterator[Transaction]:
    engine = create_async_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    async with AsyncSession(engine) as session:
        yield Transaction(session, lambda sql: session.execute(text(sql)), session.commit)
    await engine.dispose()


def _django(url: str) -> Any:
    """A Django connection of its own, made as Django makes one for a request."""
    import django
    from django.conf import settings
    from django.db.backends.postgresql.base import DatabaseWrapper

    if not settings.configured:
        settings.configure(USE_TZ=True)
        django.setup()
    defaults: dict[str, Any] = {
        "ATOMIC_REQUESTS": False,
        "AUTOCOMMIT": False,
        "CONN_HEALTH_CHECKS": False,
        "CONN_MAX_AGE": 0,
    }
    place = {
        "NAME": "towpath",
        "USER": "postgres",
        "PASSWORD": "",
        "HOST": url.partition("host=")[2],
        "PORT": "",
    }
    return DatabaseWrapper({**defaults, **place, "OPTIONS": {}, "TIME_ZONE": None, "TEST": {}}, "default")


@asynccontextmanager
async def _in_django(url: str, on_cursor: bool) -> AsyncIterator[Transaction]:
    import os

    # Django's handles refuse to be used inside an event loop; the test has one for the other drivers.
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "true"
    connection = _django(url)
    with connection.cursor() as cursor:
        yield Transaction(cursor if on_cursor else connection, cursor.execute, connection.commit)
        connection.rollback()
    connection.close()


@driver
async def django_connection(url: str) -> AsyncIterator[Transaction]:
    async with _in_django(url, on_cursor=False) as transaction:
        yield transaction


@driver
async def django_cursor(url: str) -> AsyncIterator[Transaction]:
    async with _in_django(url, on_cursor=True) as transaction:
        yield transaction
