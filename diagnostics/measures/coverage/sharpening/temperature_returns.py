"""Change of pass@k and pass@1 when a checkpoint is sampled at a higher temperature."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from oversharp.diagnostics.measures.contract import Evidence, Plot, Results
from oversharp.diagnostics.measures.counts import pass_at_k_of, sampled_counts
from oversharp.diagnostics.measures.declare import per_series
from oversharp.diagnostics.statistics.intervals import share_interval
from oversharp.diagnostics.statistics.keys import inference_ks

MISSING = "not drawn at a higher temperature: --controls does, of the last checkpoint"


@per_series(
    needs=("control_counts", "sampled_counts"),
    missing=MISSING,
    title="Pass@k given back by temperature",
    unit="probability",
    section="coverage",
    plot=Plot(x="step", group="scope", y_label="pass@k − as audited"),
    signed=True,
    of_base=False,
)
def temperature_returns(evidence: Evidence) -> Iterator[tuple[str, Results]]:
    """Pass@k restored by temperature: its change when the checkpoint is sampled at a higher temperature.

    Meaning: restored coverage was not forgotten but only made unlikely. Its price is ``temperature_price``.
    Unit: probability (difference, at the higher temperature less as audited). Estimator: mean over problems of the
    difference of the unbiased estimates, at the largest k that both have samples for; 95 % t interval over problems
    with a variance floor. n counts problems; the scope names T.
    Limits: only checkpoints sampled at a higher temperature have it (``--controls``, ``--hot-temperatures``).
    Intervals are not corrected for choosing among temperatures.
    Source: ours. pass@k as in Chen et al. 2021 (arXiv 2107.03374).

    >>> from oversharp.diagnostics.measures.examples import tiny_evidence
    >>> evidence = tiny_evidence("sampled_counts", "checkpoint_id problem_id n n_correct", [
    ...     (c, f"q{i}", 8, hits) for c, hits in (("base", 2), ("late", 6)) for i in range(40)], n=8)
    >>> columns = "checkpoint_id problem_id temperature own_temperature n n_correct"
    >>> hotter = tiny_evidence("control_counts", columns, [("late", f"q{i}", 1.5, 1.0, 8, 4) for i in range(40)], n=8)
    >>> evidence.frames.update(hotter.frames)
    >>> [(f.checkpoint_id, f.scope, f.k, round(f.value, 3)) for f in temperature_returns(evidence)]
    [('late', 'T=1.5', 4, -0.014)]
    """
    return _changes(evidence, lambda fewest: inference_ks(fewest)[-1])


@per_series(
    needs=("control_counts", "sampled_counts"),
    missing=MISSING,
    title="Pass@1 that a higher temperature costs",
    unit="probability",
    section="coverage",
    plot=Plot(x="step", group="scope", y_label="pass@1 − as audited"),
    signed=True,
    of_base=False,
)
def temperature_price(evidence: Evidence) -> Iterator[tuple[str, Results]]:
    """Pass@1 lost to temperature: its change when the checkpoint is sampled at a higher temperature.

    Meaning: the price of the coverage that ``temperature_returns`` restores.
    Unit: probability (difference, at the higher temperature less as audited). Estimator: mean over problems of the
    difference of the unbiased estimates; 95 % t interval over problems with a variance floor. n counts problems; the
    scope names T.
    Limits: only checkpoints sampled at a higher temperature have it (``--controls``, ``--hot-temperatures``).
    Intervals are not corrected for choosing among temperatures.
    Source: ours. pass@k as in Chen et al. 2021 (arXiv 2107.03374).

    >>> from oversharp.diagnostics.measures.examples import tiny_evidence
    >>> evidence = tiny_evidence("sampled_counts", "checkpoint_id problem_id n n_correct", [
    ...     (c, f"q{i}", 8, hits) for c, hits in (("base", 2), ("late", 6)) for i in range(40)], n=8)
    >>> columns = "checkpoint_id problem_id temperature own_temperature n n_correct"
    >>> hotter = tiny_evidence("control_counts", columns, [("late", f"q{i}", 1.5, 1.0, 8, 4) for i in range(40)], n=8)
    >>> evidence.frames.update(hotter.frames)
    >>> [(f.checkpoint_id, f.scope, f.k, round(f.value, 3)) for f in temperature_price(evidence)]
    [('late', 'T=1.5', 1, -0.25)]
    """
    return _changes(evidence, lambda fewest: 1)


def _changes(evidence: Evidence, choose_k: Callable[[int], int]) -> Iterator[tuple[str, Results]]:
    """Yield the change at every checkpoint but the base; ``choose_k`` gets the largest k that both have samples for."""
    counts, why = sampled_counts(evidence)
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
            hot = rows.set_index("problem_id").reindex(list(here.problem_ids))
            if (hot["n"] != hot["n_planned"]).any():
                yield checkpoint_id, {scope: "its hotter draws are incomplete"}
                continue
            n_P = hot["n"].to_numpy(np.int64)
            k = choose_k(min(here.fewest, 2 * int(n_P.min())))
            change_P = pass_at_k_of(n_P, hot["n_correct"].to_numpy(np.int64), k) - here.pass_at_k(k)
            yield (
                checkpoint_id,
                {(scope, k): share_interval(change_P, bounds=(-1.0, 1.0), cluster_P=here.cluster_P)},
            )
