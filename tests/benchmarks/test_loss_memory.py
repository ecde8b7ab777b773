"""The ways that the benchmark of the loss compares compute the same, and what it committed reaches the goal."""

from __future__ import annotations

import json

import pytest
import torch
from torch import nn

from benchmarks.speed.loss_memory import WAYS
from benchmarks.speed.results import RESULTS


def test_every_way_computes_the_same_log_probabilities() -> None:
    torch.manual_seed(0)
    hidden_ND, output, target_N = torch.randn(5, 8), nn.Linear(8, 11, bias=False), torch.arange(5)
    expected = output(hidden_ND).log_softmax(dim=-1).gather(1, target_N[:, None])[:, 0]
    for way in WAYS.values():
        torch.testing.assert_close(way(hidden_ND, output, target_N)[0], expected)


def test_the_committed_peak_is_at_most_half_of_materialised_logits() -> None:
    result = json.loads((RESULTS / "loss_memory.json").read_text())
    chunked, materialised = result["peak_mib"]["chunked"], result["peak_mib"]["materialised"]
    assert result["ratio_to_materialised"] == pytest.approx(chunked[1] / materialised[0], rel=0.01)
    assert result["ratio_to_materialised"] <= result["goal_ratio_to_materialised"] == 0.5
