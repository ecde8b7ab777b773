"""Compare a judge with gold labels and with a second grader: agreement, corrected pass@k, and growing leniency."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from oversharp.diagnostics.audit.judges.grades import JudgeGrades
from oversharp.diagnostics.audit.judges.labels import CheckpointLabels
from oversharp.diagnostics.records.amounts import plural
from oversharp.diagnostics.records.cells import short_repr
from oversharp.diagnostics.statistics.labels.correction import (
    LEAST_LABELS,
    LabelledOutcomes,
    corrected_pass_at_k,
)
from oversharp.diagnostics.statistics.labels.leniency import LEVEL, JointShares, LeniencyChange, leniency_change
from oversharp.diagnostics.statistics.pass_at_k import pass_at_k_table
from oversharp.diagnostics.store import Store
from oversharp.diagnostics.verdict.counts import window_size
from oversharp.diagnostics.verdict.words.numbers import bounds_text, signed_text
from oversharp.diagnostics.verifiers.names import listed_graders

_BOTH = """
SELECT step, is_base, problem_id, response_id,
    CASE WHEN verifier = $judge THEN own_verifier ELSE verifier END AS other_name,
    CASE WHEN verifier = $judge THEN correct ELSE own_correct END AS judged,
    CASE WHEN verifier = $judge THEN own_correct ELSE correct END AS other
FROM regraded_samples
WHERE series = $series AND NOT greedy AND in_first_round AND $judge IN (verifier, own_verifier)
"""
_SECOND = "SELECT second_series FROM second_gradings WHERE series = $series"
# in SQL, because the texts of a series may not fit into memory
_STYLES = """
SELECT
    problem_id, response_id,
    any_value(regexp_matches(text, $markdown)) AS markdown,
    any_value(regexp_matches(text, $confident)) AS confident,
    any_value(length(text)) AS n_characters
