"""The worker against the real program: nothing is lost, nothing ends twice, whatever is killed."""

from __future__ import annotations

import signal
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from battery_jobs import Stubborn, Wait, count, count_in_threads, stubborn, wait, wait_in_thread
from conftest import Towpath, runs_of, state_of, until, wait_state
from workers import worker

import towpath as tp

BOTH = pytest.mark.parametrize("job", [wait, wait_in_thread], ids=["coroutine", "thread"])


@BOTH
def test_killed_workers_jobs_run_again(towpath: Towpath, client: tp.Client, tmp_path: Path, job: Any) -> None:
    """Q08, Q10: SIGKILL in the middle of a job; the next worker runs it when its lease has ended."""
    with worker(towpath, tmp_path, "battery_jobs", "--lease-seconds", "3") as killed:
        job_id = client.enqueue(job, Wait(str(tmp_path)))
        until("the handler began", (tmp_path / "began-1").exists)
        killed.signal(signal.SIGKILL)
        killed.wait_exit()
    (tmp_path / "go").touch()
    # The backoff after a lost lease is not what this test is about. Nobody can claim the job before it is retried.
    wait_state(towpath, job_id, "retry_waiting")
    towpath.command("job", "retry", job_id)
    with worker(towpath, tmp_path):
        wait_state(towpath, job_id, "succeeded")
    # On a slow machine the lease may have ended before the kill, too.
    *before, last = runs_of(towpath, job_id)
    assert set(before) == {"lost"} and last == "succeeded", before


@BOTH
def test_sigterm_drains(towpath: Towpath, client: tp.Client, tmp_path: Path, job: Any) -> None:
    """SIGTERM: running handlers end, nothing new begins, what never began is queued as before."""
    with worker(towpath, tmp_path, "battery_jobs", "--concurrency", "1") as drained:
        running = client.enqueue(job, Wait(str(tmp_path)))
        until("the handler began", (tmp_path / "began-1").exists)
        queued = client.enqueue_many(count, [{"n": n} for n in range(5)])
        drained.signal(signal.SIGTERM)
        drained.wait_for("stopping")
        assert drained.is_alive and state_of(towpath, running) in ("leased", "in_progress")
        (tmp_path / "go").touch()
        assert drained.wait_exit() == 0, drained.said()
    assert (state_of(towpath, running), runs_of(towpath, running)) == ("succeeded", ["succeeded"])
    assert {state_of(towpath, job_id) for job_id in queued} == {"queued"}
    with worker(towpath, tmp_path):
        for job_id in queued:
            wait_state(towpath, job_id, "succeeded")


@pytest.mark.parametrize("kind", ["coroutine", "thread", "stubborn thread"])
def test_drain_gives_up_what_does_not_end(
    towpath: Towpath, client: tp.Client, tmp_path: Path, kind: str
) -> None:
    """A handler that outlives drain_seconds: the worker ends all the same, and the job is retried elsewhere."""
    with worker(towpath, tmp_path, "battery_jobs", "--drain-seconds", "0.5") as drained:
        if kind == "stubborn thread":
            job_id = client.enqueue(stubborn, Stubborn(str(tmp_path)), max_attempts=1)
        else:
            job_id = client.enqueue(
                wait if kind == "coroutine" else wait_in_thread, Wait(str(tmp_path)), max_attempts=1
            )
        until("the handler began", (tmp_path / "began-1").exists)
        drained.signal(signal.SIGTERM)
        assert drained.wait_exit() == 0, drained.said()
    assert state_of(towpath, job_id) == "dead_letter", "the last attempt"
    assert "the worker stopped" in client.job(job_id).error


def test_second_signal_ends_at_once(towpath: Towpath, client: tp.Client, tmp_path: Path) -> None:
    with worker(towpath, tmp_path, "battery_jobs", "--lease-seconds", "1") as stopped:
        job_id = client.enqueue(stubborn, Stubborn(str(tmp_path)), max_attempts=1)
        until("the handler began", (tmp_path / "began-1").exists)
        stopped.signal(signal.SIGTERM)
        stopped.wait_for("stopping")
        stopped.signal(signal.SIGTERM)
        assert stopped.wait_exit() == 128 + signal.SIGTERM
    wait_state(towpath, job_id, "dead_letter")


