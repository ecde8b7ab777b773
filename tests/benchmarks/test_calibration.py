"""The calibration, in small: it sees a rule that cries wolf, and the shipped one does not."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.special import logit
from scipy.stats import binom

from benchmarks.calibration import rule as calibration
from benchmarks.calibration.planted import Kind, dominant_modes, draw_problems, mass_at, mean_pass_at_k
from benchmarks.calibration.series import (
    ALTERNATIVES,
    BAR,
    POSITIVE,
    SIMULATED,
    STRICT_NULLS,
    Cell,
    Judge,
    Row,
    draw_series,
    interval,
    joined,
    rule,
    simulate,
)
from benchmarks.calibration.table import tables
from oversharp.diagnostics.verdict.headings import Label
from oversharp.diagnostics.verdict.rule import LossTable
from oversharp.diagnostics.verdict.seen import SeenCounts

SERIES = 200


def most_positives(series: int) -> int:
    """A rule at the bar exceeds this in 1 % of such runs; one with 15 % of 200 false does not in 1 %."""
    return int(binom.ppf(0.99, series, BAR))


def small(kind: Kind, judge: Judge = rule, series: int = SERIES) -> Row:
    return simulate(Cell(kind=kind, n_problems=30, n=64), series=series, seed=1, judge=judge)


@pytest.mark.slow
@pytest.mark.parametrize("kind", STRICT_NULLS)
def test_series_without_a_loss_are_rarely_called_one(kind: Kind) -> None:
    assert small(kind).positives <= most_positives(SERIES)


@pytest.mark.slow
def test_a_loss_that_a_few_samples_show_is_found() -> None:
    row = simulate(Cell(kind="over_plain", n_problems=100, n=64), series=20, seed=1)
    assert row.change < -0.1
    assert row.labels["over_sharpened"] >= 18


@pytest.mark.slow
def test_modes_lost_while_success_rises_are_called_a_collapse() -> None:
    row = simulate(Cell(kind="collapse_severe", n_problems=100, n=64), series=20, seed=1)
    assert row.change > 0 > row.minority_change
    assert row.labels["mode_collapse"] >= 15


def relabelled(
    seen: SeenCounts, rng: np.random.Generator, is_loss: Callable[[LossTable], bool]
) -> tuple[Label, LossTable]:
    label, table = rule(seen, rng=rng)
    return "over_sharpened_here" if is_loss(table) else label, table


def lenient(seen: SeenCounts, *, rng: np.random.Generator) -> tuple[Label, LossTable]:
    """Rejects at .3 instead of .03."""
    return relabelled(seen, rng, lambda table: table.window.p_exact <= 0.3)


def naive(seen: SeenCounts, *, rng: np.random.Generator) -> tuple[Label, LossTable]:
    """Calls it a loss where any point estimate lies below the base."""
    fell = bool((seen.total.changes(seen.ks).mean(axis=0) < 0).any())
    return relabelled(seen, rng, lambda _: fell)


def short_of_samples(seen: SeenCounts, *, rng: np.random.Generator) -> tuple[Label, LossTable]:
    """Forgets what one of the window's three checkpoints solved, but not its samples."""
    return rule(replace(seen, total=replace(seen.total, late_P=2 * seen.total.late_P // 3)), rng=rng)


@pytest.mark.slow
@pytest.mark.parametrize("broken", [lenient, naive, short_of_samples])
def test_a_rule_that_cries_wolf_is_caught(broken: Judge) -> None:
    row = small("no_change", judge=broken, series=80)
    assert row.positives > most_positives(80)
    assert not row.bar_held


@pytest.mark.parametrize("kind", ["no_change", "moderate", "late_moderate"])
def test_in_a_strict_null_no_mode_of_any_problem_loses(kind: Kind) -> None:
    problems = draw_problems(500, np.random.default_rng(0))
    before_PJ = problems.mass_PJ
    for progress in (0.25, 0.5, 0.75, 1.0):
        now_PJ = mass_at(kind, problems, progress)
        assert (now_PJ >= before_PJ).all()
        assert (now_PJ.sum(axis=1) <= 1).all()
        before_PJ = now_PJ
    assert (mass_at(kind, problems, 1.0) > problems.mass_PJ).any() == (kind != "no_change")


def test_churn_is_zero_on_average_and_loses_somewhere() -> None:
    problems = draw_problems(20_000, np.random.default_rng(0))
    before_P, now_P = problems.mass_PJ.sum(axis=1), mass_at("churn", problems, 1.0).sum(axis=1)
    within_P = (before_P > 0.01) & (before_P < 0.99)
    moved_P = (logit(now_P[within_P])) - logit(before_P[within_P])
    assert abs(moved_P.mean()) < 0.01
    assert 0.45 < (moved_P < 0).mean() < 0.55


@pytest.mark.parametrize("kind", ["collapse_mild", "collapse_severe"])
def test_a_collapse_takes_from_the_other_modes_and_gives_to_the_problem(kind: Kind) -> None:
    problems = draw_problems(500, np.random.default_rng(0))
    before_PJ, now_PJ = problems.mass_PJ, mass_at(kind, problems, 1.0)
    other_PJ = 1 - dominant_modes(before_PJ)
    assert (now_PJ.sum(axis=1) >= before_PJ.sum(axis=1)).all()
    assert (now_PJ * other_PJ).sum() < (before_PJ * other_PJ).sum()


@pytest.mark.parametrize("kind", ALTERNATIVES[:3])
def test_over_sharpening_raises_pass_at_1_and_lowers_pass_at_512(kind: Kind) -> None:
    problems = draw_problems(20_000, np.random.default_rng(0))
    before_P, now_P = problems.mass_PJ.sum(axis=1), mass_at(kind, problems, 1.0).sum(axis=1)
    assert mean_pass_at_k(now_P, 1) > mean_pass_at_k(before_P, 1)
    assert mean_pass_at_k(now_P, 512) < mean_pass_at_k(before_P, 512)


def test_the_rule_sees_what_an_audit_would_give_it() -> None:
    counts = draw_series(Cell(kind="no_change", n_problems=400, n=8), np.random.default_rng(0))
    assert (counts.total.n_base, counts.total.n_late, counts.minority.n_base, counts.minority.n_late) == (16, 24, 8, 24)
    assert counts.total.n_problems == 400 > counts.minority.n_problems
    assert counts.minority.base_P.sum() < counts.total.base_P.sum() / 2
    # without a change both halves have the same rates, so choosing on one does not bias the other
    rate_base = counts.minority.base_P.mean() / counts.minority.n_base
    assert rate_base == pytest.approx(counts.minority.late_P.mean() / counts.minority.n_late, abs=0.01)
    assert (counts.change, counts.minority_change) == (0.0, 0.0)


@pytest.mark.slow
def test_parts_of_a_cell_join_to_the_whole() -> None:
    cell = Cell(kind="churn", n_problems=10, n=16)
    parts = [simulate(cell, series=n, first=first, seed=1) for first, n in ((0, 25), (25, 15))]
    whole = joined(parts)
    assert (whole.series, sum(whole.labels.values())) == (40, 40)
    assert whole.change == pytest.approx((25 * parts[0].change + 15 * parts[1].change) / 40)


def test_the_interval_of_no_event_among_a_hundred_by_hand() -> None:
    low, high = interval(0, 100)
    assert low == 0.0
    assert high == pytest.approx(1 - 0.025 ** (1 / 100))


@pytest.mark.slow
def test_a_killed_run_goes_on_where_it_stopped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "calibration.json"
    flags = ["--quick", "--workers", "1", "--cells", "no_change", "--out"]
    calibration.main(["--series", "25", *flags, str(out)])
    calibration.main(["--series", "50", *flags, str(out)])
    calibration.main(["--series", "50", *flags, str(tmp_path / "at_once.json")])
    assert len(capsys.readouterr().out.splitlines()) == 3
    calibration.main(["--series", "50", *flags, str(out)])
    assert capsys.readouterr().out == ""
    in_steps, at_once = (json.loads(path.read_text())["rows"] for path in (out, tmp_path / "at_once.json"))
    assert [row["labels"] for row in in_steps] == [row["labels"] for row in at_once]


@pytest.mark.slow
def test_results_of_another_rule_are_not_continued(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "calibration.json"
    flags = ["--quick", "--workers", "1", "--cells", "no_change", "--series", "25", "--out", str(out)]
    calibration.main(flags)
    out.write_text(out.read_text().replace(calibration.fingerprint(), "of another rule"))
    capsys.readouterr()
    calibration.main(flags)
    assert len(capsys.readouterr().out.splitlines()) == 1


@pytest.mark.slow
def test_a_missed_bar_is_told() -> None:
    rows = [small(kind, series=4) for kind in SIMULATED]
    never = dict.fromkeys(rows[0].labels, 0)
    held = replace(rows[0], series=100, labels={**never, POSITIVE[0]: 2, POSITIVE[2]: 3, "inconclusive": 95})
    missed = replace(held, labels={**never, POSITIVE[0]: 3, POSITIVE[2]: 3, "inconclusive": 94})
    assert (held.bar_held, missed.bar_held) == (True, False)
    assert "is held" in tables([held, *rows[1:]], seed=1)
    text = tables([missed, *rows[1:]], seed=1)
    assert f"is missed in 1 of {len(STRICT_NULLS)} cells" in text
    assert "6.0 (2.2–12.6)" in text
