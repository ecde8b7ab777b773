"""Messages between a jailed program and the process that tests it.

Arguments are sent with ``marshal``, from the side that the program trusts. Results come back as JSON, and are decoded
to exact builtin types, so that no method of the program's objects runs on the side that compares them. Jails load this
module without oversharp. So it imports only parts of the standard library that load in milliseconds.
"""

from __future__ import annotations

import _json
import builtins
import marshal
import os
import select
import time
from _collections import deque

TYPE_CHECKING = False  # importing typing would double the time to start
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

#: Largest output or reply of a program in bytes.
MOST_BYTES = 1 << 20
#: Deepest nesting of a value.
_MAX_DEPTH = 100
#: Largest number of values of an iterator. More may be an endless one.
_MOST_VALUES = 1 << 17
LATE, ENDED, _NOT_PLAIN = "no result in time", "the program ended", "its reply is not plain data"
UNSENDABLE = "a test passes a value that is not plain data"


class CandidateError(BaseException):
    """The program gave no usable reply. No ``except Exception`` of a test can catch it."""


class UnsendableError(BaseException):
    """A test passes a value to the program that is not plain data."""


class Raised(Exception):  # noqa: N818 - it is the program's exception, as data
    """The program raised an exception: the names of its type and of its builtin bases, and its message."""

    def __init__(self, kind: str, text: str, bases: Sequence[str] = ()) -> None:
        super().__init__(kind, text)
        self.kind, self.text, self.bases = kind, text, bases

    @classmethod
    def from_reply(cls, reply: dict[str, Any]) -> Raised:
        """Return the exception in a reply of ``encode_error``, which may be forged."""
        bases = reply.get("bases")
        names = [name for name in bases if isinstance(name, str)] if isinstance(bases, list) else []
        return cls(show(reply["raised"], str)[:100], show(reply.get("text", ""), str)[:200], names)


def encode_error(error: BaseException) -> str:
    """Return an exception as JSON, for ``Raised.from_reply``."""
    bases = [kind.__name__ for kind in type(error).__mro__ if vars(builtins).get(kind.__name__) is kind]
    try:
        text = encode(show(error, str)[:200])
    except BaseException:  # noqa: BLE001 - its __str__ is the program's code, too, and may raise SystemExit
        text = '""'
    return f'{{"raised":{encode(type(error).__name__)},"bases":{encode(bases)},"text":{text}}}'


def encode(value: Any, depth: int = 0) -> str:
    """Return plain data as JSON with tags.

    Subclasses become their builtin type. An iterator that is ``value`` itself becomes its values. Raises ``TypeError``
    or ``ValueError`` for other data.

    >>> encode((1, [None, {"a": b"b"}]))
    '{"tuple":[1,[null,{"dict":[["a",{"bytes":"62"}]]}]]}'
    """
    if depth > _MAX_DEPTH:
        raise ValueError(f"a value is nested deeper than {_MAX_DEPTH} levels")
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        # decimal digits take quadratic time, and Python limits their number
        return int.__repr__(value) if -(1 << 64) < value < 1 << 64 else f'{{"int":"{int.__format__(value, "x")}"}}'
    if isinstance(value, float):
        return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}.get(text := float.__repr__(value), text)
    if isinstance(value, str):
        return str(_json.encode_basestring_ascii(str.__str__(value)))
    if isinstance(value, list):
        return f"[{','.join([encode(part, depth + 1) for part in list.__iter__(value)])}]"
    if isinstance(value, tuple):
        return f'{{"tuple":[{",".join([encode(part, depth + 1) for part in tuple.__iter__(value)])}]}}'
    if isinstance(value, set | frozenset):
        kind = "set" if isinstance(value, set) else "frozenset"
        return f'{{"{kind}":[{",".join([encode(part, depth + 1) for part in value])}]}}'
    if isinstance(value, dict):
        pairs = [f"[{encode(key, depth + 1)},{encode(part, depth + 1)}]" for key, part in dict.items(value)]
        return f'{{"dict":[{",".join(pairs)}]}}'
    if isinstance(value, bytes | bytearray):
        return f'{{"bytes":"{value.hex()}"}}'
    if isinstance(value, complex):
        return f'{{"complex":[{encode(value.real)},{encode(value.imag)}]}}'
    if isinstance(value, range):
        return f'{{"range":[{encode(value.start)},{encode(value.stop)},{encode(value.step)}]}}'
    if isinstance(value, deque):
        return f'{{"deque":[{",".join([encode(part, depth + 1) for part in deque.__iter__(value)])}]}}'
    if depth == 0 and hasattr(type(value), "__next__"):
        values = [part for part, _ in zip(value, range(_MOST_VALUES))]  # noqa: B905 - it ends at the shorter one
        if len(values) == _MOST_VALUES:
            raise ValueError(f"an iterator yields {_MOST_VALUES} values or more")
        return f'{{"iterator":{encode(values)}}}'
    raise TypeError(f"{type(value).__name__} is not plain data")


