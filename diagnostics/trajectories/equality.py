"""Equality of tool calls."""

from __future__ import annotations

import msgspec

from oversharp.diagnostics.records.types import response_id
from oversharp.diagnostics.trajectories.record import Call


def call_key(call: Call) -> str:
    """Return a hash of a call's name and arguments. The order of JSON fields and white space have no effect.

    >>> call_key(Call("add", '{"a": 1, "b": 2}')) == call_key(Call("add", '{"b":2,"a":1}', id="c7"))
    True
    """
    try:
        arguments = msgspec.json.encode(msgspec.json.decode(call.arguments), order="sorted")
    except (msgspec.MsgspecError, OverflowError, RecursionError):  # no JSON, or a number beyond 64 bits
        arguments = call.arguments.encode()
    return response_id(b"%s\0%s" % (call.name.encode(), arguments))
