"""The problems section: halves without regression to the mean, lost beside gained, a table to filter, cases to read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pytest

from oversharp.diagnostics.measures.contract import Measure
from oversharp.diagnostics.records.types import Confirmation
from oversharp.diagnostics.store import Store
from oversharp.diagnostics.verdict.claims import FELL_HERE
from oversharp.diagnostics.verdict.record import Verdict
from oversharp.diagnostics.verdict.results import Claim
from oversharp.reports.context import Context
from oversharp.reports.evidence.problem_changes import (
    SHOWN_CASES,
    pick_problems,
    problem_changes,
    success_interval,
)
from oversharp.reports.evidence.problem_details import _MODES, ProblemDetails, read_problem_details
from oversharp.reports.evidence.source import read_source
from oversharp.reports.page import load_page
from oversharp.reports.problems.section import problems, success
from oversharp.reports.problems.table import lost_and_gained_tables, problem_table
from oversharp.reports.records import Cases, Figure, Page, ProblemCase, Section, SideBySide, Table
from tests.reports.parts import block, blocks, section, texts, with_source


def section_blocks(page: Page, kind: type) -> list[Any]:
    return blocks(section(page, "problems"), kind)


def cases_of(page: Page) -> list[ProblemCase]:
    """The problems that are shown one by one, the folded ones too."""
    return [case for block in section_blocks(page, Cases) for case in block.cases]


def changes_of(*rows: tuple[str, int, int], n: int = 8) -> pd.DataFrame:
    """Rows of problem, hits of the base, hits late, as ``problem_changes`` gives them."""
    frame = pd.DataFrame(rows, columns=["problem_id", "c_base", "c_late"]).assign(n_base=n, n_late=n)
    state = [
        "lost" if base and not late else "gained" if late and not base else "fell" if late < base else "rose"
        for _, base, late in rows
    ]
    base, late = frame["c_base"] / n, frame["c_late"] / n
    return frame.assign(state=state, base=base, late=late, change=late - base)


def fresh_of(problem_id: str, *, confirmed: bool) -> pd.DataFrame:
    row = {
        "series": "grpo", "problem_id": problem_id, "step": 30, "change": "lost", "n_base": 64, "correct_base": 20,
        "n_late": 64, "correct_late": 0, "p": 0.0001, "p_adjusted": 0.0002, "confirmed": confirmed,
    }  # fmt: skip
    return pd.DataFrame([row])


@pytest.mark.slow
def test_lost_and_gained_problems_are_counted_together_with_what_chance_makes(
    page: Page, page_of: Callable[..., Page]
) -> None:
    lead = section(page, "problems").lead
    # hits 3+0, 1+0, 0+4, 2+2 (seven times), 2+8, 4+8: C(8,m)/C(16,m) = 1/10, 1/2, 1/26, 7/26, 0, 0
    counted = (
        "of 12 problems, 2 lost every correct sample (0 significantly{how}) and 1 gained a first one; expected by "
    )
    how, unconfirmed = (
        "by Fisher's exact test with Holm's correction",
        "None is confirmed: run oversharp confirm,",
    )
    assert lead[0] == f"grpo: {counted.format(how='')}chance alone: about 0.9 of each."
    assert lead[1].startswith("iac: of 12 problems, 0 lost every correct sample and 0 gained a first one;")
    assert lead[2] == f"Significantly: {how}. {unconfirmed} which takes fresh samples."
    (alone,) = section(page_of(names=("grpo",)), "problems").lead
    assert alone.startswith(f"{counted.format(how=f', {how}')}chance alone: about 0.9 of each. {unconfirmed}")


def test_the_interval_of_a_problem_holds_its_true_rate() -> None:
    rng = np.random.default_rng(6)
    for rate in (0.02, 0.3, 0.9):
        counts_N = rng.binomial(40, rate, size=3000)
        low_N, high_N = success_interval(counts_N, np.full(3000, 40))
        assert ((low_N <= rate) & (rate <= high_N)).mean() >= 0.95


def test_lost_and_gained_problems_stand_side_by_side(page: Page) -> None:
    (grpo,) = section_blocks(page, SideBySide)  # nothing of IAC was lost or gained
    assert grpo.title == "Lost and gained problems"
    assert "p: Fisher's exact test of base against last checkpoint, one-sided" in grpo.note
    shown = {table.title: [row[1:] for row in texts(table)] for table in grpo.tables}
    # Fisher: 3 of 8 against 0 of 8 is 1/10, 1 of 8 is 1/2; Holm over all 12 problems
    assert shown == {
        "grpo: lost (2 lost, 1 gained)": [
            ["3 / 8", "2 / 8 at step 10", "0 / 8", "30", "1.0000"],
            ["1 / 8", "1 / 8 at step 10", "0 / 8", "20 and 30", "1.0000"],
        ],
        "grpo: gained (2 lost, 1 gained)": [["0 / 8", "4 / 8"]],
    }


def test_of_samples_that_are_no_draws_of_their_own_no_problem_is_called_surely_lost(context: Context) -> None:
    grpo = context.series[0]
    claim = Claim(name=FELL_HERE, null="", scope="", level=0.03, holds=False, p=0.01, why="they hang together")
    verdict = Verdict(series="grpo", label="inconclusive", sentence="", claims=(claim,))
    doubted = replace(grpo, verdict=verdict)
    made = with_source(context, series=(doubted,))
    changes = problem_changes(made.source, doubted)
    assert changes["p_adjusted"].isna().all()
    assert problem_changes(made.source, grpo)["p_adjusted"].notna().all()
    (lost, _) = lost_and_gained_tables(made, {"grpo": changes}).tables
    assert lost.note == "Not tested: they hang together."
    assert [row[-1] for row in texts(lost)] == ["–", "–"]
    assert "; not tested: they hang together. " in problems(made).lead[0]


def test_a_problem_that_was_solved_often_between_is_not_simply_lost(context: Context) -> None:
    """Solved 1, 167, 0 and 9, 0, 0 of 256 times: the first fall is chance, the second is none."""
    rows = [("q", 0, 1), ("q", 80, 167), ("q", 160, 0), ("r", 0, 9), ("r", 80, 0), ("r", 160, 0)]
    counts = pd.DataFrame(rows, columns=["problem_id", "step", "n_correct"]).assign(series="grpo", n=256)
    checkpoints = context.series[0].checkpoints.iloc[:3].assign(step=[0, 80, 160])
    grpo = replace(context.series[0], checkpoints=checkpoints, last_step=160)
    problem = pd.DataFrame({"problem_id": ["q", "r"], "prompt": ["Q?", "R?"], "source_id": None, "task": "t"})
    made = with_source(context, series=(grpo,), problem_counts=counts, problems=problem)
    changes = problem_changes(made.source, grpo)
    assert changes["p_adjusted"].round(4).tolist() == [0.0036, 0.5]  # twice C(256, 9) / C(512, 9), and 1/2
    (lost, _) = lost_and_gained_tables(made, {"grpo": changes}).tables
    assert [row[2:] for row in texts(lost)] == [
        ["0 / 256 at step 80", "0 / 256", "80 and 160", "0.0036"],
        ["167 / 256 at step 80", "0 / 256", "160", "0.5000"],
    ]


def test_a_search_goes_through_whole_prompts_of_which_the_table_shows_a_line(context: Context) -> None:
    chat = "<|im_start|>system\nYou are helpful.<|im_end|>\n<|im_start|>user\n{}<|im_end|>"
    names = ("a", "b")
    rows = changes_of(("a", 8, 1), ("b", 4, 3))
    prompts = [chat.format(text) for text in ("How many? " + "long " * 40 + "needle", "Why?")]
    frame = pd.DataFrame({"problem_id": names, "prompt": prompts, "source_id": ["gsm8k/7", None], "task": "t"})
    table = problem_table(with_source(context, problems=frame), context.series[0], rows, ProblemDetails(), cap=4)
    assert [row[1][:9] for row in texts(table)] == ["How many?", "Why?"]
    assert [row[5] for row in texts(table)] == ["gsm8k/7", "b"]
    assert "needle" in table.search[0]
    assert "gsm8k/7" in table.search[0]
    plain = with_source(context, problems=frame.assign(prompt=["2 + 2?", "3 + 3?"]))
    assert problem_table(plain, context.series[0], rows, ProblemDetails(), cap=4).search == ()


def test_the_table_holds_every_problem_with_its_state(page: Page) -> None:
    table = block(section(page, "problems"), "All problems: grpo", Table)
    assert table.states == (*["lost"] * 2, *["unchanged"] * 7, *["rose"] * 2, "gained")
    assert table.states == tuple(row[0] for row in texts(table))
    assert table.note.startswith("Not confirmed: these counts are from one set of samples.")


def test_a_long_table_keeps_what_was_drawn_again_lost_or_gained_and_says_what_it_leaves_out(context: Context) -> None:
    grpo = context.series[0]
    details = ProblemDetails(fresh=fresh_of("small", confirmed=True))
    names = ("large", "small", "lost", "gained", "left")
    rows = changes_of(("large", 8, 1), ("small", 4, 3), ("lost", 1, 0), ("gained", 0, 1), ("left", 2, 3))
    prompts = pd.DataFrame({"problem_id": names, "prompt": names, "source_id": None, "task": "t"})
    alone = replace(with_source(context, problems=prompts), details=details)
    table = problem_table(alone, grpo, rows, details, cap=4)
    assert table.title == "4 of 5 problems: grpo"
    assert [row[1] for row in texts(table)] == ["lost", "large", "small", "gained"]
    assert table.states == ("lost", "fell", "fell confirmed", "gained")
    assert "1 problem with smaller changes: see the view problem_counts of the store." in table.note
    assert [row[5] for row in texts(table)] == ["–", "–", "confirmed lost, p = 0.0002 (20 / 64 → 0 / 64)", "–"]


def test_confirmed_problems_are_read_first_then_falls_then_gains() -> None:
    frame = changes_of(("fell", 8, 1), ("lost", 3, 0), ("rose", 1, 2), ("gained", 0, 2), ("sure", 2, 1))
    frame = frame.sort_values(["change", "problem_id"]).reset_index(drop=True)
    assert pick_problems([frame], [["sure"]]) == ("sure", "lost", "fell", "gained", "rose")


def test_series_take_turns_and_the_list_ends() -> None:
    one = changes_of(*((f"a{i}", 8, i % 8) for i in range(40)))
    two = changes_of(*((f"b{i}", 8, i % 8) for i in range(40)))
    picked = pick_problems([one, two], [[], []])
    assert len(picked) == len(set(picked)) == SHOWN_CASES
    assert [name[0] for name in picked[:4]] == ["a", "b", "a", "b"]


def test_groups_of_the_base_show_no_gain_where_nothing_changed(context: Context) -> None:
    """The artefact of sorting by a noisy success rate is there without halves, and gone with them."""
    rng = np.random.default_rng(7)
    rate_P = rng.beta(1.0, 1.0, size=600)
    first_P, second_P, late_P = rng.binomial(8, rate_P), rng.binomial(8, rate_P), rng.binomial(8, rate_P)
    ids = [f"{i:04d}" for i in range(600)]
    grpo = replace(context.series[0], problem_ids=frozenset(ids))
    at_base = pd.DataFrame({"series": "grpo", "step": 0, "problem_id": ids, "n": 8, "n_correct": first_P})
    counts = pd.concat([at_base, at_base.assign(step=30, n_correct=late_P)])
    halves = pd.DataFrame(
        {"series": "grpo", "problem_id": ids, "n_first": 8, "c_first": first_P, "n_second": 8, "c_second": second_P}
    )
    prompts = pd.DataFrame({"problem_id": ids, "prompt": ids, "gold": ids, "source_id": None, "task": "t"})
    made = with_source(context, series=(grpo,), problem_counts=counts, problems=prompts)

    def gain_of_the_lowest(details: ProblemDetails) -> tuple[float, Figure]:
        figures = blocks(success(replace(made, details=details)), Figure)
        figure = next(one for one in figures if one.figure_id == "problem-gain")
        return figure.panels[0].lines[0].y[0], figure

    gain, figure = gain_of_the_lowest(ProblemDetails(halves=halves))
    artefact, unsplit = gain_of_the_lowest(ProblemDetails())
    assert abs(gain) < 3.0
    assert artefact > 6.0
    assert "Groups use one half of the base's samples" in figure.caption
    assert "the highest group falls a little even if nothing changed" in unsplit.caption


@pytest.mark.slow
def test_halves_share_no_sample_and_leave_none_out(session_store: Path) -> None:
    with Store.open(session_store, read_only=True) as store:
        source = read_source(store, "audit.duckdb")
        halves = read_problem_details(store, source).halves
    assert (halves["n_first"] == 4).all()
    assert (halves["n_second"] == 4).all()
    counts = source.problem_counts
    base = counts[counts["is_base"]].set_index(["series", "problem_id"])["n_correct"]
    halved = halves.set_index(["series", "problem_id"])[["c_first", "c_second"]].sum(axis=1)
    assert halved.sort_index().to_dict() == base.sort_index().to_dict()


def test_a_problem_alone_in_its_task_is_titled_as_the_others_of_its_series(context: Context) -> None:
    problems = context.source.problems.reset_index(drop=True)
    asked = [f"What is {n} + 1? Put the answer in a box." for n in range(len(problems))]
    tasks = ["first", *["second"] * (len(problems) - 1)]
    source = with_source(context, problems=problems.assign(prompt=asked, task=tasks)).source
    assert source.titles[str(problems["problem_id"].iloc[0])] == "What is 0 + 1?"
    alone = tuple(replace(one, problem_ids=frozenset()) for one in source.series)
    assert replace(source, series=alone).titles[str(problems["problem_id"].iloc[0])] == asked[0]


def test_a_case_shows_its_course_its_modes_and_both_sides(page: Page) -> None:
    cases = cases_of(page)
    first = cases[0]
    assert first.case_id == f"problem-{first.problem_id}"
    assert first.summary == (
        "grpo: base 3 of 8 correct, 2 of 8 at step 10, last 0 of 8 (lost, p = 1.0000); "
        "iac: base 3 of 8 correct, last 3 of 8 (unchanged)"
    )
    counts, modes = first.tables
    assert [row[1] for row in texts(counts)] == ["3 / 8", "2 / 8", "1 / 8", "0 / 8"]
    assert counts.rows[0][2].text == "0.38 [0.09, 0.76]"  # Clopper–Pearson, 3 of 8
    assert texts(modes) == [["NA", "no", "5", "8", "5", "5"], ["3", "yes", "3", "0", "3", "3"]]
    base, grpo, _ = first.sides
    responses = [(r.text, r.count, r.correct) for r in base.responses]
    assert responses == [("answer 3 way 0", 2, True), ("answer 3 way 1", 1, True)]
    assert grpo.title == "grpo: last checkpoint (step 30), 8 samples"
    assert [(r.count, r.correct, r.answer, r.note) for r in grpo.responses] == [(3, False, "NA", "")] * 2
    assert modes.columns[0].name == "answer"


@pytest.mark.slow
def test_responses_are_of_the_samples_that_are_counted_where_the_base_has_more(
    store_of: Callable[..., Path], measures: tuple[Measure, ...]
) -> None:
    """Of 8 samples of the base 3 are right, of the first 4 too; 4 were planned of the others."""
    path = store_of()
    with duckdb.connect(str(path)) as store:
        store.execute("UPDATE audits SET n = 4")
    with Store.open(path, read_only=True) as store:
        first = cases_of(load_page(store, measures, store_name="audit.duckdb"))[0]
    assert first.summary.startswith("grpo: base 3 of 4 correct")
    base, grpo, _ = first.sides
    assert (base.title, grpo.title) == ("Base, 4 samples", "grpo: last checkpoint (step 30), 4 samples")
    assert [(r.text, r.count) for r in base.responses] == [("answer 3 way 0", 2), ("answer 3 way 1", 1)]
    assert [r.count for r in grpo.responses] == [2, 1]


def test_a_gained_problem_shows_what_was_gained(page: Page, context: Context) -> None:
    changes = problem_changes(context.source, context.series[0])
    gained = str(changes.loc[changes["state"] == "gained", "problem_id"].iloc[0])
    cases = cases_of(page)
    case = next(one for one in cases if one.problem_id == gained)
    late = next(side for side in case.sides if side.title.startswith("grpo"))
    assert [r.correct for r in late.responses] == [True, True]


def test_the_table_links_to_the_problems_that_are_shown(page: Page) -> None:
    cases = cases_of(page)
    places = {f"#{case.case_id}" for case in cases}
    tables = [t for t in section_blocks(page, Table) if t.states]
    links = {cell.href for t in tables for row in t.rows for cell in row if cell.href}
    assert links == places


def test_confirmed_problems_are_told_and_can_be_filtered(context: Context) -> None:
    grpo = context.series[0]
    changes = problem_changes(context.source, grpo)
    lost = str(changes.loc[changes["state"] == "lost", "problem_id"].iloc[-1])
    details = replace(context.details, fresh=fresh_of(lost, confirmed=True), picked=(lost,))
    told = problems(replace(context, details=details))
    assert told.lead[0].endswith("Fresh samples of 1 problem confirm 1 as lost and 0 as gained.")
    table = block(told, "All problems: grpo", Table)
    row = next(i for i, cells in enumerate(table.rows) if cells[1].href)
    assert table.states[row] == "lost confirmed"
    assert "Holm's correction" in table.note


@pytest.mark.slow
def test_fresh_samples_are_read_from_the_store_and_confirmed_problems_lead(
    store_of: Callable[..., Path], measures: Any
) -> None:
    path = store_of(names=("grpo",))
    with Store.open(path, read_only=True) as store:
        (series,) = read_source(store, "audit.duckdb").series
        changes = problem_changes(read_source(store, "audit.duckdb"), series)
    lost = changes.loc[(changes["c_base"] == 1) & (changes["state"] == "lost"), "problem_id"].iloc[0]
    other = changes.loc[changes["state"] == "unchanged", "problem_id"].iloc[0]
    tested = [
        Confirmation(
            problem_id=problem_id, change="lost", n_base=64, correct_base=9, n_late=64, correct_late=0,
            p=p, p_adjusted=2 * p,
        )
        for problem_id, p in ((lost, 0.001), (other, 0.2))
    ]  # fmt: skip
    with Store.open(path) as store:
        store.add_confirmations(series.audit_id, "grpo-30", series.settings_id, tested)
        page = load_page(store, measures, store_name="audit.duckdb")
    lead = section(page, "problems").lead[0]
    assert "Fresh samples of 2 problems confirm 1 as lost and 0 as gained." in lead
    cases = cases_of(page)
    assert cases[0].problem_id == lost
    assert cases[0].summary == "Base 1 of 8 correct, 1 of 8 at step 10, last 0 of 8 (lost, confirmed)"
    table = next(t for t in section_blocks(page, Table) if t.states)
    assert dict(zip([row[5] for row in texts(table)], table.states, strict=True)) == {
        "confirmed lost, p = 0.0020 (9 / 64 → 0 / 64)": "lost confirmed",
        "not confirmed, p = 0.4000 (9 / 64 → 0 / 64)": "unchanged",
        "–": "gained",
    }


def test_an_answer_that_nobody_recorded_is_called_that_and_not_none() -> None:
    connection = duckdb.connect()
    connection.execute(
        "CREATE TABLE answer_counts AS SELECT * FROM (VALUES ('run', 0, 'q', NULL, NULL, false, 3)) "
        "AS t (series, step, problem_id, mode, answer, correct, n)"
    )
    asked = {"series": "run", "problem_ids": ["q"], "base_step": 0, "last_step": 20, "cap": 40, "shown": 3}
    (row,) = connection.execute(_MODES, asked).df().to_dict("records")
    assert (row["mode"], row["n_base"]) == ("answer not recorded", 3)


@pytest.mark.slow
def test_of_a_crowd_of_series_each_shows_less_in_the_open(context_of: Callable[..., Context]) -> None:
    """Twins of GRPO lose two problems each; those of IAC lose and gain one of these at most, or none."""
    few, crowd = (
        problems(context_of(names=names)) for names in (("grpo", "iac"), ("grpo", "iac", "grpo-seed-2", "iac-seed-2"))
    )
    opened = [next(block for block in one.blocks if isinstance(block, Cases)) for one in (few, crowd)]
    assert [len(one.cases) for one in opened] == [min(6, n_cases(few)), 3]
    assert n_cases(crowd) == n_cases(few), "the others are folded"
    lost = opened[1].cases[0].summary
    assert "grpo-seed-2: base" in lost
    assert "iac:" not in lost
    assert lost.endswith("; neither lost nor gained in 2 others")


def n_cases(of: Section) -> int:
    return sum(len(one.cases) for one in blocks(of, Cases))
