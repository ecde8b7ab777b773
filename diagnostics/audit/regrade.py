"""Regrade: grade stored responses with another verifier, as a second series.

The second series has a separate verdict. Nothing is sampled. Earlier grades are kept, because grades are stored by
verifier. The second series shares checkpoints and samples with the first, and its audit records the verifier.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from oversharp.diagnostics.audit.freshness import update_verdict
from oversharp.diagnostics.audit.terms import require_share
from oversharp.diagnostics.engine.grading import grade_planned
from oversharp.diagnostics.records.amounts import plural
from oversharp.diagnostics.records.cells import short_repr
from oversharp.diagnostics.records.errors import ConfigError, ProblemError, StoreError, VerifierError
from oversharp.diagnostics.records.progress import ProgressSink, SilentProgress
from oversharp.diagnostics.records.provenance import provenance
from oversharp.diagnostics.records.types import AuditKey, Checkpoint, Problem, Series, content_hash
from oversharp.diagnostics.store import Store
from oversharp.diagnostics.store.load import (
    choose_series,
    has_texts,
    is_recorded,
    left_out_checkpoints,
    stored_clusters,
    stored_key,
    stored_problems,
)
from oversharp.diagnostics.store.missing import find_ungraded
from oversharp.diagnostics.verdict.record import Verdict
from oversharp.diagnostics.verifiers import Verifiers, get_verifier, named_verifier
from oversharp.diagnostics.verifiers.own_workers.config import require_limits
from oversharp.diagnostics.verifiers.own_workers.limits import GraderLimits

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True)
class RegradeResult:
    """Both verdicts, and the number of samples on which the verifiers disagree.

    ``own_verifiers`` are the graders of the series ``of_series``. ``left_out`` maps problems whose gold answer
    ``verifier`` cannot parse to the reason; the key is the user's id, else the store's. ``n_samples`` counts the
    samples that both graded, ``n_disagreed`` those that only one accepts.
    """

    series: str
    of_series: str
    verifier: str
    own_verifiers: tuple[str, ...]
    verdict: Verdict
    of_verdict: Verdict | None
    n_problems: int
    n_graded: int
    n_samples: int
    n_disagreed: int
    left_out: Mapping[str, str]
    store_path: Path
    report_path: Path

    __repr__ = short_repr


def regraded_name(series: str, verifier: str) -> str:
    """Return the name of the second series, which has the grades of ``verifier``.

    >>> regraded_name("grpo", "math")
    'grpo (math)'
    """
    return f"{series} ({verifier})"


def regrade(
    store_path: Path,
    verifier: str,
    *,
    series: str | None = None,
    guess_rate: float | None = None,
    limits: GraderLimits | None = None,
    command: str = "",
    progress: ProgressSink | None = None,
) -> RegradeResult:
    """Grade the responses of ``series`` also with ``verifier``.

    ``series`` defaults to the only series that is not regraded. If ``verifier`` already grades the series, outdated
    grades are recomputed in place, and ``of_verdict`` is the earlier verdict. The verdict has the looks and runs of
    ``series``. ``guess_rate`` is the false-accept rate of ``verifier``. ``limits`` are limits for a verifier that is
    the user's code. The caller writes the report. The same command continues after an interruption, and grades samples
    that were added later. Problems whose gold answer the verifier cannot parse are left out of the second series, and
    listed.

    Raises:
        VerifierError: there is no verifier of that name.
        ConfigError: this verifier already grades the series by the current rules, the store has several series and none
        is
            given, or the false-accept rate is not from 0 to 1.
        ProblemError: the verifier can parse the gold answer of no problem.
        StoreError: no such store or audit, or another series has the name of the second one.
    """
    progress = progress or SilentProgress()
    if limits is not None:
        require_limits(limits)
    verifier = named_verifier(verifier, limits)
    get_verifier(verifier)  # raises before the store is changed
    require_share("--guess-rate", guess_rate)
    if not store_path.is_file():
        raise StoreError(f"{store_path}: no such store; run `oversharp audit` or `oversharp import` first")
    with Store.open(store_path) as store:
        first = stored_key(store, _choose_series(store, series))
        if not has_texts(store, first.series):
            raise ConfigError(f"--series {first.series}: only counts were imported; there are no responses to grade")
        first_problems = _read_problems(store, first)
        if {problem.verifier for problem in first_problems} == {verifier}:
            return _regrade_in_place(store, first, first_problems, verifier, guess_rate, progress)
        problems, left_out = _split_problems(first_problems, first.series, verifier)
        for label, why in left_out.items():
            progress.note(f"left out problem {label}: {why}")
        key = _register(store, first, problems, verifier, guess_rate)
        n_graded, planned = grade_planned(store, problems, key, progress=progress)
        is_import = is_recorded(store, first.series)
        _note_lacking(planned, verifier, progress, is_import=is_import, then=", then `oversharp regrade` again")
        failed, skipped = left_out_checkpoints(store, first.series)
        verdict = update_verdict(store, key, failed, skipped, progress)
        regraded = {"series": first.series, "verifier": verifier, "problems_left_out": left_out}
        left_out_labels = {**skipped, **_label_failed(store, first.series, failed)}
        store.end_audit(key, provenance(command, left_out_labels, {"regraded": regraded}))
        n_samples, n_disagreed = _count_disagreements(store, key.series)
        # the explanations of its verdict compare both graders
        of_verdict = update_verdict(store, first, failed, skipped, progress)
    graded_ids = {problem.problem_id for problem in problems}
    return RegradeResult(
        series=key.series,
        of_series=first.series,
        verifier=verifier,
        own_verifiers=tuple(
            sorted({problem.verifier for problem in first_problems if problem.problem_id in graded_ids})
        ),
        verdict=verdict,
        of_verdict=of_verdict,
        n_problems=len(problems),
        n_graded=n_graded,
        n_samples=n_samples,
        n_disagreed=n_disagreed,
        left_out=left_out,
        store_path=store_path,
        report_path=store_path.parent / "report.html",
    )


def _choose_series(store: Store, named: str | None) -> str:
    """Return the given series, or the only one that is graded by its problems' own verifiers."""
    if named is None:
        names: list[str] = store.frame("SELECT series FROM current_audits WHERE verifier IS NULL ORDER BY series")[
            "series"
        ].tolist()
        if len(names) == 1:
            return names[0]
        if names:
            raise ConfigError(f"{store.path} has several series; pass --series with one of: {', '.join(names)}")
    chosen = choose_series(store, named)
    if stored_key(store, chosen).verifier is not None:
        raise ConfigError(f"--series {chosen}: `oversharp regrade` created it; pass the original series")
    return chosen


