"""Read the counts of a series from the store, and compute the verdict on them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
from jaxtyping import Int

from oversharp.diagnostics.audit.counts.checkpoint import COUNTS, PLANNED, checkpoint_counts, rule_of
from oversharp.diagnostics.audit.independence import SampledCheckpoint, dependence_in_order, find_repeats
from oversharp.diagnostics.audit.judges.recorded import judge_caveats
from oversharp.diagnostics.audit.terms import SELECTED
from oversharp.diagnostics.engine.grading_doubts import (
    GradeFault,
    first_fault,
    grading_doubts,
    partial_rewards,
    why_no_verdict,
)
from oversharp.diagnostics.engine.sampler_reports import confused_checkpoints
from oversharp.diagnostics.records.amounts import plural
from oversharp.diagnostics.records.errors import StoreError
from oversharp.diagnostics.records.types import AuditKey
from oversharp.diagnostics.series.layouts import REPAIRED
from oversharp.diagnostics.store import Store
from oversharp.diagnostics.store.load import has_texts, is_recorded, look_number, series_layout, stored_problems
from oversharp.diagnostics.tasks.clusters import find_near_duplicates
from oversharp.diagnostics.verdict.audit_sizes import SampleLengths
from oversharp.diagnostics.verdict.counts import (
    CheckpointCounts,
    ControlCounts,
    GuessRate,
    Looks,
    SeriesCounts,
    SharperDraws,
)
from oversharp.diagnostics.verdict.decide import verdict_of
from oversharp.diagnostics.verdict.record import Verdict
from oversharp.diagnostics.verifiers import guess_shares, measured_false_accepts
from oversharp.diagnostics.verifiers.thoughts import SUFFIX as THOUGHTS

_PROBLEMS = """
SELECT p.problem_id, p.task, coalesce(a.verifier, p.verifier) AS verifier, p.prompt, ap.cluster
FROM audit_problems AS ap
JOIN audits AS a USING (audit_id)
JOIN problems AS p USING (problem_id)
WHERE ap.audit_id = $audit_id
ORDER BY p.problem_id
"""
_ONLY_GREEDY = "SELECT bool_and(greedy) AS only FROM graded_samples WHERE series = $series"
_CONTROLS = """
SELECT
    step, checkpoint, is_base, checkpoint_id, temperature, own_temperature, problem_id, n, n_correct, n_planned, n_cap
FROM control_counts
WHERE series = $series
ORDER BY is_base DESC, step, temperature DESC, problem_id
"""


# Imported samples of problems that the audit does not compare, by problem and step. The second query counts unusable
# records.
_EXCLUDED = """
SELECT s.problem_id, c.step, count(*) AS n
FROM series_checkpoints AS c
JOIN samples AS s USING (checkpoint_id)
ANTI JOIN (SELECT problem_id FROM audit_problems WHERE audit_id = $audit_id) AS compared
    ON compared.problem_id = s.problem_id
