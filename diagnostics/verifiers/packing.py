"""JSON encoding of a reasoning-gym entry that preserves tuples and non-string keys."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


def pack(value: Any) -> Any:
    """Return a JSON-ready copy of an entry.

    Tuples and non-string keys are preserved, because scorers distinguish them from lists and strings. Raises
    ``TypeError`` for anything else that JSON cannot represent.

    >>> pack({"size": (3, 4), "moves": {1: "up"}})
    {'size': {'#tuple': [3, 4]}, 'moves': {'#items': [[1, 'up']]}}
    """
    if isinstance(value, tuple):
        return {"#tuple": [pack(part) for part in value]}
    if isinstance(value, list):
        return [pack(part) for part in value]
    if isinstance(value, Mapping):
        if all(isinstance(key, str) and not key.startswith("#") for key in value):
            return {key: pack(part) for key, part in value.items()}
        return {"#items": [[pack(key), pack(part)] for key, part in value.items()]}
    if isinstance(value, str):
        return str.__str__(value)  # NumPy's strings are a subclass
    # type(), not isinstance(): an enum that is also an int would be restored as a plain int
    if value is None or type(value) in (int, bool) or (type(value) is float and math.isfinite(value)):
        return value
    raise TypeError(f"{type(value).__name__} cannot be stored as JSON")


def unpack(value: Any) -> Any:
    """Restore the value that ``pack`` encoded.

    >>> unpack(pack({"size": (3, 4), "moves": {1: "up"}}))
    {'size': (3, 4), 'moves': {1: 'up'}}
    """
    if isinstance(value, list):
        return [unpack(part) for part in value]
    if isinstance(value, Mapping):
        if set(value) == {"#tuple"}:
            return tuple(unpack(part) for part in value["#tuple"])
        if set(value) == {"#items"}:
            return {unpack(key): unpack(part) for key, part in value["#items"]}
        return {key: unpack(part) for key, part in value.items()}
    return value
