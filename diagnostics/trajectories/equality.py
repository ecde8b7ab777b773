"""Equality of tool calls."""

from __future__ import annotations

import json

from oversharp.diagnostics.records.types import response_id
from oversharp.diagnostics.trajectories.record import Call


def call_key(call: Call) -> str:
    """Return a hash of a call's name and arguments. The order of JSON fields and white space have no effect.

    >>> call_key(Call("add", '{"a": 1, "b": 2}')) == call_key(Call("add", '{"b":2,"a":1}', id="c7"))
    True
    """
    try:
        arguments = json.dumps(json.loads(call.arguments), sort_keys=True)
    except (ValueError, RecursionError):
        arguments = call.arguments
    return response_id(f"{call.name}\0{arguments}")