WHERE c.series = $series AND s.settings_id = $settings_id AND s.greedy = $greedy
GROUP BY ALL
ORDER BY ALL
"""
_TEMPERATURE = "SELECT temperature FROM settings WHERE settings_id = $settings_id"
_UNUSABLE = """
SELECT why, sum(n)::BIGINT AS n
FROM import_faults
WHERE series = $series
GROUP BY why
ORDER BY n DESC, why
"""


def judge(
    store: Store, key: AuditKey, failed: Mapping[str, str] | None = None, skipped: Mapping[str, str] | None = None
) -> Verdict:
    """Return the verdict on the current audit of the series of ``key``.

    ``failed`` maps the ids of checkpoints that could not be sampled to reasons. ``skipped`` maps the labels of
    checkpoints that could not be read to reasons. Raises ``StoreError``.
    """
    return verdict_of(read_counts(store, key, failed or {}, skipped or {}))


def read_counts(store: Store, key: AuditKey, failed: Mapping[str, str], skipped: Mapping[str, str]) -> SeriesCounts:
    """Read the counts for a verdict on the series of ``key``. Raises ``StoreError``."""
    with store.kept.keep(key.series, texts=False):
        return _read_counts(store, key, failed, skipped)


def _read_counts(store: Store, key: AuditKey, failed: Mapping[str, str], skipped: Mapping[str, str]) -> SeriesCounts:
    planned = store.frame(PLANNED, series=key.series)
    problems = store.frame(_PROBLEMS, audit_id=key.audit_id)
    is_greedy = key.n == 1 and bool(store.frame(_ONLY_GREEDY, series=key.series)["only"].fillna(False).iloc[0])
    rows = store.frame(COUNTS, series=key.series, greedy=is_greedy)
    index = pd.Index(problems["problem_id"])
    why = _reasons(planned, failed)
    checkpoints = [
        checkpoint_counts(plan, rows[rows["step"] == plan.step], index, why.get(plan.step), rule_of(key, plan))
        for plan in planned.itertuples()
    ]
    first_step = int(planned.loc[planned["is_base"].astype(bool), "step"].iloc[0]) if len(planned) else 0
    short = [one for one, plan in zip(checkpoints, planned.itertuples(), strict=True) if one.why != why.get(plan.step)]
    is_cut = key.first_round is not None and any(key.verifier is not None or one.step == first_step for one in short)
    if is_cut:  # other grades than those by which the problems stopped: the rule needs samples that do not exist
        rows = rows[rows["n_round"] <= key.first_round]
        checkpoints = [
            checkpoint_counts(
                plan._replace(n=key.first_round, n_most=key.first_round),
                rows[rows["step"] == plan.step],
                index,
                why.get(plan.step),
                None,
            )
            for plan in planned.itertuples()
        ]
    if planned.empty:
        raise StoreError(f"{store.path}: the audit of series {key.series!r} has no problems: the store is damaged")
    base = int(planned["is_base"].to_numpy(dtype=bool).argmax())
    texts = has_texts(store, key.series)
    if not texts:  # only counts were imported, so the order of samples is unknown
        checkpoints = [replace(counts, first_correct_P=None, first_wrong_P=None) for counts in checkpoints]
    if texts and not is_greedy:  # imported counts and greedy responses may be equal without being copies
        base_first = [checkpoints[base], *checkpoints[:base], *checkpoints[base + 1 :]]
        sampled = [
            SampledCheckpoint(step=counts.step, label=counts.checkpoint, n=min(counts.n, key.first_round or counts.n))
            for counts in base_first
            if counts.why is None
        ]
        repeats = find_repeats(store, key.series, sampled)
        checkpoints = [replace(counts, why=counts.why or repeats.get(counts.step)) for counts in checkpoints]
    trained = tuple(counts for position, counts in enumerate(checkpoints) if position != base)
    cluster_P = number_clusters(problems["cluster"])
    modes = rows.loc[rows["shows_modes"].astype(bool), "problem_id"]
    measured = rows.groupby("problem_id")[["n_tokens", "n_measured"]].sum().reindex(index, fill_value=0).to_numpy()
    lengths = SampleLengths.from_totals(*measured.T, is_stopped=key.enough is not None)
    control_rows = store.frame(_CONTROLS, series=key.series)
    compared = {counts.step for counts in checkpoints if counts.why is None}
    fault = first_fault(store, key.audit_id) if rows["n_failed"].any() else None
    controls = tuple(control for control in _read_controls(control_rows, index, key) if control.step in compared)
    return SeriesCounts(
        series=key.series,
        base=checkpoints[base],
        trained=trained,
        shows_modes_P=index.isin(modes),
        tasks=tuple(sorted(problems["task"].unique())),
        graders=tuple(sorted(problems["verifier"].unique())),
        tokens_per_sample=None if lengths is None else lengths.mean,
        tokens_P=None if lengths is None else lengths.mean_P,
        skipped=skipped,
        cluster_P=cluster_P,
        n_near_duplicates=0 if not texts or problems["cluster"].notna().any() else _count_near_duplicates(problems),
        guess_rate=_resolve_guess_rate(store, key, problems),
        looks=Looks(
            number=look_number(store, key.series, compared_steps(trained)),
            declared=key.terms.looks,
            runs=key.terms.runs,
        ),
        sharper=_read_sharper_draws(store, key.series, checkpoints[base], control_rows, controls, index),
        controls=controls,
        dependence=dependence_in_order(store, key.series, sorted(compared), key.first_round) if texts else None,
        is_repaired=series_layout(store, key.series) == REPAIRED,
        is_greedy=is_greedy,
        selected_by="base" if key.terms.selected_by == "base" else "none" if key.terms.selected_by else None,
        doubts=(
            *_grading(store, rows, problems, fault),
            *judge_caveats(store, key, problems["verifier"]),
            *confused_checkpoints(store, key),
        ),
        why_ungraded=_why_ungraded(rows[rows["step"].isin(compared)], planned, fault),
        excluded=_first_round_only(store, key, short)
        if is_cut
        else _excluded(store, key, len(problems), compared, greedy=is_greedy),
        knows_temperature=bool(store.frame(_TEMPERATURE, settings_id=key.settings_id)["temperature"].notna().all()),
    )


def _first_round_only(store: Store, key: AuditKey, short: Sequence[CheckpointCounts]) -> str:
    """Return a caveat: the grades are not those by which the problems stopped."""
    command = "Run the audit's command again to draw the missing samples."
    if is_recorded(store, key.series):
        command = "`oversharp plan STORE --top-up FILE` lists the missing samples."
    return (
        f"Only the first {key.first_round} samples of each problem count: at {plural(len(short), 'checkpoint')}, some "
        f"problems have too few correct samples by these grades to have stopped when they did. {command}"
    )


def _excluded(store: Store, key: AuditKey, n_compared: int, steps: Collection[int], *, greedy: bool) -> str | None:
    """Return a sentence about imported problems and records that are not compared, or None."""
    if not is_recorded(store, key.series):
        return None
    excluded = store.frame(
        _EXCLUDED, series=key.series, settings_id=key.settings_id, audit_id=key.audit_id, greedy=greedy
    )
    faults = store.frame(_UNUSABLE, series=key.series)
    parts = []
    if len(excluded):
        n_PT = excluded.pivot(index="problem_id", columns="step", values="n").reindex(columns=sorted(steps)).fillna(0)
        n_absent = int((n_PT == 0).any(axis=1).sum())
        reasons = {"not answered at every step": n_absent}
        reasons[f"with fewer than {plural(key.n, 'sample')} at some step"] = len(n_PT) - n_absent
        listed = ", ".join(f"{n:,} {why}" for why, n in reasons.items() if n)
        parts.append(f"{len(n_PT):,} of {plural(n_compared + len(n_PT), 'problem')} ({listed})")
    selecting = faults[faults["why"].str.startswith(SELECTED)]
    parts += [f"{plural(row.n, 'sample')} that {row.why}" for row in selecting.itertuples()]
    faults = faults.drop(selecting.index)
    if len(faults):
        more = f" and {plural(len(faults) - 1, 'other reason')}" if len(faults) > 1 else ""
        unusable = plural(int(faults["n"].sum()), "record")
        parts.append(f"{unusable} that could not be used ({faults['why'].iloc[0]}{more})")
    return f"Excluded: {'; '.join(parts)}." if parts else None


def _grading(store: Store, counts: pd.DataFrame, problems: pd.DataFrame, fault: GradeFault | None) -> Iterator[str]:
    counted = counts.merge(problems[["problem_id", "verifier"]], on="problem_id")
    if len(counted):
        yield from grading_doubts(counted, fault)
    yield from filter(None, (partial_rewards(store, verifier) for verifier in sorted(problems["verifier"].unique())))


def _why_ungraded(counts: pd.DataFrame, planned: pd.DataFrame, fault: GradeFault | None) -> str | None:
    """Return why ungraded samples prevent a verdict, or None."""
    if fault is None or counts.empty:
        return None
    by_step = counts.groupby("step", as_index=False)[["n", "n_failed"]].sum()
    return why_no_verdict(by_step.merge(planned[["step", "checkpoint"]].drop_duplicates("step"), on="step"), fault)


def _read_controls(rows: pd.DataFrame, problem_ids: pd.Index, key: AuditKey) -> Iterator[ControlCounts]:
    """Yield the controls that have all planned samples of every problem."""
    for (step, checkpoint, weights, temperature), own in rows.groupby(
        ["step", "checkpoint", "checkpoint_id", "temperature"], sort=False
    ):
        by_problem = own.set_index("problem_id").reindex(problem_ids)
        if (by_problem["n"] == by_problem["n_planned"]).all():
            rule = rule_of(key, own.iloc[0])
            n_P, correct_P = (by_problem[name].to_numpy(dtype=np.int64) for name in ("n", "n_correct"))
            yield ControlCounts(
                step=int(step),
                checkpoint=str(checkpoint),
                temperature=float(temperature),
                n=int(own["n"].iloc[0]) if rule is None else rule.cap,
                correct_P=correct_P if rule is None else rule.codes(n_P, correct_P),
                weights=str(weights),
                rule=rule,
            )


def _read_sharper_draws(
    store: Store,
    series: str,
    base: CheckpointCounts,
    rows: pd.DataFrame,
    controls: Sequence[ControlCounts],
    ids: pd.Index,
) -> SharperDraws | None:
    """Return the base's samples below the audit's temperature, or None.

    ``rows`` are the stored counts of the controls.
    """
    if rows.empty:
        return None
    own = float(rows["own_temperature"].iloc[0])
    lower = [control for control in controls if control.step == base.step and control.temperature < own]
    if not lower:
        return None
    greedy = store.frame(
        "SELECT problem_id, correct FROM greedy_grades WHERE series = $series AND is_base", series=series
    ).set_index("problem_id")["correct"]
    greedy_P = greedy[~greedy.index.duplicated()].reindex(ids)
    return SharperDraws(
        temperature_S=(own, *(control.temperature for control in lower)),
        n_S=(base.samples, *(control.samples for control in lower)),
        correct_SP=np.stack([base.correct_P, *(control.correct_P for control in lower)]),
        greedy_P=None if greedy_P.isna().any() else greedy_P.to_numpy(dtype=bool),
    )


def compared_steps(trained: Sequence[CheckpointCounts]) -> list[int]:
    """Return the steps of all checkpoints that can be compared with the base."""
    return [counts.step for counts in trained if counts.why is None]


def number_clusters(names: pd.Series) -> Int[np.ndarray, " problem"] | None:
    """Return the cluster number of each problem, or None if no two problems share a cluster."""
    if not names.dropna().duplicated().any():
        return None
    cluster_P, named = pd.factorize(names, sort=True)
    alone_P = cluster_P < 0  # the problem has no cluster name
    cluster_P[alone_P] = len(named) + np.arange(alone_P.sum())
    return cluster_P.astype(np.int64)


def read_cluster_numbers(store: Store, key: AuditKey) -> Int[np.ndarray, " problem"] | None:
    """Return the cluster numbers of an audit's problems, ordered by problem id.

    Raises ``StoreError``.
    """
    return number_clusters(store.frame(_PROBLEMS, audit_id=key.audit_id)["cluster"])


def _count_near_duplicates(problems: pd.DataFrame) -> int:
    return int(find_near_duplicates(problems["prompt"].tolist(), problems["task"].tolist()).sum())


def read_guess_rate(store: Store, key: AuditKey) -> GuessRate:
    """Return the false-accept rate for a verdict on the audit ``key``. Raises ``StoreError``."""
    return _resolve_guess_rate(store, key, store.frame(_PROBLEMS, audit_id=key.audit_id))


def _resolve_guess_rate(store: Store, key: AuditKey, problems: pd.DataFrame) -> GuessRate:
    """Return the user's false-accept rate, else the largest known rate of the graders."""
    if key.terms.guess_rate is not None:
        return GuessRate(share=key.terms.guess_rate, source="given")
    rates = []
    for verifier, own in problems.groupby("verifier", sort=True):
        graded = stored_problems(store, own["problem_id"].tolist())
        measured = measured_false_accepts(str(verifier).removesuffix(THOUGHTS), graded)
        rates += [_known_rate(share, measured) for share in set(guess_shares(str(verifier), graded))]
    return max(rates, key=lambda rate: rate.share, default=GuessRate())


def _known_rate(share: float | None, measured: float | None) -> GuessRate:
    if share is None:
        return GuessRate() if measured is None else GuessRate(share=measured, source="measured")
    return GuessRate(
        share=share, source="the grader checks the whole solution" if share == 0 else "known to the grader"
    )


def _reasons(planned: pd.DataFrame, failed: Mapping[str, str]) -> dict[int, str]:
    """Return step → why its checkpoint cannot be compared.

    Reasons from the samples themselves are not included. Two steps with the same checkpoint id share their samples,
    which must not count twice.
    """
    reasons: dict[int, str] = {}
    first: dict[str, str] = {}
    for row in planned.sort_values(["is_base", "step"], ascending=[False, True]).itertuples():
        if row.checkpoint_id in failed:
            reasons[row.step] = failed[row.checkpoint_id]
        elif row.checkpoint_id in first:
            reasons[row.step] = f"the same weights as {first[row.checkpoint_id]}, whose samples it shares"
        first.setdefault(row.checkpoint_id, row.checkpoint)
    return reasons
