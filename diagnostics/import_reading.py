"""Other tools' samples into the store: every file once, every good record kept, every bad one counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b, sha256
from pathlib import Path

import numpy as np
import pyarrow as pa

from diagnostics import import_parts
from diagnostics.errors import ImportFileError, ProblemError, VerifierError
from diagnostics.graders import RECORDED
from diagnostics.import_config import ImportConfig
from diagnostics.import_parts import CHARACTERS_PER_BLOCK, GradedPairs, Part, Placed, collector_off, storable
from diagnostics.import_plan import PlannedFile
from diagnostics.importers.contract import Fault, ReadOptions, Recorded
from diagnostics.importers.rows import fault_of_last_line
from diagnostics.recording import FaultCount, ImportedFile, Recording
from diagnostics.store import Store
from diagnostics.types import Checkpoint, Problem, RecordedSettings, Series, content_hash
from diagnostics.verifiers import Verifiers

#: The largest number that a tool may give one of the responses to a prompt.
LARGEST_INDEX = 65_535

NO_STEP = "no step in its fields; pass --step"
NO_SCORE = "no score, though others of this run have one"
NO_GOLD = "neither a score nor a gold answer"
DUPLICATE = "a (problem, sample) that was there before"
TOO_LARGE_INDEX = f"numbered beyond {LARGEST_INDEX}"
NO_TEXT = "blank prompt"
OTHER_STEP = "of a step that is not among --steps"


@dataclass(frozen=True, kw_only=True)
class FileResult:
    """What came of one file. ``known``: it was imported before. ``why``: nothing of it could be used.

    ``counted``: without a store, the samples of each step and problem.
    """

    path: Path
    format: str
    n_samples: int
    faults: dict[str, FaultCount]
    known: bool = False
    why: str | None = None
    notes: tuple[str, ...] = ()
    counted: Mapping[tuple[int, str], int] = field(default_factory=dict)

    @property
    def n_skipped(self) -> int:
        """Records that could not be used."""
        return sum(count.n for count in self.faults.values())


@dataclass(kw_only=True)
class _Reading:
    """A file on its way into the store. ``faults``: records that cannot be used, by reason."""

    file: PlannedFile
    file_hash: str
    n_bytes: int
    verifiers: Verifiers
    n_samples: int
    faults: dict[str, FaultCount]
    part: Part = field(default_factory=Part)
    notes: list[str] = field(default_factory=list)
    highest_step: int = -1
    counted: Counter[tuple[int, str]] = field(default_factory=Counter)

    def count(self, part: Part, steps: Mapping[str, int]) -> None:
        """Count the part's samples by step and problem; ``steps`` are those of the checkpoints."""
        places = (part.samples.column(name).to_pylist() for name in ("checkpoint_id", "problem_id"))
        self.counted.update((steps[checkpoint], problem) for checkpoint, problem in zip(*places, strict=True))

    def skip(self, line: int, why: str) -> None:
        held = self.faults.get(why)
        n, first_line = (0, line) if held is None else (held.n, min(held.first_line, line))
        self.faults[why] = FaultCount(n=n + 1, first_line=first_line)

    def note_step(self, item: Recorded) -> None:
        """Tell once where the steps of the file go backwards, or are not the one that its name says."""
        if item.step is None or self.file.fixed:
            return
        if item.step < self.highest_step and not self.notes:
            backwards = f"from {self.highest_step} to {item.step}"
            self.notes.append(f"line {item.line}: the step goes back {backwards}; a restarted run?")
        elif self.file.step not in (None, item.step) and not self.notes:
            named = f"step {self.file.step} by the file's name and {item.step} by its field"
            self.notes.append(f"line {item.line}: {named}, which counts; --step names another")
        self.highest_step = max(self.highest_step, item.step)


