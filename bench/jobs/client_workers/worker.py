"""Works on JOBS jobs with the package, in coroutines or in threads, and ends: worker.py KIND JOBS"""

import asyncio
import itertools
import sys
from typing import Any

from towpath import Worker, job

kind, wanted = sys.argv[1], int(sys.argv[2])
ran = itertools.count(1)


def count() -> None:
    # Only the last one tells the loop.
    if next(ran) == wanted:
        loop.call_soon_threadsafe(worker.stop)


@job("python_coroutines")
async def coroutine(args: dict[str, Any]) -> None:
    count()


@job("python_threads")
def thread(args: dict[str, Any]) -> None:
    count()


async def main() -> None:
    global loop, worker
    loop = asyncio.get_running_loop()
    worker = Worker([coroutine if kind == "python_coroutines" else thread], concurrency=100)
    await worker.run()


asyncio.run(main())
