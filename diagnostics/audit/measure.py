"""Compute findings (every measure at every checkpoint) and verdict from the store."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, TypeVar

import pandas as pd

from oversharp.diagnostics.audit.counts.series import compared_steps, number_clusters, read_counts, read_guess_rate
from oversharp.diagnostics.audit.shipping import record_shipping, settle_shipping
from oversharp.diagnostics.engine.ways import read_ways
from oversharp.diagnostics.measures import all_measures
from oversharp.diagnostics.measures.contract import Evidence, Measure
from oversharp.diagnostics.records.progress import ProgressSink
from oversharp.diagnostics.records.types import AuditKey, Finding
from oversharp.diagnostics.statistics.units import NOT_RELATED
from oversharp.diagnostics.store import Store
from oversharp.diagnostics.store.kept import NOT_KEPT
from oversharp.diagnostics.store.load import SERVED_LAYOUT, has_texts, is_recorded, series_layout
from oversharp.diagnostics.store.views import Tag, tags_of
from oversharp.diagnostics.verdict.decide import verdict_of
from oversharp.diagnostics.verdict.record import Verdict

T = TypeVar("T", int, float)

NEEDS_CHECKPOINTS = "needs the checkpoints, but only samples were imported; run `oversharp audit` on the checkpoints"
#: The same for checkpoints that exist only behind a server.
NEEDS_WEIGHTS = (
    "needs the weights, but the checkpoints exist only behind a server; run `oversharp audit` on their files"
)
#: The same for trajectories of an audit.
NEEDS_TOKENS = "needs tokens of the responses, which the trajectories of an audit lack"
#: Reason for a measure that is unknown because only counts were imported.
NO_TEXTS = "needs response texts, but only counts of correct samples were imported; import dumps with responses"
#: Columns of other views that are computed from texts.
_COLUMNS_FROM_TEXTS = re.compile(r"\b(?:text|response_id|answer|mode|strategy|looped|reconsiders|n_boxed)\b")
_COLUMNS_NOT_KEPT = re.compile(rf"\b({'|'.join(NOT_KEPT)})\b")
OF_FIRST_SERIES = "not computed for a regraded series; see the original series"


def measure(store: Store, key: AuditKey, failed: Mapping[str, str], progress: ProgressSink) -> None:
    """Compute every measure from the store, and replace the earlier findings."""
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
    measures = list(all_measures().values())
    frames = _frames(store, key, [measure for measure in measures if measure.compute is not None])
    measures = [one for one in measures if "trajectories" not in _tags(one) or not _lacks_view(one, frames)]
    problems = store.frame("SELECT problem_id, cluster FROM audit_problems WHERE audit_id = $id", id=key.audit_id)
    n_problems = len(problems)
    cluster_P = number_clusters(problems["cluster"])
    evidence = Evidence(
        checkpoints=present,
        frames=frames,
        n=key.n,
        ks=key.ks,
        first_round=key.first_round,
        enough=key.enough,
        cluster_of={} if cluster_P is None else dict(zip(problems["problem_id"], cluster_P.tolist(), strict=True)),
        guess_rate=read_guess_rate(store, key).share,
    )
    recorded, texts = is_recorded(store, key.series), has_texts(store, key.series)
    served = series_layout(store, key.series) == SERVED_LAYOUT
    has_tools = bool(len(store.frame("FROM agent_settings WHERE settings_id = $id", id=key.settings_id)))
    n_listed = frames["mode_logps"]["problem_id"].nunique()
    start = time.perf_counter()
    findings: list[Finding] = []
    with progress.stage("measure", len(measures)) as advance:
        for measure in measures:
            if not texts and _needs_texts(measure):
                computed: Sequence[Finding] = measure.unknown(measure.expected(evidence), NO_TEXTS)
            else:
                computed = _move_to_with_modes(_findings(store, key, measure, evidence), measure, n_listed, n_problems)
            never = _why_never(
                measure, recorded=recorded, served=served, has_tools=has_tools, regraded=key.verifier is not None
            )
            for finding in computed:
                finding = _set_interval_unit(finding, measure, evidence)
                findings.append(replace(finding, why=never) if never and finding.value is None else finding)
            for checkpoint_id, why in failed.items():
                findings += measure.unknown([checkpoint_id], why)
            advance(1)
    if store.replace_findings(key, findings):
        store.log_event(key, "measure", wall_s=time.perf_counter() - start, rows=len(findings))


def conclude(
    store: Store, key: AuditKey, failed: Mapping[str, str], skipped: Mapping[str, str], progress: ProgressSink
) -> Verdict:
    """Compute the verdict and replace the earlier one. Arguments as for ``judge``.

    A verdict counts as a look at these checkpoints. A second verdict on the same checkpoints is no new look. The
    recommendation is updated in the verdicts of all comparable series.
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
    record_shipping(store, key, verdict, failed, skipped)
    return verdict


