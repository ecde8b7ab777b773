"""Read the files of a series into the store, in parts, and count unusable records by fault."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path

from oversharp.diagnostics.ingest import batch
from oversharp.diagnostics.ingest.assign import Reading, SampleAssigner, recorded_id, step_of
from oversharp.diagnostics.ingest.batch import (
    CHARACTERS_PER_BLOCK,
    GradedPairs,
    RecordedGrades,
    SampleBatch,
    Texts,
    pause_collection,
)
from oversharp.diagnostics.ingest.config import ImportConfig
from oversharp.diagnostics.ingest.formats.contract import Fault, ReadOptions, Recorded, RecordedRows
from oversharp.diagnostics.ingest.formats.rows import fault_of_last_line
from oversharp.diagnostics.ingest.joining import join_rows
from oversharp.diagnostics.ingest.plan import PlannedFile
from oversharp.diagnostics.ingest.problem_file import ProblemFile
from oversharp.diagnostics.ingest.selection import read_samples
from oversharp.diagnostics.records.amounts import plural
from oversharp.diagnostics.records.errors import ImportFileError
from oversharp.diagnostics.records.types import Checkpoint, RecordedSettings, Series, content_hash
from oversharp.diagnostics.store import Store
from oversharp.diagnostics.store.write_import import GRADES, FaultCount, ImportedFile, Recording
from oversharp.diagnostics.verifiers import Verifiers
from oversharp.diagnostics.verifiers.names import RECORDED


@dataclass(frozen=True, kw_only=True)
class FileResult:
    """Result of reading a file.

    ``known``: an earlier import read it. ``why`` is the reason if none of its samples is used. ``counted`` has the
    number of samples per step and problem, if the file was read without a store. ``n_empty`` counts new samples with a
    reward but no text, ``n_trajectories`` those with several turns or tool calls.
    """

    path: Path
    format: str
    n_samples: int
    faults: dict[str, FaultCount]
    known: bool = False
    why: str | None = None
    notes: tuple[str, ...] = ()
    n_empty: int = 0
    n_trajectories: int = 0
    counted: Mapping[tuple[int, str], int] = field(default_factory=dict)

    @property
    def n_skipped(self) -> int:
        """Number of unusable records."""
        return sum(count.n for count in self.faults.values())


class SeriesReader:
    """Reader of the files of one series into a store. Without a store it only counts samples.

    With ``verifier`` None, the first samples determine the verifier. With ``file``, samples have its problems.
    """

    def __init__(
        self,
        store: Store | None,
        series: str,
        config: ImportConfig,
        *,
        verifier: str | None,
        file: ProblemFile | None = None,
    ) -> None:
        self.series = series
        self.settings: RecordedSettings | None = None
        self._store = store
        self._config = config
        self._file = file
        self.assigner = SampleAssigner(series, config, verifier=verifier, file=file)
        self._at_temperature_1 = True
        self._texts = Texts()
        self._graded: GradedPairs | None = None  # None until earlier grades are loaded

    def close(self) -> None:
        """Release the text buffers."""
        self._texts, self._graded = Texts(0), None

    @property
    def verifier(self) -> str | None:
        """Verifier of the samples; None before the first sample."""
        return self.assigner.verifier

    def learn_prompts(self, planned: Sequence[PlannedFile]) -> None:
        """Find the problems of all prompts in the files, if a problem file has them by text."""
        if self._file is None or self._file.by_id:
            return
        prompts = set[tuple[int, str]]()
        for file in planned:
            with suppress(ImportFileError):  # reading the file raises this error again
                for item in read_samples(file, self._config):
                    step = None if isinstance(item, Fault) else step_of(item, file, self._config)
                    if step is not None and not isinstance(item, Fault):
                        prompts.add((step, item.prompt))
        self._file.learn(prompts)

    def read(self, file: PlannedFile, verifiers: Verifiers) -> FileResult:
        """Write the file's new samples.

        Raises ``ImportFileError`` for an unreadable file.
        """
        settings = self._config.settings(file.importer.name, file.sampling)
        if self.settings is None:
            self._begin(settings)
        elif settings != self.settings:
            return _skipped_file(
                file,
                f"has other sampling settings than earlier files ({_difference(settings, self.settings)})",
            )
        n_bytes, options = _size(file.path), import_options(file, self._config, self._file)
        earlier, file_hash = None, ""
        if self._store is not None:
            file_hash = f"{_hash_content(file.path)}:{options}"
            progress = self._resume_point(self._store, file, n_bytes, file_hash)
            if isinstance(progress, FileResult):
                return progress
            earlier = progress
        done, faults = (earlier.lines_done, dict(earlier.faults)) if earlier else (0, {})
        last_fault = fault_of_last_line(file.path, earlier.n_bytes) if earlier and earlier.complete else None
        if last_fault in faults:  # the line may be complete now, so read it again
            done -= 1
            count = faults.pop(last_fault)
            if count.n > 1:
                faults[last_fault] = replace(count, n=count.n - 1)
        reading = Reading(
            file=file,
            file_hash=file_hash,
            n_bytes=n_bytes,
            verifiers=verifiers,
            n_samples=earlier.n_samples if earlier else 0,
            faults=faults,
            part=SampleBatch(self._texts),
        )
        with pause_collection():
            return self._read(reading, done)

    def _resume_point(
        self, store: Store, file: PlannedFile, n_bytes: int, file_hash: str
    ) -> ImportedFile | FileResult | None:
        """Return the position to resume at, the result of a completely read file, or None for a new file."""
        options = file_hash.partition(":")[2]
        earlier = store.find_import(self.series, file_hash)
        if earlier is not None:
            if not earlier.complete:
                return earlier
            return FileResult(
                path=file.path,
                format=file.importer.name,
                n_samples=earlier.n_samples,
                faults=dict(earlier.faults),
                known=True,
            )
        earlier = store.find_import_from(self.series, file.path)
        if earlier is None or not earlier.n_samples:  # earlier import without a usable record
            return None
        if not earlier.file_hash.endswith(f":{options}"):
            return _skipped_file(
                file,
                "was imported before with another --map, --match, --reward, --correct-at, --step, --steps, --window or "
                "--problems, or another field in --selected-by; pass another --name to import it again",
            )
        if earlier.n_bytes > n_bytes or earlier.file_hash != f"{_hash_content(file.path, earlier.n_bytes)}:{options}":
            return _skipped_file(file, "was imported before with other content; pass another --name to import it")
        return earlier

    def _begin(self, settings: RecordedSettings) -> None:
        self.settings = settings
        # log-probabilities are stored only at temperature 1
        self._at_temperature_1 = settings.temperature in (None, 1.0)
        if self._store is None:
            return
        self._store.add_settings(settings)
        stored = self._store.frame(
            """
            SELECT checkpoint_id, problem_id, greedy, list(DISTINCT sample_index) AS indices
            FROM samples
            WHERE settings_id = $settings_id
            GROUP BY ALL
            """,
            settings_id=settings.settings_id,
        )
        self.assigner.problems.add_stored(self._store, self.series)
        for row in stored.itertuples(index=False):
            self.assigner.add_stored_samples((row.checkpoint_id, row.problem_id, row.greedy), row.indices)

    def _read(self, reading: Reading, done: int) -> FileResult:
        """Read the samples after line ``done``."""
        file = reading.file
        if file.importer.parts is None or self._config.selected_field is not None:
            items: Iterator[Recorded | Fault | RecordedRows] = read_samples(file, self._config)
        else:
            items = file.importer.parts(file.path, ReadOptions(fields=self._config.map, reward=self._config.reward))
        block: list[Recorded] = []
        n_characters, line, room = 0, done, batch.SAMPLES_PER_BLOCK
        try:
            for item in join_rows(items):
                if isinstance(item, RecordedRows):
                    self._take(block, reading)
                    block, n_characters, room = [], 0, 0
                    line = self._take_rows(item, reading, line)
                    continue
                here = item.line
                if here <= done:
                    continue
                if here != line:
                    if len(block) >= room or n_characters >= CHARACTERS_PER_BLOCK:
                        self._take(block, reading)
                        block, n_characters = [], 0
                        if reading.part.room <= 0:
                            self._write(reading, line, complete=False)
                        room = min(reading.part.room, batch.SAMPLES_PER_BLOCK)
                    line = here
                if isinstance(item, Fault):
                    reading.skip(line, item.why)
                else:
                    block.append(item)
                    n_characters += len(item.response)
        except ImportFileError:  # keep the samples before the fault
            self._take(block, reading)
            self._write(reading, line, complete=False)
            raise
        self._take(block, reading)
        self._write(reading, line, complete=True)
        reading.note_rewards()
        return FileResult(
            path=file.path,
            format=file.importer.name,
            n_samples=reading.n_samples,
            faults=reading.faults,
            notes=tuple(reading.notes),
            n_empty=reading.n_empty,
            n_trajectories=reading.n_trajectories,
            counted=reading.counted,
        )

    def _take(self, block: Sequence[Recorded], reading: Reading) -> None:
        """Add the samples of a block to the part."""
        placed = self.assigner.assign(block, reading)
        reading.n_empty += sum(not item.response and item.reward is not None for item in placed.items)
        reading.n_trajectories += sum(item.turns is not None for item in placed.items)
        if placed.items and self.verifier is not None:
            reading.part.add_samples(placed, with_numbers=self._at_temperature_1)

    def _take_rows(self, rows: RecordedRows, reading: Reading, done: int) -> int:
        """Add the rows after line ``done`` to the part, and commit full parts. Return the last line."""
        rest = rows.rows(min(max(0, done + 1 - rows.first), len(rows)))
        while len(rest):
            if reading.part.room <= 0:
                self._write(reading, done, complete=False)
            n = min(len(rest), reading.part.room, rest.fitting(CHARACTERS_PER_BLOCK))
            placed = self.assigner.assign_rows(rest.rows(0, n), reading)
            reading.n_empty += placed.n_empty
            if placed.places and self.verifier is not None:
                reading.part.add_rows(placed, with_numbers=self._at_temperature_1)
            done, rest = rest.first + n - 1, rest.rows(n)
        return done

    def _register(self, store: Store) -> None:
        """Register the steps of this and earlier imports."""
        stored = stored_steps(store, self.series)
        all_steps = {**self.assigner.steps, **stored}
        if all_steps.keys() == stored.keys():
            return
        root = store.frame("SELECT path FROM series WHERE series = $series", series=self.series)["path"]
        store.add_series(
            Series(
                name=self.series,
                path=Path(root.iloc[0]) if len(root) else next(iter(all_steps.values())).parent,
                layout="recorded",
                checkpoints=tuple(
                    Checkpoint(
                        step=step,
                        label=f"step {step}",
                        path=all_steps[step],
                        kind="recorded",
                        weights_hash=recorded_id(self.series, step),
                    )
                    for step in sorted(all_steps)
                ),
            )
        )

    def _write(self, reading: Reading, line: int, *, complete: bool) -> None:
        """Commit the part, whose last line is ``line``, and begin the next part."""
        reading.n_samples += reading.part.n_samples
        grades = self._grades(reading.part)
        reading.n_conflicting += grades.n_conflicting
        if self._store is None:
            reading.count({recorded_id(self.series, step): step for step in self.assigner.steps})
        else:
            self._commit(self._store, reading, grades, line, complete=complete)
        reading.part = SampleBatch(self._texts)

    def _grades(self, part: SampleBatch) -> RecordedGrades:
        """Return the tool's rewards as grades; empty if our verifier grades the samples."""
        if self.verifier is None or not self.verifier.startswith(RECORDED):
            empty = GRADES.empty_table()
            return RecordedGrades(new=empty, unsure=empty, n_conflicting=0)
        if self._graded is None and self._store is not None and not self._store.has_grades(self.verifier):
            self._graded = GradedPairs()
        return part.grades(self.verifier, self._config.least_correct, self._graded)

    def _commit(self, store: Store, reading: Reading, grades: RecordedGrades, line: int, *, complete: bool) -> None:
        assert self.settings is not None  # set in read()
        part = reading.part
        self._register(store)
        verifier = self.verifier or self._config.chosen_verifier
        if part.file_problems:
            store.add_problems(part.file_problems)
        store.add_recorded(
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
                trajectories=part.trajectories.table(),
                new_grades=grades.new,
                other_grades=grades.unsure,
                faults=reading.faults,
            )
        )


