"""Overlap of an audit's problems with training data: equal prompts, or a shared word n-gram.

There are three kinds of overlap. "same text": equal texts. "same words": equal up to case, spaces and punctuation.
"shared run": a common run of words (n-gram) of 13 words by default, as in Brown et al. 2020, arXiv 2005.14165, appendix
C.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from oversharp.diagnostics.records.cells import short_repr
from oversharp.diagnostics.records.errors import ProblemError
from oversharp.diagnostics.tasks import load_problems
from oversharp.diagnostics.tasks.files import read_rows

How = Literal["same text", "same words", "shared run"]
WORDS = 13
#: An n-gram in more than this share of the audit's prompts is part of the instructions and is ignored.
COMMON_TO_SET = 0.5
#: With fewer prompts, every n-gram is used.
FEWEST_PROMPTS = 4

_PROMPTS = ("prompt", "question", "problem", "input", "query", "instruction")
_WORD = re.compile(r"\\[a-zA-Z]+|[^\W\d_]+|\d+(?:[.,]\d+)*|[-+*/=<>^]")


@dataclass(frozen=True, kw_only=True)
class Overlap:
    """A problem of the audit that overlaps with a prompt of another set.

    ``place`` and ``other_place`` are positions, counted from 1. ``shared`` is the share of the problem's n-grams that
    the other prompt contains, from 0 to 1.
    """

    place: int
    prompt: str
    other: str
    other_place: int
    how: How
    shared: float

    __repr__ = short_repr


@dataclass(frozen=True, kw_only=True)
class SetOverlap:
    """Number of prompts in another set, and how many problems of the audit overlap with it, by kind.

    Each problem counts only once, as its closest kind.
    """

    name: str
    n: int
    same_text: int
    same_words: int
    shared_run: int

    __repr__ = short_repr


@dataclass(frozen=True, kw_only=True)
class OverlapResult:
    """Result of ``check_problems``.

    ``found`` has, for each set and overlapping problem, the closest prompt.
    """

    name: str
    n: int
    words: int
    sets: tuple[SetOverlap, ...]
    found: tuple[Overlap, ...]

    __repr__ = short_repr


def check_problems(audit: str, against: Sequence[str], *, words: int = WORDS) -> OverlapResult:
    """Compare the prompts of ``audit`` with those of each set in ``against`` (files, or tasks by name).

    Raises ``ProblemError`` for a set that cannot be read or has no prompts, and for fewer than 3 ``words``.
    """
    if words < 3:
        raise ProblemError(f"--words {words}: most prompts share n-grams this short; pass 3 or more (default {WORDS})")
    prompts = list(read_prompts(audit))
    index = _Index(prompts, words)
    sets, found = [], []
    for name in against:
        closest: dict[int, Overlap] = {}
        n = 0
        for n, prompt in enumerate(read_prompts(name), start=1):
            for place, how, shared in index.find_overlaps(prompt):
                overlap = Overlap(
                    place=place + 1, prompt=prompts[place], other=name, other_place=n, how=how, shared=shared
                )
                if place not in closest or _is_nearer(overlap, closest[place]):
                    closest[place] = overlap
        kinds = Counter(overlap.how for overlap in closest.values())
        sets.append(
            SetOverlap(
                name=name,
                n=n,
                same_text=kinds["same text"],
                same_words=kinds["same words"],
                shared_run=kinds["shared run"],
            )
        )
        found += [closest[place] for place in sorted(closest)]
    return OverlapResult(name=audit, n=len(prompts), words=words, sets=tuple(sets), found=tuple(found))


def read_prompts(source: str) -> Iterator[str]:
    """Yield the prompts of a file (JSON Lines or Parquet), or of a task by name, in order.

    The field is ``prompt``, ``question``, ``problem``, ``input``, ``query`` or ``instruction``. Its value is a text, or
    a chat, of which the user messages are used. Raises ``ProblemError``.
    """
    path = Path(source)
    if not path.exists() and not path.suffix and (":" in source or "/" not in source):
        yield from (problem.prompt for problem in load_problems(None, source))
        return
    n = 0
    for row in read_rows(path):
        name = next((name for name in _PROMPTS if row.fields.get(name)), None)
        text = _text_of(row.fields, name)
        if text is None:
            raise ProblemError(f"{row.where}: no prompt (text or chat) in any of the fields {', '.join(_PROMPTS)}")
        n += 1
        yield text
    if not n:
        raise ProblemError(f"{source}: contains no prompt")


def _text_of(fields: Mapping[str, Any], name: str | None) -> str | None:
    value = None if name is None else fields[name]
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        return None
    turns = [message.get("content") for message in value if isinstance(message, dict) and message.get("role") == "user"]
    return "\n".join(message for message in turns if isinstance(message, str)) or None


def _is_nearer(overlap: Overlap, other: Overlap) -> bool:
    order: dict[How, int] = {"same text": 0, "same words": 1, "shared run": 2}
    return (order[overlap.how], -overlap.shared) < (order[other.how], -other.shared)


class _Index:
    """Index of an audit's prompts by text, by words and by n-grams."""

    def __init__(self, prompts: Sequence[str], words: int) -> None:
        self._words = words
        self._by_text: dict[str, list[int]] = {}
        self._by_words: dict[tuple[str, ...], list[int]] = {}
        self._by_run: dict[int, list[int]] = {}
        for place, prompt in enumerate(prompts):
            prompt_words = split_words(prompt)
            self._by_text.setdefault(_as_text(prompt), []).append(place)
            self._by_words.setdefault(prompt_words, []).append(place)
            for run in set(_runs(prompt_words, words)):
                self._by_run.setdefault(run, []).append(place)
        if len(prompts) >= FEWEST_PROMPTS:
            most = COMMON_TO_SET * len(prompts)
            self._by_run = {run: places for run, places in self._by_run.items() if len(places) <= most}
        self._n_runs = [0] * len(prompts)
        for places in self._by_run.values():
            for place in places:
                self._n_runs[place] += 1

    def find_overlaps(self, prompt: str) -> Iterator[tuple[int, How, float]]:
        """Yield each problem of the audit that overlaps with a prompt, with the kind and share of the overlap.

        Each problem is yielded once, with the closest kind of overlap.
        """
        prompt_words = split_words(prompt)
        same = self._by_text.get(_as_text(prompt), [])
        yield from ((place, "same text", 1.0) for place in same)
        reworded = [place for place in self._by_words.get(prompt_words, []) if place not in same]
        yield from ((place, "same words", 1.0) for place in reworded)
        shared: dict[int, int] = {}
        for run in set(_runs(prompt_words, self._words)):
            for place in self._by_run.get(run, ()):
                shared[place] = shared.get(place, 0) + 1
        for place, n in shared.items():
            if place not in same and place not in reworded:
                yield place, "shared run", n / self._n_runs[place]


def split_words(prompt: str) -> tuple[str, ...]:
    r"""Return the words, numbers, LaTeX commands and signs of a prompt, in lower case.

    >>> split_words("What is  $\\frac{1}{2}+3$, in CM?")
    ('what', 'is', '\\frac', '1', '2', '+', '3', 'in', 'cm')
    """
    return tuple(_WORD.findall(unicodedata.normalize("NFKC", prompt).casefold()))


def _as_text(prompt: str) -> str:
    return unicodedata.normalize("NFC", prompt).strip()


def _runs(prompt_words: tuple[str, ...], words: int) -> Iterable[int]:
    return (hash(prompt_words[start : start + words]) for start in range(len(prompt_words) - words + 1))
