"""Figures of few problems: bands stay, the caption counts the problems, and equal reasons are told once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from oversharp.diagnostics.measures import all_measures
from oversharp.diagnostics.records.types import Finding
from oversharp.diagnostics.store import Store
from oversharp.reports.evidence.source import read_source
from oversharp.reports.findings.figures import measure_block
from oversharp.reports.pictures.drawing import figure_svgs
from oversharp.reports.records import Figure
from oversharp.reports.sections.kernel import split_by_scope

pytestmark = pytest.mark.slow

SHIFTS = ("seen correct", "seen wrong", "unseen correct", "unseen wrong")


def shift(scope: str, value: float, half: float, *, n: int, step: str = "grpo-30") -> Finding:
    return Finding(checkpoint_id=step, measure="kernel_shift", unit="nats at β = 1", scope=scope, value=value,
                   low=value - half, high=value + half, n=n)  # fmt: skip


@pytest.fixture
def drawn(store_of: Callable[..., Path]) -> Callable[[str, Sequence[Finding]], Figure]:
    def make(name: str, findings: Sequence[Finding]) -> Figure:
        path = store_of(names=("grpo",), edit=lambda found: [*found, *findings])
        with Store.open(path, read_only=True) as store:
            source = read_source(store, "audit.duckdb")
        measure = all_measures()[name]
        return split_by_scope(source, measure, measure_block(source, measure))

    return make


@pytest.mark.slow
def test_many_scopes_get_a_panel_each_and_keep_their_bands(drawn: Callable[..., Figure]) -> None:
    found = [shift(scope, i - 1.0, 0.1, n=2 + 2 * i) for i, scope in enumerate(SHIFTS)]
    found.append(shift(SHIFTS[0], -0.5, 0.1, n=3, step="base-0"))
    figure = drawn("kernel_shift", found)
    assert [panel.title for panel in figure.panels] == list(SHIFTS)
    assert [panel.lines[0].low for panel in figure.panels] == [(-0.6, -1.1), (-0.1,), (0.9,), (1.9,)]
    assert figure.caption.endswith("Band: 95\xa0% CI over problems. Based on 2 to 8 problems.")
    told = "Exact shift by the own samples, seen correct. grpo: −0.500 at step 0, −1.000 at step 30."
    assert figure.panels[0].description == told
    assert figure.legend == ()


def test_an_interval_of_two_problems_does_not_flatten_the_picture(drawn: Callable[..., Figure]) -> None:
    wide = [shift(scope, i - 1.0, 90.0 if i == 0 else 0.1, n=2) for i, scope in enumerate(SHIFTS)]
    wide.append(shift(SHIFTS[1], 0.5, 0.1, n=2, step="base-0"))
    figure = drawn("kernel_shift", wide)
    # values reach from −1 to 2, and half of that is left on both sides
    assert (figure.panels[0].lines[0].low, figure.panels[0].lines[0].high) == ((-2.5,), (3.5,))
    assert figure.panels[1].lines[0].low == (0.4, -0.1)
    assert figure.caption.endswith("Bands are clipped at the edge of the figure; the table has the full CIs.")
    assert "[−91.000, 89.000]" in {cell.text.split(" ", 1)[-1] for row in figure.table.rows for cell in row}


@pytest.mark.slow
def test_few_scopes_share_a_panel(drawn: Callable[..., Figure]) -> None:
    found = [shift(SHIFTS[0], value, 0.1, n=4, step=step) for value, step in ((0.5, "base-0"), (0.6, "grpo-30"))]
    figure = drawn("kernel_shift", [*found, shift(SHIFTS[1], -0.5, 0.1, n=4)])
    assert len(figure.panels) == 1
    assert figure.caption.endswith("Based on 4 problems.")


def test_equal_reasons_are_one_sentence_that_names_the_scopes(drawn: Callable[..., Figure]) -> None:
    def no(scope: str, step: str, why: str) -> Finding:
        return Finding(checkpoint_id=step, measure="kernel_shift", unit="nats at β = 1", scope=scope, why=why)

    found = [
        shift(SHIFTS[0], 0.4, 0.1, n=4, step="base-0"), shift(SHIFTS[0], 0.5, 0.1, n=4),
        shift(SHIFTS[1], 0.5, 0.1, n=4), no(SHIFTS[1], "base-0", "all correct"),
        no(SHIFTS[2], "base-0", "all correct"), no(SHIFTS[2], "grpo-30", "all correct"),
        no(SHIFTS[3], "base-0", "none drawn"), no(SHIFTS[3], "grpo-30", "none drawn"),
    ]  # fmt: skip
    assert drawn("kernel_shift", found).notes == (
        "No value for seen wrong (1 of 2 checkpoints) and unseen correct (2): all correct.",
        "No value for unseen wrong: none drawn.",
    )


@pytest.mark.slow
def test_a_logarithmic_axis_needs_values_above_zero(drawn: Callable[..., Figure]) -> None:
    def norm(scope: str, value: float, step: str = "grpo-30") -> Finding:
        return Finding(checkpoint_id=step, measure="kernel_lambda", unit="squared gradient norm", scope=scope,
                       value=value, n=42)  # fmt: skip

    figure = drawn("kernel_lambda", [norm("min", 0.2), norm("max", 9e4), norm("max", 8e4, "base-0")])
    assert figure.log_y
    assert figure.caption.endswith("Based on 42 responses.")
    (svg,) = figure_svgs(figure)
    assert [text for text in ("0.1", "1", "10", "100", "1000", "10000") if f">{text}<" in svg][-2:] == ["100", "10000"]
    assert not drawn("kernel_lambda", [norm("min", 0.0), norm("max", 9e4), norm("max", 8e4, "base-0")]).log_y
