"""Load the first own samples of every checkpoint, which are scored by teacher forcing."""

from __future__ import annotations

from typing import Literal

import pandas as pd

from oversharp.diagnostics.measures.contract import Evidence
from oversharp.diagnostics.measures.declare import Loaded

NO_OWN_LOGPS = "no own sample is scored by teacher forcing; run the audit with --panel 4"

_SCORED_BY = {"own_logp_sum": "by the checkpoint itself", "base_logp_sum": "under the base"}


def load_own_samples(evidence: Evidence, score: Literal["own_logp_sum", "base_logp_sum"]) -> Loaded[pd.DataFrame]:
    """Load the rows of ``own_logps`` at each checkpoint whose samples all have ``score``.

    Rows are sorted by problem and sample index. At one checkpoint, all problems have the same number of scored samples.
    Checkpoints may differ: if the audit has fewer samples than panel responses, the base has more.
    """
    frame = evidence.frames["own_logps"].sort_values(["problem_id", "sample_index"])
    n_problems = frame["problem_id"].nunique()
    scored = frame[frame[score].notna()]
    rows_of = dict(iter(scored.groupby("checkpoint_id")))
    complete, why = {}, {}
    for checkpoint_id in evidence.checkpoint_ids:
        rows = rows_of.get(checkpoint_id)
        if rows is None:
            why[checkpoint_id] = f"no own sample is scored {_SCORED_BY[score]}; run the audit again with --panel 4"
            continue
        planned = n_problems * (1 + int(rows["sample_index"].max()))
        if len(rows) < planned:
            why[checkpoint_id] = (
                f"{len(rows)} of {planned} own samples are scored {_SCORED_BY[score]}; "
                "run the audit again to complete them"
            )
        else:
            complete[checkpoint_id] = rows
    return complete, why
