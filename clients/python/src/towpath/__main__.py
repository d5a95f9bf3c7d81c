"""`python -m towpath work app.jobs --concurrency 32`"""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import sys
from typing import Any, cast

from .errors import TowpathError
from .job import Job
from .worker import work


def main(arguments: list[str] | None = None) -> int:
    given = _parser().parse_args(arguments)
    logging.basicConfig(
        level=given.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    # One line per request of the HTTP client says nothing that the worker does not say.
    logging.getLogger("httpx").setLevel(logging.WARNING)
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        work(
            jobs_of(given.modules),
            concurrency=given.concurrency,
            executor=given.executor,
            lease_seconds=given.lease_seconds,
            drain_seconds=given.drain_seconds,
            middleware=[_named(name) for name in given.middleware],
        )
    except TowpathError as error:
        print(f"towpath: {error}", file=sys.stderr)
        return 1
    return 0


def jobs_of(modules: list[str]) -> list[Job[Any, Any]]:
    """The job definitions in these modules, each once. A module may list more of them in `towpath_jobs()`."""
    found: dict[int, Job[Any, Any]] = {}
    for name in modules:
        module = importlib.import_module(name)
        values: list[Any] = [*vars(module).values(), *getattr(module, "towpath_jobs", list)()]
        for value in values:
            if isinstance(value, Job):
                found[id(cast("Any", value))] = cast("Job[Any, Any]", value)
    return list(found.values())


def _named(name: str) -> Any:
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m towpath",
        description="Towpath for Python. TOWPATH_URL and TOWPATH_TOKEN name the server and its token.",
    )
    verbs = parser.add_subparsers(required=True, metavar="VERB")
    verb = verbs.add_parser("work", help="run a worker for the jobs of some modules")
    verb.add_argument(
        "modules", nargs="+", metavar="MODULE", help="a module with job definitions, as in app.jobs"
    )
    verb.add_argument("--concurrency", type=int, default=32, metavar="N", help="jobs at once (default: 32)")
    verb.add_argument("--executor", metavar="NAME", help="refuse a token of another executor")
    verb.add_argument(
        "--lease-seconds", type=int, default=60, metavar="N", help="length of a lease (default: 60)"
    )
    verb.add_argument(
        "--drain-seconds",
        type=float,
        default=30,
        metavar="N",
        help="how long a stop waits for handlers (default: 30)",
    )
    verb.add_argument(
        "--middleware",
        action="append",
        default=[],
        metavar="MODULE:NAME",
        help="runs around each handler; repeatable",
    )
    verb.add_argument(
        "--log-level", default="info", metavar="LEVEL", help="debug, info, warning or error (default: info)"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
