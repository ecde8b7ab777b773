"""What a live audit tells a logger: of each checkpoint a few findings as numbers, of the last one the verdict too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from oversharp.diagnostics.series.training_log import LIVE_FINDINGS
from oversharp.diagnostics.store import Store
from oversharp.diagnostics.verdict.record import Verdict

VERDICT = f"{LIVE_FINDINGS}verdict"
#: Measures that are logged under their own names; the last four grade over-sharpening by Definition 2.1.
_PLAIN = (
    "effective_modes",
    "interference",
    "problems_over_sharpened",
    "modes_fallen",
    "modes_fallen_10x",
    "mass_lost",
)
#: Measures that are logged at k = 1 and at the largest k that has an interval, which is half of the samples.
_AT_K: Mapping[str, str] = MappingProxyType({"pass_at_k": "pass@{k}", "pass_at_k_delta": "pass@{k}_change"})


@dataclass(frozen=True, kw_only=True)
class LiveFindings:
    """The findings on the checkpoint at ``step``, by name; what is unknown has no entry.

    ``verdict`` is on the series up to this checkpoint; None where a later one was audited with it.
    """

    step: int
    values: Mapping[str, float]
    verdict: Verdict | None

    @property
    def labelled(self) -> dict[str, float | str]:
        """The values and, where there is a verdict, its label: for loggers that take text."""
        return {**self.values} if self.verdict is None else {**self.values, VERDICT: self.verdict.label}


def read_findings(store_path: Path, series: str, steps: Sequence[int]) -> list[LiveFindings]:
    """Of those ``steps`` that have findings, in ascending order. Raises ``StoreError``."""
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
    return [_step_findings(step, of_step, verdict if step == last else None) for step, of_step in values.items()]


def _step_findings(step: int, values: Mapping[str, float], verdict: Verdict | None) -> LiveFindings:
    flag = {} if verdict is None else {f"{LIVE_FINDINGS}loss_found": float(verdict.positive)}
    return LiveFindings(step=step, values={f"{LIVE_FINDINGS}step": float(step), **values, **flag}, verdict=verdict)
