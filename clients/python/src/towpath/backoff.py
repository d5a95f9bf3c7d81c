"""How long to wait before the next attempt to reach the server."""

from __future__ import annotations

import random

_FIRST_SECONDS = 0.2
_LONGEST_SECONDS = 10.0


class Backoff:
    """0.2 seconds, doubling to 10, each with jitter, so that many workers do not return at once."""

    def __init__(self) -> None:
        self._seconds = _FIRST_SECONDS

    def next(self) -> float:
        """The next wait, between half of its length and all of it."""
        seconds = self._seconds
        self._seconds = min(seconds * 2, _LONGEST_SECONDS)
        return random.uniform(seconds / 2, seconds)

    def reset(self) -> None:
        """The server answered."""
        self._seconds = _FIRST_SECONDS
