"""Grades of a judge in a store: per checkpoint, problem and sample."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Bool, Int

from oversharp.diagnostics.audit.counts.series import read_cluster_numbers
from oversharp.diagnostics.records.errors import ConfigError, StoreError
from oversharp.diagnostics.records.types import AuditKey
from oversharp.diagnostics.store import Store
from oversharp.diagnostics.store.load import stored_key

# with a stopping rule only the first round counts, because later samples depend on the grades
_SAMPLES = """
SELECT step, checkpoint, checkpoint_id, is_base, problem_id, sample_index, correct, response_id
FROM graded_samples
WHERE series = $series AND NOT greedy AND common
ORDER BY is_base DESC, step, problem_id, sample_index
"""
_JUDGED = """
SELECT a.series
FROM current_audits AS a
JOIN audit_problems AS p USING (audit_id)
JOIN problems AS q USING (problem_id)
GROUP BY a.series
HAVING bool_and(coalesce(a.verifier, q.verifier) = $verifier)
ORDER BY a.series
"""
_PROBLEM_IDS = "SELECT problem_id FROM audit_problems WHERE audit_id = $audit_id ORDER BY problem_id"


@dataclass(frozen=True, kw_only=True)
class JudgedCheckpoint:
    """A judge's grades at one checkpoint.

    Attributes:
        step, label, is_base: the checkpoint.
        judge_PN: whether the judge accepts each sample.
        response_PN: id of each response.
    """

    step: int
    label: str
    is_base: bool
    judge_PN: Bool[np.ndarray, "problem sample"]
    response_PN: np.ndarray


@dataclass(frozen=True, kw_only=True)
class JudgeGrades:
    """A judge's grades of a series, for the problems that have all samples at every checkpoint."""

    key: AuditKey
    problem_ids: tuple[str, ...]
    cluster_P: Int[np.ndarray, " problem"] | None
    by_step: Mapping[int, JudgedCheckpoint]

    @property
    def base(self) -> JudgedCheckpoint:
        """The base."""
        return next(checkpoint for checkpoint in self.by_step.values() if checkpoint.is_base)


def judged_series(store: Store, verifier: str, series: str | None) -> AuditKey:
    """Return the audit that ``verifier`` graded: that of ``series``, else the only one.

    Raises ``ConfigError`` if there is none or several.
    """
    names = [str(name) for name in store.frame(_JUDGED, verifier=verifier)["series"]]
    if series is not None and series not in names:
        raise ConfigError(f"--series {series}: not graded by {verifier}; run `oversharp regrade` with this judge first")
    if not names:
        raise ConfigError(
            f"--verifier {verifier}: grades no series of {store.path}; run `oversharp regrade {store.path} --verifier "
            "judge:FILE.toml` first"
        )
    if series is None and len(names) > 1:
        raise ConfigError(
            f"{store.path}: the judge grades several series; pass --series with one of: {', '.join(names)}"
        )
    return stored_key(store, series or names[0])


def read_judged(store: Store, key: AuditKey) -> JudgeGrades:
    """Read the grades of an audit. Raises ``StoreError`` if no problem has all samples at every checkpoint."""
    rows = store.frame(_SAMPLES, series=key.series)
    n = 0 if rows.empty else int(rows["sample_index"].max()) + 1
    counted = rows.groupby(["problem_id", "step"]).size().unstack()
    whole = counted.index[(counted == n).all(axis=1)] if n else []
    if not len(whole):
        raise StoreError(f"{store.path}: no problem of {key.series!r} has graded samples at every checkpoint")
    rows = rows[rows["problem_id"].isin(whole)]
    all_ids = store.frame(_PROBLEM_IDS, audit_id=key.audit_id)["problem_id"]
    cluster_P = read_cluster_numbers(store, key)
    return JudgeGrades(
        key=key,
        problem_ids=tuple(sorted(map(str, whole))),
        cluster_P=None if cluster_P is None else cluster_P[all_ids.isin(whole).to_numpy()],
        by_step={int(own["step"].iloc[0]): _checkpoint(own, n) for _, own in rows.groupby("step", sort=True)},
    )


def _checkpoint(rows: pd.DataFrame, n: int) -> JudgedCheckpoint:
    ordered = rows.sort_values(["problem_id", "sample_index"])
    first = ordered.iloc[0]
    return JudgedCheckpoint(
        step=int(first["step"]),
        label=str(first["checkpoint"]),
        is_base=bool(first["is_base"]),
        judge_PN=ordered["correct"].to_numpy(dtype=bool).reshape(-1, n),
        response_PN=ordered["response_id"].to_numpy(dtype=str).reshape(-1, n),
    )
