from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from oversharp.trainers.model.policy import plain_weights
from oversharp.trainers.rollouts.vllm_fingerprint import HIDDEN_NATS, Fingerprint, round_weights
from tests.trainers.runs import apply_adapter


def fingerprint(*, engine: float, own: float) -> Fingerprint:
    return Fingerprint(engine_N3=np.full((8, 3), engine), own_N3=np.full((8, 3), own))


BEFORE = fingerprint(engine=-1.0, own=-1.0)


def test_the_gap_is_the_largest_difference_and_infinite_for_nan() -> None:
    assert fingerprint(engine=-1.0, own=-1.25).gap_nats == 0.25
    assert fingerprint(engine=float("nan"), own=-1.0).gap_nats == float("inf")


@pytest.mark.parametrize(
    ("dtype", "moved_nats", "is_stale"),
    [
        ("float32", 0.0, False),
        ("float32", 1e-12, True),
        ("bfloat16", 0.005, False),  # correctly rounded away
        ("bfloat16", 0.02, True),
        ("float16", 0.005, True),
    ],
)
def test_repeated_answers_are_stale_if_the_networks_changed_by_more_than_rounding(
    dtype: str, moved_nats: float, is_stale: bool
) -> None:
    now = fingerprint(engine=-1.0, own=-1.0 - moved_nats)
    assert now.is_repeated(BEFORE)
    assert now.is_stale_after(BEFORE, hidden_nats=HIDDEN_NATS[dtype]) == is_stale


def test_an_engine_that_changed_by_one_bit_is_not_stale() -> None:
    now = fingerprint(engine=np.nextafter(-1.0, 0.0), own=-1.5)
    assert not now.is_repeated(BEFORE)
    assert not now.is_stale_after(BEFORE, hidden_nats=0.0)


def test_round_weights_merges_adapters_first_and_restores_the_weights(model_path: Path) -> None:
    adapted = apply_adapter(AutoModelForCausalLM.from_pretrained(model_path))
    merged = AutoModelForCausalLM.from_pretrained(model_path)
    merged.load_state_dict(dict(plain_weights(adapted)), strict=False)
    before = {name: tensor.clone() for name, tensor in adapted.state_dict().items()}
    ids = torch.tensor([[5, 6, 7, 8]])
    with torch.no_grad():
        with round_weights(adapted, torch.bfloat16):
            rounded = adapted(ids).logits
        for parameter in merged.parameters():  # buffers with frequencies are not rounded
            parameter.data = parameter.bfloat16()
        assert torch.equal(rounded, merged(ids).logits)
    assert all(torch.equal(tensor, before[name]) for name, tensor in adapted.state_dict().items())
