"""Measures of the change of pass@k and pass@1 at a higher sampling temperature."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from oversharp.diagnostics.measures.contract import Evidence, Measure, Plot, Results
from oversharp.diagnostics.measures.counts import ControlSamples, load_sampled_counts
from oversharp.diagnostics.measures.declare import per_series
from oversharp.diagnostics.statistics.intervals import share_interval
from oversharp.diagnostics.statistics.keys import inference_ks

MISSING = "not sampled at a higher temperature; run the audit with --controls"


def _declare(*, title: str, y_label: str) -> Callable[[Callable[[Evidence], Iterable[tuple[str, Results]]]], Measure]:
    return per_series(
        needs=("control_counts", "sampled_counts"),
        missing=MISSING,
        title=title,
        unit="probability",
        section="coverage",
        plot=Plot(x="step", group="scope", y_label=y_label),
        signed=True,
        of_base=False,
    )


@_declare(title="Pass@k restored by temperature", y_label="pass@k − as audited")
def temperature_returns(evidence: Evidence) -> Iterator[tuple[str, Results]]:
    """Pass@k restored by temperature: its change at a higher sampling temperature.

    Meaning: if a higher temperature restores coverage, the solutions were not forgotten, only unlikely.
    ``temperature_price`` is the pass@1 that it costs.
    Unit: probability (difference: higher temperature minus the audit's temperature). Estimator: mean over problems of
    the difference of the unbiased estimates, at the largest k for which both have enough samples. 95 % t interval over
    problems with a variance floor. n counts problems. The scope is the temperature T.
    Limits: only for checkpoints sampled at a higher temperature (``--controls``, ``--raised-temperatures``). If you
    choose the best of several temperatures, the intervals are too narrow.
    Source: ours. pass@k as in Chen et al. 2021 (arXiv 2107.03374).

    >>> from oversharp.diagnostics.measures.examples import tiny_temperatures
    >>> [(f.checkpoint_id, f.scope, f.k, round(f.value, 3)) for f in temperature_returns(tiny_temperatures())]
    [('late', 'T=1.5', 4, -0.014)]
    """
    return _changes(evidence, lambda fewest: inference_ks(fewest)[-1])


@_declare(title="Pass@1 that a higher temperature costs", y_label="pass@1 − as audited")
def temperature_price(evidence: Evidence) -> Iterator[tuple[str, Results]]:
    """Pass@1 lost to temperature: its change at a higher sampling temperature.

    Meaning: the cost of the coverage that ``temperature_returns`` restores.
    Unit: probability (difference: higher temperature minus the audit's temperature). Estimator: mean over problems of
    the difference of the unbiased estimates. 95 % t interval over problems with a variance floor. n counts problems.
    The scope is the temperature T.
    Limits: only for checkpoints sampled at a higher temperature (``--controls``, ``--raised-temperatures``). If you
    choose the best of several temperatures, the intervals are too narrow.
    Source: ours. pass@k as in Chen et al. 2021 (arXiv 2107.03374).

    >>> from oversharp.diagnostics.measures.examples import tiny_temperatures
    >>> [(f.checkpoint_id, f.scope, f.k, round(f.value, 3)) for f in temperature_price(tiny_temperatures())]
    [('late', 'T=1.5', 1, -0.25)]
    """
    return _changes(evidence, lambda fewest: 1)


def _changes(evidence: Evidence, choose_k: Callable[[int], int]) -> Iterator[tuple[str, Results]]:
    """Yield the change at every checkpoint but the base, at ``choose_k(number of samples)``."""
    counts, why = load_sampled_counts(evidence)
    controls = evidence.frames["control_counts"]
    for checkpoint_id in evidence.checkpoint_ids:
        if checkpoint_id == evidence.base_id:
            continue
        own = controls[controls["checkpoint_id"] == checkpoint_id]
        if own.empty:
            yield checkpoint_id, MISSING
        for temperature, rows in own.groupby("temperature", sort=True):
            scope = f"T={temperature:g}"
            if checkpoint_id in why:
                yield checkpoint_id, {scope: why[checkpoint_id]}
                continue
            here = counts[checkpoint_id]
            raised = rows.set_index("problem_id").reindex(list(here.problem_ids))
            if (raised["n"] != raised["n_planned"]).any():
                yield checkpoint_id, {scope: "its samples at the higher temperature are incomplete"}
                continue
            drawn = ControlSamples.from_rows(evidence, raised)
            k = choose_k(min(here.fewest, 2 * drawn.n_most))
            change_P = drawn.pass_at_k(k) - here.pass_at_k(k)
            interval = share_interval(change_P, bounds=(-1.0, 1.0), cluster_P=here.cluster_P)
            yield checkpoint_id, {(scope, k): interval}
