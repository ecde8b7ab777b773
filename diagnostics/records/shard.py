"""Shards of an audit's problems, to distribute sampling over several machines."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

from oversharp.diagnostics.records.errors import ConfigError

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Shard:
    """Every ``of``-th item of a list, starting with the item at ``index``.

    >>> [Shard(index=index, of=2).take("abcde") for index in range(2)]
    [['a', 'c', 'e'], ['b', 'd']]
    """

    index: int = 0
    of: int = 1

    def take(self, items: Iterable[T]) -> list[T]:
        """Return the items of this shard in order."""
        return list(items)[self.index :: self.of]

    @classmethod
    def from_text(cls, flag: str, text: str) -> Shard:
        """Parse ``I/N``, counted from 1. Raises ``ConfigError`` for other text.

        >>> Shard.from_text("--shard", "2/4")
        Shard(index=1, of=4)
        """
        number, _, of = text.partition("/")
        if not (number.isascii() and number.isdigit() and of.isascii() and of.isdigit()):
            raise ConfigError(f"{flag} {text}: give I/N, for example 1/4 for the first of four")
        if not 1 <= int(number) <= int(of):
            raise ConfigError(f"{flag} {text}: counts from 1; use 1/{max(1, int(of))} to {max(1, int(of))}/{of}")
        return cls(index=int(number) - 1, of=int(of))

    def __str__(self) -> str:
        return f"{self.index + 1}/{self.of}"


WHOLE = Shard()
