"""How a handler can end, and what surrounds it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from battery_jobs import Do, do, do_in_thread
from conftest import Towpath, runs_of
from workers import worker

import towpath as tp


@pytest.fixture(params=[do, do_in_thread], ids=["coroutine", "thread"])
def doing(request: pytest.FixtureRequest, towpath: Towpath, client: tp.Client, tmp_path_factory: Any) -> Any:
    """Runs one job and returns how it ended."""

    def ended(what: str, size: int = 0, **options: Any) -> tp.JobStatus:
        return client.wait(client.enqueue(request.param, Do(what, size), **options), 60)

    with worker(towpath, tmp_path_factory.mktemp("do")):
        yield ended


def test_each_way_to_end(towpath: Towpath, client: tp.Client, doing: Any) -> None:
    returned = doing("return", max_attempts=7)
    assert (returned.state, returned.percent) == ("succeeded", 100)
    assert returned.result == {"what": "return", "id": returned.id, "attempt": 1, "of": 7}

    failed = doing("fail", max_attempts=1)
    assert (failed.state, failed.error) == ("dead_letter", "ValueError: told to fail")
    for_good = doing("fail for good")
    assert for_good.state == "dead_letter" and "told to fail for good" in for_good.error

    retried = doing("retry")
    assert (retried.state, retried.result) == ("succeeded", 2)
    assert runs_of(towpath, retried.id) == ["failed", "succeeded"]
    snoozed = doing("snooze", max_attempts=1)
    assert (snoozed.state, snoozed.result) == ("succeeded", 2)
    assert runs_of(towpath, snoozed.id) == ["snoozed", "succeeded"]

    assert doing("large", size=65_000).state == "succeeded"
    large = doing("large", size=66_000)
    assert large.state == "succeeded" and list(large.result) == ["payload_ref"]
    assert client.result(large.id) == "x" * 66_000
    too_large = doing("large", size=3 << 20)
    assert too_large.state == "dead_letter" and "at most 2097152 are kept" in too_large.error
    assert client.result(returned.id) == returned.result
    with pytest.raises(tp.NotFound, match="has no result"):
        client.result(failed.id)
    not_json = doing("not json")
    assert not_json.state == "dead_letter" and "no JSON" in not_json.error
    for what in ("not text", "zero"):
        refused = doing(what)
        assert refused.state == "dead_letter" and refused.error.startswith("result: "), refused
    assert doing("fail with zero", max_attempts=1).error == "ValueError: ?"
    assert doing("exit", max_attempts=1).error == "SystemExit: told to exit"


def test_arguments_that_do_not_fit_are_a_dead_letter(
    towpath: Towpath, client: tp.Client, tmp_path: Path
) -> None:
    with worker(towpath, tmp_path):
        ended = client.wait(client.enqueue("do", {"what": 7}), 60)
    assert ended.state == "dead_letter" and "args.what: expected str, got int" in str(ended.error)


def test_middleware_runs_around_each_handler(towpath: Towpath, client: tp.Client, tmp_path: Path) -> None:
    with worker(towpath, tmp_path, "battery_jobs", "--middleware", "battery_jobs:noted"):
        for job in (do, do_in_thread):
            assert client.wait(client.enqueue(job, Do("return")), 60).result["noted"] == job.kind
