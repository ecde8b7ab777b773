"""Converters and checks of settings that several commands share. Messages name the flag."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

from cyclopts import Token

from oversharp.diagnostics.records.errors import ConfigError

#: Largest integer that the store and the engines accept.
MOST = 2**31 - 1


def comma_separated(_type: Any, tokens: Sequence[Token]) -> tuple[int, ...]:
    """Parse ``--k 1,8,64``, ``--k 1 --k 8`` and the TOML list ``k = [1, 8]`` to the same tuple."""
    parts = [part for token in tokens for part in token.value.split(",") if part.strip()]
    try:
        return tuple(int(part) for part in parts)
    except ValueError:
        raise ValueError(f"{','.join(parts)!r} is not a list of whole numbers such as 1,8,64") from None


def comma_separated_numbers(_type: Any, tokens: Sequence[Token]) -> tuple[float, ...]:
    """``--control-temperatures 0.6,0.3`` and the TOML list ``[0.6, 0.3]`` mean the same."""
    parts = [part for token in tokens for part in token.value.split(",") if part.strip()]
    try:
        return tuple(float(part) for part in parts)
    except ValueError:
        raise ValueError(f"{','.join(parts)!r} is not a list of numbers such as 0.6,0.3") from None


def one_or_none(_type: Any, tokens: Sequence[Token]) -> str:
    """Return the value of a flag that may be given without one; then it is empty."""
    return tokens[0].value if tokens else ""


def require_at_least(flag: str, value: int | None, least: int) -> None:
    """Raise ``ConfigError`` for a value of ``flag`` below ``least``."""
    if value is not None and value < least:
        raise ConfigError(f"{flag} {value}: must be at least {least}")


def require_memory(gib: float | None) -> None:
    """Raise ``ConfigError`` for a ``--memory-gib`` that is not a number above 0."""
    if gib is not None and not 0 < gib < math.inf:
        raise ConfigError(f"--memory-gib {gib:g}: must be a number above 0")


def require_storable(flag: str, value: int | None) -> None:
    """Raise ``ConfigError`` for a value of ``flag`` that is larger than ``MOST``."""
    if value is not None and value > MOST:
        raise ConfigError(f"{flag} {value}: must be below {MOST + 1}")


def require_chat_args(given: str) -> None:
    """Raise ``ConfigError`` for ``--chat-args`` that are no JSON object or set reserved names."""
    try:
        arguments = json.loads(given)
    except ValueError as error:
        raise ConfigError(
            f"--chat-args {given}: not JSON ({error}); write it as '{{\"enable_thinking\": false}}'"
        ) from None
    if not isinstance(arguments, dict):
        raise ConfigError(f'--chat-args {given}: must be a JSON object such as {{"enable_thinking": false}}')
    taken = sorted(arguments.keys() & {"tokenize", "add_generation_prompt", "conversation", "return_dict"})
    if taken:
        raise ConfigError(f"--chat-args: {taken[0]} is set by oversharp; leave it out")


def require_name(name: str | None) -> None:
    """Raise ``ConfigError`` for a ``--name`` that is empty or not printable."""
    if name is not None and (not name or not name.isprintable()):
        raise ConfigError(f"--name {name!r}: must be printable text")
