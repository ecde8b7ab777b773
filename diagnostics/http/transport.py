"""HTTP requests to an inference server, repeated until the reply is complete and correct.

Requests run in an event loop in a separate thread, so they progress while samples are committed and graded.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from oversharp.diagnostics.http.pace import AdaptiveGate, RequestLimits
from oversharp.diagnostics.records.errors import ConfigError, EndpointError, first_line

if TYPE_CHECKING:
    from types import ModuleType

    import aiohttp

Item = TypeVar("Item")
Result = TypeVar("Result")

#: Status codes of faults that may pass.
RETRIED = (408, 409, 425, 429)
#: Status codes after which fewer requests are sent at a time.
OVERLOADED = (429, 503)
#: Largest wait that a server's ``Retry-After`` may ask for.
MOST_RETRY_AFTER_S = 300.0
#: Results that wait for the consumer. Above this number, no more requests are sent.
MOST_UNREAD = 256
_CONNECT_S = 20.0
#: Seconds of failures before a line about them, and between two such lines.
_SILENT_S, _NOTED_S = 10.0, 60.0
_POLL_S = 0.5
_HINTS = {
    401: "the server {fault}; {fix} it in the environment variable {key} ({flags.key})",
    403: "the server refuses access; check the API key in {key} ({flags.key}), and the rights of its owner",
    404: "the server does not have this model or route; check {flags.model} and {flags.url}",
}


@dataclass(frozen=True, kw_only=True)
class ServerFlags:
    """Flags or fields that define URL, model and the name of the key's environment variable, for error messages."""

    url: str = "--endpoint"
    model: str = "--model"
    key: str = "--api-key-env"


class BadReplyError(Exception):
    """A reply with status 200 that is not a complete, correct result. The request is repeated."""


