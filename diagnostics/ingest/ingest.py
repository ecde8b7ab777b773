"""Import files of other tools: store new samples, grade them, and compute measures and verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from oversharp.diagnostics.audit.freshness import update_verdict
from oversharp.diagnostics.audit.terms import resolve_terms
from oversharp.diagnostics.engine.grading import grade_planned
from oversharp.diagnostics.ingest.assign import recorded_id
from oversharp.diagnostics.ingest.comparison import (
    Disagreement,
    PartialRewards,
    ScoreNotes,
    compare_grades,
    compare_scores,
    partial_rewards,
)
from oversharp.diagnostics.ingest.config import ImportConfig
from oversharp.diagnostics.ingest.plan import ImportPlan, PlannedFile, plan_import, without_copies
from oversharp.diagnostics.ingest.problem_file import ProblemFile
from oversharp.diagnostics.ingest.problems import KnownProblems
from oversharp.diagnostics.ingest.read import (
    FileResult,
    SeriesReader,
    import_options,
    notes_of,
    nothing_usable,
    stored_steps,
)
from oversharp.diagnostics.ingest.rounds import continue_rule, keep_n, note_of_lacking, note_of_unused
from oversharp.diagnostics.ingest.selection import audit_key, require_selecting_field, select_problems
from oversharp.diagnostics.records.amounts import plural
from oversharp.diagnostics.records.cells import short_repr
from oversharp.diagnostics.records.errors import ConfigError, ImportFileError, StoreError
from oversharp.diagnostics.records.progress import ProgressSink, SilentProgress
from oversharp.diagnostics.records.provenance import provenance
from oversharp.diagnostics.records.types import RecordedSettings, VerdictTerms
from oversharp.diagnostics.store import Store
from oversharp.diagnostics.store.load import stored_problems
from oversharp.diagnostics.tasks.clusters import find_clusters
from oversharp.diagnostics.verdict.record import Verdict
from oversharp.diagnostics.verifiers import Verifiers, get_verifier, is_from_file, named_verifier, verifier_names
from oversharp.diagnostics.verifiers.names import RECORDED


@dataclass(frozen=True, kw_only=True)
class ImportedSeries:
    """Result of one series.

    ``why`` is the reason if its samples are stored but not audited. ``disagreements``, ``partial_rewards`` and
    ``score_doubts`` are possible differences between our grades and the tool's.
    """

    name: str
    steps: tuple[int, ...]
    n_problems: int
    n: int
    verdict: Verdict | None
    left_out: Mapping[str, str]
    notes: tuple[str, ...]
    why: str | None = None
    disagreements: tuple[Disagreement, ...] = ()
    partial_rewards: tuple[PartialRewards, ...] = ()
    score_doubts: tuple[str, ...] = ()

    @property
    def doubts(self) -> tuple[str, ...]:
        """Reasons to doubt the grades, as texts of one or more sentences."""
        differing = [doubt.sentence for doubt in self.disagreements]
        return (*differing, *(doubt.sentence for doubt in self.partial_rewards), *self.score_doubts)


@dataclass(frozen=True, kw_only=True)
class ImportResult:
    """Result of an import. ``report_path`` is None if no series has a verdict."""

    store_path: Path
    report_path: Path | None
    files: tuple[FileResult, ...]
    unknown: tuple[Path, ...]
    series: tuple[ImportedSeries, ...]

    __repr__ = short_repr

    @property
    def incomplete(self) -> bool:
        """Whether anything was excluded, steps or grades are doubtful, or a verdict is missing."""
        return any(file.n_skipped or file.why or file.notes for file in self.files) or any(
            result.left_out
            or result.why
            or result.doubts
            or (result.verdict is not None and (result.verdict.left_out or result.verdict.label == "no_verdict"))
            for result in self.series
        )


@dataclass(frozen=True, kw_only=True)
class SeriesPreview:
    """Preview of a series.

    ``why`` is the reason if nothing can be compared; ``doubts`` are reasons to doubt the grades.
    """

    name: str
    files: tuple[FileResult, ...]
    notes: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    why: str | None = None

    @property
    def summary(self) -> dict[str, Any]:
        """Fields for JSON, except the files."""
        notes, doubts = list(self.notes), list(self.doubts)
        return {"series": self.name, "why_no_verdict": self.why, "notes": notes, "doubts": doubts}

    @property
    def warnings(self) -> tuple[str, ...]:
        """Doubts about the grades, and the reason if nothing can be compared."""
        return (*self.doubts, *(() if self.why is None else (f"nothing can be compared: {self.why}",)))


def preview(plan: ImportPlan, config: ImportConfig) -> tuple[SeriesPreview, ...]:
    """Read all files and select samples like an import, without writing.

    Raises ``StoreError`` if existing rows would make the import fail, and ``ConfigError`` if the samples that selected
    the problems cannot be left out.
    """
    config, problems = _resolve_problems(config)
    require_selecting_field(plan, config)
    store = Store.open(config.store, read_only=True) if config.store.exists() else nullcontext()
    with store as opened:
        return tuple(
            _preview_series(opened, name, planned, config, problems) for name, planned in plan.by_series.items()
        )


def _preview_series(
    store: Store | None,
    name: str,
    planned: tuple[PlannedFile, ...],
    config: ImportConfig,
    problems: ProblemFile | None,
) -> SeriesPreview:
    if store is not None:
        _require_left_out(store, name, planned, config, problems)
    verifier = None if store is None else _stored_verifier(store, name, planned[0], config)
    reader = SeriesReader(None, name, config, verifier=verifier, file=problems)
    if store is not None:
        reader.assigner.problems.add_stored(store, name)
    planned, copies = without_copies(planned)
    files = tuple(_read_all(reader, planned, SilentProgress()))
    read = pd.DataFrame(reader.assigner.counts, columns=["step", "checkpoint", "problem_id", "greedy", "n"])
    config = continue_rule(store, name, config)
    if store is not None and reader.settings is not None:
        stored = store.frame(_STORED_COUNTS, series=name, settings_id=reader.settings.settings_id)
        combined = pd.concat([stored, read]) if len(stored) else read
        # a file of an earlier import adds no samples
        is_new = all(store.find_import_from(name, file.path) is None for file in planned)
        by_problem = combined.groupby(["step", "checkpoint", "problem_id", "greedy"], as_index=False)["n"]
        read = by_problem.sum() if is_new else by_problem.max()
    if read.empty:
        return SeriesPreview(name=name, files=files, notes=copies, why=nothing_usable(files))
    try:
        chosen = select_problems(read, config, hint=lambda: reader.assigner.problems.hint)
    except ConfigError as error:
        return SeriesPreview(name=name, files=files, notes=copies, why=str(error))
    left_out = (f"{label} left out: {why}" for label, why in chosen.left_out.items())
    scores = compare_scores(planned, config) if (reader.verifier or "").startswith(RECORDED) else ScoreNotes()
    rule = () if chosen.rounds is None else (chosen.rounds.note,)
    notes = (*copies, *notes_of(planned, files), *chosen.notes, *rule, *scores.notes, *left_out)
    return SeriesPreview(name=name, files=files, notes=notes, doubts=scores.doubts)


def _resolve_problems(config: ImportConfig) -> tuple[ImportConfig, ProblemFile | None]:
    """Return the settings with the verifier's name, and the problems of ``--problems``.

    Raises ``OversharpError`` if the verifier or the file cannot be used.
    """
    given = None if config.verifier is None else named_verifier(config.verifier, config.grader_limits)
    problems = None
    if config.problems is not None:
        problems = ProblemFile(config.problems, verifier=given, by_id=config.match == "id")
    verifier = problems.verifier if problems else given or config.chosen_verifier
    if verifier not in verifier_names():  # check the verifier even if the tool's rewards replace it
        get_verifier(verifier)  # raises an error that lists the known verifiers
    return replace(config, verifier=verifier), problems


def refused_files(plan: ImportPlan) -> tuple[FileResult, ...]:
    """Return the files that are unreadable as a whole, with the reason."""
    return tuple(
        FileResult(path=path, format="unknown", n_samples=0, faults={}, why=why) for path, why in plan.refused.items()
    )


def import_samples(
    paths: Sequence[Path | str], config: ImportConfig, *, command: str = "", progress: ProgressSink | None = None
) -> ImportResult:
    """Import dumps into ``config.store`` and audit every series in them, up to the verdict.

    Raises:
        OversharpError: bad input; samples imported before the error stay in the store.
    """
    progress = progress or SilentProgress()
    config, problems = _resolve_problems(config)
    plan = plan_import(paths, config)
    require_selecting_field(plan, config)
    files: list[FileResult] = []
    series: list[ImportedSeries] = []
    with Store.open(config.store) as store:
        store.bound_memory(config.memory_gib)
        for name, planned in plan.by_series.items():
            _require_left_out(store, name, planned, config, problems)
        for name, planned in plan.by_series.items():
            terms = resolve_terms(store, name, config)
            ruled = continue_rule(store, name, config)
            verifier = _stored_verifier(store, name, planned[0], config)
            reader = SeriesReader(store, name, config, verifier=verifier, file=problems)
            planned, copies = without_copies(planned)
            for note in copies:
                progress.note(f"{name}: {note}")
            results = _read_all(reader, planned, progress)
            reader.close()
            files += results
            if reader.settings is None or reader.verifier is None or not stored_steps(store, name):
                series.append(_without_audit(name, nothing_usable(results)))
                continue
            for note in notes_of(planned, results):
                progress.note(f"{name}: {note}")
            used = [file for file, result in zip(planned, results, strict=True) if result.why is None]
            samples = _Samples(
                series=name,
                settings=reader.settings,
                verifier=reader.verifier,
                files=used,
                problems=reader.assigner.problems,
                clusters={} if problems is None else problems.clusters_by_id(reader.verifier),
                terms=terms,
            )
            audited = _audit(store, samples, ruled, command, progress)
            series.append(replace(audited, notes=(*notes_of(planned, results), *audited.notes)))
        # auditing the last series updated the recommendation in all verdicts
        series = [
            result if result.verdict is None else replace(result, verdict=store.verdict(result.name))
            for result in series
        ]
    has_verdict = any(result.verdict is not None for result in series)
    return ImportResult(
        store_path=config.store,
        report_path=config.store.parent / "report.html" if has_verdict else None,
        files=(*files, *refused_files(plan)),
        unknown=plan.unknown,
        series=tuple(series),
    )


def _stored_verifier(store: Store, series: str, file: PlannedFile, config: ImportConfig) -> str | None:
    """Return the verifier of the series' stored samples; None without samples.

    Raises ``StoreError`` if they were not imported, or have another tool or other settings.
    """
    kinds = store.frame(
        "SELECT DISTINCT kind FROM checkpoints JOIN series_checkpoints USING (checkpoint_id) WHERE series = $series",
        series=series,
    )["kind"].tolist()
    if kinds and kinds != ["recorded"]:
        raise StoreError(f"{store.path}: series {series!r} was sampled by oversharp; pass another --name")
    imports = store.frame(
        "SELECT DISTINCT format, verifier FROM imports WHERE series = $series AND n_samples > 0 ORDER BY ALL",
        series=series,
    )
    if imports.empty:
        return None
    tool, verifier = str(imports["format"].iloc[0]), str(imports["verifier"].iloc[0])
    if tool != file.importer.name:
        raise StoreError(
            f"{store.path}: series {series!r} has samples of {tool}, but {file.path} is from {file.importer.name}; "
            "samples "
            "of different tools cannot be mixed: pass another --name"
        )
    drawn = store.frame(
        "SELECT DISTINCT settings_id FROM samples JOIN series_checkpoints USING (checkpoint_id) WHERE series = $series",
        series=series,
    )["settings_id"].tolist()
    if config.settings(tool, file.sampling).settings_id not in drawn:
        raise StoreError(
            f"{store.path}: series {series!r} was imported with another --temperature, --top-p or --max-tokens; "
            "pass another --name"
        )
    if is_from_file(config.chosen_verifier) and config.verifier != verifier and not verifier.startswith(RECORDED):
        raise StoreError(
            f"{store.path}: series {series!r} is graded by {verifier}, and {config.verifier} is other code; grade its "
            f"samples again with `oversharp regrade {store.path} --verifier FILE`, or pass another --name"
        )
    if config.regrade and verifier.startswith("recorded:"):
        raise StoreError(
            f"{store.path}: series {series!r} has the rewards of {tool}; use `oversharp regrade` for other grades"
        )
    return verifier


def _require_left_out(
    store: Store, series: str, planned: Sequence[PlannedFile], config: ImportConfig, problems: ProblemFile | None
) -> None:
    """Raise ``StoreError`` if an earlier import stored the samples that selected the problems."""
    for file in planned if config.selected_field is not None else ():
        earlier = store.find_import_from(series, file.path)
        if (
            earlier
            and earlier.n_samples
            and not earlier.file_hash.endswith(f":{import_options(file, config, problems)}")
        ):
            raise StoreError(
                f"{file.path}: --selected-by {config.selected_field}: series {series!r} already has all samples of "
                "this file; pass another --name"
            )


def _read_all(reader: SeriesReader, planned: Sequence[PlannedFile], progress: ProgressSink) -> list[FileResult]:
    results = []
    reader.learn_prompts(planned)
    with progress.stage(f"import {reader.series}", len(planned)) as advance, Verifiers() as verifiers:
        for file in planned:
            try:
                result = reader.read(file, verifiers)
            except ImportFileError as error:
                why = str(error).removeprefix(f"{file.path}: ")
                result = FileResult(path=file.path, format=file.importer.name, n_samples=0, faults={}, why=why)
            results.append(result)
            advance(1)
    return results


# ---------------------------------------------------------------- audit


_STORED_COUNTS = """
    SELECT c.step, c.checkpoint, s.problem_id, s.greedy, count(*) AS n
    FROM series_checkpoints AS c
    JOIN samples AS s USING (checkpoint_id)
    WHERE c.series = $series AND s.settings_id = $settings_id
    GROUP BY ALL
    ORDER BY ALL
