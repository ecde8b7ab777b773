import math

import pytest

from diagnostics.measures._example import tiny_evidence
from diagnostics.measures.problems_lost_exact import compute


@pytest.mark.parametrize(
    ("before", "now", "lost"),
    [(0.021, 0.0019, 1.0), (0.019, 0.0, 0.0), (0.5, 0.0021, 0.0), (0.5, 0.0, 1.0), (0.0, 0.0, 0.0), (0.5, 0.9, 0.0)],
)
def test_lost_means_solvable_before_and_out_of_reach_now(before, now, lost):
    def logp(p):
        return math.log(p) if p else -math.inf

    # Two modes of equal probability: the sum is what counts.
    rows = [(c, "q", mode, logp(p / 2)) for c, p in (("base", before), ("late", now)) for mode in "ab"]
    (finding,) = compute(tiny_evidence("mode_logps", "checkpoint_id problem_id mode logp_sum", rows))
    assert finding.value == lost