class RefusedError(EndpointError):
    """A request that the server refuses. Repeating it would not help."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message, status)  # both, so that the error can be pickled
        self.status = status

    def __str__(self) -> str:
        return str(self.args[0])


def import_aiohttp() -> ModuleType:
    """Return the package aiohttp. Raises ``ConfigError`` if it is not installed."""
    try:
        import aiohttp
    except ImportError:
        raise ConfigError(
            "requests to a server: aiohttp is not installed; pip install '.[endpoint]' in oversharp's checkout"
        ) from None
    return aiohttp


class Transport:
    """Connections to one server.

    ``api_key`` is sent in the header Authorization, and is not part of any message. ``key_name`` is its environment
    variable. ``flags`` are printed in errors. ``note`` gets a line if requests fail for long. Proxies in environment
    variables are ignored, because they would see prompts and key.
    """

    def __init__(
        self,
        url: str,
        *,
        api_key: str | None = None,
        key_name: str = "OPENAI_API_KEY",
        flags: ServerFlags = ServerFlags(),
        limits: RequestLimits,
        note: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._aiohttp: Any = import_aiohttp()
        self.url = url.rstrip("/").removesuffix("/v1")
        self.limits = limits
        self.faults: Counter[str] = Counter()  # kind of fault → repeated requests
        self.n_requests = 0
        self.n_lost = 0  # connections that ended before a whole reply: the server may have been restarted
        self._api_key, self._key_name, self._flags = api_key, key_name, flags
        self._note, self._noted_s = note, -_NOTED_S  # the last line about failures
        self._session: aiohttp.ClientSession | None = None
        self._gate = AdaptiveGate(limits.concurrent)
        self._is_warm = False
        self._streams: set[_Stream[Any, Any]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="oversharp-endpoint", daemon=True)
        self._thread.start()

    # ---------------------------------------------------------------- for the thread of the audit

    def run(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine in the loop's thread, and return its result."""
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        while True:
            try:
                return future.result(timeout=_POLL_S)  # a wait without limit would delay Ctrl-C
            except FutureTimeoutError:
                if future.done():
                    raise
            except BaseException:
                future.cancel()
                raise

    def stream(self, items: Iterable[Item], ask: Callable[[Item], Awaitable[Result]]) -> Iterator[tuple[Item, Result]]:
        """Call ``ask`` for the items concurrently, and yield the results as they arrive.

        If an item fails for good, the results that arrived are yielded, then its error is raised. If the caller stops
        early, unfinished requests are cancelled.
        """
        running: _Stream[Item, Result] = _Stream(self, iter(items), ask)
        self._streams.add(running)
        self._loop.call_soon_threadsafe(running.pump)
        try:
            while (entry := running.next()) is not None:
                if isinstance(entry, BaseException):
                    raise entry
                yield entry
        finally:
            self._streams.discard(running)
            self.run(running.stop())

    def interrupt(self, error: Exception) -> None:
        """Make each ``stream`` of another thread raise ``error``."""
        for running in list(self._streams):
            self._loop.call_soon_threadsafe(running.fail, error)

    def close(self) -> None:
        """Close the connections and end the thread. Closing twice is allowed."""
        if self._loop.is_closed():
            return
        self.run(self._close_session())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    # ---------------------------------------------------------------- for the thread of the loop

    @property
    def concurrent(self) -> int:
        """Present limit of concurrent requests."""
        return self._gate.limit

    async def get(self, path: str, *, timeout_s: float = 30.0) -> tuple[int, Any]:
        """Return status and JSON content of a page, without repeats. The content is None if it is not JSON.

        Raises ``EndpointError`` if no server answers.
        """
        try:
            status, body, _ = await self._send("GET", path, None, timeout_s)
        except (OSError, TimeoutError, self._aiohttp.ClientError) as error:
            raise EndpointError(
                f"{self.url}: no server answers ({self._text(error)}); start it, or correct {self._flags.url}"
            ) from None
        return status, _parse_json(body)

    async def post_once(self, path: str, body: Any = None, *, timeout_s: float) -> tuple[int, str]:
        """Return status and text of the reply to one request, without repeats.

        Raises ``EndpointError`` if no complete reply arrives.
        """
        try:
            status, raw, _ = await self._send("POST", path, body, timeout_s)
        except (OSError, TimeoutError, self._aiohttp.ClientError) as error:
            raise EndpointError(f"{self.url}{path}: no reply ({self._text(error)})") from None
        return status, self._hide_key(raw.decode(errors="replace"))

    async def post(self, path: str, body: Any, check: Callable[[Any], Result]) -> Result:
        """Send a request until ``check`` accepts the reply's content, and return its result.

        ``check`` raises ``BadReplyError`` for a reply that is not complete. Raises ``RefusedError`` if the server
        refuses the request, ``EndpointError`` if its faults last longer than ``limits`` allows.
        """
        n_failures, since_s = 0, time.monotonic()
        while True:
            async with self._gate.enter() as sent_at:
                self.n_requests += 1
                timeout_s = self.limits.timeout_s if self._is_warm else self.limits.first_timeout_s
                wait_s, fault, status = 0.0, "", 0
                try:
                    status, raw, wait_s = await self._send("POST", path, body, timeout_s)
                    if status == 200:
                        result = check(_require_json(raw))
                        self._is_warm = True
                        self._gate.grow()
                        return result
                    fault = f"status {status}"
                except TimeoutError:
                    fault = f"no reply in {timeout_s:g} s"
                except BadReplyError as error:
                    fault = str(error)
                    if not self._is_warm and n_failures + 1 >= self.limits.tries:  # it has never been right
                        raise EndpointError(
                            f"{self.url}{path}: {n_failures + 1} replies failed, the last is {fault}"
                            f"{self._hide_key(_start_of(raw))}; is it an OpenAI-compatible server?"
                        ) from None
                except (OSError, self._aiohttp.ClientError) as error:
                    fault = self._text(error)
                    self.n_lost += 1
                if 200 < status < 500 and status not in RETRIED:
                    raise self.refusal(path, status, raw)
                if status in OVERLOADED or fault.startswith("no reply"):
                    self._gate.halve(sent_at)
            self.faults[fault] += 1
            if n_failures == 0:
                since_s = time.monotonic()
            n_failures += 1
            passed_s = time.monotonic() - since_s
            if passed_s > _SILENT_S and time.monotonic() > self._noted_s + _NOTED_S:
                self._noted_s = time.monotonic()
                self._note(
                    f"{self.url}: requests are repeated for {passed_s:.0f} s, after {fault}; they fail for good after "
                    f"{self.limits.patience_s:g} s"
                )
            if n_failures >= self.limits.tries and passed_s >= self.limits.patience_s:
                raise EndpointError(
                    f"{self.url}: a request failed {n_failures} times in {passed_s:.0f} s, the last time with {fault}; "
                    "check the server's log, then run the same command again"
                )
            if wait_s:
                self._gate.pause(min(wait_s, MOST_RETRY_AFTER_S))
            await asyncio.sleep(self.limits.wait_s(n_failures))

    async def _send(self, method: str, path: str, body: Any, timeout_s: float) -> tuple[int, bytes, float]:
        """Return status, content, and the wait in seconds that the server asks for."""
        if self._session is None:
            headers = {} if self._api_key is None else {"Authorization": f"Bearer {self._api_key}"}
            connector = self._aiohttp.TCPConnector(limit=0, keepalive_timeout=60.0)
            self._session = self._aiohttp.ClientSession(connector=connector, headers=headers, trust_env=False)
        timeout = self._aiohttp.ClientTimeout(total=timeout_s, sock_connect=min(timeout_s, _CONNECT_S))
        async with self._session.request(
            method, self.url + path, json=body, timeout=timeout, allow_redirects=False
        ) as reply:
            return reply.status, await reply.read(), _retry_after_s(reply.headers.get("Retry-After"))

    def refusal(self, path: str, status: int, raw: bytes = b"") -> RefusedError:
        """Return the error of a refused request, with a hint, and with the reply's text unless a key was refused."""
        if status < 400:
            return RefusedError(
                f"{self.url}{path}: the server redirects (status {status}); pass its present URL", status
            )
        hint = _HINTS.get(status, "check {flags.model} and the server's log")
        fault, fix = ("refuses the API key", "check") if self._api_key else ("needs an API key", "set")
        hint = hint.format(key=self._key_name, flags=self._flags, fault=fault, fix=fix)
        # the text of a refused key may repeat the key
        why = "" if status in (401, 403) else f" ({self._hide_key(_error_text(raw))})"
        return RefusedError(f"{self.url}{path}: status {status}{why}; {hint}", status)

    def _text(self, error: BaseException) -> str:
        if (number := getattr(error, "errno", None)) is not None:  # aiohttp's text has details of the connection
            return os.strerror(number).lower()
        return self._hide_key(first_line(error) if isinstance(error, Exception) else type(error).__name__)

    def _hide_key(self, text: str) -> str:
        return text.replace(self._api_key, "[API key]") if self._api_key else text

    async def _close_session(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None


class _Stream(Generic[Item, Result]):
    """Concurrent calls of ``ask``, and a queue of their results. ``pump`` and ``stop`` run in the loop's thread."""

    def __init__(self, transport: Transport, items: Iterator[Item], ask: Callable[[Item], Awaitable[Result]]) -> None:
        self._transport, self._items, self._ask = transport, items, ask
        self._results: SimpleQueue[tuple[Item, Result] | BaseException | None] = SimpleQueue()
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_exhausted = False

    def next(self) -> tuple[Item, Result] | BaseException | None:
        """Return the next result or error, None after the last."""
        while True:
            try:
                entry = self._results.get(timeout=_POLL_S)
            except Empty:
                continue
            if self._results.qsize() == MOST_UNREAD:
                self._transport._loop.call_soon_threadsafe(self.pump)
            return entry

    def pump(self) -> None:
        """Start as many calls as the gate admits."""
        while (
            not self._is_exhausted
            and len(self._tasks) < self._transport.concurrent
            and self._results.qsize() <= MOST_UNREAD
        ):
            try:
                item = next(self._items)
            except StopIteration:
                self._is_exhausted = True
                break
            except BaseException as error:  # noqa: BLE001  # raised in the thread that reads the results
                self.fail(error)
                return
            task = self._transport._loop.create_task(self._run(item))
            self._tasks.add(task)
            task.add_done_callback(self._end)
        if self._is_exhausted and not self._tasks:
            self._results.put(None)

    async def _run(self, item: Item) -> None:
        try:
            self._results.put((item, await self._ask(item)))
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001  # raised in the thread that reads the results
            self.fail(error)

    def fail(self, error: BaseException) -> None:
        """Start no more calls, and raise ``error`` after the results that arrived."""
        self._is_exhausted = True
        self._results.put(error)

    def _end(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self.pump()

    async def stop(self) -> None:
        """Cancel the unfinished calls, and wait until they ended."""
        self._is_exhausted = True
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _parse_json(raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except ValueError:
        return None


def _start_of(raw: bytes) -> str:
    """Return the start of a reply for an error.

    >>> _start_of(b'<html> <body>')
    " (it begins '<html> <body>')"
    """
    text = " ".join(raw[:80].decode(errors="replace").split())
    return f" (it begins {text!r})" if text else ""


def _require_json(raw: bytes) -> Any:
    content = _parse_json(raw)
    if content is None:
        raise BadReplyError("a reply that is not complete JSON")
    return content


def _retry_after_s(given: str | None) -> float:
    """Return the seconds of a ``Retry-After`` header, which has a number or a date; 0 without one.

    >>> _retry_after_s("1.5"), _retry_after_s("Wed, 21 Oct 2015 07:28:00 GMT"), _retry_after_s("soon")
    (1.5, 0.0, 0.0)
    """
    if given is None:
        return 0.0
    try:
        return max(0.0, float(given))
    except ValueError:
        pass
    try:
        return max(0.0, (parsedate_to_datetime(given) - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError):
        return 0.0


def _error_text(raw: bytes) -> str:
    """Return the message of an OpenAI-style error in one line, else the start of the text.

    >>> _error_text(b'{"error": {"message": "The model `x` does not exist."}}')
    'The model `x` does not exist.'
    >>> _error_text(b"<html>no</html>")
    '<html>no</html>'
    """
    content = _parse_json(raw)
    for name in ("error", "message", "detail"):
        if isinstance(content, dict) and name in content:
            content = content[name]
    text = (
        content
        if isinstance(content, str)
        else raw.decode(errors="replace")
        if content is None
        else json.dumps(content)
    )
    return " ".join(text.split())[:200]
