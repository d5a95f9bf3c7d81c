"""Measures the workers of the packages beside calls that are batched by hand, in turns. See run."""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
PYTHON = [sys.executable, str(HERE / "worker.py")], [sys.executable, str(HERE / "hand.py")]
RUST = os.environ["CLIENT_WORKERS_RUST"]
KINDS = {
    "rust": ([RUST, "worker"], [RUST, "hand"]),
    "typescript": (["node", str(HERE / "worker.mjs")], ["node", str(HERE / "hand.mjs")]),
    "python_coroutines": PYTHON,
    "python_threads": PYTHON,
}
ENQUEUE = """select cardinality(towpath.enqueue_many((select jsonb_agg(jsonb_build_object(
    'kind', '{kind}', 'executor', '{executor}', 'payload', jsonb_build_object('ref', 'a/b'))) from generate_series(1, {jobs}))))"""
# By the database's own clock, from the first claim to the last ack; and that every job ran once.
RATE = """select count(*) / extract(epoch from max(finished_at) - min(picked_at)), count(*), count(distinct job_id)
    from towpath._job_run_each where job_id > '{after}' and outcome = 'succeeded'"""
NEWEST = "select coalesce((select job_id from towpath.job_queue order by job_id desc limit 1)::text, '00000000-0000-0000-0000-000000000000')"


class Server:
    """A release build on a directory of its own, with a private PostgreSQL."""

    def __init__(self, program, directory):
        self.program = program
        clean = {name: value for name, value in os.environ.items() if not name.startswith("TOWPATH_") and name != "DATABASE_URL"}
        self.environment = clean | {"TOWPATH_DATA": directory + "/towpath"}
        command = [program, "up", "--dev", "--json", "--listen", "127.0.0.1:0"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=self.environment, text=True)
        text = ""
        while True:
            line = self.process.stdout.readline()
            if not line:
                raise RuntimeError("the server did not become ready")
            text += line
            try:
                ready = json.loads(text)
                break
            except json.JSONDecodeError:
                continue
        self.environment |= {"TOWPATH_URL": ready["ready"], "TOWPATH_TOKEN": ready["token"]}
        # The worker in Rust talks to the database.
        self.environment["DATABASE_URL"] = self.run(program, "db", "url").strip()

    def run(self, *command):
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{command}: {done.stderr}")
        return done.stdout

    def sql(self, statement):
        return self.run(self.program, "db", "psql", "--", "-XAtc", statement).strip()

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()


def rate(server, program, kind, jobs):
    """Jobs per second of a program that works on so many jobs and ends."""
    after = server.sql(NEWEST)
    executor = "PG_worker" if kind == "rust" else "external_worker"
    server.sql(ENQUEUE.format(kind=kind, executor=executor, jobs=jobs))
    server.run(*program, kind, str(jobs))
    per_second, ended, distinct = server.sql(RATE.format(after=after)).split("|")
    if (int(ended), int(distinct)) != (jobs, jobs):
        raise RuntimeError(f"{kind}: {ended} runs of {distinct} jobs ended, not {jobs}")
    return float(per_second)


def main():
    parser = argparse.ArgumentParser(description="Measures the workers of the packages.")
    parser.add_argument("program", help="a release build of towpath")
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--kinds", default=",".join(KINDS))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o755)
        server = Server(os.path.abspath(options.program), directory)
        try:
            for kind in options.kinds.split(","):
                worker, hand = KINDS[kind]
                # Registers the kind, and fills caches.
                server.run(*hand, kind, "0")
                pairs = [(rate(server, worker, kind, options.jobs), rate(server, hand, kind, options.jobs)) for _ in range(options.rounds)]
                row = {
                    "bench": "client_workers",
                    "kind": kind,
                    "jobs": options.jobs,
                    "worker_per_second": [round(worker) for worker, _ in pairs],
                    "hand_per_second": [round(hand) for _, hand in pairs],
                    "percent_median": round(statistics.median(100 * worker / hand for worker, hand in pairs)),
                    "cores": os.cpu_count(),
                    "load": os.getloadavg()[0],
                }
                print(json.dumps(row), flush=True)
        finally:
            server.stop()


if __name__ == "__main__":
    main()
