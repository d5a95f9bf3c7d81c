"""Towpath: durable jobs and events in PostgreSQL.

@job("resize")
async def resize(args: Resize, ctx: AsyncContext) -> dict[str, int]: ...

with connection.transaction():                       # psycopg, asyncpg, SQLAlchemy, Django
    connection.execute("insert into picture …")
    resize.enqueue(connection, Resize(file="a.png"), key="a.png")

python -m towpath work app.jobs --concurrency 32
"""

from .calls import JobState, JobStatus, JobToken
from .client import AsyncClient, Client
from .context import AsyncContext, Context
from .errors import (
    Conflict,
    GateClosed,
    Invalid,
    LeaseLost,
    NoSubscription,
    NotAuthorised,
    NotFound,
    Paused,
    PermanentError,
    RetryAfter,
    Snooze,
    TowpathError,
    Unavailable,
)
from .job import Entry, Job, emit, job
from .options import EmitOptions, EnqueueOptions
from .worker import AnyContext, Middleware, Next, Worker, work

__all__ = [
    "AnyContext",
    "AsyncClient",
    "AsyncContext",
    "Client",
    "Conflict",
    "Context",
    "EmitOptions",
    "EnqueueOptions",
    "Entry",
    "GateClosed",
    "Invalid",
    "Job",
    "JobState",
    "JobStatus",
    "JobToken",
    "LeaseLost",
    "Middleware",
    "Next",
    "NoSubscription",
    "NotAuthorised",
    "NotFound",
    "Paused",
    "PermanentError",
    "RetryAfter",
    "Snooze",
    "TowpathError",
    "Unavailable",
    "Worker",
    "emit",
    "job",
    "work",
]
