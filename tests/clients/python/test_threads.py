"""The threads of blocking handlers: every call runs, as many at once as there are places, and none waits for another."""

from __future__ import annotations

import asyncio
import threading

import pytest

from towpath.threads import Threads


@pytest.mark.parametrize("size", [1, 2, 32])
def test_every_call_runs_once(size: int) -> None:
    """Short calls, in bursts: no wakeup is lost."""

    async def run() -> list[int]:
        threads = Threads(size)
        got: list[int] = []
        for burst in range(100):
            numbers = range(burst * 50, burst * 50 + 50)
            got += await asyncio.gather(*(threads.run(lambda n=number: n) for number in numbers))
            await asyncio.sleep(0)
        threads.close()
        return got

    assert asyncio.run(run()) == list(range(5000))


@pytest.mark.parametrize("size", [2, 32])
def test_calls_that_block_run_at_the_same_time(size: int) -> None:
    """Each call waits for all others: they end only if every place has a thread."""

    async def run() -> None:
        threads = Threads(size)
        for _ in range(20):
            barrier = threading.Barrier(size, timeout=60)
            await asyncio.gather(*(threads.run(barrier.wait) for _ in range(size)))
        threads.close()

    asyncio.run(run())


def test_what_a_call_raises_is_raised() -> None:
    async def run() -> None:
        threads = Threads(2)
        with pytest.raises(ZeroDivisionError):
            await threads.run(lambda: 1 // 0)
        with pytest.raises(RuntimeError, match="StopIteration"):
            await threads.run(lambda: next(iter([])))
        assert await threads.run(lambda: 7) == 7, "its thread goes on"
        threads.close()

    asyncio.run(run())