"""


@dataclass(frozen=True, kw_only=True)
class _Samples:
    """Imported samples of one series, with their settings, verifier, files and problems.

    ``clusters`` has the problems' clusters in ``--problems``.
    """

    series: str
    settings: RecordedSettings
    verifier: str
    files: Sequence[PlannedFile]
    problems: KnownProblems
    clusters: Mapping[str, str]
    terms: VerdictTerms


def _audit(
    store: Store, imported: _Samples, config: ImportConfig, command: str, progress: ProgressSink
) -> ImportedSeries:
    series, settings = imported.series, imported.settings
    counts = store.frame(_STORED_COUNTS, series=series, settings_id=settings.settings_id)
    try:
        chosen = select_problems(counts, config, hint=lambda: imported.problems.hint)
        config, kept = keep_n(store, series, config, chosen.problem_ids, chosen.unequal)
        if kept is not None:
            chosen = select_problems(counts, config, hint=lambda: imported.problems.hint)
            progress.note(f"{series}: {kept}")
    except ConfigError as error:
        return _without_audit(series, str(error), steps=tuple(sorted(set(counts["step"].tolist()))))
    for note in chosen.notes:
        progress.note(f"{series}: {note}")
    store.require_regex("--strategy-regex", config.strategy_regex)
    stored = stored_problems(store, chosen.problem_ids)
    problems = [replace(problem, cluster=imported.clusters.get(problem.problem_id)) for problem in stored]
    clusters = find_clusters(problems, None, note=progress.note)
    key = audit_key(series, settings, chosen, config, imported.terms)
    while True:
        store.begin_audit(
            key, settings=settings, panel_settings=None, problem_ids=chosen.problem_ids, clusters=clusters
        )
        ids = [recorded_id(series, int(step)) for step in chosen.unequal["step"]]
        store.plan_recorded(key, chosen.unequal.assign(checkpoint_id=ids))
        # rewards were committed together with their samples
        if not imported.verifier.startswith(RECORDED):
            grade_planned(store, problems, key, progress=progress)
        planned = store.plan_rounds(key)
        if chosen.rounds is None or config.n is not None:
            break
        drawn = chosen.rounds.limit_to(planned, recorded_id(series, int(counts["step"].min())))
        if drawn == chosen.rounds:
            break
        chosen = replace(chosen, rounds=drawn, n=drawn.n, n_base=drawn.n_base)
        key = audit_key(series, settings, chosen, config, imported.terms)
    rules = []
    if chosen.rounds is not None:
        rules = [
            chosen.rounds.note,
            *note_of_lacking(planned, key.n),
            *note_of_unused(store, key, is_given=config.n is not None),
        ]
    notes = [*chosen.notes, *([] if kept is None else [kept]), *rules]
    for note in rules:
        progress.note(f"{series}: {note}")
    failed = {recorded_id(series, int(label.removeprefix("step "))): why for label, why in chosen.left_out.items()}
    verdict = update_verdict(store, key, failed, {}, progress)
    disagreements: list[Disagreement] = []
    partial: list[PartialRewards] = []
    scores = ScoreNotes()
    if imported.verifier.startswith(RECORDED):
        partial = partial_rewards(store, series, settings.settings_id, imported.verifier, config)
        scores = compare_scores(imported.files, config)
        notes += scores.notes
        for note in scores.notes:
            progress.note(f"{series}: {note}")
    else:
        disagreements, n_left = compare_grades(store, imported.files, imported.verifier, config, imported.problems)
        if n_left:
            notes.append(f"{plural(n_left, 'score')} of the tool not compared: some of their responses have no grade")
            progress.note(f"{series}: {notes[-1]}")
    result = ImportedSeries(
        name=series,
        steps=tuple(sorted({int(step) for step in counts["step"]})),
        n_problems=len(chosen.problem_ids),
        n=chosen.n,
        verdict=verdict,
        left_out=chosen.left_out,
        notes=tuple(notes),
        disagreements=tuple(disagreements),
        partial_rewards=tuple(partial),
        score_doubts=scores.doubts,
    )
    store.end_audit(key, provenance(command, chosen.left_out, {"doubts": result.doubts} if result.doubts else {}))
    return result


def _without_audit(name: str, why: str, steps: tuple[int, ...] = ()) -> ImportedSeries:
    return ImportedSeries(name=name, steps=steps, n_problems=0, n=0, verdict=None, left_out={}, notes=(), why=why)
