"""Time limits of requests, and the number of concurrent requests, which adapts to the server."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

#: Largest number of responses per request. An engine here has more: a reply that is lost costs the server's time again.
ROWS_PER_REQUEST = 32


@dataclass(frozen=True, kw_only=True)
class RequestLimits:
    """Limits of requests to one server.

    Attributes:
        concurrent: largest number of concurrent requests.
        timeout_s: largest duration of one try.
        first_timeout_s: largest duration of the first request, which waits for the server's compilation.
        tries, patience_s: a request fails for good after this number of tries, but not before this time since its first
            failure. So a server may restart.
        backoff_s, most_backoff_s: wait after the first failure, which is doubled up to the second value.
    """

    concurrent: int = 64
    timeout_s: float = 600.0
    first_timeout_s: float = 1800.0
    tries: int = 5
    patience_s: float = 600.0
    backoff_s: float = 0.5
    most_backoff_s: float = 30.0

    def wait_s(self, n_failures: int) -> float:
        """Return a random wait after a number of consecutive failures: half to all of the doubled backoff."""
        doubled = self.backoff_s * 2.0 ** min(n_failures - 1, 30)
        return min(doubled, self.most_backoff_s) * random.uniform(0.5, 1.0)


class AdaptiveGate:
    """Admit concurrent requests: more after successes, half as many when the server is overloaded.

    The number grows by one per success until the first overload, then by one per round of requests. Requests that
    were sent before the last cut do not cut it again. It is used by one event loop.
    """

    FIRST = 8

    def __init__(self, most: int) -> None:
        self._most = most
        self._limit = float(min(self.FIRST, most))
        self._was_cut = False
        self._n_cuts = 0
        self._n_active = 0
        self._paused_until_s = 0.0
        self._waiting: list[asyncio.Future[None]] = []

    @property
    def limit(self) -> int:
        """Present limit of concurrent requests."""
        return int(self._limit)

    @asynccontextmanager
    async def enter(self) -> AsyncIterator[int]:
        """Wait for a place. The value identifies the present limit, for ``halve``."""
        while True:
            pause_s = self._paused_until_s - asyncio.get_running_loop().time()
            if pause_s > 0:
                await asyncio.sleep(pause_s)
            elif self._n_active < self.limit:
                break
            else:
                future = asyncio.get_running_loop().create_future()
                self._waiting.append(future)
                await future
        self._n_active += 1
        try:
            yield self._n_cuts
        finally:
            self._n_active -= 1
            self._wake()

    def grow(self) -> None:
        """Raise the limit after a success."""
        self._limit = min(self._most, self._limit + (1.0 / self._limit if self._was_cut else 1.0))

    def halve(self, sent_at: int) -> None:
        """Halve the limit, unless it was halved after the request of ``enter``'s value was sent."""
        if sent_at == self._n_cuts:
            self._limit, self._was_cut = max(1.0, self._limit / 2), True
            self._n_cuts += 1

    def pause(self, wait_s: float) -> None:
        """Admit no request for some seconds, because the server asks for it."""
        self._paused_until_s = max(self._paused_until_s, asyncio.get_running_loop().time() + wait_s)

    def _wake(self) -> None:
        free = self.limit - self._n_active
        while self._waiting and free > 0:
            future = self._waiting.pop(0)
            if not future.done():  # a cancelled request does not wait any more
                future.set_result(None)
                free -= 1
