"""Samples drawn until solved: the benchmark's parts in small, the published bounds, and faults that it notices."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.sampling import until_solved
from benchmarks.sampling.enumeration import check_rule, end_probabilities
from benchmarks.sampling.errors import EQUAL, FULL, N_PROBLEMS, ChangeAtK, change_here, designs, errors, measure
from benchmarks.sampling.rates import HELD_OUT, PAIRS, UNCHANGED
from benchmarks.sampling.stored import StoredSamples, exact_pairs, load, redraw, redraw_series, row_from
from benchmarks.sampling.until_solved import STORED_TITLE, as_text, page, update_stored
from benchmarks.speed.results import RESULTS
from oversharp.diagnostics.statistics.pass_at_k import StoppingRule, pass_at_k_each
from tests.cases import each_case

SMALL = StoppingRule(rounds=(2, 4), enough=1)


def published() -> dict[str, list[dict]]:
    return json.loads((RESULTS / "early_stopping.json").read_text(encoding="utf-8"))


def test_published_estimates_are_unbiased_and_the_share_of_correct_samples_is_not() -> None:
    rules = published()["unbiased"]
    assert all(rule["estimate"] < 1e-12 and rule["covariance"] < 1e-12 for rule in rules)
    assert all(rule["share"] > 0.01 for rule in rules if "until" in rule["rule"])


def test_published_intervals_contain_the_change_as_often_as_those_of_equally_many_samples() -> None:
    rows = published()["errors"]
    assert {row["pair"] for row in rows} > {*PAIRS, *HELD_OUT}
    for design in {row["design"] for row in rows}:
        covered = [
            found["here"] / row["audits"]
            for row in rows
            if row["design"] == design
            for found in row["by_k"]
            if found["here"] is not None
        ]
        assert np.mean(covered) > 0.95
        assert min(covered) > 0.93


def test_probabilities_of_end_points_are_those_computed_by_hand() -> None:
    assert SMALL.ends == ((4, 0), (4, 1), (4, 2), (2, 1), (2, 2))
    assert end_probabilities(SMALL, 0.5) == pytest.approx([1 / 16, 1 / 8, 1 / 16, 1 / 2, 1 / 4])


def test_the_estimate_for_a_fixed_number_of_samples_is_found_to_be_biased(monkeypatch: pytest.MonkeyPatch) -> None:
    clean = check_rule(SMALL)
    assert max(clean.estimate, clean.covariance) < 1e-12
    assert clean.share == pytest.approx(0.0735)  # at .3: .42 / 2 + .09 + .49 (.42 / 4 + .09 / 2) − .3

    def as_if_fixed(rule: StoppingRule, ks: list[int]) -> np.ndarray:
        n_E, correct_E = np.array(rule.ends).T
        return np.stack([pass_at_k_each(n_E, correct_E, np.minimum(k, n_E)) for k in ks], axis=1)

    monkeypatch.setattr(StoppingRule, "pass_at_k_table", as_if_fixed)
    assert check_rule(SMALL).estimate > 0.05


@each_case("name", [*PAIRS, *HELD_OUT])
def test_rates_are_probabilities_and_unchanged_ones_do_not_change(name: str) -> None:
    pair = {**PAIRS, **HELD_OUT}[name]
    base_P, late_P = pair(np.random.default_rng(3), 2_000)
    assert len(base_P) == len(late_P) == 2_000
    assert min(base_P.min(), late_P.min()) >= 0.0
    assert max(base_P.max(), late_P.max()) <= 1.0
    again_P, _ = pair(np.random.default_rng(3), 2_000)
    assert (again_P == base_P).all()
    if name in UNCHANGED:
        within = 0.02 if "noisy" in name else 1e-12
        assert np.abs(change_here(base_P, late_P, [1, 8, 64])).max() < within


def test_the_uniform_design_costs_as_much_as_the_rule_that_it_is_compared_with() -> None:
    found = {name: (rule, samples) for name, rule, samples in designs(PAIRS["15 % fall to 0"], 64, seed=[1])}
    assert found[FULL][0].rounds == (64,)
    assert found[EQUAL][0].rounds == (round(found["from 16, until 4"][1]),)
    assert found["from 8, until 2"][1] < found["from 16, until 4"][1] < 64


def small_errors(seed: int = 4) -> dict[int, ChangeAtK]:
    rule, rng = StoppingRule.doubling(first=8, cap=32, enough=2), np.random.default_rng(seed)
    base_AP = rng.beta(0.6, 1.2, (200, N_PROBLEMS))
    late_AP = np.where(rng.random(base_AP.shape) < 0.1, 0.0, base_AP)
    population_K = 0.1 * -np.array([1 - np.mean((1 - rng.beta(0.6, 1.2, 400_000)) ** k) for k in (1, 8, 32)])
    return {found.k: found for found in errors(rule, [1, 8, 32], base_AP, late_AP, population_K, rng)}


def test_a_small_simulation_has_no_bias_and_covers() -> None:
    found = small_errors()
    assert all(abs(one.bias) < 4 * one.bias_error for one in found.values())
    assert all(one.here is None or one.here >= 184 for one in found.values())
    assert all(one.population >= 184 for one in found.values())
    assert [found[k].here is None for k in (1, 8, 32)] == [False, False, True]


def test_a_biased_estimate_shows_in_the_simulation(monkeypatch: pytest.MonkeyPatch) -> None:
    def share_of_correct(rule: StoppingRule, ks: list[int]) -> np.ndarray:
        n_E, correct_E = np.array(rule.ends).T
        return np.repeat((correct_E / n_E)[:, None], len(ks), axis=1)

    monkeypatch.setattr(StoppingRule, "pass_at_k_table", share_of_correct)
    found = small_errors()
    assert abs(found[8].bias) > 20 * found[8].bias_error
    assert found[8].here < 184


def two_problems(step: int, correct: list[list[int]], **more: object) -> StoredSamples:
    return StoredSamples(
        series="grpo",
        step=step,
        is_base=step == 0,
        correct_PN=np.array(correct, dtype=bool),
        tokens_PN=np.array([[10] * 4, [30] * 4]),
        **{"rate_P": None, **more},
    )


def test_samples_and_tokens_that_a_rule_draws_are_counted() -> None:
    stored = two_problems(0, [[1] * 4, [0] * 4])
    drawn = redraw(stored, SMALL, draws=3, rng=np.random.default_rng(0))
    assert (drawn.code_DP == [4, 0]).all()  # (2, 2) and (4, 0)
    assert drawn.samples == (2 + 4) / 8
    assert drawn.tokens == (2 * 10 + 4 * 30) / (4 * 10 + 4 * 30)
    everything = redraw(stored, StoppingRule(rounds=(4,), enough=1), draws=3, rng=np.random.default_rng(0))
    assert (everything.samples, everything.tokens) == (1.0, 1.0)


def test_stored_samples_drawn_again_agree_with_all_of_them() -> None:
    rng = np.random.default_rng(5)
    rate_P = np.array([0.2, 0.6])
    base, late = (two_problems(step, rng.random((2, 4)) < rate_P[:, None], rate_P=rate_P) for step in (0, 10))
    row = redraw_series(
        [base, late], "all", lambda cap: StoppingRule(rounds=(cap,), enough=1), ks=[1, 2], draws=4, rng=rng
    )
    assert row.share_of_samples == row.share_of_tokens == 1.0
    assert [found.rms for found in row.by_k] == [0.0, 0.0]
    assert [found.rms_exact for found in row.by_k] == [found.rms_exact_all for found in row.by_k]
    stopped = redraw_series([base, late], "until 1", lambda cap: SMALL, ks=[1, 2, 4], draws=3_000, rng=rng)
    assert stopped.share_of_samples < 1.0
    assert [abs(found.bias) < 3.0 for found in stopped.by_k] == [True] * 3
    assert stopped.by_k[2].rms == 0.0  # pass@cap depends only on whether a sample is correct


def test_new_stored_samples_keep_the_rows_of_other_series(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(until_solved, "RESULTS", tmp_path)
    rng = np.random.default_rng(6)
    wide = [
        StoredSamples(
            series=series,
            step=step,
            is_base=step == 0,
            correct_PN=rng.random((2, 64)) < 0.3,
            tokens_PN=None,
            rate_P=None,
        )
        for series in ("first", "second")
        for step in (0, 5)
    ]
    (tmp_path / "early_stopping.json").write_text(json.dumps({"seed": 1, "stored": []}))
    (tmp_path / "early_stopping.md").write_text(f"# Before\n\n{STORED_TITLE}\n\nold\n")
    update_stored(wide[2:], 3)
    update_stored(wide[:2], 3)
    rows = [row_from(row) for row in json.loads((tmp_path / "early_stopping.json").read_text())["stored"]]
    assert [row.series for row in rows] == ["first"] * 3 + ["second"] * 3
    assert [found.k for found in rows[0].by_k] == [1, 8, 32, 64]
    text = (tmp_path / "early_stopping.md").read_text()
    assert text.startswith(f"# Before\n\n{STORED_TITLE}\n")
    assert text.count("| second | from 16, until 4 |") == 4
    assert "old" not in text


@pytest.mark.slow
@pytest.mark.xdist_group("audited_store")
def test_stored_samples_are_read_with_their_exact_rates(audited_store: Path) -> None:
    checkpoints = load(audited_store)
    assert [(one.series, one.step, one.is_base) for one in checkpoints if one.series == "grpo"] == [
        ("grpo", 0, True),
        ("grpo", 20, False),
        ("grpo", 40, False),
    ]
    assert all(one.correct_PN.shape == one.tokens_PN.shape == (4, one.n) for one in checkpoints)
    assert all(0.0 <= one.rate_P.min() <= one.rate_P.max() <= 1.0 for one in checkpoints)
    assert set(exact_pairs(checkpoints)) == {
        f"{series}, step {step}" for series in ("grpo", "iac, seed 1") for step in (20, 40)
    }


def test_the_page_has_a_row_for_each_design() -> None:
    rows = measure("mixed", PAIRS["mixed, unchanged"], cap=256, ks=(1, 128, 256), audits=2, seed=[1])
    text = page([check_rule(SMALL)], [], [("Some", row) for row in rows], [], 2)
    assert "### Some, cap 256" in text
    assert all(f"| 1 | {row.design} | 1 of 1 |" in text for row in rows)
    assert f"| 256 | {EQUAL} |" not in text  # too few samples
    assert json.loads(as_text({"rows": [rows[0]], "n": 2}))["rows"][0]["design"] == FULL
