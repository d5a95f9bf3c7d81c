"""Threads for handlers that are no coroutines."""

from __future__ import annotations

import asyncio
import contextvars
import queue
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

Then = Callable[[], None]
"""What the event loop does when a call has ended."""


class Threads:
    """Up to `size` threads, started as they are needed.

    They are daemons, unlike those of `concurrent.futures`: a handler that does not end when it should must not
    keep the process from ending.

    Waking a thread or the loop costs more than a short handler. So at most one thread is being woken at a time: it
    wakes the next one before its own call, which may block, if there is still work. And the loop gets ended calls
    together.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._lock = threading.Lock()
        self._started = 0
        self._idle = 0
        self._waking = False
        self._closed = False
        self._calls: deque[Callable[[], Then]] = deque()
        self._wakes: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._ended: deque[Then] = deque()
        self._loop_told = False

    def submit(self, call: Callable[[], Then]) -> None:
        """Calls it in a thread, with the caller's context variables; then the loop calls what it returned."""
        self._loop = asyncio.get_running_loop()
        context = contextvars.copy_context()
        self._calls.append(lambda: context.run(call))
        self._wake_one()

    async def run(self, function: Callable[..., Any], *args: Any) -> Any:
        """Calls a function in a thread, and waits for what it returns."""
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def call() -> Then:
            try:
                value, error = function(*args), None
            except BaseException as raised:  # it belongs to the task that waits
                value, error = None, raised
            return lambda: _settle(done, value, error)

        self.submit(call)
        return await done

    def close(self) -> None:
        """Lets idle threads end, and the others when their call has ended."""
        with self._lock:
            self._closed = True
            for _ in range(self._started):
                self._wakes.put(None)

    def _wake_one(self) -> None:
        with self._lock:
            if self._waking or not self._calls:
                return
            if self._idle == 0:
                if self._started == self._size:
                    return  # the next thread that is done takes it
                self._started += 1
                name = f"towpath-{self._started}"
                threading.Thread(target=self._serve, name=name, daemon=True).start()
            else:
                self._idle -= 1
            self._waking = True
            self._wakes.put(None)

    def _serve(self) -> None:
        while True:
            self._wakes.get()
            # Before it looks for calls: one that is added from now on wakes another thread.
            self._waking = False
            while (call := self._next()) is not None:
                self._wake_one()
                self._tell_loop(call())
            if self._closed:
                return

    def _next(self) -> Callable[[], Then] | None:
        """The next call, or None: the thread is idle."""
        with self._lock:
            if self._calls:
                return self._calls.popleft()
            self._idle += 1
            return None

    def _tell_loop(self, then: Then) -> None:
        self._ended.append(then)
        if not self._loop_told:
            self._loop_told = True
            try:
                self._loop.call_soon_threadsafe(self._then)
            except RuntimeError:
                pass  # the loop has ended: no task waits for this any more

    def _then(self) -> None:
        # Before it looks for ended calls: one that is added from now on tells the loop again.
        self._loop_told = False
        while self._ended:
            self._ended.popleft()()


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
