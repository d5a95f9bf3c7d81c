#!/usr/bin/env python3
"""A Towpath worker in plain Python: claims jobs over HTTP, runs them, says how they ended.

    TOWPATH_URL=http://127.0.0.1:4437 EXECUTOR_TOKEN=tpx_... python3 worker.py

Make the token with: towpath executor token create NAME
Stops after the job in hand on SIGINT or SIGTERM.
"""
import json, os, signal, socket, threading, urllib.error, urllib.request

URL = os.environ.get("TOWPATH_URL", "http://127.0.0.1:4437") + "/api/v1/jobs/"
HEADERS = {"Authorization": "Bearer " + os.environ["EXECUTOR_TOKEN"],
           "Towpath-Worker": f"{socket.gethostname()}-{os.getpid()}"}
LEASE_SECONDS = 60
stopping = threading.Event()


class LeaseLost(Exception):
    """Somebody else has the job now: stop working on it."""


def call(verb, **body):
    request = urllib.request.Request(URL + verb, json.dumps(body).encode(), HEADERS)
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return json.load(response)
    except urllib.error.HTTPError as error:
        answer = json.load(error)
        raise LeaseLost(answer["detail"]) if error.code == 409 else RuntimeError(f"{verb}: {answer}") from None


def run(job, progress):
    """Your work. What it raises is recorded, and the job is tried again later."""
    if job["payload_json"].get("fail"):
        raise ValueError("told to fail")
    progress(50, "half way")
    print("done", job["job_kind"], json.dumps(job["payload_json"]), flush=True)


def work(job):
    held = {"job_id": job["job_id"], "attempt": job["attempt"]}
    done = threading.Event()

    def keep():  # a job may take longer than its lease
        while not done.wait(LEASE_SECONDS / 3):
            call("extend", seconds=LEASE_SECONDS, **held)

    call("start", **held)
    threading.Thread(target=keep, daemon=True).start()
    try:
        run(job, lambda percent, message: call("progress", percent=percent, message=message, **held))
        call("ack", **held)
    except LeaseLost as lost:
        print("dropped:", lost, flush=True)
    except Exception as error:
        call("fail", error=f"{type(error).__name__}: {error}", **held)
    finally:
        done.set()


for name in (signal.SIGINT, signal.SIGTERM):
    signal.signal(name, lambda *_: stopping.set())
print("working", flush=True)
while not stopping.is_set():
    try:
        call("heartbeat")
        for job in call("claim", wait_seconds=5, lease_seconds=LEASE_SECONDS)["jobs"]:
            work(job)
    except (OSError, RuntimeError) as error:  # the server is away, or a gate is closed
        print("waiting:", error, flush=True)
        stopping.wait(2)
