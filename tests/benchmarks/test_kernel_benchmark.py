"""What the benchmark of the gradient kernel compares with is right, and its verdicts say what was found."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.speed import kernel
from benchmarks.speed.kernel import (
    BARE,
    CASES,
    Case,
    Turn,
    Turns,
    certificate_taken_out,
    costs,
    forward_passes,
    goal_ratio,
    make_model,
    make_rows,
    take_turns,
    verdicts,
)
from benchmarks.speed.kernel_peers import (
    exact_kernel,
    exact_kernel_of_linear_layers,
    largest_difference,
    logp_sums,
    padded,
    row_by_row,
    vmapped,
)
from oversharp.diagnostics.kernel import gradient_kernel
from oversharp.diagnostics.models.devices import cpu_threads
from oversharp.diagnostics.models.load import LoadedModel

CPU = torch.device("cpu")
CASE = Case(model="tiny", rows=3, longest_tokens=40)
#: float32 sums over all parameters, as peers make them, are this far off.
FLOAT32_SUMS = 1e-3


@pytest.fixture(scope="module")
def tiny() -> LoadedModel:
    return make_model("tiny", CPU)


def told(*, rows: int, ours: float, bare: float = 1.0, goal: float | None = 1.4, **peers: float) -> dict[str, Any]:
    return {
        "rows": rows,
        "goal_ratio_to_plain": goal,
        "plain": {"seconds": 1.0},
        "ours": {"ratio_to_plain": ours, "largest_difference": 1e-7},
        BARE: {"ratio_to_plain": bare},
        **{name: {"ratio_to_ours": ratio / ours, f"ratio_to_{BARE}": ratio / bare} for name, ratio in peers.items()},
    }


def test_rows_share_a_prompt_within_a_group_and_end_with_the_end_token() -> None:
    rows = make_rows(Case(model="tiny", rows=10, longest_tokens=40))
    assert len({row.prompt_ids for row in rows[:8]}) == 1
    assert rows[0].prompt_ids != rows[8].prompt_ids
    assert {row.token_ids[-1] for row in rows} == {kernel.END}
    assert all(kernel.END not in row.token_ids[:-1] for row in rows)
    assert max(len(row.prompt_ids) + len(row.token_ids) for row in rows) == 40
    assert len(set(rows)) == len(rows), "a row that repeats is computed once by ours, and by nobody else"


def test_padding_changes_no_log_probability(tiny: LoadedModel) -> None:
    batch = padded(make_rows(CASE), pad_id=tiny.pad_id, device=CPU)
    assert len(set(batch.lengths)) > 1
    with torch.no_grad():
        alone = [float(logp_sums(tiny.model, batch.alone(row))) for row in range(CASE.rows)]
        np.testing.assert_allclose(logp_sums(tiny.model, batch), alone, rtol=1e-5)


@pytest.mark.slow
def test_all_ways_give_the_same_kernel(tiny: LoadedModel) -> None:
    rows = make_rows(CASE)
    batch = padded(rows, pad_id=tiny.pad_id, device=CPU)
    exact_NN = exact_kernel(tiny.model, batch)
    assert {parameter.dtype for parameter in tiny.model.parameters()} == {torch.float32}, "its precision stays"
    with cpu_threads(1):
        assert largest_difference(row_by_row(tiny.model, batch).numpy(), exact_NN) < FLOAT32_SUMS
        assert largest_difference(vmapped(tiny.model, batch).numpy(), exact_NN) < FLOAT32_SUMS
    ours = gradient_kernel(tiny, rows, memory_bytes=kernel.GIB)
    assert largest_difference(ours.kernel_NN, exact_NN) < kernel.GOAL_DIFFERENCE


def test_the_kernel_of_linear_layers_alone_is_another(tiny: LoadedModel) -> None:
    batch = padded(make_rows(CASE), pad_id=tiny.pad_id, device=CPU)
    linear_NN = exact_kernel_of_linear_layers(tiny.model, batch)
    assert largest_difference(linear_NN, exact_kernel(tiny.model, batch)) > 0.01
    assert tiny.model.lm_head.weight is tiny.model.model.embed_tokens.weight, "the model itself stays as it is"


def test_a_difference_counts_in_units_of_the_two_gradients() -> None:
    exact_NN = np.array([[100.0, 0.0], [0.0, 0.01]])
    assert largest_difference(exact_NN + np.array([[0, 0.1], [0.1, 0]]), exact_NN) == pytest.approx(0.1)
    assert largest_difference(exact_NN + np.array([[1.0, 0], [0, 0]]), exact_NN) == pytest.approx(0.01)


def test_short_rows_and_rows_in_parts_have_goals_of_their_own() -> None:
    case = Case(model="tiny", rows=32, longest_tokens=64)
    assert goal_ratio(case, 32) == 1.4
    assert goal_ratio(case, 31.9) == 2.2
    assert goal_ratio(replace(case, in_parts=True), 32) is None


def test_costs_are_medians_over_the_turns() -> None:
    took = {
        "plain": [Turn(seconds=seconds, peak_bytes=None) for seconds in (1, 1, 9)],
        "ours": [Turn(seconds=s, peak_bytes=peak << 20) for s, peak in ((1.5, 3), (1.25, 5), (9, 4))],
    }
    assert costs("plain", took) == {"seconds": 1.0}
    ratios = {"ratio_to_plain": 1.5, "ratios_of_the_turns": [1.5, 1.25, 1.0]}
    assert costs("ours", took) == {"seconds": 1.5, **ratios, "peak_mib": 5.0}


def test_a_peer_that_fails_is_left_out_with_its_reason_and_ours_is_not() -> None:
    def fails() -> None:
        raise RuntimeError("out of memory\nand more")

    def turns(**works: Any) -> Turns:
        return take_turns(works, right=lambda _: {}, device=CPU, before=lambda: None)

    found = turns(plain=lambda: None, peer=fails)
    assert found.did_not_run == {"peer": "out of memory"}
    assert len(found.took["plain"]) == kernel.TURNS
    with pytest.raises(RuntimeError, match="out of memory"):
        turns(ours=fails)


def test_a_fast_wrong_kernel_is_seen() -> None:
    exact_NN = np.eye(2)
    kernels = iter([exact_NN, *[exact_NN + 0.5] * kernel.TURNS])
    found = take_turns(
        {"peer": lambda: next(kernels)}, right=lambda _: {"off": exact_NN}, device=CPU, before=lambda: None
    )
    assert found.differences == {"peer": {"off": 0.5}}


def test_verdicts_count_goals_and_find_the_closest_peer() -> None:
    cases = [
        told(rows=16, ours=2.0, bare=1.0, row_by_row=4.0, vmap=1.5, bergson=2.0),
        told(rows=64, ours=2.0, bare=1.5, row_by_row=6.0, vmap=3.0, bergson=3.0),
        told(rows=16, ours=1.0, goal=None, row_by_row=0.5, vmap=0.5, bergson=0.5),
        told(rows=8, ours=1.3, row_by_row=0.5, vmap=0.5, bergson=0.5),
    ]
    found = verdicts(cases)
    assert (found["ratio_goals_met"], found["ratio_goals_met_with_certificate"], found["ratio_goals"]) == (2, 1, 3)
    assert found[f"least_ratio_to_{BARE}"] == {"row_by_row": 4.0, "vmap": 1.5, "bergson": 2.0}
    assert found["least_ratio_to_ours"] == {"row_by_row": 2.0, "vmap": 0.75, "bergson": 1.0}
    assert found["all_peers_slower"] is True
    slower = told(rows=16, ours=1, row_by_row=2, vmap=0.9, bergson=2)
    assert verdicts([slower])["all_peers_slower"] is False
    unknown = told(rows=16, ours=1.3, row_by_row=4.0, vmap=1.5) | {"bergson": {"did_not_run": "not installed"}}
    assert verdicts([unknown])["all_peers_slower"] is None


def test_the_certificate_can_be_taken_out_and_the_kernel_stays(tiny: LoadedModel) -> None:
    rows = make_rows(Case(model="tiny", rows=4, longest_tokens=24))
    whole = gradient_kernel(tiny, rows, memory_bytes=kernel.GIB)
    with certificate_taken_out():
        bare = gradient_kernel(tiny, rows, memory_bytes=kernel.GIB)
    assert np.isfinite(whole.certificate)
    assert np.isnan(bare.certificate)
    np.testing.assert_array_equal(whole.kernel_NN, bare.kernel_NN)


@pytest.mark.slow
def test_in_parts_the_model_runs_more_often(tiny: LoadedModel) -> None:
    case = next(case for case in CASES["cpu"] if case.in_parts and case.model == "tiny")
    rows = make_rows(case)

    def n_forward(memory_bytes: int) -> int:
        return forward_passes(tiny.model, lambda: gradient_kernel(tiny, rows, memory_bytes=memory_bytes))

    assert n_forward(case.memory_bytes) > n_forward(kernel.GIB)


def test_the_cases_hold_every_goal() -> None:
    goals = set()
    for case in CASES["cpu"]:
        rows = make_rows(case)
        mean_tokens = sum(len(row.prompt_ids) + len(row.token_ids) for row in rows) / len(rows)
        goals.add(goal_ratio(case, mean_tokens))
    assert goals == {1.4, 2.2, None}