class SeriesReader:
    """Reads the files of one series into a store, one after the other.

    Without a store it reads all the same and keeps nothing. ``verifier`` None: the first sample decides.
    """

    def __init__(self, store: Store | None, series: str, config: ImportConfig, *, verifier: str | None) -> None:
        self.series = series
        self.verifier = verifier
        self.settings: RecordedSettings | None = None
        self._store = store
        self._config = config
        self._problems: dict[bytes, str | Fault] = {}
        self._seen: dict[tuple[str, str, bool], int] = {}  # bit i: sample i of that checkpoint and problem is there
        self._checkpoint_ids: dict[int, str] = {}
        self._steps: dict[int, Path] = {}
        self._only_steps = frozenset(config.steps)
        self._at_temperature_1 = True
        self._graded: GradedPairs | None = None  # None: what was graded before is not known here

    def read(self, file: PlannedFile, verifiers: Verifiers) -> FileResult:
        """Write the file's samples that the store lacks. Raises ``ImportFileError`` for a file that cannot be read."""
        settings = self._config.settings(file.importer.name, file.told)
        if self.settings is None:
            self._begin(settings)
        elif settings != self.settings:
            return _left_out(
                file,
                f"drawn with other sampling settings than the files before it ({_difference(settings, self.settings)})",
            )
        n_bytes, options = _size(file.path), self._options(file)
        held, file_hash = None, ""
        if self._store is not None:
            file_hash = f"{_content(file.path)}:{options}"
            known = self._known(self._store, file, n_bytes, file_hash)
            if isinstance(known, FileResult):
                return known
            held = known
        done, faults = (held.lines_done, dict(held.faults)) if held else (0, {})
        cut = fault_of_last_line(file.path, held.n_bytes) if held is not None and held.complete else None
        if cut in faults:  # that line may be whole now: read it again
            done -= 1
            count = faults.pop(cut)
            if count.n > 1:
                faults[cut] = replace(count, n=count.n - 1)
        reading = _Reading(
            file=file,
            file_hash=file_hash,
            n_bytes=n_bytes,
            verifiers=verifiers,
            n_samples=held.n_samples if held else 0,
            faults=faults,
        )
        with collector_off():
            return self._read(reading, done)

    def _known(self, store: Store, file: PlannedFile, n_bytes: int, file_hash: str) -> ImportedFile | FileResult | None:
        """How far the file was read before, or what is said of it where it is not read any further."""
        options = file_hash.partition(":")[2]
        held = store.imported(self.series, file_hash)
        if held is not None:
            if not held.complete:
                return held
            return FileResult(
                path=file.path,
                format=file.importer.name,
                n_samples=held.n_samples,
                faults=dict(held.faults),
                known=True,
            )
        held = store.imported_from(self.series, file.path)
        if held is None or not held.n_samples:  # nothing of it could be used
            return None
        if not held.file_hash.endswith(f":{options}"):
            return _left_out(
                file,
                "was imported before with another --map, --score, --correct-at, --step, --steps or --window; give this "
                "reading of it a --name of its own",
            )
        if held.n_bytes > n_bytes or held.file_hash != f"{_content(file.path, held.n_bytes)}:{options}":
            return _left_out(file, "was imported before with other content; give what it holds now a --name of its own")
        return held

    def _options(self, file: PlannedFile) -> str:
        """What makes other samples of the same content."""
        config = self._config
        asked = (sorted(config.map.items()), config.score, config.correct_at, config.steps, config.window)
        return content_hash(file.step, file.fixed, *asked)

    def _begin(self, settings: RecordedSettings) -> None:
        self.settings = settings
        self._at_temperature_1 = settings.temperature in (None, 1.0)  # else its numbers are of another law
        if self._store is None:
            return
        self._store.add_settings(settings)
        held = self._store.frame(
            """
            SELECT checkpoint_id, problem_id, greedy, list(DISTINCT sample_index) AS indices
            FROM samples
            WHERE settings_id = $settings_id
            GROUP BY ALL
            """,
            settings_id=settings.settings_id,
        )
        for row in held.itertuples(index=False):
            self._seen[row.checkpoint_id, row.problem_id, row.greedy] = sum(1 << int(index) for index in row.indices)

    def _read(self, reading: _Reading, done: int) -> FileResult:
        """Read what comes after line ``done``."""
        file = reading.file
        options = ReadOptions(fields=self._config.map, score=self._config.score)
        block: list[Recorded] = []
        n_characters, line = 0, done
        try:
            for item in file.importer.read(file.path, options):
                here = item.line
                if here <= done:
                    continue
                if here != line:
                    if len(block) >= import_parts.SAMPLES_PER_BLOCK or n_characters >= CHARACTERS_PER_BLOCK:
                        self._take(block, reading)
                        block, n_characters = [], 0
                        if reading.part.full:
                            self._write(reading, line, complete=False)
                    line = here
                if isinstance(item, Fault):
                    reading.skip(line, item.why)
                else:
                    block.append(item)
                    n_characters += len(item.response)
        except ImportFileError:  # what was read until then is good
            self._take(block, reading)
            self._write(reading, line, complete=False)
            raise
        self._take(block, reading)
        self._write(reading, line, complete=True)
        return FileResult(
            path=file.path,
            format=file.importer.name,
            n_samples=reading.n_samples,
            faults=reading.faults,
            notes=tuple(reading.notes),
            counted=reading.counted,
        )

    def _take(self, block: Sequence[Recorded], reading: _Reading) -> None:
        """Put the samples of a block into the part."""
        placed: list[Placed] = []
        before: Recorded | None = None
        problem_id: str | Fault = ""
        standing: object = None
        for item in block:
            # samples of one step, and responses to one prompt, often follow each other
            if (item.step, item.score is None) != standing:
                standing = (item.step, item.score is None)
                step = self._step(item, reading.file)
                why = self._unusable(item, step, reading.file)
                is_noted = False
            if why is not None or step is None:
                reading.skip(item.line, why or NO_STEP)
                continue
            if before is None or item.prompt != before.prompt or item.gold != before.gold or item.task != before.task:
                problem_id = self._problem(item, reading)
            before = item
            if isinstance(problem_id, Fault):
                reading.skip(item.line, problem_id.why)
                continue
            checkpoint_id = self._checkpoint_ids.get(step) or self._new_step(step, reading.file.path)
            number = self._number(checkpoint_id, problem_id, item)
            if isinstance(number, str):
                reading.skip(item.line, number)
                continue
            if not is_noted:
                reading.note_step(item)
                is_noted = True
            placed.append((item, checkpoint_id, problem_id, number))
        if not placed or self.verifier is None:
            return
        texts, response_ids = reading.part.add_samples(placed, with_numbers=self._at_temperature_1)
        if self.verifier.startswith(RECORDED):
            reading.part.add_grades(placed, texts, response_ids, self.verifier, self._config.correct_at)

    def _unusable(self, item: Recorded, step: int | None, file: PlannedFile) -> str | None:
        """Why a sample cannot be used, whatever its problem is; the first one decides who grades the series."""
        if step is None:
            return NO_STEP
        if self._only_steps and step not in self._only_steps:
            return OTHER_STEP
        scored = item.score is not None and not self._config.regrade
        if self.verifier is None:
            self.verifier = f"{RECORDED}{file.importer.name}" if scored else self._config.verifier
        return None if scored or not self.verifier.startswith(RECORDED) else NO_SCORE

    def _step(self, item: Recorded, file: PlannedFile) -> int | None:
        step = file.step if file.fixed or item.step is None else item.step
        window = self._config.window
        return step if step is None or window is None else -(-step // window) * window

    def _problem(self, item: Recorded, reading: _Reading) -> str | Fault:
        task = item.task or reading.file.task or self.series
        gold = item.gold or ""
        key = blake2b(f"{item.prompt}\0{gold}\0{task}".encode("utf-8", "replace"), digest_size=16).digest()
        known = self._problems.get(key)
        if known is None:
            known = self._problems[key] = self._new_problem(item, storable(gold), task, reading)
        return known

    def _new_problem(self, item: Recorded, gold: str, task: str, reading: _Reading) -> str | Fault:
        assert self.verifier is not None  # the first sample chose it
        if not item.prompt.strip():
            return Fault(item.line, NO_TEXT)
        problem = Problem(task=storable(task), prompt=storable(item.prompt), gold=gold, verifier=self.verifier)
        if not self.verifier.startswith(RECORDED):
            if not gold:
                return Fault(item.line, NO_GOLD)
            try:
                reading.verifiers.check_gold(problem)
            except (ProblemError, VerifierError) as error:
                return Fault(item.line, f"its gold answer cannot be graded ({error})")
        source_id = None if item.problem is None else storable(item.problem)
        reading.part.add_problem(problem.problem_id, problem.task, problem.prompt, gold, self.verifier, source_id)
        return problem.problem_id

    def _number(self, checkpoint_id: str, problem_id: str, item: Recorded) -> int | str:
        place = (checkpoint_id, problem_id, item.greedy)
        seen = self._seen.get(place, 0)
        index = seen.bit_length() if item.index is None else item.index
        if not 0 <= index <= LARGEST_INDEX:
            return TOO_LARGE_INDEX
        if seen >> index & 1:
            return DUPLICATE
        self._seen[place] = seen | 1 << index
        return index

    def _new_step(self, step: int, path: Path) -> str:
        self._checkpoint_ids[step] = recorded_id(self.series, step)
        self._steps[step] = path.resolve()
        return self._checkpoint_ids[step]

    def _register(self, store: Store) -> None:
        """Make the steps known that were read so far, beside those of earlier imports."""
        held = held_steps(store, self.series)
        together = {**self._steps, **held}
        if together.keys() == held.keys():
            return
        root = store.frame("SELECT path FROM series WHERE series = $series", series=self.series)["path"]
        store.add_series(
            Series(
                name=self.series,
                path=Path(root.iloc[0]) if len(root) else next(iter(together.values())).parent,
                layout="recorded",
                checkpoints=tuple(
                    Checkpoint(
                        step=step,
                        label=f"step {step}",
                        path=together[step],
                        kind="recorded",
                        weights_hash=recorded_id(self.series, step),
                    )
                    for step in sorted(together)
                ),
            )
        )

    def _write(self, reading: _Reading, line: int, *, complete: bool) -> None:
        """Commit the part, which ends with ``line``, and begin another."""
        assert self.settings is not None  # read() begins with it
        part, reading.part = reading.part, Part()
        reading.n_samples += part.n_samples
        if self._store is None:
            reading.count(part, {checkpoint_id: step for step, checkpoint_id in self._checkpoint_ids.items()})
            return
        self._register(self._store)
        verifier = self.verifier or self._config.verifier
        if self._graded is None and not self._store.has_grades(verifier):
            self._graded = GradedPairs()
        grades = part.grades
        new_N = np.zeros(len(grades), dtype=bool) if self._graded is None else self._graded.surely_new(grades)
        self._store.add_recorded(
            Recording(
                series=self.series,
                settings_id=self.settings.settings_id,
                file_hash=reading.file_hash,
                path=str(reading.file.path.resolve()),
                format=reading.file.importer.name,
                verifier=verifier,
                n_bytes=reading.n_bytes,
                lines_done=line,
                n_samples=reading.n_samples,
                complete=complete,
                problems=part.problems,
                samples=part.samples,
                new_grades=grades.filter(pa.array(new_N)),
                other_grades=grades.filter(pa.array(~new_N)),
                faults=reading.faults,
            )
        )


def held_steps(store: Store, series: str) -> dict[int, Path]:
    """The steps of a series that the store knows, and where they were read."""
    held = store.frame("SELECT step, path FROM series_checkpoints WHERE series = $series", series=series)
    return {int(row.step): Path(row.path) for row in held.itertuples()}


def recorded_id(series: str, step: int) -> str:
    """The identity of a checkpoint that only its samples are known of."""
    return content_hash("recorded", series, step)


def _left_out(file: PlannedFile, why: str) -> FileResult:
    return FileResult(path=file.path, format=file.importer.name, n_samples=0, faults={}, why=why)


def _difference(one: RecordedSettings, other: RecordedSettings) -> str:
    return ", ".join(
        f"{name} {value} and not {vars(other)[name]}" for name, value in vars(one).items() if value != vars(other)[name]
    )


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError as error:
        raise ImportFileError(f"{path}: cannot be read ({error.strerror})") from error


def _content(path: Path, n_bytes: int | None = None) -> str:
    """A hash of the first ``n_bytes``; of all where none are named."""
    digest = sha256()
    left = float("inf") if n_bytes is None else n_bytes
    try:
        with path.open("rb") as content:
            while left and (part := content.read(int(min(left, 1 << 20)))):
                digest.update(part)
                left -= len(part)
    except OSError as error:
        raise ImportFileError(f"{path}: cannot be read ({error.strerror})") from error
    return digest.hexdigest()[:16]
