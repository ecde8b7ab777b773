"""What drawing a checkpoint hotter gives back of pass@k, and what it costs in pass@1."""

from __future__ import annotations

import numpy as np

from oversharp.diagnostics.measures._counts import pass_at_k_of, sampled_counts
from oversharp.diagnostics.measures._findings import known, unknown
from oversharp.diagnostics.measures.contract import Evidence, Measure, Plot
from oversharp.diagnostics.records.types import Finding
from oversharp.diagnostics.statistics.intervals import share_interval
from oversharp.diagnostics.statistics.keys import inference_ks


def _family(name: str, title: str, *, doc: str, y_label: str, at_one: bool) -> Measure:
    """``at_one``: of pass@1, and not of pass@k at the largest k that both have samples for."""

    def compute(evidence: Evidence) -> list[Finding]:
        counts = sampled_counts(evidence)
        drawn = evidence.frames["control_counts"]
        found = []
        for (checkpoint_id, temperature), own in drawn.groupby(["checkpoint_id", "temperature"], sort=True):
            if checkpoint_id == evidence.base_id:
                continue
            scope = f"T={temperature:g}"
            hot = own.set_index("problem_id").reindex(counts.problem_ids)
            if checkpoint_id in counts.why or (hot["n"] != hot["n_planned"]).any():
                why = counts.why.get(str(checkpoint_id), "its hotter draws are incomplete")
                found.append(unknown(measure, str(checkpoint_id), why, scope=scope))
                continue
            n_P = hot["n"].to_numpy(np.int64)
            most = min(counts.least(str(checkpoint_id)), 2 * int(n_P.min()))
            k = 1 if at_one else inference_ks(most)[-1]
            hot_P = pass_at_k_of(n_P, hot["n_correct"].to_numpy(np.int64), k)
            change_P = hot_P - counts.pass_at_k(str(checkpoint_id), k)
            change = share_interval(change_P, bounds=(-1.0, 1.0), cluster_P=counts.cluster_P)
            found.append(known(measure, str(checkpoint_id), change, scope=scope, k=k))
        without = [i for i in evidence.checkpoints["checkpoint_id"] if i not in {one.checkpoint_id for one in found}]
        return found + [unknown(measure, i, measure.missing) for i in without if i != evidence.base_id]

    measure = Measure(
        name=name,
        title=title,
        unit="probability",
        section="coverage",
        needs=("control_counts", "sampled_counts"),
        missing="not drawn at a higher temperature: --controls does, of the last checkpoint",
        plot=Plot(x="step", group="scope", y_label=y_label),
        compute=compute,
        signed=True,
        of_base=False,
        doc=doc,
    )
    return measure


_SHARED = """
Unit: probability (difference, drawn hotter less as audited). Estimator: mean over problems of the difference of the
unbiased estimates; 95 % t interval over problems with a variance floor. n counts problems; the scope names T.
Limits: only checkpoints that were drawn hotter have it (``--controls``, ``--hot-temperatures``). Every interval is of
its own, not corrected for choosing among temperatures.
Source: ours. pass@k as in Chen et al. 2021 (arXiv 2107.03374).

>>> from oversharp.diagnostics.measures._example import tiny_evidence
>>> evidence = tiny_evidence("sampled_counts", "checkpoint_id problem_id n n_correct", [
...     (c, f"q{i}", 8, hits) for c, hits in (("base", 2), ("late", 6)) for i in range(40)], n=8)
>>> hotter = tiny_evidence("control_counts", "checkpoint_id problem_id temperature own_temperature n n_correct", [
...     ("late", f"q{i}", 1.5, 1.0, 8, 4) for i in range(40)], n=8)
>>> evidence.frames.update(hotter.frames)
>>> [(f.checkpoint_id, f.scope, f.k, round(f.value, 3)) for f in compute(evidence)]
"""

MEASURES = (
    _family(
        "temperature_returns",
        "Pass@k given back by temperature",
        doc="Change of pass@k when the same checkpoint is drawn at a higher temperature.\n\n"
        "Meaning: coverage that comes back was not forgotten but only made unlikely. "
        ""
        "Its price is ``temperature_price``." + _SHARED + "[('late', 'T=1.5', 4, -0.014)]",
        y_label="pass@k − as audited",
        at_one=False,
    ),
    _family(
        "temperature_price",
        "Pass@1 that a higher temperature costs",
        doc="Change of pass@1 when the same checkpoint is drawn at a higher temperature.\n\n"
        "Meaning: the price of what ``temperature_returns`` gives back." + _SHARED + "[('late', 'T=1.5', 1, -0.25)]",
        y_label="pass@1 − as audited",
        at_one=True,
    ),
)
