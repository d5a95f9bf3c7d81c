"""Measures workers over HTTP: processes that claim 100 jobs and ack them in one call, until none is left.

    bench/jobs/http_workers.py PROGRAM [--jobs 100000] [--workers 4] [--claim 100]

PROGRAM is a release build of towpath. It runs on a directory of its own, with a private PostgreSQL, and is stopped
at the end. The handlers do nothing, so this is the rate of the API, the database and the JSON between them. Prints
one row of JSON.
"""

import argparse
import http.client
import json
import multiprocessing
import os
import signal
import subprocess
import tempfile
import time
import urllib.parse

KIND = "bench"
ENQUEUE = 1000


class Api:
    """One connection to the server."""

    def __init__(self, url, token):
        self.connection = http.client.HTTPConnection(urllib.parse.urlsplit(url).netloc)
        self.headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}

    def post(self, path, body):
        self.connection.request("POST", "/api/v1/" + path, json.dumps(body), self.headers)
        response = self.connection.getresponse()
        answer = json.loads(response.read())
        if response.status >= 300:
            raise RuntimeError(f"{path}: {response.status} {answer}")
        return answer


def enqueue(url, token, jobs):
    api = Api(url, token)
    batch = [{"job_kind": KIND, "payload_json": {"ref": "a/b"}}] * ENQUEUE
    for left in range(jobs, 0, -ENQUEUE):
        api.post("jobs/enqueue_many", {"jobs": batch[:left]})


def work(url, token, claim, done):
    api = Api(url, token)
    while True:
        jobs = api.post("jobs/claim", {"limit": claim})["jobs"]
        if not jobs:
            return
        acks = [{key: job[key] for key in ("job_id", "attempt", "entry_id")} for job in jobs]
        acked = api.post("jobs/ack_many", {"jobs": acks})["acked"]
        with done.get_lock():
            done.value += acked


def measure(url, token, options):
    Api(url, token).post("executors/register", {"kinds": [KIND]})
    began = time.monotonic()
    enqueue(url, token, options.jobs)
    enqueued = time.monotonic() - began
    done = multiprocessing.Value("q", 0)
    workers = [
        multiprocessing.Process(target=work, args=(url, token, options.claim, done)) for _ in range(options.workers)
    ]
    began = time.monotonic()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    seconds = time.monotonic() - began
    if done.value != options.jobs or any(worker.exitcode for worker in workers):
        raise RuntimeError(f"{done.value} of {options.jobs} jobs were acked")
    return {
        "bench": "http_workers",
        "jobs": options.jobs,
        "workers": options.workers,
        "claim": options.claim,
        "enqueue_per_second": round(options.jobs / enqueued),
        "jobs_per_second": round(options.jobs / seconds),
        "cores": os.cpu_count(),
    }


def main():
    parser = argparse.ArgumentParser(description="Measures workers over HTTP.")
    parser.add_argument("program")
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--claim", type=int, default=100)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o755)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TOWPATH_")}
        environment.pop("DATABASE_URL", None)
        command = [options.program, "up", "--dev", "--json", "--data", directory + "/towpath", "--listen", "127.0.0.1:0"]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment, text=True)
        try:
            text = ""
            ready = None
            while ready is None:
                line = server.stdout.readline()
                if not line:
                    raise RuntimeError("the server did not become ready")
                text += line
                try:
                    ready = json.loads(text)
                except json.JSONDecodeError:
                    continue
            print(json.dumps(measure(ready["ready"], ready["token"], options)))
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait()


if __name__ == "__main__":
    main()
