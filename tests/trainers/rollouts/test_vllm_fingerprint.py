from __future__ import annotations

import numpy as np
import pytest

from trainers.rollouts.vllm_fingerprint import HIDDEN_NATS, Fingerprint


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