def show(value: object, write: Callable[[Any], str] = repr) -> str:
    """Return a value's text, also of one that Python does not print, such as an integer of 5000 digits.

    >>> show([1, "a"]), show([1 << 20000])[:14], show(KeyError("a"), str)
    ("[1, 'a']", '[{"int":"10000', "'a'")
    """
    try:
        return write(value)
    except Exception:  # noqa: BLE001 - a method of the value may raise anything
        try:
            return encode(value)
        except Exception:  # noqa: BLE001 - as above
            return f"an object of type {type(value).__name__}"


def decode(value: Any, depth: int = 0) -> Any:
    """Restore the value of parsed ``encode`` output, in exact builtin types.

    Raises ``TypeError`` or ``ValueError`` for anything else.

    >>> import json
    >>> decode(json.loads(encode({(1, 2): {3}, "n": 10**30})))
    {(1, 2): {3}, 'n': 1000000000000000000000000000000}
    """
    if depth > _MAX_DEPTH:
        raise ValueError(f"a value is nested deeper than {_MAX_DEPTH} levels")
    if isinstance(value, list):
        return [decode(part, depth + 1) for part in value]
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == "tuple":
        return tuple([decode(part, depth + 1) for part in content])
    if kind == "iterator":
        return iter(decode(content, depth + 1))
    if kind == "range":
        return range(*(decode(part) for part in content))
    if kind == "deque":
        return deque([decode(part, depth + 1) for part in content])
    if kind == "frozenset":
        return frozenset([decode(part, depth + 1) for part in content])
    if kind == "set":
        return {decode(part, depth + 1) for part in content}
    if kind == "dict":
        return {decode(key, depth + 1): decode(part, depth + 1) for key, part in content}
    if kind == "bytes":
        return bytes.fromhex(content)
    if kind == "complex":
        return complex(*content)
    if kind == "int":
        return int(content, 16)
    raise ValueError(f"unknown tag {kind!r}")


def send(descriptor: int, message: object, late_at: float | None = None) -> None:
    """Write a message of plain data. Only a sender that the reader trusts may use it.

    Raises ``CandidateError`` if the reader does not read it until ``late_at`` (of ``time.monotonic``), and
    ``ValueError`` for other data.
    """
    content = marshal.dumps(message, 2)  # type: ignore[arg-type]
    write_all(descriptor, len(content).to_bytes(8, "little") + content, late_at)


def receive(descriptor: int) -> Any:
    """Return the next message of ``send``; None at the end."""
    length = _read_exactly(descriptor, 8)
    content = b"" if len(length) < 8 else _read_exactly(descriptor, int.from_bytes(length, "little"))
    return marshal.loads(content) if content else None


def write_all(descriptor: int, content: bytes, late_at: float | None = None) -> None:
    """Write all bytes, as ``send`` does. If it is too late already, the error is ``LATE``."""
    is_late = late_at is not None and time.monotonic() >= late_at
    rest = memoryview(content)
    os.set_blocking(descriptor, late_at is None)
    while rest:
        if late_at is not None and not wait_for(descriptor, select.POLLOUT, late_at):
            raise CandidateError(LATE if is_late else "the program does not read its arguments")
        rest = rest[os.write(descriptor, rest[: 1 << 12 if late_at is not None else None]) :]


