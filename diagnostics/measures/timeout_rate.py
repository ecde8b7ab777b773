"""Timeout rate: the share of samples that could not be graded.

Meaning: scope ``all`` counts grades that ran out of time, ``error`` grades on which the verifier failed. Both count
as not correct in every other measure, without being wrong.
Unit: share of samples; n counts samples. No interval: it describes the samples at hand.
Limits: more than a trace of either makes pass@k a lower bound: raise the time limit or mend the verifier.
Source: sample health; states of the grades.

>>> import duckdb, pandas as pd
>>> graded_samples = pd.DataFrame({"series": "run", "checkpoint_id": "base", "step": 0, "greedy": False,
...     "state": ["ok", "timeout", "timeout", "error"]})
>>> [(row[1], row[3]) for row in duckdb.execute(MEASURE.sql, {"series": "run"}).fetchall()]
[('all', 0.5), ('error', 0.25)]
"""

from __future__ import annotations

from diagnostics.measures.contract import Measure, Plot

SQL = """
WITH scopes AS (
    SELECT * FROM (VALUES ('all', 'timeout'), ('error', 'error')) AS t (scope, state)
)
SELECT
    g.checkpoint_id,
    c.scope,
    NULL::INTEGER AS k,
    avg((g.state = c.state)::INTEGER) AS value,
    NULL::DOUBLE AS low,
    NULL::DOUBLE AS high,
    count(*) AS n
FROM graded_samples AS g
CROSS JOIN scopes AS c
WHERE g.series = $series AND NOT g.greedy
GROUP BY g.checkpoint_id, g.step, c.scope
ORDER BY g.step, c.scope
"""

MEASURE = Measure(
    name="timeout_rate",
    title="Ungraded responses",
    unit="share of samples",
    section="health",
    needs=("graded_samples",),
    missing="no graded samples, or another tool graded them, which does not tell",
    plot=Plot(x="step", group="scope", y_label="share of samples not graded", y_range=(0.0, 1.0)),
    sql=SQL,
)