def _frames(store: Store, key: AuditKey, computed: Sequence[Measure]) -> dict[str, pd.DataFrame]:
    """Return the views that computed measures need, with the columns that they read.

    A view is skipped if it is known to be empty, or if no measure can use it.
    """
    frames: dict[str, pd.DataFrame] = {}
    views = {view for measure in computed for view in (*measure.needs, *measure.also)}
    regraded = len(store.frame("SELECT 1 FROM second_gradings WHERE series = $series", series=key.series)) > 0
    has_turns = len(store.frame("SELECT 1 FROM trajectories LIMIT 1")) > 0
    for view in sorted(views, key=lambda view: (_is_largest(view), view)):
        users = [measure for measure in computed if view in (*measure.needs, *measure.also)]
        columns = [measure.columns.get(view) for measure in users]
        chosen = "*" if None in columns else ", ".join(sorted({name for names in columns for name in names or ()}))
        is_empty = _is_largest(view) and all(_lacks_view(measure, frames) for measure in users)
        is_empty |= view in {"way_counts", "second_way_counts"} and not store.ways.has_any()
        is_empty |= view in {"second_counts", "second_way_counts"} and not regraded
        is_empty |= "trajectories" in tags_of(view) and not has_turns
        limit = " LIMIT 0" if is_empty else ""
        with store.kept.bypass() if _is_largest(view) and chosen == "*" else nullcontext():
            frames[view] = store.frame(
                f"SELECT {chosen} FROM {view} WHERE series = $series ORDER BY ALL{limit}", series=key.series
            )
    return frames


def _lacks_view(measure: Measure, frames: Mapping[str, pd.DataFrame]) -> bool:
    """Return whether a view that the measure needs is known to be empty."""
    return any(view in frames and frames[view].empty for view in measure.needs)


def _findings(store: Store, key: AuditKey, measure: Measure, evidence: Evidence) -> Sequence[Finding]:
    if measure.sql is None:
        return measure(evidence)
    lacks_tokens = "token files" in _tags(measure) and not store.has_tokens()
    # this is known without the slow query
    if lacks_tokens or (key.verifier is None and "regraded_samples" in measure.needs):
        return measure.unknown(measure.expected(evidence), measure.missing)
    available = {"series": key.series, "strategy_regex": key.strategy_regex, "ks": list(evidence.ks)}
    used = {name: value for name, value in available.items() if f"${name}" in measure.sql}
    with store.kept.bypass() if _COLUMNS_NOT_KEPT.search(measure.sql) else nullcontext():
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
    with_rows = set(rows["checkpoint_id"])
    without = [checkpoint_id for checkpoint_id in measure.expected(evidence) if checkpoint_id not in with_rows]
    return [*known, *measure.unknown(without, measure.missing)]


def _move_to_with_modes(
    findings: Sequence[Finding], measure: Measure, n_listed: int, n_problems: int
) -> Sequence[Finding]:
    """Move values over only the problems that list modes from ``all`` to ``with_modes``."""
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


def _set_interval_unit(finding: Finding, measure: Measure, evidence: Evidence) -> Finding:
    """Set the resampling unit of an interval.

    Removes an interval that treats related problems as independent. Measures that use clusters set the unit themselves.
    Training prompts are not problems of the audit.
    """
    if finding.interval_over is not None or (finding.low is None and finding.high is None):
        return finding
    if not evidence.cluster_of or all("training prompts" in tags_of(view) for view in measure.needs):
        return replace(finding, interval_over="problems")
    return replace(finding, low=None, high=None, why_no_interval=NOT_RELATED)


def _why_never(measure: Measure, *, recorded: bool, served: bool, has_tools: bool, regraded: bool) -> str | None:
    """Return why a measure has no value for any samples of this kind of series, or None."""
    if has_tools and "needs checkpoints" in _tags(measure):
        return NEEDS_TOKENS
    if recorded and "needs checkpoints" in _tags(measure):
        return NEEDS_WEIGHTS if served else NEEDS_CHECKPOINTS
    return OF_FIRST_SERIES if regraded and "first series" in _tags(measure) else None


def _needs_texts(measure: Measure) -> bool:
    """Return whether a measure needs texts, or answers that are parsed from texts."""
    if "from texts" in _tags(measure):
        return True
    if measure.sql is not None:
        return _COLUMNS_FROM_TEXTS.search(measure.sql) is not None
    columns = (name for view in measure.needs if _is_largest(view) for name in measure.columns.get(view, ()))
    return any(_COLUMNS_FROM_TEXTS.fullmatch(name) for name in columns)


def _tags(measure: Measure) -> frozenset[Tag]:
    return frozenset(tag for view in measure.needs for tag in tags_of(view))


def _is_largest(view: str) -> bool:
    return "largest" in tags_of(view)


def _optional(value: object, convert: Callable[[Any], T]) -> T | None:
    """Convert a value from SQL. Pandas represents NULL as None, NaN or NA; all become None."""
    return None if value is None or pd.isna(value) else convert(value)
