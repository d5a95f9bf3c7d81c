"""S02: the official Python client works unchanged."""

import os
import threading
import uuid

from durable_streams import DurableStream, stream

BASE = os.environ["STREAMS_URL"]


def fresh(path):
    return f"{BASE}{path}/python-{uuid.uuid4()}"


def creates_appends_and_reads(path):
    handle = DurableStream.create(fresh(path), content_type="application/json", ttl_seconds=60)
    handle.append({"n": 1})
    handle.append({"n": 2})
    with stream(handle.url, live=False) as read:
        assert read.read_json() == [{"n": 1}, {"n": 2}]
    handle.delete()


def follows(path, live):
    handle = DurableStream.create(fresh(path), content_type="application/json")

    def write():
        for n in range(20):
            handle.append({"n": n})

    writer = threading.Thread(target=write)
    writer.start()
    seen = []
    with stream(handle.url, offset="-1", live=live) as read:
        for item in read.iter_json():
            seen.append(item["n"])
            if len(seen) == 20:
                break
    writer.join()
    assert seen == list(range(20)), seen


passed = 0
for path in ["/v1/stream", "/v1/shop/stream"]:
    creates_appends_and_reads(path)
    follows(path, "long-poll")
    follows(path, "sse")
    passed += 3
print(f"python client: {passed} passed")
