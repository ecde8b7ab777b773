"""Other tools' samples into the store: every file once, every good record kept, every bad one counted."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b, sha256
from pathlib import Path

import pyarrow as pa

from diagnostics.errors import ImportFileError, ProblemError, VerifierError
from diagnostics.graders import RECORDED
from diagnostics.import_config import ImportConfig
from diagnostics.import_plan import PlannedFile
from diagnostics.importers.contract import Fault, ReadOptions, Recorded
from diagnostics.recording import GRADES, PROBLEMS, SAMPLES, FaultCount, Recording
from diagnostics.store import Store
from diagnostics.types import (
    NO_ANSWER,
    Checkpoint,
    Problem,
    RecordedSettings,
    Series,
    content_hash,
    response_id,
)
from diagnostics.verifiers import Verifiers
from diagnostics.verifiers.exact import exact_answer

#: A part of a file that is written at once: samples, and characters of their texts.
SAMPLES_PER_COMMIT = 1 << 17  # more than a row group: DuckDB writes it to the file at once and not to its log first
CHARACTERS_PER_COMMIT = 256 << 20
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
    """What came of one file. ``n_known``: it was imported before. ``why``: nothing of it could be used."""

    path: Path
    format: str
    n_samples: int
    faults: dict[str, FaultCount]
    known: bool = False
    why: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def n_skipped(self) -> int:
        """Records that could not be used."""
        return sum(count.n for count in self.faults.values())


class _Columns:
    """A part of a file on its way into the store: a list per column of ``PROBLEMS``, ``SAMPLES`` and ``GRADES``."""

    def __init__(self) -> None:
        self.problems: list[list[object]] = [[] for _ in PROBLEMS.names]
        self.samples: list[list[object]] = [[] for _ in SAMPLES.names]
        self.grades: list[list[object]] = [[] for _ in GRADES.names]
        self.graded: set[str] = set()
        self._characters = 0

    @property
    def n_samples(self) -> int:
        return len(self.samples[0])

    @property
    def full(self) -> bool:
        return self.n_samples >= SAMPLES_PER_COMMIT or self._characters >= CHARACTERS_PER_COMMIT

    def add_sample(self, text: str, row: tuple[object, ...]) -> None:
        """One row of ``SAMPLES`` whose response is ``text``."""
        _append(self.samples, row)
        self._characters += len(text)


def _append(columns: list[list[object]], row: tuple[object, ...]) -> None:
    for column, value in zip(columns, row, strict=True):
        column.append(value)


class SeriesReader:
    """Reads the files of one series into a store, one after the other; ``verifier`` None: the first sample decides."""

    def __init__(self, store: Store, series: str, config: ImportConfig, *, verifier: str | None) -> None:
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
        n_bytes, file_hash = _size(file.path), _file_hash(file)
        held = self._store.imported(self.series, file_hash)
        if held is not None and held.complete:
            return FileResult(
                path=file.path,
                format=file.importer.name,
                n_samples=held.n_samples,
                faults=dict(held.faults),
                known=True,
            )
        if held is None:
            held = self._store.imported_from(self.series, file.path)
            if held is not None and not held.n_samples:
                held = None  # nothing of it could be used
            if held is not None and (held.n_bytes > n_bytes or held.file_hash != _file_hash(file, held.n_bytes)):
                return _left_out(
                    file, "was imported before with other content; give what it holds now a --name of its own"
                )
        return self._read(
            file,
            file_hash,
            n_bytes,
            verifiers,
            held.lines_done if held else 0,
            held.n_samples if held else 0,
            dict(held.faults) if held else {},
        )

    def _begin(self, settings: RecordedSettings) -> None:
        self.settings = settings
        self._at_temperature_1 = settings.temperature in (None, 1.0)  # else its numbers are of another law
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

    def _read(
        self,
        file: PlannedFile,
        file_hash: str,
        n_bytes: int,
        verifiers: Verifiers,
        done: int,
        n_samples: int,
        faults: dict[str, FaultCount],
    ) -> FileResult:
        options = ReadOptions(fields=self._config.map, score=self._config.score)
        columns = _Columns()
        notes: list[str] = []
        line, highest = done, -1
        try:
            for item in file.importer.read(file.path, options):
                if item.line <= done:
                    continue
                if item.line != line and columns.full:
                    n_samples += columns.n_samples
                    self._write(file, file_hash, n_bytes, columns, faults, line, n_samples, complete=False)
                    columns = _Columns()
                line = item.line
                fault = item.why if isinstance(item, Fault) else self._take(item, file, columns, verifiers)
                if fault is not None:
                    first = faults.get(fault, FaultCount(n=0, first_line=line))
                    faults[fault] = FaultCount(n=first.n + 1, first_line=first.first_line)
                elif isinstance(item, Recorded) and item.step is not None:
                    if item.step < highest and not notes:
                        notes.append(f"line {line}: the step goes back from {highest} to {item.step}; a restarted run?")
                    highest = max(highest, item.step)
        except ImportFileError:  # what was read until then is good
            n_samples += columns.n_samples
            self._write(file, file_hash, n_bytes, columns, faults, line, n_samples, complete=False)
            raise
        n_samples += columns.n_samples
        self._write(file, file_hash, n_bytes, columns, faults, line, n_samples, complete=True)
        return FileResult(
            path=file.path, format=file.importer.name, n_samples=n_samples, faults=faults, notes=tuple(notes)
        )

    def _take(self, item: Recorded, file: PlannedFile, columns: _Columns, verifiers: Verifiers) -> str | None:
        """Put one sample into the columns; the reason where it cannot be used."""
        step = self._step(item, file)
        if step is None:
            return NO_STEP
        if self._only_steps and step not in self._only_steps:
            return OTHER_STEP
        score = None if self._config.regrade else item.score
        if self.verifier is None:
            self.verifier = self._config.verifier if score is None else f"{RECORDED}{file.importer.name}"
        scored = self.verifier.startswith(RECORDED)
        if scored and score is None:
            return NO_SCORE
        problem_id = self._problem(item, file, columns, verifiers)
        if isinstance(problem_id, Fault):
            return problem_id.why
        checkpoint_id = self._checkpoint_ids.get(step) or self._new_step(step, file.path)
        index = self._index(checkpoint_id, problem_id, item)
        if isinstance(index, str):
            return index
        text = _storable(item.response)
        identity = response_id(text)
        columns.add_sample(
            text,
            (
                checkpoint_id, problem_id, item.greedy, index, identity, text, item.n_tokens,
                item.finish_reason,
                item.logp_sum if self._at_temperature_1 else None, item.entropy_sum if self._at_temperature_1 else None,
            ),
        )  # fmt: skip
        if scored and score is not None and (pair := problem_id + identity) not in columns.graded:
            columns.graded.add(pair)
            said = item.answer if item.answer is not None else exact_answer(text)
            correct = score >= self._config.correct_at
            row = (problem_id, identity, self.verifier, _storable(said or NO_ANSWER), score, correct)
            _append(columns.grades, row)
        return None

    def _step(self, item: Recorded, file: PlannedFile) -> int | None:
        step = file.step if file.fixed or item.step is None else item.step
        window = self._config.window
        return step if step is None or window is None else -(-step // window) * window

    def _problem(self, item: Recorded, file: PlannedFile, columns: _Columns, verifiers: Verifiers) -> str | Fault:
        task = item.task or file.task or self.series
        gold = item.gold or ""
        key = blake2b(f"{item.prompt}\0{gold}\0{task}".encode("utf-8", "replace"), digest_size=16).digest()
        known = self._problems.get(key)
        if known is None:
            known = self._problems[key] = self._new_problem(item, _storable(gold), task, columns, verifiers)
        return known

    def _new_problem(
        self, item: Recorded, gold: str, task: str, columns: _Columns, verifiers: Verifiers
    ) -> str | Fault:
        assert self.verifier is not None  # the first sample chose it
        if not item.prompt.strip():
            return Fault(item.line, NO_TEXT)
        problem = Problem(task=_storable(task), prompt=_storable(item.prompt), gold=gold, verifier=self.verifier)
        if not self.verifier.startswith(RECORDED):
            if not gold:
                return Fault(item.line, NO_GOLD)
            try:
                verifiers.check_gold(problem)
            except (ProblemError, VerifierError) as error:
                return Fault(item.line, f"its gold answer cannot be graded ({error})")
        _append(
            columns.problems,
            (
                problem.problem_id,
                problem.task,
                problem.prompt,
                gold,
                self.verifier,
                item.problem and _storable(item.problem),
            ),
        )
        return problem.problem_id

    def _index(self, checkpoint_id: str, problem_id: str, item: Recorded) -> int | str:
        seen = self._seen.get((checkpoint_id, problem_id, item.greedy), 0)
        index = seen.bit_length() if item.index is None else item.index
        if not 0 <= index <= LARGEST_INDEX:
            return TOO_LARGE_INDEX
        if seen >> index & 1:
            return DUPLICATE
        self._seen[checkpoint_id, problem_id, item.greedy] = seen | 1 << index
        return index

    def _new_step(self, step: int, path: Path) -> str:
        self._checkpoint_ids[step] = recorded_id(self.series, step)
        self._steps[step] = path.resolve()
        return self._checkpoint_ids[step]

    def _register(self) -> None:
        """Make the steps known that were read so far, beside those of earlier imports."""
        held = held_steps(self._store, self.series)
        together = {**self._steps, **held}
        if together.keys() == held.keys():
            return
        root = self._store.frame("SELECT path FROM series WHERE series = $series", series=self.series)["path"]
        self._store.add_series(
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

    def _write(
        self,
        file: PlannedFile,
        file_hash: str,
        n_bytes: int,
        columns: _Columns,
        faults: dict[str, FaultCount],
        line: int,
        n_samples: int,
        *,
        complete: bool,
    ) -> None:
        assert self.settings is not None  # read() begins with it
        self._register()
        self._store.add_recorded(
            Recording(
                series=self.series,
                settings_id=self.settings.settings_id,
                file_hash=file_hash,
                path=str(file.path.resolve()),
                format=file.importer.name,
                verifier=self.verifier or self._config.verifier,
                n_bytes=n_bytes,
                lines_done=line,
                n_samples=n_samples,
                complete=complete,
                problems=_table(columns.problems, PROBLEMS),
                samples=_table(columns.samples, SAMPLES),
                grades=_table(columns.grades, GRADES),
                faults=faults,
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


def _file_hash(file: PlannedFile, n_bytes: int | None = None) -> str:
    """Of the first ``n_bytes`` and of the step that its place gives: two steps may well have equal files."""
    digest = sha256()
    left = float("inf") if n_bytes is None else n_bytes
    try:
        with file.path.open("rb") as content:
            while left and (part := content.read(int(min(left, 1 << 20)))):
                digest.update(part)
                left -= len(part)
    except OSError as error:
        raise ImportFileError(f"{file.path}: cannot be read ({error.strerror})") from error
    return content_hash(digest.hexdigest(), file.step)


def _storable(text: str) -> str:
    """The text itself; half a surrogate pair, which no file can hold, becomes a question mark."""
    if text.isascii():
        return text
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode("utf-8")
    return text


def _table(columns: list[list[object]], schema: pa.Schema) -> pa.Table:
    return pa.table(
        [pa.array(column, type=kind) for column, kind in zip(columns, schema.types, strict=True)], schema=schema
    )
