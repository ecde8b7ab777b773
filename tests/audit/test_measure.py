"""Expected findings: unknown values are reported too."""

from __future__ import annotations

import pandas as pd
import pytest

from oversharp.diagnostics.measures import all_measures
from oversharp.diagnostics.measures.contract import Evidence


@pytest.mark.parametrize(
    ("measure", "checkpoints"), [("pass_at_k", ["base", "a", "b"]), ("pass_at_k_delta", ["a", "b"])]
)
def test_a_comparison_is_expected_at_every_checkpoint_but_the_base(measure: str, checkpoints: list[str]) -> None:
    series = pd.DataFrame({"checkpoint_id": ["base", "a", "b"], "is_base": [True, False, False]})
    evidence = Evidence(checkpoints=series, frames={}, n=1, ks=(1,))
    assert all_measures()[measure].expected(evidence) == checkpoints
