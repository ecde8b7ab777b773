"""Checks whether the several scores that a tool gave of the same responses move alike between checkpoints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from oversharp.diagnostics.ingest.config import ImportConfig
from oversharp.diagnostics.ingest.formats.contract import ReadOptions, ScoreTable
from oversharp.diagnostics.ingest.place import step_of_file
from oversharp.diagnostics.ingest.plan import PlannedFile
from oversharp.diagnostics.records.amounts import plural
from oversharp.diagnostics.records.errors import ImportFileError
from oversharp.diagnostics.verdict.rule import MARGIN
from oversharp.diagnostics.verdict.words.numbers import signed_text

#: Standard errors, paired over problems, by which the movements of two scores must differ (two-sided level 0.3 %).
_DIFFERENT = 3.0


@dataclass(frozen=True, kw_only=True)
class ScoreNotes:
    """Lines about a series whose tool gave each response several scores.

    ``notes`` name them and the one that counts; ``doubts`` warn where they disagree on how the checkpoints move.
    """

    notes: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()


def compare_scores(files: Sequence[PlannedFile], config: ImportConfig) -> ScoreNotes:
    """Read the scores of all files by name, and compare how each moves from the first step to every later one."""
    notes, doubts = [], []
    options = ReadOptions(fields=config.map, reward=config.reward)
    by_task: dict[str, dict[int, ScoreTable]] = {}
    for file in files:
        step = step_of_file(file, config)
        if step is None or (config.steps and step not in config.steps):
            continue
        try:
            table = file.importer.score_table(file.path, options)
        except ImportFileError:  # the import reports it
            continue
        if table is not None:
            tables = by_task.setdefault(file.task or file.series, {})
            tables[step] = _merged(tables[step], table) if step in tables else table
    for task, tables in by_task.items():
        first = tables[min(tables)]
        names = list(first.score_of)
        notes.append(
            f"task {task}: {plural(len(names), 'score')} of each response ({', '.join(names)}). {_taken(first)}"
        )
        differing = max(_differences(tables), key=lambda movement: movement.difference, default=None)
        if differing is not None:
            doubts.append(differing.sentence(task, first))
    return ScoreNotes(notes=tuple(notes), doubts=tuple(doubts))


@dataclass(frozen=True, kw_only=True)
class _Movement:
    """Changes of the mean of two scores from step ``base`` to ``step``, in probability, over the same problems."""

    base: int
    step: int
    names: tuple[str, str]
    changes: tuple[float, float]
    n_problems: int

    @property
    def difference(self) -> float:
        """Size of the difference between both changes."""
        return abs(self.changes[0] - self.changes[1])

    def sentence(self, task: str, table: ScoreTable) -> str:
        """Return the warning."""
        moved = " and ".join(
            f"{name} by {signed_text(change)}" for name, change in zip(self.names, self.changes, strict=True)
        )
        return (
            f"task {task}: the scores disagree on how the checkpoints move. From step {self.base} to {self.step}, "
            f"{moved} points ({plural(self.n_problems, 'problem')}). {_taken(table)} and another --name"
        )


def _taken(table: ScoreTable) -> str:
    return f"Reward: {table.taken}. To use one of them: {table.flag}"


def _differences(tables: Mapping[int, ScoreTable]) -> Iterator[_Movement]:
    """Yield the pairs of scores that moved differently: by more than ``MARGIN``, and significantly."""
    base, *later = sorted(tables)
    for step in later:
        early, late = tables[base].score_of, tables[step].score_of
        for names in combinations([name for name in early if name in late], 2):
            problems = set.intersection(*(set(early[name]) & set(late[name]) for name in names))
            if len(problems) < 2:
                continue
            changes_NP = np.array(
                [[late[name][problem] - early[name][problem] for problem in sorted(problems)] for name in names]
            )
            difference_P = changes_NP[0] - changes_NP[1]
            error = difference_P.std(ddof=1) / len(problems) ** 0.5
            if abs(difference_P.mean()) > max(MARGIN, _DIFFERENT * error):
                first, second = changes_NP.mean(axis=1).tolist()
                yield _Movement(base=base, step=step, names=names, changes=(first, second), n_problems=len(problems))


def _merged(table: ScoreTable, other: ScoreTable) -> ScoreTable:
    """Return the scores of two files of one step; a problem in both keeps the first."""
    names = dict.fromkeys([*table.score_of, *other.score_of])
    score_of = {name: {**other.score_of.get(name, {}), **table.score_of.get(name, {})} for name in names}
    return ScoreTable(score_of=score_of, taken=table.taken, flag=table.flag)
