"""Numbers of samples of every problem and checkpoint, with or without a stopping rule."""

from __future__ import annotations

from typing import Any

import pandas as pd

from oversharp.diagnostics.store.load import Frames

_COUNTS = """
SELECT series, step, is_base, problem_id, n, n_correct, solved
FROM problem_counts
ORDER BY series, problem_id, step
"""
# all samples up to where the rule stopped
_STOPPED_COUNTS = """
SELECT s.series, s.step, s.is_base, s.problem_id, s.n, s.n_correct, p.solved
FROM sampled_counts AS s
JOIN problem_counts AS p USING (series, step, is_base, problem_id)
JOIN current_audits AS a USING (series)
WHERE a.first_round IS NOT NULL
"""


def read_problem_counts(store: Frames, audits: pd.DataFrame) -> pd.DataFrame:
    """Return the counts of every problem and checkpoint; see ``Source.problem_counts``."""
    counts = store.frame(_COUNTS)
    stopped = audits.loc[audits["first_round"].notna(), "series"]
    if stopped.empty:
        return counts
    both = [counts[~counts["series"].isin(stopped)], store.frame(_STOPPED_COUNTS)]
    return pd.concat(both).sort_values(["series", "problem_id", "step"], kind="stable").reset_index(drop=True)


def mean_samples(counts: pd.DataFrame, series: str, *, is_base: bool) -> float:
    """Return the mean number of samples per problem and checkpoint; 0 without samples."""
    own = counts[(counts["series"] == series) & (counts["is_base"].astype(bool) == is_base)]
    return float(own["n"].mean()) if len(own) else 0.0


def sample_settings(audit: pd.Series[Any], counts: pd.DataFrame) -> dict[str, Any]:
    """Return the rows on numbers of samples for the table of settings."""
    names = {False: "samples per problem", True: "samples per problem of the base"}
    if pd.isna(audit["first_round"]):
        fewer = {"problem-checkpoint pairs with fewer samples": int(audit["n_fewer"])} if audit["n_fewer"] else {}
        return {names[False]: int(audit["n"]), names[True]: int(audit["n_base"]), **fewer}
    first, enough = int(audit["first_round"]), int(audit["enough"])
    return {
        name: f"{first} to {int(audit['n_base' if is_base else 'n'])}, until {enough} correct "
        f"(mean {mean_samples(counts, str(audit['series']), is_base=is_base):.1f})"
        for is_base, name in names.items()
    }
