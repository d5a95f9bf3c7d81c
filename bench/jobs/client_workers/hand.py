"""Claims 100 jobs and acks them in one call, by hand, JOBS times in all: hand.py KIND JOBS"""

import os
import sys

import httpx

kind, wanted = sys.argv[1], int(sys.argv[2])
headers = {"authorization": f"Bearer {os.environ['TOWPATH_TOKEN']}", "towpath-worker": "by-hand"}
with httpx.Client(base_url=os.environ["TOWPATH_URL"] + "/api/v1", headers=headers) as http:
    http.post("/executors/register", json={"kinds": [kind]}).raise_for_status()
    done = 0
    while done < wanted:
        claim = {"kinds": [kind], "limit": 100, "wait_seconds": 5, "lease_seconds": 60}
        jobs = http.post("/jobs/claim", json=claim).raise_for_status().json()["jobs"]
        acks = [{name: job[name] for name in ("job_id", "attempt", "entry_id")} for job in jobs]
        done += http.post("/jobs/ack_many", json={"jobs": acks}).raise_for_status().json()["acked"]
