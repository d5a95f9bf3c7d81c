"""A job's stream, read by the official Durable Streams client until the job has ended.

The stream begins with the job's first progress or append, so it may not be there yet. It is closed when the job has
ended; a job that said nothing has none.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any

from .calls import ENDED, JobToken
from .errors import Invalid

if TYPE_CHECKING:
    from .client import AsyncClient, Client

try:
    from durable_streams import HeadersLike, StreamNotFoundError, astream, stream
except ImportError as error:
    raise Invalid(
        "following a stream needs the package durable-streams", hint='Run: pip install "towpath[streams]"'
    ) from error

# How long until the next look for a stream that is not there yet.
_LOOK_SECONDS = 0.2


def follow(client: Client, job_id: str, offset: str) -> Iterator[dict[str, Any]]:
    """The messages of a job's stream until the job has ended."""
    url, headers = _source(client.url, client.job_token(job_id))
    while True:
        ended = client.job(job_id).ended
        try:
            with stream(url, offset=offset, live=False, headers=headers) as response:
                for message in response.iter_json():
                    yield message
                    if _is_last(message):
                        return
                offset, closed = response.offset, _is_closed(response.headers)
        except StreamNotFoundError:
            if ended:
                return
            time.sleep(_LOOK_SECONDS)
            continue
        if closed:
            return
        with stream(url, offset=offset, live="long-poll", headers=headers) as response:
            for message in response.iter_json():
                yield message
                if _is_last(message):
                    return


async def follow_async(client: AsyncClient, job_id: str, offset: str) -> AsyncIterator[dict[str, Any]]:
    """The same, awaited."""
    url, headers = _source(client.url, await client.job_token(job_id))
    while True:
        ended = (await client.job(job_id)).ended
        try:
            async with astream(url, offset=offset, live=False, headers=headers) as response:
                async for message in response.iter_json():
                    yield message
                    if _is_last(message):
                        return
                offset, closed = response.offset, _is_closed(response.headers)
        except StreamNotFoundError:
            if ended:
                return
            await asyncio.sleep(_LOOK_SECONDS)
            continue
        if closed:
            return
        async with astream(url, offset=offset, live="long-poll", headers=headers) as response:
            async for message in response.iter_json():
                yield message
                if _is_last(message):
                    return


def _source(url: str, token: JobToken) -> tuple[str, HeadersLike]:
    return url + token.stream, {"authorization": f"Bearer {token.token}"}


def _is_last(message: dict[str, Any]) -> bool:
    """Whether the job has ended, or is no longer kept. The client knows of no streams that are closed."""
    if message.get("type") != "job":
        return False
    return message["headers"]["operation"] == "delete" or message["value"]["state"] in ENDED


def _is_closed(headers: Any) -> bool:
    return headers.get("stream-closed") == "true"