def _read_problems(store: Store, key: AuditKey) -> list[Problem]:
    ids = store.frame(
        "SELECT problem_id FROM audit_problems WHERE audit_id = $audit_id ORDER BY position", audit_id=key.audit_id
    )["problem_id"].tolist()
    return stored_problems(store, ids)


def _regrade_in_place(
    store: Store,
    key: AuditKey,
    problems: Sequence[Problem],
    verifier: str,
    guess_rate: float | None,
    progress: ProgressSink,
) -> RegradeResult:
    """Recompute the grades that the series' own verifier made by older rules."""
    if guess_rate is not None:
        raise ConfigError(f"--guess-rate: series {key.series!r} is graded by {verifier}, so its rate cannot be changed")
    if not len(find_ungraded(store, key, with_errors=True)):
        raise ConfigError(
            f"--verifier {verifier}: already grades series {key.series!r} by the current rules; pass another one"
        )
    before = store.verdict(key.series)
    n_graded, planned = grade_planned(store, problems, key, progress=progress)
    _note_lacking(planned, verifier, progress, is_import=is_recorded(store, key.series))
    failed, skipped = left_out_checkpoints(store, key.series)
    return RegradeResult(
        series=key.series,
        of_series=key.series,
        verifier=verifier,
        own_verifiers=(verifier,),
        verdict=update_verdict(store, key, failed, skipped, progress),
        of_verdict=before,
        n_problems=len(problems),
        n_graded=n_graded,
        n_samples=0,
        n_disagreed=0,
        left_out={},
        store_path=store.path,
        report_path=store.path.parent / "report.html",
    )