def wait_for(descriptor: int, event: int, late_at: float) -> bool:
    """Wait for an event of ``select.poll``. Return False if ``late_at`` comes first."""
    poll = select.poll()
    poll.register(descriptor, event)
    left_s = late_at - time.monotonic()
    return left_s > 0 and bool(poll.poll(left_s * 1000))


def _read_exactly(descriptor: int, n_bytes: int) -> bytes:
    parts = []
    while n_bytes and (part := os.read(descriptor, min(n_bytes, 1 << 20))):
        parts.append(part)
        n_bytes -= len(part)
    return b"".join(parts)


class Replies:
    """Lines of JSON from a process that is not trusted."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._rest = b""

    def next(self, late_at: float) -> dict[str, Any]:
        """Return the next line, a JSON object whose values ``decode`` restores.

        Raises ``CandidateError`` if there is none until ``late_at``, or if it is anything else.
        """
        import json

        parts, n_bytes = [self._rest], len(self._rest)
        while b"\n" not in parts[-1]:
            if not wait_for(self._descriptor, select.POLLIN, late_at):
                raise CandidateError(LATE)
            parts.append(os.read(self._descriptor, 1 << 16))
            n_bytes += len(parts[-1])
            if not parts[-1]:
                raise CandidateError(ENDED)
            if n_bytes > MOST_BYTES:
                raise CandidateError("its result exceeds 1 MiB")
        line, self._rest = b"".join(parts).split(b"\n", 1)
        try:
            reply = json.loads(line)
        except (ValueError, RecursionError):
            reply = None
        if not isinstance(reply, dict):
            raise CandidateError(_NOT_PLAIN)
        return reply


class RemoteProgram:
    """A program that answers calls over two pipes.

    ``call_limit_s`` limits each call, and ``ends_at`` (of ``time.monotonic``) all of them, in wall seconds. After a
    ``CandidateError``, ``failure`` is its text.
    """

    def __init__(self, requests: int, replies: int, call_limit_s: float, ends_at: float) -> None:
        self._requests, self._replies = requests, Replies(replies)
        self._call_limit_s, self._ends_at = call_limit_s, ends_at
        self.failure = ""
        self.n_calls = 0

    def load(self, sources: Sequence[str]) -> None:
        """Run the program's sources in one namespace. Raises ``Raised`` if they do."""
        self._ask({"sources": list(sources)})

    def call(self, name: str, arguments: Sequence[Any], options: dict[str, Any]) -> tuple[Any, Any]:
        """Return the result of the function or method ``name``, and its arguments after the call.

        Raises ``Raised`` for an exception of the program, and ``CandidateError`` if it ends, is late or replies with
        other than plain data.
        """
        self.n_calls += 1
        reply = self._ask({"name": name, "arguments": tuple(arguments), "options": options})
        try:
            return decode(reply["result"]), decode(reply["arguments"])
        except (AttributeError, KeyError, TypeError, ValueError, RecursionError, OverflowError):
            self.failure = _NOT_PLAIN
            raise CandidateError(self.failure) from None

    def _ask(self, message: dict[str, Any]) -> dict[str, Any]:
        if self.failure:
            raise CandidateError(self.failure)
        reply = self._exchange(message)
        if "raised" in reply:
            raise Raised.from_reply(reply)
        return reply

    def _exchange(self, message: dict[str, Any]) -> dict[str, Any]:
        """Send a message and return the program's reply."""
        late_at = min(time.monotonic() + self._call_limit_s, self._ends_at)
        try:
            send(self._requests, message, late_at)
            return self._replies.next(late_at)
        except ValueError:
            raise UnsendableError(UNSENDABLE) from None
        except CandidateError as error:
            self.failure = f"no result within {self._call_limit_s:g} s" if str(error) == LATE else str(error)
            raise CandidateError(self.failure) from None
        except OSError:
            self.failure = ENDED
            raise CandidateError(self.failure) from None