def import_options(file: PlannedFile, config: ImportConfig, problems: ProblemFile | None) -> str:
    """Return a hash of the settings on which the imported samples of a file depend."""
    chosen = (sorted(config.map.items()), config.reward, config.least_correct, config.steps, config.window)
    optional = (
        *(["id"] if config.match == "id" else []),
        *([] if config.selected_field is None else ["selected", config.selected_field]),
        *([] if problems is None else ["problems", problems.content_hash]),
    )
    return content_hash(file.step, file.fixed, *chosen, *optional)


def stored_steps(store: Store, series: str) -> dict[int, Path]:
    """Return the stored steps of a series, with the file of each."""
    rows = store.frame("SELECT step, path FROM series_checkpoints WHERE series = $series", series=series)
    return {int(row.step): Path(row.path) for row in rows.itertuples()}


def _skipped_file(file: PlannedFile, why: str) -> FileResult:
    return FileResult(path=file.path, format=file.importer.name, n_samples=0, faults={}, why=why)


def _difference(settings: RecordedSettings, other: RecordedSettings) -> str:
    return ", ".join(
        f"{name} {value} and not {vars(other)[name]}"
        for name, value in vars(settings).items()
        if value != vars(other)[name]
    )


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError as error:
        raise ImportFileError(f"{path}: cannot be read ({error.strerror})") from error


