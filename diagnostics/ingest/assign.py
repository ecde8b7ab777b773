"""Assign samples to checkpoints and problems, number them, and choose the verifier."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np

from oversharp.diagnostics.ingest.batch import SAMPLES_PER_BLOCK, AssignedRows, AssignedSamples, SampleBatch, storable
from oversharp.diagnostics.ingest.config import ImportConfig
from oversharp.diagnostics.ingest.formats import BY_NAME_ONLY
from oversharp.diagnostics.ingest.formats.columns import differs
from oversharp.diagnostics.ingest.formats.contract import Fault, Recorded, RecordedRows
from oversharp.diagnostics.ingest.plan import PlannedFile
from oversharp.diagnostics.ingest.problem_file import ProblemFile, graded_by
from oversharp.diagnostics.ingest.problems import KnownProblems, text_key
from oversharp.diagnostics.records.amounts import plural
from oversharp.diagnostics.records.errors import ProblemError, VerifierError
from oversharp.diagnostics.records.types import Problem, content_hash
from oversharp.diagnostics.store.write_import import FaultCount
from oversharp.diagnostics.verifiers import Verifiers
from oversharp.diagnostics.verifiers.names import RECORDED
from oversharp.diagnostics.verifiers.reading.golds import GoldList, all_of

#: Largest index of a sample within its problem.
LARGEST_INDEX = 65_535

NO_STEP = "no step in its fields or in the file name; pass --step, or --base PATH for samples of the base model"
NO_REWARD = "no reward, but other records of this run have one"
NO_GOLD = "neither a reward nor a gold answer"
UNREADABLE_GOLD = (
    "verifier {} cannot parse its gold answer; pass another --verifier and check that its grades match the tool's"
)
NO_TESTS = "verifier code needs the problem's tests; pass the file that contains them as --problems"
DUPLICATE = "duplicate of an earlier (problem, sample); further samples need the next numbers"
TOO_LARGE_INDEX = f"a sample number above {LARGEST_INDEX}"
NO_TEXT = "blank prompt"
OTHER_STEP = "its step is not among --steps"

#: Checkpoint id, problem id, and whether decoding was greedy.
Where = tuple[str, str, bool]


@dataclass(kw_only=True)
class Reading:
    """Progress of reading one file.

    ``faults`` counts unusable records by reason. ``n_conflicting`` counts samples whose response occurred earlier with
    another reward. ``n_empty`` counts samples with a reward but no text, ``n_trajectories`` those with several turns.
    """

    file: PlannedFile
    file_hash: str
    n_bytes: int
    verifiers: Verifiers
    n_samples: int
    faults: dict[str, FaultCount]
    part: SampleBatch
    notes: list[str] = field(default_factory=list)
    highest_step: int = -1
    n_conflicting: int = 0
    n_empty: int = 0
    n_trajectories: int = 0
    counted: Counter[tuple[int, str]] = field(default_factory=Counter)

    def count(self, steps: Mapping[str, int]) -> None:
        """Count the samples of the current part by step and problem.

        ``steps`` maps checkpoint ids to steps.
        """
        places = (self.part.samples.column(name).to_pylist() for name in ("checkpoint_id", "problem_id"))
        self.counted.update((steps[checkpoint], problem) for checkpoint, problem in zip(*places, strict=True))

    def skip(self, line: int, why: str) -> None:
        """Count an unusable record."""
        counted = self.faults.get(why)
        n, first_line = (0, line) if counted is None else (counted.n, min(counted.first_line, line))
        self.faults[why] = FaultCount(n=n + 1, first_line=first_line)

    def note_step(self, item: Recorded) -> None:
        """Add a note if steps decrease within the file, or differ from the step in the file name."""
        if item.step is None or self.file.fixed or self.file.importer.name in BY_NAME_ONLY:
            return  # the user mapped the step field with --map, and rows may be in any order
        if item.step < self.highest_step and not self.notes:
            backwards = f"from {self.highest_step} to {item.step}"
            self.notes.append(f"line {item.line}: the step decreases {backwards}; a restarted run?")
        elif self.file.step not in (None, item.step) and not self.notes:
            both = f"the file name has step {self.file.step}, the field {item.step}"
            self.notes.append(f"line {item.line}: {both}; the field is used; pass --step to override it")
        self.highest_step = max(self.highest_step, item.step)

    def note_rewards(self) -> None:
        """Add a note if equal responses have different rewards: the store has one grade per text."""
        if self.n_conflicting:
            self.notes.append(
                f"{plural(self.n_conflicting, 'sample')} of {self.n_samples:,} repeat an earlier response with another "
                "reward. Only the first reward of a response to a problem is used, so pass@k differs from these "
                "rewards; import dumps with whole responses"
            )


class SampleAssigner:
    """Assign checkpoints, problems and indices to the samples of one series.

    With ``verifier`` None, the first samples determine the verifier. With ``file``, samples have its problems.
    ``steps`` maps each step to the first file with samples of that step.
    """

    def __init__(
        self, series: str, config: ImportConfig, *, verifier: str | None, file: ProblemFile | None = None
    ) -> None:
        self.verifier = verifier
        self._file = file
        self.steps: dict[int, Path] = {}
        self._series = series
        self._config = config
        self._only_steps = frozenset(config.steps)
        self.problems = KnownProblems(by_id=config.match == "id")
        self._faults: dict[bytes, Fault] = {}  # of unusable problems
        self._seen: dict[Where, int] = {}  # bit i is set if sample i exists
        self._checkpoint_ids: dict[int, str] = {}

    @property
    def counts(self) -> Iterator[tuple[int, str, str, bool, int]]:
        """Sample counts as (step, label, problem, is greedy, n), earlier imports included."""
        steps = {checkpoint_id: step for step, checkpoint_id in self._checkpoint_ids.items()}
        for (checkpoint_id, problem_id, greedy), seen in self._seen.items():
            if checkpoint_id in steps:
                step = steps[checkpoint_id]
                yield step, f"step {step}", problem_id, greedy, seen.bit_count()

    def add_stored_samples(self, where: Where, indices: Iterable[int]) -> None:
        """Add the sample indices of an earlier import."""
        self._seen[where] = sum(1 << int(index) for index in indices)

    def assign(self, block: Sequence[Recorded], reading: Reading) -> AssignedSamples:
        """Return the usable samples of a block, and count the unusable ones in ``reading``."""
        self._choose_verifier(block, reading.file)
        placed = AssignedSamples()
        for run in _runs(block):
            where = self._locate(run[0], reading)
            if isinstance(where, str):
                for item in run:
                    reading.skip(item.line, where)
            else:
                numbers = [item.index for item in run]
                kept, indices = self._number_samples(where, numbers, [item.line for item in run], reading)
                items = run if len(kept) == len(run) else [run[place] for place in kept]
                placed.add(where[0], where[1], items, indices)
        return placed

    def assign_rows(self, rows: RecordedRows, reading: Reading) -> AssignedRows:
        """Return the usable rows, and count the unusable ones in ``reading``."""
        if self.verifier is None:
            self._choose_verifier(list(rows.rows(0, SAMPLES_PER_BLOCK).records()), reading.file)
        placed = AssignedRows(rows=rows)
        starts = _starts(rows)
        index = rows.columns.get("index")
        numbers = [None] * len(rows) if index is None else index.to_pylist()
        for start, end, item in zip(starts, [*starts[1:], len(rows)], rows.records(starts), strict=True):
            where = self._locate(item, reading)
            if isinstance(where, str):
                for line in range(item.line, item.line + end - start):
                    reading.skip(line, where)
            else:
                kept, indices = self._number_samples(
                    where, numbers[start:end], range(item.line, item.line + end - start), reading
                )
                places = range(start, end) if len(kept) == end - start else [start + place for place in kept]
                placed.add(where[0], where[1], places, indices)
        return placed

    def _choose_verifier(self, block: Sequence[Recorded], file: PlannedFile) -> None:
        """Choose the tool's rewards if any of the first samples has one, else the configured verifier."""
        if self.verifier is not None:
            return
        usable = [item for item in block if self._step_fault(step_of(item, file, self._config)) is None]
        rewarded = not self._config.regrade and any(item.reward is not None for item in usable)
        if usable:
            self.verifier = f"{RECORDED}{file.importer.name}" if rewarded else self._config.chosen_verifier

    def _step_fault(self, step: int | None) -> str | None:
        if step is None:
            return NO_STEP
        return OTHER_STEP if self._only_steps and step not in self._only_steps else None

    def _locate(self, item: Recorded, reading: Reading) -> Where | str:
        """Return checkpoint id, problem id and whether a sample is greedy, or why it is unusable."""
        step = step_of(item, reading.file, self._config)
        why = self._step_fault(step) or self._reward_fault(item)
        if step is None or why is not None:
            return why or NO_STEP
        problem_id = self._problem(item, step, reading)
        if isinstance(problem_id, Fault):
            return problem_id.why
        reading.note_step(item)
        return self._checkpoint_ids.get(step) or self._new_step(step, reading.file.path), problem_id, item.greedy

    def _reward_fault(self, item: Recorded) -> str | None:
        if self.verifier is None or not self.verifier.startswith(RECORDED):
            return None
        return NO_REWARD if item.reward is None or self._config.regrade else None

    def _problem(self, item: Recorded, step: int, reading: Reading) -> str | Fault:
        task = task_of(item, reading.file)
        fault = self.problems.fault_of(item, task, step)
        if fault is not None:
            return fault
        known = self.problems.find(item, task) or self._faults.get(text_key(item.prompt, item.gold, task))
        return known or self._new_problem(item, task, step, reading)

    def _new_problem(self, item: Recorded, task: str, step: int, reading: Reading) -> str | Fault:
        assert self.verifier is not None  # _choose_verifier sets it first
        problem = self._file.find(item) if self._file else self._recorded_problem(item, reading)
        if isinstance(problem, Fault):
            if not (self._file and self.problems.by_id):  # there another id may have the same text
                self._faults[text_key(item.prompt, item.gold, task)] = problem
            return problem
        if self._file:
            problem = graded_by(problem, self.verifier)
            reading.part.file_problems.append(problem)
        else:
            source_id, cluster = (None if text is None else storable(text) for text in (item.problem, item.cluster))
            reading.part.add_problem(
                problem.problem_id, problem.task, problem.prompt, problem.gold, self.verifier, source_id, cluster
            )
        self.problems.add(item, task, step, problem.problem_id)
        return problem.problem_id

    def _recorded_problem(self, item: Recorded, reading: Reading) -> Problem | Fault:
        """Return the problem of the sample's own fields, or why it cannot be graded."""
        assert self.verifier is not None  # _choose_verifier sets it first
        if not item.prompt.strip():
            return Fault(item.line, NO_TEXT)
        problem = problem_of(item, reading.file, self.verifier, self._config.gold)
        if not self.verifier.startswith(RECORDED):
            if not problem.gold:
                return Fault(item.line, NO_GOLD)
            try:
                reading.verifiers.check_gold(problem)
            except (ProblemError, VerifierError):
                return Fault(item.line, NO_TESTS if self.verifier == "code" else UNREADABLE_GOLD.format(self.verifier))
        return problem

    def _number_samples(
        self, where: Where, given: Sequence[int | None], lines: Sequence[int], reading: Reading
    ) -> tuple[Sequence[int], Sequence[int]]:
        """Return the positions of the samples that are not duplicates, and their indices.

        ``given`` has the tool's index of each sample, or None. ``lines`` has the line of each sample.
        """
        seen = self._seen.get(where, 0)
        start = seen.bit_length() if given[0] is None else given[0]
        here = range(start, start + len(given))
        in_order = given.count(None) == len(given) if given[0] is None else given == list(here)
        if in_order and start >= 0 and here[-1] <= LARGEST_INDEX:  # fast path: consecutive indices
            bits = ((1 << len(given)) - 1) << start
            if not seen & bits:
                self._seen[where] = seen | bits
                return range(len(given)), here
        kept, indices = [], []
        for place, number in enumerate(given):
            index = seen.bit_length() if number is None else number
            if not 0 <= index <= LARGEST_INDEX:
                reading.skip(lines[place], TOO_LARGE_INDEX)
            elif seen >> index & 1:
                reading.skip(lines[place], DUPLICATE)
            else:
                seen |= 1 << index
                kept.append(place)
                indices.append(index)
        self._seen[where] = seen
        return kept, indices

    def _new_step(self, step: int, path: Path) -> str:
        self._checkpoint_ids[step] = recorded_id(self._series, step)
        self.steps[step] = path.resolve()
        return self._checkpoint_ids[step]


