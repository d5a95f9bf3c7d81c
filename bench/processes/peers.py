"""The one-step flow of bench/processes on absurd and DBOS, by their own packages, on the same PostgreSQL.

peers.py absurd|dbos DATABASE_URL --processes 2000

Each prints one line of JSON: from the first kickoff to the last end, and single ones on an idle worker.
"""

import argparse
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import time

import psycopg

SAMPLES = 50


def report(flow: str, processes: int, seconds: float, ways: list[float], version: str) -> None:
    line = {
        "flow": flow,
        "version": version,
        "processes": processes,
        "seconds": seconds,
        "processes_per_second": processes / seconds,
        "kickoff_to_terminal_p50_ms": statistics.median(ways) * 1e3,
    }
    print(json.dumps(line), flush=True)


def absurd_worker(url: str, concurrency: int) -> None:
    from absurd_sdk import Absurd

    app = Absurd(url, queue_name="bench")

    @app.register_task("one")
    def one(params, context):  # noqa: ANN001, ANN202
        return context.step("one", lambda: {"done": True})

    app.start_worker(concurrency=concurrency, batch_size=concurrency, poll_interval=0.001)


def absurd(url: str, processes: int, workers: int) -> None:
    """Several worker processes, as its documentation says for Python; kickoffs in one statement."""
    from importlib.metadata import version

    for command in (["init"], ["create-queue", "bench"]):
        control = [os.path.join(os.path.dirname(sys.executable), "absurdctl"), *command]
        subprocess.run(control, check=True, stdout=sys.stderr, env={**os.environ, "ABSURD_DATABASE_URL": url})
    running = [multiprocessing.Process(target=absurd_worker, args=(url, 50), daemon=True) for _ in range(workers)]
    for worker in running:
        worker.start()
    with psycopg.connect(url, autocommit=True) as client:
        spawn = "select count(*) from generate_series(1, %s) g, absurd.spawn_task('bench', 'one', jsonb_build_object('g', g), '{}')"
        open_tasks = "select count(*) from absurd.t_bench where state <> 'completed'"

        def run(count: int) -> float:
            began = time.monotonic()
            client.execute(spawn, (count,))
            while client.execute(open_tasks).fetchone()[0] > 0:
                time.sleep(0.002)
            return time.monotonic() - began

        run(processes // 10)
        seconds = run(processes)
        ways = []
        for _ in range(SAMPLES):
            time.sleep(0.02)
            ways.append(run(1))
    report("absurd", processes, seconds, ways, version("absurd-sdk"))
    for worker in running:
        worker.terminate()


def dbos(url: str, processes: int) -> None:
    from importlib.metadata import version

    from dbos import DBOS, DBOSConfig

    config: DBOSConfig = {"name": "bench", "system_database_url": url, "log_level": "ERROR"}
    DBOS(config=config)

    @DBOS.step()
    def work() -> dict[str, bool]:
        return {"done": True}

    @DBOS.workflow()
    def one() -> dict[str, bool]:
        return work()

    DBOS.launch()
    queue = DBOS.register_queue("bench", polling_interval_sec=0.01)

    def run(count: int) -> float:
        began = time.monotonic()
        for handle in [queue.enqueue(one) for _ in range(count)]:
            handle.get_result(polling_interval_sec=0.002)
        return time.monotonic() - began

    def started(count: int) -> float:
        began = time.monotonic()
        for handle in [DBOS.start_workflow(one) for _ in range(count)]:
            handle.get_result()
        return time.monotonic() - began

    run(processes // 10)
    report("dbos, queue", processes, run(processes), [run(1) for _ in range(SAMPLES)], version("dbos"))
    started(processes // 10)
    report("dbos, started", processes, started(processes), [started(1) for _ in range(SAMPLES)], version("dbos"))
    DBOS.destroy()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("peer", choices=["absurd", "dbos"])
    parser.add_argument("url")
    parser.add_argument("--processes", type=int, default=2000)
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    if given.peer == "absurd":
        absurd(given.url, given.processes, given.workers)
    else:
        dbos(given.url, given.processes)
