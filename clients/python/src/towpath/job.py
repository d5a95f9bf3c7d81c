"""Job definitions: a kind, the type of its arguments, a handler, and defaults for the options."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Union, cast, get_type_hints, overload

from . import calls, describe, handles
from .arguments import from_json
from .client import AsyncClient, Client, default_client
from .context import AsyncContext, Context
from .errors import Invalid
from .handles import AsyncHandle, CursorHandle, Statement, SyncHandle
from .options import EmitOptions, EnqueueOptions, checked

if TYPE_CHECKING:
    from typing_extensions import Unpack

A = TypeVar("A")
R = TypeVar("R")

Entry = Union[A, "tuple[A, EnqueueOptions]"]
"""One job of `enqueue_many`: its arguments, alone or with its options."""


class Job(Generic[A, R]):
    """A job definition, made by `@job`. Calling it calls its handler, for tests."""

    def __init__(self, kind: str, handler: Callable[..., Any], defaults: EnqueueOptions) -> None:
        self.kind = kind
        self.handler = handler
        self.defaults = defaults
        checked(defaults, EnqueueOptions)
        self.is_async = inspect.iscoroutinefunction(handler)
        parameters = list(inspect.signature(handler).parameters.values())
        # An annotation that cannot be read now, such as one under TYPE_CHECKING, means plain JSON.
        try:
            hints = get_type_hints(handler)
        except NameError:
            hints = {}
        self._takes_args = bool(parameters) and not _is_context(parameters[0], hints)
        self._takes_context = len(parameters) > (1 if self._takes_args else 0)
        self._args_type: Any = hints.get(parameters[0].name, Any) if self._takes_args else None

    def __repr__(self) -> str:
        return f"Job({self.kind!r})"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.handler(*args, **kwargs)

    def read_args(self, payload: Any) -> A:
        """The payload of a claimed job as the handler's arguments."""
        return cast(A, from_json(self._args_type, payload))

    def invoke(self, args: A, context: Context | AsyncContext) -> Any:
        """Calls the handler with the parameters it takes."""
        given: list[Any] = [args] if self._takes_args else []
        return self.handler(*given, *([context] if self._takes_context else []))

    @overload
    def enqueue(self, args: A, /, **options: Unpack[EnqueueOptions]) -> str: ...
    @overload
    def enqueue(
        self, handle: AsyncClient | AsyncHandle, args: A, /, **options: Unpack[EnqueueOptions]
    ) -> Coroutine[Any, Any, str]: ...
    @overload
    def enqueue(
        self, handle: Client | SyncHandle | CursorHandle, args: A, /, **options: Unpack[EnqueueOptions]
    ) -> str: ...
    def enqueue(self, *given: Any, **options: Unpack[EnqueueOptions]) -> str | Coroutine[Any, Any, str]:
        """Enqueues a job and returns its id; on an asynchronous handle, what to await for it.

        On a database handle the job is part of the caller's transaction. A refusal raises, so
        the transaction cannot commit without its job. On a client, or without a handle, over HTTP.
        """
        handle, args = _handle_and(given)
        row = describe.job(self, args, options)
        return _over(handle, lambda: calls.enqueue(row), lambda: Statement("enqueue", row, "text"))

    @overload
    def enqueue_many(self, entries: Sequence[Entry[A]], /) -> list[str]: ...
    @overload
    def enqueue_many(
        self, handle: AsyncClient | AsyncHandle, entries: Sequence[Entry[A]], /
    ) -> Coroutine[Any, Any, list[str]]: ...
    @overload
    def enqueue_many(
        self, handle: Client | SyncHandle | CursorHandle, entries: Sequence[Entry[A]], /
    ) -> list[str]: ...
    def enqueue_many(self, *given: Any) -> list[str] | Coroutine[Any, Any, list[str]]:
        """Enqueues many jobs and returns their ids in order; on a database handle all of them or none."""
        handle, entries = _handle_and(given)
        rows = describe.jobs(self, entries)
        return _over(
            handle,
            lambda: calls.enqueue_many(rows),
            lambda: Statement("enqueue_many", {"jobs": rows}, "text[]"),
        )


class _Decorator:
    """What `@job("kind")` answers."""

    def __init__(self, kind: str, defaults: EnqueueOptions) -> None:
        self._kind = kind
        self._defaults = defaults

    @overload
    def __call__(self, handler: Callable[[A, AsyncContext], Awaitable[R]]) -> Job[A, R]: ...
    @overload
    def __call__(self, handler: Callable[[A, Context], R]) -> Job[A, R]: ...
    @overload
    def __call__(self, handler: Callable[[A], Awaitable[R]]) -> Job[A, R]: ...
    @overload
    def __call__(self, handler: Callable[[A], R]) -> Job[A, R]: ...
    @overload
    def __call__(self, handler: Callable[[], Awaitable[R]]) -> Job[None, R]: ...
    @overload
    def __call__(self, handler: Callable[[], R]) -> Job[None, R]: ...
    def __call__(self, handler: Callable[..., Any]) -> Job[Any, Any]:
        return Job(self._kind, handler, self._defaults)


def job(kind: str, **defaults: Unpack[EnqueueOptions]) -> _Decorator:
    """Makes a function the handler of a kind.

        @job("resize", max_attempts=5)
        async def resize(args: Resize, ctx: AsyncContext) -> dict[str, int]: ...

    The function takes the arguments and, if it wants to, the context; it may be `async` or not. What it returns
    is the job's result.
    """
    return _Decorator(kind, defaults)


@overload
def emit(
    handle: AsyncClient | AsyncHandle,
    domain: str,
    type: str,
    payload: Any = None,
    /,
    **options: Unpack[EmitOptions],
) -> Coroutine[Any, Any, str]: ...
@overload
def emit(
    handle: Client | SyncHandle | CursorHandle,
    domain: str,
    type: str,
    payload: Any = None,
    /,
    **options: Unpack[EmitOptions],
) -> str: ...
def emit(
    handle: Any, domain: str, type: str, payload: Any = None, /, **options: Unpack[EmitOptions]
) -> str | Coroutine[Any, Any, str]:
    """Emits an event in the caller's transaction and returns its id; on a client over HTTP."""
    event = describe.event(domain, type, payload, options)
    return _over(handle, lambda: calls.emit(event), lambda: Statement("emit", event, "text"))


def _is_context(parameter: inspect.Parameter, hints: Mapping[str, Any]) -> bool:
    """Whether the first parameter is the context: the job takes no arguments."""
    return hints.get(parameter.name) in (Context, AsyncContext) or parameter.name == "ctx"


def _handle_and(given: tuple[Any, ...]) -> tuple[Any, Any]:
    """The handle and the other argument; without a handle the default client."""
    if len(given) not in (1, 2):
        raise Invalid(f"enqueue takes a handle and arguments, not {len(given)} values")
    return given if len(given) == 2 else (default_client(), given[0])


def _over(handle: Any, call: Callable[[], calls.Call[Any]], statement: Callable[[], Statement]) -> Any:
    """Over HTTP on a client, in SQL on a database handle."""
    if isinstance(handle, (Client, AsyncClient)):
        return handle.send(call())
    return (handles.run_async if handles.is_async(handle) else handles.run)(handle, statement())
