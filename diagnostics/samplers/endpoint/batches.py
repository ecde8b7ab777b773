"""Results of requests in batches, none of which contains results of weights that a restarted server may have."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import TypeVar

from oversharp.diagnostics.http.transport import Transport
from oversharp.diagnostics.records.errors import EndpointError

Item = TypeVar("Item")
Result = TypeVar("Result")

#: A batch is yielded after this number of responses, or after this number of seconds if that is earlier.
BATCH_ROWS = 256
BATCH_S = 5.0


def stream_batches(
    transport: Transport,
    items: Iterable[Item],
    ask: Callable[[Item], Awaitable[Result]],
    verify: Callable[[], None],
    *,
    count: Callable[[Result], int] = lambda result: 1,
) -> Iterator[list[tuple[Item, Result]]]:
    """Call ``ask`` for the items concurrently, and yield batches of about ``BATCH_ROWS`` responses.

    A server that was restarted may have other weights. So after a lost connection, a batch is yielded only after
    ``verify``, which raises if the weights changed. If a request fails for good, the results that arrived before are
    yielded, then its error is raised. ``count`` returns the number of responses in a result.
    """
    done: list[tuple[Item, Result]] = []
    n_done, n_sure, n_lost, since_s = 0, 0, transport.n_lost, time.monotonic()
    try:
        for item, result in transport.stream(items, ask):
            done.append((item, result))
            n_done += count(result)
            if transport.n_lost == n_lost:
                n_sure = len(done)
            if n_done >= BATCH_ROWS or time.monotonic() - since_s >= BATCH_S:
                if n_sure < len(done):
                    n_lost = transport.n_lost  # before the requests of verify, which may find another loss
                    verify()
                yield done
                done, n_done, n_sure, since_s = [], 0, 0, time.monotonic()
        if n_sure < len(done):
            verify()
    except EndpointError:
        if n_sure:  # the requests that succeeded before another one failed
            yield done[:n_sure]
        raise
    if done:
        yield done
