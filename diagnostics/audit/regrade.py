"""Grades stored responses by another verifier: a second series of the same samples, with a verdict of its own.

Nothing is sampled and no grade is lost: grades are kept by verifier. The second series shares checkpoints and samples
with the first; its audit names the verifier whose grades count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from oversharp.diagnostics.audit.freshness import findings_and_verdict
from oversharp.diagnostics.audit.terms import require_share
from oversharp.diagnostics.engine.grading import grade_responses
from oversharp.diagnostics.records.cells import short_repr
from oversharp.diagnostics.records.errors import ConfigError, ProblemError, StoreError, VerifierError
from oversharp.diagnostics.records.progress import ProgressSink, SilentProgress
from oversharp.diagnostics.records.provenance import provenance
from oversharp.diagnostics.records.types import AuditKey, Checkpoint, Problem, Series, content_hash
from oversharp.diagnostics.store import Store
from oversharp.diagnostics.store.load import (
    choose_series,
    has_texts,
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


@dataclass(frozen=True, kw_only=True)
class RegradeResult:
    """Both verdicts, and where the verifiers differ.

    ``own_verifiers`` grade ``of_series``. ``left_out``: problems (the user's id, or ours) whose gold ``verifier``
    cannot read → why. ``n_samples`` counts the drawn samples that both graded, ``n_disagreed`` those that one alone
    accepts.
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
    """What the series of the same samples under another verifier is called.

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
    """Grade the responses of ``series`` (default: the only one that was not made here) by ``verifier`` too.

    Of a series that ``verifier`` grades already, grades by older rules are made again in place; ``of_verdict`` is the
    verdict before. Goes up to the verdict, which is told the same of looks and runs as that of ``series``;
    ``guess_rate`` is the share of wrong responses that ``verifier`` accepts; ``limits`` bound one that is code of the
    user's. The report is the caller's to write.
    Killed, the same command continues; run again, it grades what came since. Problems whose gold the verifier
    cannot read are left out of the second series, and named.

    Raises:
        VerifierError: there is no verifier of that name.
        ConfigError: the series is graded by this verifier and today's rules already, a name is needed to choose one,
            or the guess rate is no share.
        ProblemError: the verifier can read the gold of no problem.
        StoreError: no such store or audit, or another series has the name of the second one.
    """
    progress = progress or SilentProgress()
    if limits is not None:
        require_limits(limits)
    verifier = named_verifier(verifier, limits)
    get_verifier(verifier)  # before the store is touched
    require_share("--guess-rate", guess_rate)
    if not store_path.is_file():
        raise StoreError(f"{store_path}: no such store; run `oversharp audit` or `oversharp import` first")
    with Store.open(store_path) as store:
        first = stored_key(store, _first_series(store, series))
        if not has_texts(store, first.series):
            raise ConfigError(f"--series {first.series}: only counts were imported; there are no responses to grade")
        if _own_verifiers(store, first) == [verifier]:
            return _again(store, first, verifier, guess_rate, progress)
        problems, left_out = _readable(store, first, verifier)
        for label, why in left_out.items():
            progress.note(f"left out problem {label}: {why}")
        key = _register(store, first, problems, verifier, guess_rate)
        pending = find_ungraded(store, key, with_errors=True)
        grade_responses(store, problems, pending, key=key, progress=progress)
        failed, skipped = left_out_checkpoints(store, first.series)
        verdict = findings_and_verdict(store, key, failed, skipped, progress)
        regraded = {"series": first.series, "verifier": verifier, "problems_left_out": left_out}
        left_out_labels = {**skipped, **_labelled(store, first.series, failed)}
        store.end_audit(key, provenance(command, left_out_labels, {"regraded": regraded}))
        n_samples, n_disagreed = _disagreement(store, key.series)
        own = sorted({problem.verifier for problem in stored_problems(store, [p.problem_id for p in problems])})
        of_verdict = findings_and_verdict(
            store, first, failed, skipped, progress
        )  # what of its changes the grader makes
    return RegradeResult(
        series=key.series,
        of_series=first.series,
        verifier=verifier,
        own_verifiers=tuple(own),
        verdict=verdict,
        of_verdict=of_verdict,
        n_problems=len(problems),
        n_graded=len(pending),
        n_samples=n_samples,
        n_disagreed=n_disagreed,
        left_out=left_out,
        store_path=store_path,
        report_path=store_path.parent / "report.html",
    )


def _first_series(store: Store, named: str | None) -> str:
    """The named series, or the only one whose problems' own verifiers grade it."""
    if named is None:
        own = [
            str(name)
            for name in store.frame("SELECT series FROM current_audits WHERE verifier IS NULL ORDER BY series")[
                "series"
            ]
        ]
        if len(own) == 1:
            return own[0]
        if own:
            raise ConfigError(f"{store.path} holds several series; pass --series with one of: {', '.join(own)}")
    chosen = choose_series(store, named)
    if stored_key(store, chosen).verifier is not None:
        raise ConfigError(f"--series {chosen}: was made by `oversharp regrade`; name the series that it was made of")
    return chosen


def _problems(store: Store, key: AuditKey) -> list[Problem]:
    ids = store.frame(
        "SELECT problem_id FROM audit_problems WHERE audit_id = $audit_id ORDER BY position", audit_id=key.audit_id
    )["problem_id"].tolist()
    return stored_problems(store, ids)


def _own_verifiers(store: Store, key: AuditKey) -> list[str]:
    return sorted({problem.verifier for problem in _problems(store, key)})


def _again(
    store: Store, key: AuditKey, verifier: str, guess_rate: float | None, progress: ProgressSink
) -> RegradeResult:
    """The series itself by today's rules of its own verifier, where some of its grades are by others."""
    if guess_rate is not None:
        raise ConfigError(f"--guess-rate: series {key.series!r} is graded by {verifier} and keeps the rate it has")
    pending = find_ungraded(store, key, with_errors=True)
    if not len(pending):
        raise ConfigError(
            f"--verifier {verifier}: grades series {key.series!r} already, by today's rules; name another one"
        )
    problems = _problems(store, key)
    before = store.verdict(key.series)
    grade_responses(store, problems, pending, key=key, progress=progress)
    failed, skipped = left_out_checkpoints(store, key.series)
    return RegradeResult(
        series=key.series,
        of_series=key.series,
        verifier=verifier,
        own_verifiers=(verifier,),
        verdict=findings_and_verdict(store, key, failed, skipped, progress),
        of_verdict=before,
        n_problems=len(problems),
        n_graded=len(pending),
        n_samples=0,
        n_disagreed=0,
        left_out={},
        store_path=store.path,
        report_path=store.path.parent / "report.html",
    )


def _readable(store: Store, first: AuditKey, verifier: str) -> tuple[list[Problem], dict[str, str]]:
    """The problems of the first audit as ``verifier`` is to see them, and those whose gold it cannot read."""
    problems = _problems(store, first)
    readable: list[Problem] = []
    left_out: dict[str, str] = {}
    with Verifiers() as verifiers:
        for problem in problems:
            asked = replace(problem, verifier=verifier)
            try:
                verifiers.check_gold(asked)
            except (ProblemError, VerifierError) as error:
                left_out[problem.source_id or problem.problem_id] = str(error)
            else:
                readable.append(asked)
    if not readable:
        why = next(iter(left_out.values()), "it has none")
        raise ProblemError(f"--verifier {verifier}: reads the gold of no problem of series {first.series!r} ({why})")
    return readable, left_out


def _register(
    store: Store, first: AuditKey, problems: Sequence[Problem], verifier: str, guess_rate: float | None
) -> AuditKey:
    problem_ids = [problem.problem_id for problem in problems]
    key = replace(
        first,
        audit_id=content_hash("regraded", first.audit_id, verifier, problem_ids),
        series=regraded_name(first.series, verifier),
        kernel_problems=0,  # a kernel does not depend on the verifier; the first series has it
        kernel_responses=0,
        verifier=verifier,
        terms=replace(first.terms, guess_rate=guess_rate),  # what was said of another grader says nothing of this one
    )
    _refuse_namesake(store, key)
    store.add_series(_same_checkpoints(store, first.series, key.series))
    clusters = stored_clusters(store, first.audit_id)
    store.begin_audit(key, settings=None, panel_settings=None, problem_ids=problem_ids, clusters=clusters)
    store.share_plan(first, key)
    return key


def _refuse_namesake(store: Store, key: AuditKey) -> None:
    held = store.frame("SELECT verifier FROM current_audits WHERE series = $series", series=key.series)["verifier"]
    if len(held) and held.iloc[0] != key.verifier:
        raise StoreError(f"{store.path}: holds a series called {key.series!r} that was not made by `oversharp regrade`")


def _same_checkpoints(store: Store, series: str, name: str) -> Series:
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


def _labelled(store: Store, series: str, failed: Mapping[str, str]) -> dict[str, str]:
    rows = store.frame("SELECT checkpoint_id, checkpoint FROM series_checkpoints WHERE series = $series", series=series)
    return {str(row.checkpoint): failed[row.checkpoint_id] for row in rows.itertuples() if row.checkpoint_id in failed}


def _disagreement(store: Store, series: str) -> tuple[int, int]:
    row = store.frame(
        """
        SELECT count(*) AS n, count(*) FILTER (correct <> own_correct) AS n_disagreed
        FROM regraded_samples
        WHERE series = $series AND NOT greedy
        """,
        series=series,
    ).iloc[0]
    return int(row["n"]), int(row["n_disagreed"])
