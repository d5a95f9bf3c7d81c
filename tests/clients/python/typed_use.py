"""How the types read in an application. Never run: pyright checks it, strictly."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import asyncpg
import psycopg
from sqlalchemy.engine import Connection
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
from sqlalchemy.orm import Session
from typing_extensions import assert_type

import towpath
from towpath import AsyncContext, Context, Job, job


@dataclass
class Resize:
    file: str


@job("resize", max_attempts=5)
async def resize(args: Resize, ctx: AsyncContext) -> dict[str, int]:
    await ctx.progress(50, "half way")
    return {"bytes": len(args.file)}


@job("crop")
def crop(args: Resize, ctx: Context) -> int:
    ctx.progress(50)
    return 1


@job("tick")
async def tick() -> None: ...


@job("plain")
def plain(args: Resize) -> str:
    return args.file


assert_type(resize, Job[Resize, dict[str, int]])
assert_type(crop, Job[Resize, int])
assert_type(tick, Job[None, None])
assert_type(plain, Job[Resize, str])


def blocking(
    connection: psycopg.Connection, cursor: psycopg.Cursor[Any], engine: Connection, session: Session
) -> None:
    assert_type(resize.enqueue(connection, Resize("a"), key="a"), str)
    assert_type(resize.enqueue(cursor, Resize("a")), str)
    assert_type(resize.enqueue(engine, Resize("a")), str)
    assert_type(resize.enqueue(session, Resize("a"), run_at=datetime.now()), str)
    assert_type(resize.enqueue(towpath.Client(), Resize("a")), str)
    assert_type(resize.enqueue(Resize("a")), str)
    assert_type(tick.enqueue(connection, None), str)
    assert_type(resize.enqueue_many(session, [Resize("a"), (Resize("b"), {"key": "b"})]), list[str])
    assert_type(towpath.emit(session, "orders", "placed", {"order": 7}), str)


async def awaited(
    connection: psycopg.AsyncConnection,
    cursor: psycopg.AsyncCursor[Any],
    own: asyncpg.Connection,
    engine: AsyncConnection,
    session: AsyncSession,
) -> None:
    assert_type(await resize.enqueue(connection, Resize("a")), str)
    assert_type(await resize.enqueue(cursor, Resize("a")), str)
    assert_type(await resize.enqueue(own, Resize("a")), str)
    assert_type(await resize.enqueue(engine, Resize("a")), str)
    assert_type(await resize.enqueue(session, Resize("a")), str)
    assert_type(await resize.enqueue(towpath.AsyncClient(), Resize("a")), str)
    assert_type(await resize.enqueue_many(session, [Resize("a")]), list[str])
    assert_type(await towpath.emit(own, "orders", "placed", subject_ref="7"), str)


def mistakes(session: Session) -> None:
    """Each of these must be an error; pyright reports an ignore that is not needed."""
    resize.enqueue(session, {"file": "a"})  # pyright: ignore[reportArgumentType, reportCallIssue]
    resize.enqueue(session, Resize("a"), priorty=1)  # pyright: ignore[reportCallIssue]
    resize.enqueue(session, Resize("a"), priority="1")  # pyright: ignore[reportCallIssue, reportArgumentType]
