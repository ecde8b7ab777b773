"""Verifier disagreement: the share of samples that one of two verifiers calls correct and the other does not.

Meaning: scope ``all`` counts both ways; ``only here`` are those that the verifier of this series alone accepts, ``only
own`` those that the problem's own verifier alone accepts. A rate that changes from checkpoint to checkpoint is a change
of how answers are written, or of how they are read; one of the two verifiers takes it for a change of ability.
Unit: share of samples that both graded; n counts samples. No interval: it describes the samples at hand.
Limits: two verifiers that agree may both be wrong; read the samples of the view ``grade_disagreements``.
Source: sample health; grades by two verifiers, after ``oversharp regrade``.

>>> import duckdb, pandas as pd
>>> regraded_samples = pd.DataFrame({"series": "run", "checkpoint_id": "base", "step": 0, "greedy": False,
...     "correct": [True, True, False, False], "own_correct": [True, False, True, False]})
>>> [(row[1], row[3]) for row in duckdb.execute(MEASURE.sql, {"series": "run"}).fetchall()]
[('all', 0.5), ('only here', 0.25), ('only own', 0.25)]
"""

from __future__ import annotations

from diagnostics.measures.contract import Measure, Plot

SQL = """
WITH scopes AS (
    SELECT * FROM (VALUES ('all', NULL), ('only here', true), ('only own', false)) AS t (scope, accepted)
)
SELECT
    g.checkpoint_id,
    c.scope,
    NULL::INTEGER AS k,
    avg((g.correct <> g.own_correct AND coalesce(g.correct = c.accepted, true))::INTEGER) AS value,
    NULL::DOUBLE AS low,
    NULL::DOUBLE AS high,
    count(*) AS n
FROM regraded_samples AS g
CROSS JOIN scopes AS c
WHERE g.series = $series AND NOT g.greedy
GROUP BY g.checkpoint_id, g.step, c.scope
ORDER BY g.step, c.scope
"""

MEASURE = Measure(
    name="verifier_disagreement",
    title="Disagreement of two verifiers",
    unit="share of samples",
    section="health",
    needs=("regraded_samples",),
    missing="graded by one verifier; `oversharp regrade` grades the same samples by another, as a series of its own",
    plot=Plot(x="step", group="scope", y_label="share of samples", y_range=(0.0, 1.0)),
    sql=SQL,
)