FROM graded_samples
WHERE series = $series AND NOT greedy
GROUP BY ALL
"""
_MARKDOWN = r"(?m)^\s*(#{1,6} |[-*] |\d+\. |\|)|\*\*\S"
_CONFIDENT = r"(?i)\b(certain|certainly|clearly|definitely|obviously|without doubt|I am sure|verified)\b"
#: A response counts as long above this multiple of the median length.
_LONG = 1.5


@dataclass(frozen=True, kw_only=True)
class LabelAgreement:
    """Gold labels of randomly drawn samples, and the judge's errors on them.

    ``n_wrong`` and ``n_right`` are the labels 0 and 1, ``n_false_accepts`` and ``n_false_refusals`` the errors.
    """

    step: int
    n_wrong: int
    n_right: int
    n_false_accepts: int
    n_false_refusals: int

    __repr__ = short_repr


@dataclass(frozen=True, kw_only=True)
class CorrectedValue:
    """Pass@k at a step, or its change since the base, corrected by gold labels.

    ``judged`` is the value by the judge, ``value`` the corrected one with its 95 % interval ``low`` to ``high``; both
    are None with the reason ``why``. ``n`` is the number of labelled sets.
    """

    step: int
    is_change: bool
    k: int
    judged: float
    value: float
    low: float | None
    high: float | None
    n: int
    why: str | None

    __repr__ = short_repr


@dataclass(frozen=True, kw_only=True)
class Leniency:
    """Change of the share of samples that only the judge accepts, beyond that by accuracy, from base to late steps.

    ``style`` is the style whose share of them grew significantly; None for no single style.
    """

    other: str
    steps: tuple[int, ...]
    change: float
    low: float | None
    high: float | None
    p: float
    is_found: bool
    style: str | None

    __repr__ = short_repr


def label_agreement(judged: JudgeGrades, labels: Mapping[int, CheckpointLabels]) -> tuple[LabelAgreement, ...]:
    """Compare the judge with the first label of each set. Later ones are no random sample."""
    return tuple(_agreement(judged, step, labels[step]) for step in sorted(labels) if labels[step].sets)


def _agreement(judged: JudgeGrades, step: int, labels: CheckpointLabels) -> LabelAgreement:
    judge_PN = judged.by_step[step].judge_PN
    gold_S = np.array([one.labels[0] for one in labels.sets])
    judge_S = np.array([judge_PN[one.problem, one.samples[0]] for one in labels.sets])
    return LabelAgreement(
        step=step,
        n_wrong=int((~gold_S).sum()),
        n_right=int(gold_S.sum()),
        n_false_accepts=int((judge_S & ~gold_S).sum()),
        n_false_refusals=int((~judge_S & gold_S).sum()),
    )


def corrected_values(
    judged: JudgeGrades, labels: Mapping[int, CheckpointLabels]
) -> tuple[tuple[CorrectedValue, ...], dict[int, str]]:
    """Return pass@k of each labelled step and its change since the base, and why other steps are not corrected."""
    uncorrected: dict[int, str] = {}
    for step in judged.by_step:
        n = labels[step].n_labels if step in labels else 0
        if n < LEAST_LABELS:
            uncorrected[step] = f"{plural(n, 'label')}; each checkpoint needs {LEAST_LABELS}"
    values: list[CorrectedValue] = []
    base = judged.base
    for step, checkpoint in judged.by_step.items():
        if step in uncorrected:
            continue
        for k in sorted({1, *judged.key.ks}):
            own = _outcomes(judged, step, labels[step], k)
            if own is None:
                continue
            values.append(_value(step, k, own, None, judged))
            before = None if base.step in uncorrected else _outcomes(judged, base.step, labels[base.step], k)
            if not checkpoint.is_base and before is not None:
                values.append(_value(step, k, own, before, judged))
    return tuple(values), uncorrected


def _outcomes(judged: JudgeGrades, step: int, labels: CheckpointLabels, k: int) -> LabelledOutcomes | None:
    """Return the outcomes of the sets with at least ``k`` samples, None without any."""
    judge_PN = judged.by_step[step].judge_PN
    sets = [one for one in labels.sets if len(one.samples) >= k]
    if not sets:
        return None
    return LabelledOutcomes(
        judged_P=pass_at_k_table(judge_PN.shape[1], [k])[judge_PN.sum(axis=1), 0],
        problem_S=np.array([one.problem for one in sets]),
        gold_S=np.array([any(one.labels[:k]) for one in sets]),
        judge_S=np.array([judge_PN[one.problem, one.samples[:k]].any() for one in sets]),
    )


def _value(
    step: int, k: int, own: LabelledOutcomes, base: LabelledOutcomes | None, judged: JudgeGrades
) -> CorrectedValue:
    interval = corrected_pass_at_k(own, base, cluster_P=judged.cluster_P)
    return CorrectedValue(
        step=step,
        is_change=base is not None,
        k=k,
        judged=float(own.judged_P.mean() - (0.0 if base is None else base.judged_P.mean())),
        value=interval.mean,
        low=interval.low,
        high=interval.high,
        n=interval.n,
        why=interval.why,
    )


def find_leniency(store: Store, judged: JudgeGrades, verifier: str) -> Leniency | str:
    """Test whether the judge became more lenient than the second grader, or return why it cannot be tested."""
    second = store.frame(_SECOND, series=judged.key.series)["second_series"]
    series = judged.key.series if judged.key.verifier == verifier else str(second.iloc[0]) if len(second) else None
    rows = pd.DataFrame() if series is None else store.frame(_BOTH, series=series, judge=verifier)
    if rows.empty:
        return "no second grader graded these samples; run `oversharp regrade` with another verifier"
    steps = sorted(step for step, one in judged.by_step.items() if not one.is_base)
    late = tuple(steps[len(steps) - window_size(len(steps)) :])
    rows = rows[rows["problem_id"].isin(judged.problem_ids) & (rows["is_base"] | rows["step"].isin(late))]
    extra = (rows["judged"] & ~rows["other"]).to_numpy(dtype=bool)
    tested = _test(rows, extra, judged)
    if isinstance(tested, str):
        return tested
    return Leniency(
        other=listed_graders(sorted(set(rows["other_name"]))),
        steps=late,
        change=tested.change.mean,
        low=tested.change.low,
        high=tested.change.high,
        p=tested.p,
        is_found=tested.is_found,
        style=_style(store, rows, extra, judged) if tested.is_found else None,
    )


def _test(rows: pd.DataFrame, extra: np.ndarray, judged: JudgeGrades) -> LeniencyChange | str:
    shares = []
    for is_base in (True, False):
        own = rows["is_base"].to_numpy(dtype=bool) == is_base
        by_problem = pd.DataFrame(
            {"problem_id": rows["problem_id"][own], "extra": extra[own], "other": rows["other"][own].astype(float)}
        ).groupby("problem_id")
        mean = by_problem.mean().reindex(list(judged.problem_ids))
        if mean.isna().to_numpy().any():
            return "some problems lack grades of both graders at the base or at the late checkpoints"
        n = int(by_problem.size().min())
        shares.append(JointShares(n=n, extra_P=mean["extra"].to_numpy(), other_P=mean["other"].to_numpy()))
    return leniency_change(shares[0], shares[1], cluster_P=judged.cluster_P)


def _style(store: Store, rows: pd.DataFrame, extra: np.ndarray, judged: JudgeGrades) -> str | None:
    """Return the style in which the extra accepts grew most significantly, None if there is no such style."""
    styles = store.frame(_STYLES, series=judged.key.series, markdown=_MARKDOWN, confident=_CONFIDENT)
    aligned = rows[["problem_id", "response_id"]].merge(styles, on=["problem_id", "response_id"], how="left")
    has_style = {
        "Markdown": aligned["markdown"],
        "a confident tone": aligned["confident"],
        "many words": aligned["n_characters"] > _LONG * aligned["n_characters"].median(),
    }
    found = []
    for name, has_S in has_style.items():
        tested = _test(rows, extra & has_S.to_numpy(dtype=bool), judged)
        # a style of all responses distinguishes none
        if not isinstance(tested, str) and tested.p <= LEVEL / len(has_style) and not has_S.all():
            found.append((tested.p, -tested.change.mean, name))
    return min(found)[2] if found else None


def describe(
    verifier: str,
    agreement: tuple[LabelAgreement, ...],
    values: tuple[CorrectedValue, ...],
    uncorrected: Mapping[int, str],
    leniency: Leniency | str,
) -> Iterator[str]:
    """Yield sentences for the verdict's caveats."""
    n_wrong, n_right = sum(one.n_wrong for one in agreement), sum(one.n_right for one in agreement)
    accepts, refusals = (
        sum(one.n_false_accepts for one in agreement),
        sum(one.n_false_refusals for one in agreement),
    )
    if n_wrong + n_right:
        share = 1.0 - (accepts + refusals) / (n_wrong + n_right)
        yield (
            f"The judge {verifier} agrees with {share:.0%} of {plural(n_wrong + n_right, 'gold label')}: it accepts "
            f"{accepts} of {n_wrong} wrong responses and refuses {refusals} of {n_right} correct ones."
        )
    last = max((value.step for value in values if value.is_change), default=None)
    changes = [value for value in values if value.is_change and value.step == last and value.low is not None]
    if changes:
        listed = "; ".join(
            f"pass@{value.k} {signed_text(value.value)}{bounds_text(value.low, value.high, signed=True)} (by the judge "
            f"{signed_text(value.judged)})"
            for value in changes
        )
        yield f"Changes from the base to step {last} in points, corrected by the labels: {listed}."
    if uncorrected and agreement:
        yield (
            f"Not corrected, because these steps have fewer than {LEAST_LABELS} labels: "
            f"{', '.join(map(str, uncorrected))}."
        )
    if isinstance(leniency, Leniency) and leniency.is_found:
        style = f", most in responses with {leniency.style}" if leniency.style else ""
        change = f"{signed_text(leniency.change)} points{bounds_text(leniency.low, leniency.high, signed=True)}"
        yield (
            f"The judge grew more lenient than {leniency.other} from the base to the late checkpoints{style}: it alone "
            f"accepts {change} more samples than the change of accuracy explains (p = {leniency.p:.2g}). A rise of "
            "pass@k may be the judge's."
        )