def _hash_content(path: Path, n_bytes: int | None = None) -> str:
    """Return a hash of a file's first ``n_bytes``, or of the whole file."""
    digest = sha256()
    left = float("inf") if n_bytes is None else n_bytes
    try:
        with path.open("rb") as file:
            while left and (part := file.read(int(min(left, 1 << 20)))):
                digest.update(part)
                left -= len(part)
    except OSError as error:
        raise ImportFileError(f"{path}: cannot be read ({error.strerror})") from error
    return digest.hexdigest()[:16]


def notes_of(planned: Sequence[PlannedFile], files: Sequence[FileResult]) -> list[str]:
    """Return notes on the samples without text, on trajectories, with what the files lack, and on the files."""
    n_empty, n = sum(file.n_empty for file in files), sum(file.n_samples for file in files)
    read = [file for file, result in zip(planned, files, strict=True) if result.why is None]
    of_files = Counter(note for file in read if (note := file.importer.note(file.path)) is not None)
    notes = [f"{plural(n_files, 'file')}: {note}" for note, n_files in of_files.items()]
    if n_empty:
        notes.append(f"{n_empty:,} of {plural(n, 'sample')} have a score but no text: counted as empty responses")
    if n_turns := sum(file.n_trajectories for file in files):
        untold = planned[0].importer.untold
        notes.append(f"{plural(n_turns, 'sample')} with several turns or tool calls{f'; {untold}' if untold else ''}")
    return notes


def nothing_usable(files: Sequence[FileResult]) -> str:
    """Return why no sample of the files can be used."""
    reasons = [file.why or ", ".join(file.faults) for file in files if file.why or file.faults]
    return f"no sample is usable: {reasons[0]}" if reasons else "its files have no samples"
