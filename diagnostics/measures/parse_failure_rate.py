"""Parse failure rate: the share of samples without a parseable final answer.

Meaning: the grader found nothing to compare. Such a sample is not correct, for want of form, not of knowledge.
Unit: share of samples; n counts samples. No interval: it describes the samples at hand.
Limits: a new answer format under training looks like lost modes: read a few such responses before believing a loss.
Source: sample health; states of the grades.

>>> import duckdb, pandas as pd
>>> graded_samples = pd.DataFrame({"series": "run", "checkpoint_id": "base", "step": 0, "greedy": False,
...     "state": ["ok", "parse_fail", "ok", "timeout"]})
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
    avg((state = 'parse_fail')::INTEGER) AS value,
    NULL::DOUBLE AS low,
    NULL::DOUBLE AS high,
    count(*) AS n
FROM graded_samples
WHERE series = $series AND NOT greedy
GROUP BY checkpoint_id, step
ORDER BY step
"""

MEASURE = Measure(
    name="parse_failure_rate",
    title="Responses without an answer",
    unit="share of samples",
    section="health",
    needs=("graded_samples",),
    missing="no graded samples, or another tool graded them, which does not tell",
    plot=Plot(x="step", y_label="share of samples without an answer", y_range=(0.0, 1.0)),
    sql=SQL,
)
