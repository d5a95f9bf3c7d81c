"""The caller's own database handle: recognised by its shape, without importing a driver.

| handle | told by |
|---|---|
| asyncpg connection | `fetchval` and `transaction` |
| SQLAlchemy Connection, Session, AsyncConnection, AsyncSession | `exec_driver_sql`, or `get_bind` and `connection` |
| Django connection, cursor | `vendor` and `ensure_connection`, or a cursor whose `db` is one |
| psycopg connection, cursor; sync and async | `pgconn`, or a cursor whose `connection` has it |

The statement runs in the transaction that the handle is in. A cursor of the caller keeps its rows: the
statement gets a cursor of its own on the same connection.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from .arguments import dumps
from .errors import Invalid, from_driver
from .options import SQL_TYPES


class AsyncHandle(Protocol):
    """A handle whose statements are awaited: psycopg, asyncpg, SQLAlchemy."""

    def execute(self, *args: Any, **kwargs: Any) -> Awaitable[Any]: ...


class SyncHandle(Protocol):
    """A handle whose statements block: psycopg, SQLAlchemy."""

    def execute(self, *args: Any, **kwargs: Any) -> Any: ...


class CursorHandle(Protocol):
    """A handle that makes cursors: a Django connection."""

    def cursor(self) -> Any: ...


class Statement:
    """A call of one SQL function by parameter names, with its values as text.

    Each value is sent as text and cast in SQL, so it does not matter which codecs and row
    factories a connection has.
    """

    def __init__(self, function: str, parameters: Mapping[str, Any], returns: str) -> None:
        self.function = function
        self.names = list(parameters)
        self.values = [value if isinstance(value, str) else dumps(value) for value in parameters.values()]
        self.returns = returns

    def sql(self, placeholder: Callable[[int], str]) -> str:
        """The text, with `placeholder(number)` for the value of each number from 1 on."""
        given = ", ".join(
            f"{name} => cast(cast({placeholder(number)} as text) as {SQL_TYPES.get(name, 'text')})"
            for number, name in enumerate(self.names, 1)
        )
        return f"select cast(towpath.{self.function}({given}) as {self.returns})"

    @property
    def formatted(self) -> str:
        return self.sql(lambda _: "%s")

    @property
    def numbered(self) -> str:
        return self.sql(lambda number: f"${number}")


def is_async(handle: Any) -> bool:
    """Whether statements on this handle are awaited."""
    if _is_asyncpg(handle):
        return True
    return inspect.iscoroutinefunction(getattr(handle, "execute", None))


def run(handle: Any, statement: Statement) -> Any:
    """Runs a statement on a handle that blocks, and returns its one value."""
    try:
        if _is_sqlalchemy(handle):
            return _alchemy_connection(handle).execute(*_alchemy(statement)).scalar_one()
        with _cursor(handle) as cursor:
            cursor.execute(*_for(cursor, statement))
            return cursor.fetchone()[0]
    except Exception as error:
        raise from_driver(error) or error from _cause(error)


async def run_async(handle: Any, statement: Statement) -> Any:
    """The same on a handle that is awaited."""
    try:
        if _is_asyncpg(handle):
            return await handle.fetchval(statement.numbered, *statement.values)
        if _is_sqlalchemy(handle):
            connection = await _alchemy_connection(handle) if _is_session(handle) else handle
            return (await connection.execute(*_alchemy(statement))).scalar_one()
        async with _cursor(handle) as cursor:
            await cursor.execute(*_for(cursor, statement))
            return (await cursor.fetchone())[0]
    except Exception as error:
        raise from_driver(error) or error from _cause(error)


def _cause(error: Exception) -> BaseException | None:
    """The driver's error is the cause of ours; an error that is not ours keeps its own cause."""
    return error if from_driver(error) is not None else error.__cause__


def _is_asyncpg(handle: Any) -> bool:
    return hasattr(handle, "fetchval") and hasattr(handle, "transaction")


def _is_session(handle: Any) -> bool:
    return hasattr(handle, "get_bind") and hasattr(handle, "connection")


def _is_sqlalchemy(handle: Any) -> bool:
    return hasattr(handle, "exec_driver_sql") or _is_session(handle)


def _alchemy_connection(handle: Any) -> Any:
    """The connection of a session's transaction; SQLModel's session warns on `execute`."""
    return handle.connection() if _is_session(handle) else handle


def _alchemy(statement: Statement) -> tuple[Any, dict[str, str]]:
    text: Any = sys.modules["sqlalchemy"].text
    values = {f"p{number}": value for number, value in enumerate(statement.values, 1)}
    return text(statement.sql(lambda number: f":p{number}")), values


def _is_django(handle: Any) -> bool:
    return hasattr(handle, "vendor") and hasattr(handle, "ensure_connection")


def _cursor(handle: Any) -> Any:
    """A new cursor on the connection of a Django or psycopg handle."""
    if _is_django(getattr(handle, "db", None)):
        handle = handle.db
    if _is_django(handle):
        if handle.vendor != "postgresql":
            raise Invalid(
                f"this Django connection is to {handle.vendor}", hint="Enqueue on a connection to PostgreSQL."
            )
        return handle.cursor()
    if hasattr(getattr(handle, "connection", None), "pgconn"):
        handle = handle.connection
    if not hasattr(handle, "pgconn"):
        raise Invalid(
            f"{type(handle).__module__}.{type(handle).__qualname__} is no database handle that is known here",
            hint="Pass a connection, cursor or session of psycopg, asyncpg, SQLAlchemy or Django that is in your"
            " transaction; a pool or an engine has none. Pass a Client to enqueue over HTTP.",
        )
    return handle.cursor(row_factory=_plain_rows)


def _plain_rows(_cursor: Any) -> Any:
    """psycopg's row factory for tuples, whatever factory the connection has."""
    return tuple


def _for(cursor: Any, statement: Statement) -> tuple[str, list[str]]:
    """The statement in the style of placeholders that the cursor reads: raw cursors of psycopg take numbers."""
    raw = any(kind.__name__ == "RawCursorMixin" for kind in type(cursor).__mro__)
    return (statement.numbered if raw else statement.formatted), statement.values