@BOTH
def test_lost_lease_cancels_the_handler(
    towpath: Towpath, client: tp.Client, tmp_path: Path, job: Any
) -> None:
    """Q08: a job that is cancelled under a handler's hands; the worker tells the handler and works on."""
    # A third of a lease passes before the worker is told; the rest is for a machine that is slow.
    with worker(towpath, tmp_path, "battery_jobs", "--lease-seconds", "9") as working:
        job_id = client.enqueue(job, Wait(str(tmp_path)))
        until("the handler began", (tmp_path / "began-1").exists)
        assert client.cancel(job_id, "not needed") == "cancelled"
        until("the handler was cancelled", (tmp_path / "cancelled").exists)
        after = client.enqueue(count, {})
        assert client.wait(after, 60).state == "succeeded"
        assert working.is_alive
    assert (state_of(towpath, job_id), runs_of(towpath, job_id)) == ("cancelled", ["cancelled"])


@BOTH
def test_a_worker_that_stood_still_cannot_end_anothers_job(
    towpath: Towpath, client: tp.Client, tmp_path: Path, job: Any
) -> None:
    """Q08: a worker is stopped for longer than its lease, and goes on while another one has its job."""
    with worker(
        towpath, tmp_path, "battery_jobs", "--lease-seconds", "3", "--concurrency", "1"
    ) as stalled:
        job_id = client.enqueue(job, Wait(str(tmp_path)))
        until("the handler began", (tmp_path / "began-1").exists)
        stalled.signal(signal.SIGSTOP)
        until("the lease has ended", lambda: runs_of(towpath, job_id) == ["lost"])
        # Without this the job waits for its backoff. Nobody else can claim it yet, so it is certainly not leased.
        towpath.command("job", "retry", job_id)
        with worker(towpath, tmp_path, "battery_jobs"):
            until("the other one has it", (tmp_path / "began-2").exists)
            stalled.signal(signal.SIGCONT)
            until("the first handler was cancelled", (tmp_path / "cancelled").exists)
            (tmp_path / "go").touch()
            wait_state(towpath, job_id, "succeeded")
    assert runs_of(towpath, job_id) == ["lost", "succeeded"]


@BOTH
def test_leases_are_extended(towpath: Towpath, client: tp.Client, tmp_path: Path, job: Any) -> None:
    """Q09: a handler that takes longer than its lease keeps it."""
    with worker(towpath, tmp_path, "battery_jobs", "--lease-seconds", "3"):
        job_id = client.enqueue(job, Wait(str(tmp_path)))
        until("the handler began", (tmp_path / "began-1").exists)
        lease = "select lease_until from towpath.job_queue where job_id = %s"
        first = towpath.sql(lease, job_id)[0]
        until("extended past the first one", lambda: (towpath.sql(lease, job_id)[0] - first).total_seconds() > 3)
        (tmp_path / "go").touch()
        assert client.wait(job_id, 60).state == "succeeded"
    assert runs_of(towpath, job_id) == ["succeeded"]


@BOTH
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL], ids=["stopped", "killed"])
def test_server_restart_loses_nothing(
    towpath: Towpath, client: tp.Client, tmp_path: Path, job: Any, how: signal.Signals
) -> None:
    """A handler that ends while the server is away is acknowledged when it is back; the worker goes on."""
    with worker(towpath, tmp_path) as working:
        job_id = client.enqueue(job, Wait(str(tmp_path)))
        until("the handler began", (tmp_path / "began-1").exists)
        towpath.stop(how)
        (tmp_path / "go").touch()
        working.wait_for("cannot tell the server how 1 jobs ended, trying again")
        towpath.start()
        assert client.wait(job_id, 60).state == "succeeded"
        assert client.wait(client.enqueue(count, {}), 60).state == "succeeded"
    assert runs_of(towpath, job_id) == ["succeeded"]


