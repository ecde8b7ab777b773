"""Parse and check settings that several commands share. Error messages name the flag."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from cyclopts import Token

from oversharp.diagnostics.records.errors import ConfigError

Number = TypeVar("Number", int, float)

#: Largest integer that the store and the inference engines accept.
MOST = 2**31 - 1


def comma_separated(_type: Any, tokens: Sequence[Token]) -> tuple[int, ...]:
    """Parse ``--k 1,8,64``, ``--k 1 --k 8`` and the TOML list ``k = [1, 8]`` to the same tuple."""
    return _parse_list(int, "whole numbers such as 1,8,64", tokens)


def comma_separated_numbers(_type: Any, tokens: Sequence[Token]) -> tuple[float, ...]:
    """Parse ``--control-temperatures 0.6,0.3`` to numbers, like ``comma_separated``."""
    return _parse_list(float, "numbers such as 0.6,0.3", tokens)


def _parse_list(kind: Callable[[str], Number], expected: str, tokens: Sequence[Token]) -> tuple[Number, ...]:
    parts = [part for token in tokens for part in token.value.split(",") if part.strip()]
    try:
        return tuple(map(kind, parts))
    except ValueError:
        raise ValueError(f"{','.join(parts)!r} is not a list of {expected}") from None


def parse_optional(_type: Any, tokens: Sequence[Token]) -> str:
    """Return the value of a flag; empty text if the flag has no value."""
    return tokens[0].value if tokens else ""


def require_at_least(flag: str, value: int | None, least: int) -> None:
    """Raise ``ConfigError`` if the value of ``flag`` is below ``least``."""
    if value is not None and value < least:
        raise ConfigError(f"{flag} {value}: must be at least {least}")


def require_memory(gib: float | None) -> None:
    """Raise ``ConfigError`` if ``--memory-gib`` is not a number above 0."""
    if gib is not None and not 0 < gib < math.inf:
        raise ConfigError(f"--memory-gib {gib:g}: must be a number above 0")


def require_storable(flag: str, value: int | None) -> None:
    """Raise ``ConfigError`` if the value of ``flag`` is larger than ``MOST``."""
    if value is not None and value > MOST:
        raise ConfigError(f"{flag} {value}: must be below {MOST + 1}")


def require_rounds(until_solved: int | None, first: int | None, used_first: int, n: int | None) -> None:
    """Raise ``ConfigError`` if ``--until-solved`` and ``--first`` save no samples or contradict ``--n``.

    ``used_first`` is ``first`` or its default. ``n`` is None if it is not known yet.
    """
    require_at_least("--until-solved", until_solved, 0)
    require_at_least("--first", first, 1)
    if not until_solved:
        if first is not None:
            raise ConfigError(f"--first {first}: there are no rounds without --until-solved; add it, or remove --first")
    elif n is not None and used_first >= n:
        raise ConfigError(
            f"--until-solved {until_solved} saves no samples: the first round has {used_first} (--first), and --n is "
            f"{n}; pass a smaller --first, a larger --n, or --until-solved 0"
        )
    elif n is not None and until_solved > n:
        raise ConfigError(
            f"--until-solved {until_solved}: a problem cannot have more correct samples than --n {n}; pass a smaller "
            "number, such as 4"
        )


def require_in_first_round(users: Mapping[str, int], first: int) -> None:
    """Raise ``ConfigError`` if a flag in ``users`` needs more samples of a problem than the first round has."""
    for flag, samples in users.items():
        if samples > first:
            raise ConfigError(
                f"{flag} {samples}: is larger than the first round, --first {first}, and later rounds do not have "
                f"samples of every problem; pass {flag} {first}, or --first {samples}"
            )


def require_chat_args(given: str) -> None:
    """Raise ``ConfigError`` if ``--chat-args`` is not a JSON object or sets reserved names."""
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
    """Raise ``ConfigError`` if a ``--name`` is empty or not printable."""
    if name is not None and (not name or not name.isprintable()):
        raise ConfigError(f"--name {name!r}: must be printable text")
