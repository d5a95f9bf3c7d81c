"""Threads for handlers that are no coroutines."""

from __future__ import annotations

import asyncio
import contextvars
import queue
import threading
from collections.abc import Callable
from typing import Any


class Threads:
    """Up to `size` threads, started as they are needed.

    They are daemons, unlike those of `concurrent.futures`: a handler that does not end when it
    should must not keep the process from ending.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._started = 0
        self._busy = 0
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()

    async def run(self, function: Callable[..., Any], *args: Any) -> Any:
        """Calls a function in a thread, with the caller's context variables."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Any] = loop.create_future()
        context = contextvars.copy_context()

        def call() -> None:
            try:
                value, error = context.run(function, *args), None
            except BaseException as raised:  # it belongs to the task that waits
                value, error = None, raised
            try:
                loop.call_soon_threadsafe(_settle, done, value, error)
            except RuntimeError:
                pass  # the loop has ended: no task waits for this any more

        self._busy += 1
        if self._started < min(self._busy, self._size):
            self._started += 1
            threading.Thread(target=self._serve, name=f"towpath-{self._started}", daemon=True).start()
        self._work.put(call)
        try:
            return await done
        finally:
            self._busy -= 1

    def close(self) -> None:
        """Lets idle threads end."""
        for _ in range(self._started):
            self._work.put(None)

    def _serve(self) -> None:
        while (call := self._work.get()) is not None:
            call()


def _settle(done: asyncio.Future[Any], value: Any, error: BaseException | None) -> None:
    if done.cancelled():
        return
    if error is None:
        done.set_result(value)
    elif isinstance(error, (StopIteration, asyncio.CancelledError)):
        # Neither can pass through a future as it is.
        done.set_exception(RuntimeError(f"the handler raised {type(error).__name__}"))
    else:
        done.set_exception(error)