def test_closed_gate_stops_and_open_gate_resumes(towpath: Towpath, client: tp.Client, tmp_path: Path) -> None:
    """A gate that closes in the middle of a job: its end is kept, and the rest waits until the gate opens."""
    gate = "queue.job_substrate.enabled"
    with worker(towpath, tmp_path, "battery_jobs", "--concurrency", "1") as working:
        job_id = client.enqueue(wait, Wait(str(tmp_path)))
        until("the handler began", (tmp_path / "began-1").exists)
        queued = client.enqueue_many(count, [{"n": n} for n in range(20)])
        towpath.command("gate", "close", gate, "--why", "test")
        try:
            (tmp_path / "go").touch()
            working.wait_for("cannot tell the server how 1 jobs ended, trying again")
            working.wait_for("cannot claim, trying again")
            assert {state_of(towpath, job) for job in queued} == {"queued"}
        finally:
            towpath.command("gate", "open", gate, "--why", "test")
        for job in [job_id, *queued]:
            assert client.wait(job, 60).state == "succeeded"
    assert runs_of(towpath, job_id) == ["succeeded"]


def test_a_wrong_token_ends_the_worker(towpath: Towpath, tmp_path: Path) -> None:
    with (
        pytest.raises(AssertionError, match="token"),
        worker(towpath, tmp_path, environment={"TOWPATH_TOKEN": "tpx_wrong"}),
    ):
        pass


def ends_of(towpath: Towpath, kind: str) -> list[End]:
    """How every attempt of a kind ended, as the database has it."""
    ends = "select r.job_id::text, r.attempt, r.outcome from towpath._job_run_each r join towpath.job_queue q using (job_id) where q.job_kind = %s"
    return [End(*row) for row in towpath.sql(ends, kind)]


class End(NamedTuple):
    job: str
    attempt: int
    outcome: str


def faults(jobs: list[str], ends: list[End]) -> list[str]:
    """What is wrong with a history: jobs that were lost, and attempts and jobs that ended twice."""
    attempts = Counter((end.job, end.attempt) for end in ends)
    succeeded = Counter(end.job for end in ends if end.outcome == "succeeded")
    twice = [f"attempt {attempt} of {job} ended {times} times" for (job, attempt), times in attempts.items() if times > 1]
    return twice + [f"{job} succeeded {succeeded[job]} times" for job in jobs if succeeded[job] != 1]


def test_the_checker_finds_what_must_not_happen() -> None:
    good, failed, later = End("a", 1, "succeeded"), End("b", 1, "failed"), End("b", 2, "succeeded")
    assert faults(["a", "b"], [good, failed, later]) == []
    assert faults(["a", "b"], [good, failed]) == ["b succeeded 0 times"]
    assert faults(["a", "b"], [good, later, End("a", 2, "succeeded")]) == ["a succeeded 2 times"]
    assert faults(["a", "b"], [good, failed, failed, later]) == ["attempt 1 of b ended 2 times"]


@pytest.mark.parametrize("job", [count, count_in_threads], ids=["coroutine", "thread"])
def test_ten_thousand_jobs(
    towpath: Towpath, client: tp.Client, tmp_path: Path, job: tp.Job[Any, Any]
) -> None:
    """Q06, Q08: of 10,000 jobs every one ends once, although a worker is killed on the way."""
    arguments = ("battery_jobs", "--concurrency", "100", "--lease-seconds", "5")
    before = {end.job for end in ends_of(towpath, job.kind)}
    jobs: list[str] = []
    ended = "select count(*) from towpath.job_queue where job_kind = %s and state = 'succeeded'"
    already = towpath.sql(ended, job.kind)[0]
    with worker(towpath, tmp_path, *arguments) as killed:
        for at in range(0, 10_000, 1000):
            jobs += client.enqueue_many(job, [{"n": n} for n in range(at, at + 1000)])
        until("some have ended", lambda: towpath.sql(ended, job.kind)[0] > already)
        killed.signal(signal.SIGKILL)
        killed.wait_exit()
    with worker(towpath, tmp_path, *arguments):
        # Counting costs the database as much as many jobs, so it is done seldom.
        until("all have ended", lambda: towpath.sql(ended, job.kind)[0] == already + 10_000, every=0.5)
    assert faults(jobs, [end for end in ends_of(towpath, job.kind) if end.job not in before]) == []
