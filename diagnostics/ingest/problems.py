"""Identify a sample's problem by prompt and gold answer, or with ``--match id`` by the tool's id."""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import blake2b
from os.path import commonprefix
from typing import NamedTuple

from oversharp.diagnostics.ingest.formats.contract import Fault, Recorded
from oversharp.diagnostics.store import Store

NO_ID = "no problem id, required by --match id"
OTHER_PROMPT = "its id belongs to another prompt at the same step; --match id needs one id per problem"
#: Number of characters shown of each of two differing texts, and how many of these precede the difference.
_SHOWN, _BEFORE = 40, 10
#: Largest number of problems whose ids are kept. They serve only the hint, and their texts take memory.
_MOST_FOR_HINT = 10_000

_STORED = """
    WITH stored AS (
        SELECT s.problem_id, min(c.step) AS step
        FROM series_checkpoints AS c
        JOIN samples AS s USING (checkpoint_id)
        WHERE c.series = $series
        GROUP BY s.problem_id
    )
    SELECT step, problem_id, task, prompt, gold, source_id
    FROM stored
    JOIN problems USING (problem_id)
    ORDER BY step, problem_id
"""


class _First(NamedTuple):
    """First occurrence of a problem."""

    step: int
    problem_id: str
    prompt: str
    gold: str


@dataclass(kw_only=True)
class KnownProblems:
    """Known problems of a series.

    Golds that differ only in white space are equal, and the first spelling is kept. If ``by_id``, problems with the
    same id of the tool are equal, and the first prompt and gold are kept.
    """

    by_id: bool
    _of_text: dict[bytes, str] = field(default_factory=dict)
    _of_id: dict[tuple[str, str], _First] = field(default_factory=dict)
    _texts: dict[tuple[int, str, str], bytes] = field(default_factory=dict)  # keys are (step, task, id)
    _differing: tuple[str, _First, _First] | None = None
    _ids_are_unique: bool = True

    def find(self, item: Recorded, task: str) -> str | None:
        """Return the id of a known problem; None for a new problem."""
        if self.by_id and item.problem is not None:
            first = self._of_id.get((task, item.problem))
            return None if first is None else first.problem_id
        return self._of_text.get(text_key(item.prompt, item.gold, task))

    def fault_of(self, item: Recorded, task: str, step: int) -> Fault | None:
        """Return the fault if the tool's id does not identify a problem; None if it does, or ids are not used."""
        if not self.by_id:
            return None
        if item.problem is None:
            return Fault(item.line, NO_ID)
        key = text_key(item.prompt, item.gold, task)
        same = self._texts.setdefault((step, task, item.problem), key) == key
        return None if same else Fault(item.line, OTHER_PROMPT)

    def add(self, item: Recorded, task: str, step: int, problem_id: str) -> None:
        """Add a new problem."""
        self._of_text[text_key(item.prompt, item.gold, task)] = problem_id
        if item.problem is not None:
            self._add_id(task, item.problem, _First(step, problem_id, item.prompt, item.gold or ""))

    def add_stored(self, store: Store, series: str) -> None:
        """Add the problems of earlier imports."""
        for row in store.frame(_STORED, series=series).itertuples(index=False):
            self._of_text.setdefault(text_key(row.prompt, row.gold, row.task), row.problem_id)
            if isinstance(row.source_id, str):
                self._add_id(row.task, row.source_id, _First(int(row.step), row.problem_id, row.prompt, row.gold))

    def _add_id(self, task: str, source_id: str, this: _First) -> None:
        if not self.by_id and len(self._of_id) >= _MOST_FOR_HINT and (task, source_id) not in self._of_id:
            return
        first = self._of_id.setdefault((task, source_id), this)
        if first.problem_id == this.problem_id:
            return
        if first.step == this.step:
            self._ids_are_unique = False
        elif self._differing is None:
            self._differing = (source_id, first, this)

    @property
    def hint(self) -> str | None:
        """Note on problems that have the same id but different texts at two steps; None if there are none."""
        if self._differing is None or self.by_id or not self._ids_are_unique:
            return None
        source_id, first, other = self._differing
        kind = "prompts" if first.prompt != other.prompt else "gold answers"
        texts = (first.prompt, other.prompt) if kind == "prompts" else (first.gold, other.gold)
        before, after = _difference(*texts)
        return (
            f"problems with the same id have different {kind}. First id: {source_id}, with {before!r} at step "
            f"{first.step} and {after!r} at step {other.step}; pass --match id to compare problems by their ids"
        )


def text_key(prompt: str, gold: str | None, task: str) -> bytes:
    """Return a hash of prompt, task, and gold; white space in the gold is ignored."""
    text = f"{prompt}\0{''.join((gold or '').split())}\0{task}"
    return blake2b(text.encode("utf-8", "replace"), digest_size=16).digest()


def _difference(text: str, other: str) -> tuple[str, str]:
    """Return the parts of two texts around their first difference.

    >>> _difference("What is 2 + 2?", "<user>What is 2 + 2?")
    ('What is 2 + 2?', '<user>What is 2 + 2?')
    """
    start = max(0, len(commonprefix((text, other))) - _BEFORE)  # noqa: RUF071 - by character, as intended
    ellipsis = "…" if start else ""
    return f"{ellipsis}{text[start : start + _SHOWN]}", f"{ellipsis}{other[start : start + _SHOWN]}"
