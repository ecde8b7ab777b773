"""Computes findings (every measure, every checkpoint) and the verdict from the evidence in the store."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, TypeVar

import pandas as pd

from oversharp.diagnostics.audit.counts import compared_steps, number_clusters, read_counts, read_guess_rate
from oversharp.diagnostics.audit.shipping import settle_shipping
from oversharp.diagnostics.engine.ways import read_ways
from oversharp.diagnostics.measures import all_measures
from oversharp.diagnostics.measures.contract import Evidence, Measure
from oversharp.diagnostics.records.progress import ProgressSink
from oversharp.diagnostics.records.types import AuditKey, Finding
from oversharp.diagnostics.statistics.units import NOT_RELATED
from oversharp.diagnostics.store import Store
from oversharp.diagnostics.store.kept.samples import NOT_KEPT
from oversharp.diagnostics.store.load import has_texts, is_recorded
from oversharp.diagnostics.store.views import Tag, tags_of
from oversharp.diagnostics.verdict.decide import verdict_of
from oversharp.diagnostics.verdict.record import Verdict

T = TypeVar("T", int, float)

NEEDS_CHECKPOINTS = (
    "another tool drew the samples, and this needs the checkpoints; audit them with `oversharp audit` to have it"
)
#: Why a series of which only counts were imported lacks a measure.
NO_TEXTS = (
    "only counts of correct samples were imported, and this needs the texts; import dumps with responses to have it"
)
#: Columns of other views that are read in the texts.
_COLUMNS_FROM_TEXTS = re.compile(r"\b(?:text|response_id|answer|mode|strategy|looped|reconsiders|n_boxed)\b")
_NAMES_WHAT_IS_NOT_KEPT = re.compile(rf"\b({'|'.join(NOT_KEPT)})\b")
OF_FIRST_SERIES = "not computed for samples that were graded again; see the series that was graded first"


def measure(store: Store, key: AuditKey, failed: Mapping[str, str], progress: ProgressSink) -> None:
    """Compute every measure from the store and put the findings in place of the earlier ones."""
    if has_texts(store, key.series):
        read_ways(store, key, progress)
    with store.kept.keep(key.series):
        _measure(store, key, failed, progress)


def _measure(store: Store, key: AuditKey, failed: Mapping[str, str], progress: ProgressSink) -> None:
    checkpoints = store.frame(
        """
        SELECT checkpoint_id, checkpoint, step, is_base
        FROM series_checkpoints
        WHERE series = $series
        ORDER BY step
        """,
        series=key.series,
    )
    present = checkpoints[~checkpoints["checkpoint_id"].isin(list(failed))].reset_index(drop=True)
    measures = all_measures()
    frames = _frames(store, key, [one for one in measures.values() if one.compute is not None])
    problems = store.frame("SELECT problem_id, cluster FROM audit_problems WHERE audit_id = $id", id=key.audit_id)
    n_problems = len(problems)
    cluster_P = number_clusters(problems["cluster"])
    evidence = Evidence(
        checkpoints=present,
        frames=frames,
        n=key.n,
        ks=key.ks,
        cluster_of={} if cluster_P is None else dict(zip(problems["problem_id"], cluster_P.tolist(), strict=True)),
        guess_rate=read_guess_rate(store, key).share,
    )
    recorded, texts = is_recorded(store, key.series), has_texts(store, key.series)
    n_listed = frames["mode_logps"]["problem_id"].nunique()
    start = time.perf_counter()
    findings: list[Finding] = []
    with progress.stage("measure", len(measures)) as advance:
        for one in measures.values():
            if not texts and _reads_texts(one):
                made: Sequence[Finding] = one.unknown(one.expected(evidence), NO_TEXTS)
            else:
                made = _of_all_problems(_findings(store, key, one, evidence), one, n_listed, n_problems)
            made = [_over_its_units(finding, one, evidence) for finding in made]
            never = _why_never(one, recorded=recorded, regraded=key.verifier is not None)
            findings += made if never is None else [replace(x, why=never) if x.value is None else x for x in made]
            findings += [x for checkpoint_id, why in failed.items() for x in one.unknown([checkpoint_id], why)]
            advance(1)
    if store.replace_findings(key, findings):
        store.log_event(key, "measure", wall_s=time.perf_counter() - start, rows=len(findings))


def conclude(
    store: Store, key: AuditKey, failed: Mapping[str, str], skipped: Mapping[str, str], progress: ProgressSink
) -> Verdict:
    """Come to the verdict and put it in place of the earlier one; the arguments are those of ``judge``.

    Who reads it has looked at these checkpoints: that is counted, once for the same ones. The verdicts on other series
    that can be compared with this one are told what is shipped of all of them.
    """
    start = time.perf_counter()
    with progress.stage("verdict", 1) as advance:
        counts = read_counts(store, key, failed, skipped)
        verdict = settle_shipping(store, counts, verdict_of(counts))
        advance(1)
    if verdict.label != "no_verdict":
        store.add_look(key.series, compared_steps(counts.trained), key.terms)
    if store.replace_verdict(key, verdict):
        store.log_event(key, "verdict", wall_s=time.perf_counter() - start, rows=1)
    return verdict


def _frames(store: Store, key: AuditKey, computed: Sequence[Measure]) -> dict[str, pd.DataFrame]:
    """The views that computed measures need, each with the columns that some measure reads."""
    frames: dict[str, pd.DataFrame] = {}
    views = {view for one in computed for view in (*one.needs, *one.also)}
    for view in sorted(views, key=lambda view: (_is_largest(view), view)):
        asking = [one for one in computed if view in (*one.needs, *one.also)]
        read = [one.columns.get(view) for one in asking]
        chosen = "*" if None in read else ", ".join(sorted({name for names in read for name in names or ()}))
        in_vain = _is_largest(view) and all(_lacks(one, frames) for one in asking)
        in_vain |= view in {"way_counts", "second_way_counts"} and not store.ways.has_any()
        in_vain |= view in {"second_counts", "second_way_counts"} and not _is_regraded(store, key)
        limit = " LIMIT 0" if in_vain else ""
        with store.kept.bypass() if _is_largest(view) and chosen == "*" else nullcontext():
            frames[view] = store.frame(
                f"SELECT {chosen} FROM {view} WHERE series = $series ORDER BY ALL{limit}", series=key.series
            )
    return frames


def _is_regraded(store: Store, key: AuditKey) -> bool:
    """Whether another series holds what a second verifier says of the same samples."""
    return bool(len(store.frame("SELECT 1 FROM second_gradings WHERE series = $series", series=key.series)))


def _is_vain(store: Store, key: AuditKey, measure: Measure) -> bool:
    """Whether a view that it needs is empty for a reason that is known sooner than the view itself tells it."""
    if "token files" in _tags(measure) and not store.has_tokens():
        return True
    return key.verifier is None and "regraded_samples" in measure.needs


def _lacks(measure: Measure, frames: Mapping[str, pd.DataFrame]) -> bool:
    """Whether one of the views that it needs is known to be empty: then nothing is computed from the others."""
    return any(view in frames and frames[view].empty for view in measure.needs)


def _findings(store: Store, key: AuditKey, measure: Measure, evidence: Evidence) -> Sequence[Finding]:
    if measure.sql is None:
        return measure(evidence)
    if _is_vain(store, key, measure):
        return measure.unknown(measure.expected(evidence), measure.missing)
    available = {"series": key.series, "strategy_regex": key.strategy_regex, "ks": list(evidence.ks)}
    used = {name: value for name, value in available.items() if f"${name}" in measure.sql}
    with store.kept.bypass() if _NAMES_WHAT_IS_NOT_KEPT.search(measure.sql) else nullcontext():
        rows = store.frame(measure.sql, **used)
    present = list(evidence.checkpoints["checkpoint_id"])
    rows = rows[rows["checkpoint_id"].isin(present)]
    known = [
        Finding(
            checkpoint_id=row.checkpoint_id,
            measure=measure.name,
            unit=measure.unit,
            scope=row.scope,
            k=_optional(row.k, int),
            value=_optional(row.value, float),
            low=_optional(row.low, float),
            high=_optional(row.high, float),
            n=_optional(row.n, int),
            why=measure.missing if _optional(row.value, float) is None else None,
        )
        for row in rows.itertuples()
    ]
    found = set(rows["checkpoint_id"])
    without = [checkpoint_id for checkpoint_id in measure.expected(evidence) if checkpoint_id not in found]
    return [*known, *measure.unknown(without, measure.missing)]


def _of_all_problems(
    findings: Sequence[Finding], measure: Measure, n_listed: int, n_problems: int
) -> Sequence[Finding]:
    """Scope ``all`` means all problems: values over those that list their modes move to scope ``with_modes``."""
    if "mode_logps" not in measure.needs or n_listed in (0, n_problems):
        return findings
    why = f"only {n_listed} of {n_problems} problems list every accepted response; see scope with_modes"
    places = dict.fromkeys((finding.checkpoint_id, finding.k) for finding in findings if finding.scope == "all")
    return [
        *(
            Finding(checkpoint_id=checkpoint_id, measure=measure.name, unit=measure.unit, k=k, why=why)
            for checkpoint_id, k in places
        ),
        *(replace(finding, scope="with_modes") if finding.scope == "all" else finding for finding in findings),
    ]


def _over_its_units(finding: Finding, measure: Measure, evidence: Evidence) -> Finding:
    """Says what an interval takes as independent, and drops one that takes related problems so.

    Measures that know of clusters have said it. A trainer's own prompts are none of the audit's problems.
    """
    if finding.interval_over is not None or (finding.low is None and finding.high is None):
        return finding
    if not evidence.cluster_of or all("training prompts" in tags_of(view) for view in measure.needs):
        return replace(finding, interval_over="problems")
    return replace(finding, low=None, high=None, why_no_interval=NOT_RELATED)


def _why_never(measure: Measure, *, recorded: bool, regraded: bool) -> str | None:
    """Why no further sampling of such a series can give a measure its values; None where it can."""
    if recorded and "needs checkpoints" in _tags(measure):
        return NEEDS_CHECKPOINTS
    return OF_FIRST_SERIES if regraded and "first series" in _tags(measure) else None


def _reads_texts(measure: Measure) -> bool:
    """Whether a measure reads texts, or the answers in them."""
    if "from texts" in _tags(measure):
        return True
    if measure.sql is not None:
        return _COLUMNS_FROM_TEXTS.search(measure.sql) is not None
    read = [name for view in measure.needs if _is_largest(view) for name in measure.columns.get(view, ())]
    return any(_COLUMNS_FROM_TEXTS.fullmatch(name) for name in read)


def _tags(measure: Measure) -> frozenset[Tag]:
    return frozenset(tag for view in measure.needs for tag in tags_of(view))


def _is_largest(view: str) -> bool:
    return "largest" in tags_of(view)


def _optional(value: object, convert: Callable[[Any], T]) -> T | None:
    """SQL's NULL comes through pandas as None, NaN or NA; all of them are None here."""
    return None if value is None or pd.isna(value) else convert(value)