def _note_lacking(
    planned: pd.DataFrame, verifier: str, progress: ProgressSink, *, is_import: bool, then: str = ""
) -> None:
    """Print how many problems need more samples by the new grades.

    ``planned`` has the rows of ``Store.plan_rounds``.
    """
    lacking = planned[planned["n_drawn"] < planned["n"]]
    command = "import further samples into the first series" if is_import else "run the audit's command again"
    if len(lacking):
        progress.note(
            f"by the grades of {verifier}, {plural(lacking['problem_id'].nunique(), 'problem')} at "
            f"{plural(lacking['checkpoint_id'].nunique(), 'checkpoint')} lack samples until they are solved: {command}"
            f"{then}"
        )


def _split_problems(problems: Sequence[Problem], series: str, verifier: str) -> tuple[list[Problem], dict[str, str]]:
    """Return problems with ``verifier``, and those whose gold it cannot parse (id → reason)."""
    readable: list[Problem] = []
    left_out: dict[str, str] = {}
    with Verifiers() as verifiers:
        for problem in problems:
            regraded = replace(problem, verifier=verifier)
            try:
                verifiers.check_gold(regraded)
            except (ProblemError, VerifierError) as error:
                left_out[problem.source_id or problem.problem_id] = str(error)
            else:
                readable.append(regraded)
    if not readable:
        why = next(iter(left_out.values()), "it has none")
        raise ProblemError(
            f"--verifier {verifier}: can parse the gold answer of no problem of series {series!r} ({why})"
        )
    return readable, left_out


def _register(
    store: Store, first: AuditKey, problems: Sequence[Problem], verifier: str, guess_rate: float | None
) -> AuditKey:
    problem_ids = [problem.problem_id for problem in problems]
    key = replace(
        first,
        audit_id=content_hash("regraded", first.audit_id, verifier, problem_ids),
        series=regraded_name(first.series, verifier),
        kernel_problems=0,  # the kernel does not depend on the verifier, and the first series has it
        kernel_responses=0,
        verifier=verifier,
        terms=replace(first.terms, guess_rate=guess_rate),  # the false-accept rate differs between verifiers
    )
    _require_free_name(store, key)
    store.add_series(_copy_series(store, first.series, key.series))
    clusters = stored_clusters(store, first.audit_id)
    store.begin_audit(key, settings=None, panel_settings=None, problem_ids=problem_ids, clusters=clusters)
    store.share_plan(first, key)
    return key


def _require_free_name(store: Store, key: AuditKey) -> None:
    existing = store.frame("SELECT verifier FROM current_audits WHERE series = $series", series=key.series)["verifier"]
    if len(existing) and existing.iloc[0] != key.verifier:
        raise StoreError(f"{store.path}: already has a series {key.series!r} that `oversharp regrade` did not create")


def _copy_series(store: Store, series: str, name: str) -> Series:
    rows = store.frame(
        """
        SELECT s.path AS run, s.layout, c.checkpoint_id, c.checkpoint, c.step, c.path, k.kind
        FROM series_checkpoints AS c
        JOIN series AS s USING (series)
        JOIN checkpoints AS k USING (checkpoint_id)
        WHERE c.series = $series
        ORDER BY c.is_base DESC, c.step
        """,
        series=series,
    )
    return Series(
        name=name,
        path=Path(rows["run"].iloc[0]),
        layout=str(rows["layout"].iloc[0]),
        checkpoints=tuple(
            Checkpoint(
                step=int(row.step),
                label=row.checkpoint,
                path=Path(row.path),
                kind=row.kind,
                weights_hash=row.checkpoint_id,
            )
            for row in rows.itertuples()
        ),
    )


def _label_failed(store: Store, series: str, failed: Mapping[str, str]) -> dict[str, str]:
    rows = store.frame("SELECT checkpoint_id, checkpoint FROM series_checkpoints WHERE series = $series", series=series)
    return {str(row.checkpoint): failed[row.checkpoint_id] for row in rows.itertuples() if row.checkpoint_id in failed}


def _count_disagreements(store: Store, series: str) -> tuple[int, int]:
    row = store.frame(
        """
        SELECT count(*) AS n, count(*) FILTER (correct <> own_correct) AS n_disagreed
        FROM regraded_samples
        WHERE series = $series AND NOT greedy
        """,
        series=series,
    ).iloc[0]
    return int(row["n"]), int(row["n_disagreed"])
