"""Clip violations in training: how many tokens of training responses left the trust region between two checkpoints.

Meaning: as ``clip_violations_panel``, on responses of the training batches between a checkpoint and the one before it:
the share of response tokens whose probability ratio between the two is outside (1 − ε, 1 + ε), ε = 0.2, per prompt,
then mean over prompts. [C] finds it steady in training while that of the panel grows. The base has no value.
Unit: share of tokens. 95 % normal interval over prompts with a variance floor, from 30 prompts on; n counts prompts.
Limits: checkpoints lie many updates apart, so the share is larger than the clip fraction per update that a trainer
logs; both measures have the same distance and compare with each other. The responses were drawn by policies on the way
from one checkpoint to the next, evenly spaced over the batches, no more than the panel has; they are scored from
their text, whose tokens may differ from those that were drawn.
Source: [C] (The Reasoning Boundary Paradox), section 5 and Fig 7, training data; ε = 0.2 as there.

>>> import duckdb, pandas as pd
>>> from math import log
>>> training_tokens = pd.DataFrame({"series": "run", "checkpoint_id": "late", "step": 20, "problem_id": "q",
...     "token_logps": [[log(0.5), log(0.59), log(0.61), log(0.39)]], "token_logps_before": [[log(0.5)] * 4]})
>>> duckdb.execute(MEASURE.sql, {"series": "run"}).fetchall()  # ratios 1, 1.18, 1.22, 0.78
[('late', 'all', None, 0.5, None, None, 1)]
"""

from __future__ import annotations

from diagnostics.measures._clip import MOMENTS_OF_PAIRS
from diagnostics.measures.contract import Measure, Plot

SQL = (
    """
WITH pairs AS (
    SELECT checkpoint_id, step, problem_id, token_logps, token_logps_before
    FROM training_tokens
    WHERE series = $series
),"""
    + MOMENTS_OF_PAIRS
    + """
SELECT
    checkpoint_id,
    'all' AS scope,
    NULL::INTEGER AS k,
    share AS value,
    CASE WHEN half_width IS NOT NULL THEN greatest(0, share - half_width) END AS low,
    CASE WHEN half_width IS NOT NULL THEN least(1, share + half_width) END AS high,
    n
FROM moments
ORDER BY step
"""
)

MEASURE = Measure(
    name="clip_violations_training",
    title="Clip violations in training",
    unit="share of tokens",
    section="trust_region",
    needs=("training_tokens",),
    missing=(
        "no checkpoint before this one, one of the two was left out, or the run directory holds no rollouts "
        "(rollouts/step_*.parquet) in between"
    ),
    plot=Plot(x="step", y_label="share of training tokens", y_range=(0.0, 1.0)),
    sql=SQL,
    of_base=False,
)
