#!/usr/bin/env python3
"""A Towpath worker in plain Python: claims jobs over HTTP, runs them and reports the results.

    TOWPATH_URL=http://127.0.0.1:4437 EXECUTOR_TOKEN=tpx_... python3 worker.py

Create the token with: towpath executor token create NAME
It claims up to BATCH jobs with one call and acknowledges them with one call. On SIGINT or SIGTERM it finishes
the current job, releases the others, and stops.
"""
import json, os, signal, socket, threading, time, urllib.error, urllib.request

URL = os.environ.get("TOWPATH_URL", "http://127.0.0.1:4437") + "/api/v1/jobs/"
HEADERS = {"Authorization": "Bearer " + os.environ["EXECUTOR_TOKEN"],
           "Towpath-Worker": f"{socket.gethostname()}-{os.getpid()}"}
LEASE_SECONDS = int(os.environ.get("LEASE_SECONDS", "60"))
BATCH = 20
ACK_SECONDS = int(os.environ.get("ACK_SECONDS", "1"))  # longest time until a finished job is acknowledged
stopping = threading.Event()
held = {}  # claimed and not finished: {job_id: {job_id, attempt}}
done = []  # finished and not acknowledged


class LeaseLost(Exception):
    """The job was cancelled, or another worker has it now: stop working on it."""


def call(verb, **body):
    request = urllib.request.Request(URL + verb, json.dumps(body).encode(), HEADERS)
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return json.load(response)
    except urllib.error.HTTPError as error:
        answer = json.load(error)
        raise LeaseLost(answer["detail"]) if error.code == 409 else RuntimeError(f"{verb}: {answer}") from None


def run(job, progress):
    """Your work. An exception is recorded, and the job is retried later."""
    if job["payload_json"].get("fail"):
        raise ValueError("told to fail")
    progress(50, "half way")
    print("done", job["job_kind"], json.dumps(job["payload_json"]), flush=True)


def work(job):
    lease = held[job["job_id"]]
    try:
        call("start", **lease)
        try:
            run(job, lambda percent, message: call("progress", percent=percent, message=message, **lease))
        except LeaseLost:
            raise
        except Exception as error:
            call("fail", error=f"{type(error).__name__}: {error}", **lease)
        else:
            done.append(lease)
            return  # finished by the next acknowledge()
    except LeaseLost as lost:
        print("dropped:", lost, flush=True)
    held.pop(job["job_id"], None)


def acknowledge():
    if done:
        for lost in call("ack_many", jobs=done)["lost"]:
            print("dropped:", lost, flush=True)
        for lease in done:
            held.pop(lease["job_id"], None)
        done.clear()


def work_on_a_batch():
    acknowledge()  # what could not be acknowledged the last time
    call("heartbeat")
    jobs = call("claim", limit=BATCH, wait_seconds=5, lease_seconds=LEASE_SECONDS)["jobs"]
    held.update({job["job_id"]: {"job_id": job["job_id"], "attempt": job["attempt"]} for job in jobs})
    acknowledged = time.monotonic()
    while jobs and not stopping.is_set():
        work(jobs.pop(0))
        if time.monotonic() - acknowledged > ACK_SECONDS:
            acknowledge()
            acknowledged = time.monotonic()
    acknowledge()
    if jobs:
        call("release", jobs=[held[job["job_id"]] for job in jobs])


def keep():
    """Renews all leases, because a batch may take longer than one lease. A failed call is retried the next
    time; a lost lease is reported to the code that works on the job."""
    while True:
        time.sleep(LEASE_SECONDS / 3)
        for lease in list(held.values()):
            try:
                call("extend", seconds=LEASE_SECONDS, **lease)
            except Exception as error:
                print("not extended:", error, flush=True)


def stop(*_):
    os.write(1, b"stopping\n")  # print is not safe in a signal handler
    stopping.set()


for name in (signal.SIGINT, signal.SIGTERM):
    signal.signal(name, stop)
threading.Thread(target=keep, daemon=True).start()
print("working", flush=True)
while not stopping.is_set():
    try:
        work_on_a_batch()
    except (OSError, RuntimeError, LeaseLost) as error:  # the server is down, or a gate is closed
        print("waiting:", error, flush=True)
        for job_id in held.keys() - {lease["job_id"] for lease in done}:
            held.pop(job_id)  # they are claimed again when their leases expire
        stopping.wait(2)
