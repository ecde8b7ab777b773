"""The output of ``ship`` and ``confirm`` fits 80 columns; repeated weights change no shortlist."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from oversharp.diagnostics.app.console.layout import OutputColumn, OutputRow, print_rows, table_lines, unbroken
from oversharp.diagnostics.app.console.results import print_confirmations
from oversharp.diagnostics.app.console.shipping import print_shipping
from oversharp.diagnostics.app.console.verdict import verdict_rows
from oversharp.diagnostics.audit.confirm import ConfirmResult, _shortlist
from oversharp.diagnostics.audit.plan import plan
from oversharp.diagnostics.records.errors import ConfigError
from oversharp.diagnostics.records.types import Confirmation, Problem
from oversharp.diagnostics.store import Store
from oversharp.diagnostics.verdict.headings import VerdictLabel
from oversharp.diagnostics.verdict.recommendation import BandedChange, Recommendation, ShippingStep, TossUp
from oversharp.diagnostics.verdict.record import Verdict
from oversharp.diagnostics.verdict.results import Claim
from tests.audit.test_counts import plant


@pytest.mark.parametrize("width", [40, 80, 200])
def test_no_number_is_cut_on_a_narrow_terminal(width: int) -> None:
    problem = Problem(task="t", prompt="a long prompt " * 9, gold="1", verifier="exact", source_id="a-long-name" * 3)
    tested = Confirmation(
        problem_id=problem.problem_id, change="lost", n_base=1024, correct_base=1000, n_late=1024, correct_late=0,
        p=1.234e-10, p_adjusted=8.02e-10,
    )  # fmt: skip
    result = ConfirmResult(
        series="run", checkpoint="checkpoint-20", step=20, fresh=1024, samples_drawn=0, n_earlier=0,
        problems=(problem,), tested=(tested,), store_path=Path("s"), report_path=Path("r"),
    )  # fmt: skip
    out = io.StringIO()
    print_confirmations(result, Console(file=out, width=width, highlight=False))
    for said in ("1000/1024", "0/1024", "1.2e-10", "8e-10", "confirmed", "yes"):
        assert said in out.getvalue()


def test_a_toss_up_is_printed_with_its_numbers() -> None:
    base = ShippingStep(
        series="run", step=0, checkpoint="checkpoint-0", is_base=True, role="recommended", pass_at_1=0.5
    )
    toss_up = TossUp(
        series="run", step=20, checkpoint="checkpoint-20", is_base=False, temperature=None, gain=0.012,
        expected_gain=0.004, better=0.67, needed=0.8,
    )  # fmt: skip
    said = Recommendation(
        series=("run",), sentence="Ship the base.", recommended=base, why="toss-up", steps=(base,), ks=(1, 32),
        n_problems=40, n_choosing=40, toss_up=toss_up,
    )  # fmt: skip
    out = io.StringIO()
    print_shipping([said], out=Console(file=out, width=80, highlight=False))
    printed = " ".join(out.getvalue().split())
    assert "checkpoint-20 is a toss-up with the base (pass@1 +1.2 points, probability 0.67)" in printed
    assert "expected +0.4 points; the base is the safe choice below a probability of 0.8" in printed
    print_shipping([replace(said, toss_up=None)], out=Console(file=(plain := io.StringIO()), width=80))
    assert "toss-up toss-up" not in " ".join(plain.getvalue().split())
    assert "is needed" not in plain.getvalue()


@pytest.mark.parametrize("width", [40, 80, 200])
def test_no_cell_of_the_shipping_table_is_shortened_and_a_long_reason_is_below_it(width: int) -> None:
    twin = ShippingStep(
        series="another-run-with-a-name", step=20, checkpoint="checkpoint-20", is_base=False, role=None,
        pass_at_1=None, why="the same weights as checkpoint-20 of run, which stands for both",
    )  # fmt: skip
    changes = {
        "first": BandedChange(k=1, change=0.18, low=-0.006, high=0.369),
        "worst": BandedChange(k=32, change=-0.275, low=-0.511, high=-0.038),
    }
    out_by = replace(twin, series="run", role="out", out_by="estimate", why=None, temperature=0.15, **changes)
    said = Recommendation(
        series=("another-run-with-a-name", "run"), sentence="Ship it.", ks=(1, 32), n_problems=40, n_choosing=40,
        recommended=replace(out_by, role="recommended", out_by=None), steps=(out_by, twin),
    )  # fmt: skip
    out = io.StringIO()
    print_shipping([said], out=Console(file=out, width=width, highlight=False))
    lines = out.getvalue().splitlines()
    row = lines[lines.index("run:") + 1]
    assert " ".join(row.split()) == "20 0.15 +18.0 [−0.6, +36.9] −27.5 [−51.1, −3.8] 32 out, estimate"
    assert lines[lines.index("another-run-with-a-name:") + 1].endswith("not to choose")
    assert any(line.startswith("not to choose checkpoint-20 of another-run-with-a-name:") for line in lines)
    assert max(map(len, lines)) <= 80


def test_no_series_id_or_prompt_reaches_the_terminal_with_its_control_characters() -> None:
    evil = "\x1b]0;owned\x07\x1b[31m"
    problem = Problem(task="t", prompt=f"say {evil}", gold="1", verifier="exact", source_id=f"id{evil}")
    tested = Confirmation(
        problem_id=problem.problem_id, change="lost", n_base=8, correct_base=8, n_late=8, correct_late=0,
        p=0.01, p_adjusted=0.01,
    )  # fmt: skip
    confirmed = ConfirmResult(
        series=f"run{evil}", checkpoint=f"step{evil}", step=20, fresh=8, samples_drawn=0, n_earlier=0,
        problems=(problem,), tested=(tested,), store_path=Path("s"), report_path=Path("r"),
    )  # fmt: skip
    steps = tuple(
        ShippingStep(
            series=f"{name}{evil}", step=20, checkpoint=f"step{evil}", is_base=False, role=None, pass_at_1=None,
            why=f"the same weights as {evil}",
        )
        for name in "ab"
    )  # fmt: skip
    said = Recommendation(
        series=tuple(one.series for one in steps), sentence=f"Ship step{evil}.", ks=(1, 32), n_problems=40,
        n_choosing=40, recommended=None, steps=steps,
    )  # fmt: skip
    out = io.StringIO()
    print_confirmations(confirmed, Console(file=out, width=200, highlight=False))
    print_shipping([said], out=Console(file=out, width=200, highlight=False))
    assert "\x1b" not in out.getvalue()
    assert out.getvalue().count("x1b]0;owned") >= 4


def test_a_missing_folder_of_the_recommended_checkpoint_is_reported(tmp_path: Path) -> None:
    chosen = ShippingStep(
        series="run", step=20, checkpoint="checkpoint-20", is_base=False, role="recommended", pass_at_1=0.5, why=None
    )
    for path, is_gone in ((tmp_path, False), (tmp_path / "gone", True)):
        said = Recommendation(
            series=("run",), sentence="Ship it.", ks=(1, 32), n_problems=40, n_choosing=40,
            recommended=replace(chosen, path=str(path)), steps=(),
        )  # fmt: skip
        out = io.StringIO()
        print_shipping([said], out=Console(file=out, width=400, highlight=False))
        line = next(line for line in out.getvalue().splitlines() if line.startswith("path"))
        assert line.split()[1] == str(path)
        assert ("(not found;" in line) == is_gone


def test_rows_wrap_behind_their_label_and_numbers_stay_whole() -> None:
    out = io.StringIO()
    interval = unbroken("pass@1 +3.0 [+1.0, +5.0]")
    path = "/a/" + "long/" * 30
    rows = (
        OutputRow(label="cause", value=f"{'word ' * 10}{interval}, more words"),
        OutputRow(label="path", value=path, is_whole=True),
    )
    print_rows(rows, Console(file=out, width=80, highlight=False))
    first, second, third = out.getvalue().splitlines()
    assert first == f"cause         {'word ' * 10}".rstrip()
    assert second == "              pass@1 +3.0 [+1.0, +5.0], more words"
    assert third == f"path          {path}"


def test_a_table_shortens_texts_and_no_number() -> None:
    columns = (OutputColumn(heading="problem", is_text=True, may_shorten=True), OutputColumn(heading="p"))
    head, line = table_lines(columns, [("many words " * 20, "1.2e-10")])
    assert len(line) == 80
    assert line.endswith("…  1.2e-10")
    assert head.endswith("p")
    assert table_lines(columns, [("数学" * 60, "1")])[1] == "数学" * 19 + "…  1"


@pytest.mark.slow
def test_weights_that_come_again_change_no_shortlist(tmp_path: Path) -> None:
    def listed(name: str, same_weights: dict[int, int]) -> object:
        with Store.open(tmp_path / f"{name}.duckdb") as store:
            responses = {(i, step): "A" * 8 if step < 20 or i else "." * 8 for i in range(6) for step in (0, 10, 20)}
            return _shortlist(store, plant(store, responses, n=8, same_weights=same_weights), 5)

    assert listed("once", {}) == listed("base_again", {30: 0}) == listed("late_again", {30: 20})


def test_a_plan_of_a_million_checkpoints_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="at most 10,000"):
        plan(tmp_path / "audit.duckdb", n_checkpoints=1_000_000)


@pytest.mark.parametrize(
    ("label", "row"),
    [
        (
            "over_sharpened",
            '"no fall at any k" rejected at level 0.03: p < 0.0001 (these problems), p = 0.002 (population)',
        ),
        ("mode_collapse", '"no mode became rarer" rejected at level 0.005: p = 0.004 (these problems)'),
        ("lost_at_steps", '"no fall at any step and k" rejected at level 0.005: p = 0.001 (these problems)'),
        ("no_loss", '"a fall of 2 points or more at some k" rejected at level 0.05: p = 0.01 (population)'),
    ],
)
def test_the_test_of_a_verdict_is_printed_with_its_null_hypothesis_and_level(label: VerdictLabel, row: str) -> None:
    found = {
        "pass@k fell here": ("these problems", 0.03, 1e-5),
        "pass@k fell": ("population", 0.03, 0.002),
        "minority modes lost": ("these problems", 0.005, 0.004),
        "a checkpoint lost": ("these problems", 0.005, 0.001),
        "no fall that matters": ("population", 0.05, 0.01),
    }
    claims = tuple(
        Claim(name=name, null="", scope=scope, level=level, holds=True, p=p)
        for name, (scope, level, p) in found.items()
    )
    verdict = Verdict(series="run", label=label, sentence="", claims=claims)
    [test] = [each.value for each in verdict_rows(verdict) if each.label == "test"]
    assert test.replace(unbroken(" "), " ") == row


def test_p_values_that_allow_no_conclusion_reject_nothing() -> None:
    here = Claim(name="pass@k fell here", null="", scope="these problems", level=0.03, holds=False, p=1e-5)
    few = replace(here, name="pass@k fell", scope="population", why="fewer than 30 problems were solved by the base")
    for claims, row in (
        ((here, few), '"no fall at any k" rejected at level 0.03: p < 0.0001 (these problems)'),
        ((replace(here, why="the samples are copies"), few), '"no fall at any k" not tested: the samples are copies'),
    ):
        verdict = Verdict(series="run", label="inconclusive", sentence="", claims=claims)
        [test] = [each.value for each in verdict_rows(verdict) if each.label == "test"]
        assert test.replace(unbroken(" "), " ") == row
