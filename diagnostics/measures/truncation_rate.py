"""Truncation rate: the share of samples cut off at the token limit.

Meaning: a cut response has rarely given its answer. A checkpoint that writes longer then looks as if it had lost modes.
Unit: share of samples; n counts samples. No interval: it describes the samples at hand.
Limits: a rate that differs between checkpoints makes their pass@k incomparable: raise the token limit. Of samples that
another tool drew, those count that tell why they ended; where none does, the rate is unknown.
Source: sample health; finish reasons as the sampler reports them.

>>> import duckdb, pandas as pd
>>> graded_samples = pd.DataFrame({"series": "run", "checkpoint_id": "base", "step": 0, "greedy": False,
...     "finish_reason": ["stop", "length", "stop", "stop"]})
>>> duckdb.execute(MEASURE.sql, {"series": "run"}).fetchall()
[('base', 'all', None, 0.25, None, None, 4)]
"""

from __future__ import annotations

from diagnostics.measures.contract import Measure, Plot

SQL = """
SELECT
    checkpoint_id,
    'all' AS scope,
    NULL::INTEGER AS k,
    avg((finish_reason = 'length')::INTEGER) AS value,
    NULL::DOUBLE AS low,
    NULL::DOUBLE AS high,
    count(finish_reason) AS n
FROM graded_samples
WHERE series = $series AND NOT greedy
GROUP BY checkpoint_id, step
ORDER BY step
"""

MEASURE = Measure(
    name="truncation_rate",
    title="Truncated responses",
    unit="share of samples",
    section="health",
    needs=("graded_samples",),
    missing="no graded sample tells why it ended",
    plot=Plot(x="step", y_label="share of samples cut off", y_range=(0.0, 1.0)),
    sql=SQL,
)