def step_of(item: Recorded, file: PlannedFile, config: ImportConfig) -> int | None:
    """Return the step of a sample, rounded up to a multiple of ``--window``; None if unknown."""
    return _windowed(file.step if file.fixed or item.step is None else item.step, config)


def step_of_file(file: PlannedFile, config: ImportConfig) -> int | None:
    """Return the step in the file name, rounded up to a multiple of ``--window``; None if unknown."""
    return _windowed(file.step, config)


def _windowed(step: int | None, config: ImportConfig) -> int | None:
    return step if step is None or config.window is None else -(-step // config.window) * config.window


def task_of(item: Recorded, file: PlannedFile) -> str:
    """Return the task of a sample: the record's, else the file's, else the name of the series."""
    return item.task or file.task or file.series


def problem_of(item: Recorded, file: PlannedFile, verifier: str, gold_list: GoldList) -> Problem:
    """Return the problem of a sample.

    A response must state any or all of its golds, given by ``gold_list``.
    """
    task, gold = storable(task_of(item, file)), storable(item.gold or "")
    gold = all_of(gold) if gold_list == "all" else gold
    return Problem(task=task, prompt=storable(item.prompt), gold=gold, verifier=verifier)


def recorded_id(series: str, step: int) -> str:
    """Return the id of a checkpoint without weights."""
    return content_hash("recorded", series, step)


def _runs(block: Sequence[Recorded]) -> Iterator[Sequence[Recorded]]:
    """Yield runs of adjacent samples with equal prompt, step, gold, task, decoding and presence of a reward."""
    start = 0
    for place, (before, item) in enumerate(pairwise(block), start=1):
        if (
            item.prompt != before.prompt
            or item.step != before.step
            or item.gold != before.gold
            or item.task != before.task
            or item.greedy is not before.greedy
            or (item.reward is None) is not (before.reward is None)
        ):
            yield block[start:place]
            start = place
    if block:
        yield block[start:]


def _starts(rows: RecordedRows) -> list[int]:
    """Return the start of each run of rows. Runs are defined as in ``_runs``."""
    differs_N = np.zeros(len(rows) - 1, dtype=bool)
    for name in ("prompt", "step", "gold", "task", "greedy"):
        differs_N |= differs(rows, name)
    reward = rows.columns.get("reward")
    if reward is not None and reward.null_count:
        differs_N |= np.diff(reward.is_null().to_numpy(zero_copy_only=False))
    return [0, *(np.flatnonzero(differs_N) + 1).tolist()]
