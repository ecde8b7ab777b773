from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from oversharp.trainers.model.plain_weights import plain_weights
from oversharp.trainers.rollouts.vllm_fingerprint import HIDDEN_NATS, Fingerprint, rounded_to
from tests.trainers.runs import apply_adapter


def fingerprint(*, engine: float, own: float) -> Fingerprint:
    return Fingerprint(engine_N3=np.full((8, 3), engine), own_N3=np.full((8, 3), own))


BEFORE = fingerprint(engine=-1.0, own=-1.0)


def test_the_gap_is_the_largest_difference_and_infinite_where_something_is_no_number() -> None:
    assert fingerprint(engine=-1.0, own=-1.25).gap_nats == 0.25
    assert fingerprint(engine=float("nan"), own=-1.0).gap_nats == float("inf")


@pytest.mark.parametrize(
    ("dtype", "moved_nats", "is_stale"),
    [
        ("float32", 0.0, False),
        ("float32", 1e-12, True),
        ("bfloat16", 0.005, False),  # rounded away by right
        ("bfloat16", 0.02, True),
        ("float16", 0.005, True),
    ],
)
def test_an_engine_that_repeats_itself_is_stale_once_more_has_moved_than_it_can_hide(
    dtype: str, moved_nats: float, is_stale: bool
) -> None:
    now = fingerprint(engine=-1.0, own=-1.0 - moved_nats)
    assert now.is_repeated(BEFORE)
    assert now.is_stale_after(BEFORE, hidden_nats=HIDDEN_NATS[dtype]) == is_stale


def test_an_engine_that_moved_by_a_bit_is_not_stale() -> None:
    now = fingerprint(engine=np.nextafter(-1.0, 0.0), own=-1.5)
    assert not now.is_repeated(BEFORE)
    assert not now.is_stale_after(BEFORE, hidden_nats=0.0)


def test_rounded_networks_have_their_adapters_merged_first_and_are_themselves_again(model_path: Path) -> None:
    adapted = apply_adapter(AutoModelForCausalLM.from_pretrained(model_path))
    merged = AutoModelForCausalLM.from_pretrained(model_path)
    merged.load_state_dict(dict(plain_weights(adapted)), strict=False)
    before = {name: tensor.clone() for name, tensor in adapted.state_dict().items()}
    ids = torch.tensor([[5, 6, 7, 8]])
    with torch.no_grad():
        with rounded_to(adapted, torch.bfloat16):
            rounded = adapted(ids).logits
        for parameter in merged.parameters():  # its frequencies stay exact
            parameter.data = parameter.bfloat16()
        assert torch.equal(rounded, merged(ids).logits)
    assert all(torch.equal(tensor, before[name]) for name, tensor in adapted.state_dict().items())
