"""Findings of a live audit for loggers: a few numbers per checkpoint, and the verdict at the last checkpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from oversharp.diagnostics.series.training_log import LIVE_FINDINGS
from oversharp.diagnostics.store import Store
from oversharp.diagnostics.verdict.record import Verdict

VERDICT = f"{LIVE_FINDINGS}verdict"
#: Measures that are logged under their names. The last four measure over-sharpening by Definition 2.1 of [A].
_PLAIN = (
    "effective_modes",
    "interference",
    "problems_over_sharpened",
    "modes_fallen",
    "modes_fallen_10x",
    "mass_lost",
)
#: Measure → name in the log. They are logged at k = 1 and at the largest k with a CI, which is half the number of
#: samples.
_AT_K: Mapping[str, str] = MappingProxyType({"pass_at_k": "pass@{k}", "pass_at_k_delta": "pass@{k}_change"})


@dataclass(frozen=True, kw_only=True)
class LiveFindings:
    """Findings for the checkpoint at ``step``: name → value. Unknown findings are omitted.

    ``verdict`` is the verdict on the series up to this checkpoint. It is None if the same audit covers later
    checkpoints.
    """

    step: int
    values: Mapping[str, float]
    verdict: Verdict | None

    @property
    def log_entries(self) -> dict[str, float | str]:
        """Values and, if there is a verdict, its label, for loggers that accept text."""
        return {**self.values} if self.verdict is None else {**self.values, VERDICT: self.verdict.label}


def read_findings(store_path: Path, series: str, steps: Sequence[int]) -> list[LiveFindings]:
    """Return the findings of the steps that have any, in ascending order. Raise ``StoreError``."""
    with Store.open(store_path, read_only=True) as store:
        frame = store.frame(
            """
            SELECT step, measure, k, value
            FROM findings
            WHERE series = $series
              AND scope = 'all'
              AND value IS NOT NULL
              AND (
                list_contains($plain, measure)
                OR (
                    list_contains($at_k, measure)
                    AND k IN (1, (
                        SELECT max(k)
                        FROM findings
                        WHERE series = $series AND scope = 'all' AND measure = 'pass_at_k_delta' AND low IS NOT NULL
                    ))
                )
              )
              AND list_contains($steps, step)
            ORDER BY step, measure, k
            """,
            series=series,
            plain=list(_PLAIN),
            at_k=list(_AT_K),
            steps=list(steps),
        )
        verdict = store.verdict(series)
    values: dict[int, dict[str, float]] = {}
    for row in frame.itertuples():
        name = _AT_K[row.measure].format(k=int(row.k)) if row.measure in _AT_K else row.measure
        values.setdefault(int(row.step), {})[LIVE_FINDINGS + name] = float(row.value)
    last = max(values, default=None)
    if verdict is not None and last is not None:
        values[last][f"{LIVE_FINDINGS}loss_found"] = float(verdict.positive)
    return [
        LiveFindings(
            step=step,
            values={f"{LIVE_FINDINGS}step": float(step), **step_values},
            verdict=verdict if step == last else None,
        )
        for step, step_values in values.items()
    ]
