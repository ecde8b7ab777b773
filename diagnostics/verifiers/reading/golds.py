"""Golds that list several accepted answers in one text, as data sets and dumps do."""

from __future__ import annotations

import ast
import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

#: Whether a response must state any member of a gold list, or all of them.
GoldList = Literal["any", "all"]


def any_of(golds: Sequence[str]) -> str:
    """Return a gold that accepts any of ``golds``.

    A single gold is returned as text, several as a JSON list.

    >>> any_of(["1/2", "0.5"]), any_of(["42"]), accepted_golds(any_of(["1/2", "0.5"]))
    ('["1/2", "0.5"]', '42', ('1/2', '0.5'))
    """
    different = list(dict.fromkeys(golds))
    return different[0] if len(different) == 1 else json.dumps(different, ensure_ascii=False)


@lru_cache(maxsize=1 << 14)
def accepted_golds(gold: str) -> tuple[str, ...]:
    """Return the accepted answers of a gold. A gold that is not a list is its only accepted answer.

    A JSON or Python list is a list of golds if all its members are strings: ``[1, 2]`` is an interval.

    >>> accepted_golds("['a', 'b']"), accepted_golds("[1, 2]"), accepted_golds('["7"]'), accepted_golds("7")
    (('a', 'b'), ('[1, 2]',), ('7',), ('7',))
    """
    text = gold.strip()
    if not text.startswith(('["', "['")) or not text.endswith(('"]', "']")):
        return (gold,)
    for parse in (json.loads, ast.literal_eval):
        try:
            members = parse(text)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
        if (
            isinstance(members, list)
            and members
            and all(isinstance(member, str) and member.strip() for member in members)
        ):
            return tuple(dict.fromkeys(members))
    return (gold,)


def all_of(gold: str) -> str:
    """Return a gold that requires every member of a list.

    >>> all_of('["1", "2"]'), all_of("7")
    ('1, 2', '7')
    """
    return ", ".join(accepted_golds(gold))
