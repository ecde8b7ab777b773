"""The verdict at the top of a card: its words, its reach, and the numbers that it rests on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from diagnostics.measures.contract import Measure
from diagnostics.store import Store
from diagnostics.verdict.claims import FELL, HERE, LIKE_THESE, NO_FALL, SOME_LOST
from diagnostics.verdict.record import (
    TITLES,
    ChangeAtK,
    Claim,
    Estimate,
    Explanation,
    Rates,
    Remedy,
    StepClaim,
    Verdict,
    VerdictLabel,
)
from reports.context import Context
from reports.evidence.source import Source
from reports.page import build_page, load_page
from reports.records import Page, Table, VerdictText
from reports.render import render_page
from reports.sections.verdict_card import verdict_text
from tests.reports.parts import audit_key, texts, with_series

VERDICT = Verdict(
    series="grpo",
    label="over_sharpened",
    sentence="Over-sharpened: up to k = 4, pass@4 fell by 20.0 points.",
    p_exact=0.0017, p_population=0.012, p_minority=0.2,
    n_problems=12, n_minority_problems=7, n_base=16, n_late=24, window=(10, 20, 30), k_most=4,
    changes=(
        ChangeAtK(k=1, base=0.25, late=0.4, change=0.15, low=0.1, high=0.2),
        ChangeAtK(k=4, base=0.8, late=0.6, change=-0.2, low=None, high=None),
    ),
    least_change=-0.25,
    k_star=Estimate(value=2.5, low=1.5, high=None),
    detected_by=20,
    decline_began=Estimate(value=5.0, low=0.0, high=12.0),
    rates=(
        Rates(step=0, checkpoint="base", truncated=0.0, not_parsed=0.01, timed_out=0.0),
        Rates(step=30, checkpoint="checkpoint-30", truncated=0.125, not_parsed=0.0, timed_out=0.0),
    ),
    graders=("exact", "math"),
    caveats=("Few problems.",),
    remedy=Remedy(drop=0.05, n_problems=500, n=256, n_base=1024, tokens=3.2e7),
    n_within_reach=150,
    claims=(
        Claim(
            name=FELL, null="over problems like these, pass@k fell at no k", scope=LIKE_THESE, level=0.03, holds=True,
            p=3e-7, size=Estimate(value=-0.2, low=-0.3, high=-0.1), otherwise=("guesses", "cut-off samples"),
        ),
        Claim(
            name="minority modes lost", null="they became rarer at no k", scope=HERE, level=0.005, holds=False, p=None,
            why="no problem shows a second correct mode",
        ),
        Claim(
            name=SOME_LOST, null="no success rate fell", scope=HERE, level=0.03, holds=False, p=0.2,
            size=Estimate(value=0.25, low=None, high=None),
        ),
        Claim(
            name=NO_FALL, null="it fell", scope=LIKE_THESE, level=0.05, holds=False, p=0.01, why="too few",
            size=Estimate(value=None, low=-0.012, high=None),
        ),
    ),
    explanation=Explanation(guess_rate=0.019, guess_rate_allowed=0.005, guess_source="assumed", format=0.96),
    size_given_label=-0.18,
)  # fmt: skip


def step(number: int, state: str) -> StepClaim:
    return StepClaim(
        step=number, checkpoint=f"checkpoint-{number}", lost=state == "lost", kept=state == "kept", p=0.5, k=2,
        change=-0.01, low=-0.03, high=0.01,
    )  # fmt: skip


def said(source: Source, **changes: Any) -> VerdictText:
    return verdict_text(replace(source.series[0], verdict=replace(VERDICT, **changes)))


def table(text: VerdictText, title: str) -> Table:
    (found,) = [one for one in text.tables if one.title.startswith(title)]
    return found


def facts(text: VerdictText, title: str = "What was compared") -> dict[str, str]:
    return {name: value for name, value, *_ in texts(table(text, title))}


def test_the_card_says_label_sentence_range_and_scope(context: Context) -> None:
    text = said(context.source)
    assert (text.title, text.mark, text.tone) == ("Over-sharpened", "▼", "loss")
    assert text.sentence == VERDICT.sentence
    assert text.scope == (
        "Range: k = 1 to 4. Nothing is said about larger k.",
        "Scope: one training seed; correct is what exact and math accepted; 12 problems and problems like them.",
    )
    assert text.caveats == ("Few problems.",)


@pytest.mark.parametrize("label", TITLES)
def test_every_label_has_a_sign_beside_its_colour_and_reaches_as_far_as_its_sentence(
    context: Context, label: VerdictLabel
) -> None:
    text = said(context.source, label=label)
    assert text.title == TITLES[label]
    assert text.mark
    beyond = label in ("over_sharpened", "lost_at_steps", "no_loss")
    assert text.scope[-1].endswith("; 12 problems and problems like them." if beyond else "; 12 problems.")
    lost = replace(VERDICT, label=label).positive and label != "format"  # a fall, but perhaps no loss
    assert text.tone == ("loss" if lost else "held" if label == "no_loss" else "open")


def test_every_claim_stands_with_its_p_its_level_its_size_and_what_speaks_against_it(context: Context) -> None:
    claims = table(said(context.source), "What was tested: 1 of 4 claims hold")
    assert [column.name for column in claims.columns[5:]] == ["null hypothesis", "of", "what else, or why not"]
    fell = "over problems like these, pass@k fell at no k"
    assert texts(claims) == [
        [FELL, "yes", "< 0.0001", "0.03", "−20.0 [−30.0, −10.0]", fell, LIKE_THESE, "guesses; cut-off samples"],
        ["minority modes lost", "not tested", "–", "0.005", "–", "they became rarer at no k", HERE,
         "no problem shows a second correct mode"],
        [SOME_LOST, "not shown", "0.2000", "0.03", "25.0\xa0% of problems", "no success rate fell", HERE, ""],
        [NO_FALL, "not claimed", "0.0100", "0.05", "above −1.2", "it fell", LIKE_THESE, "too few"],
    ]  # fmt: skip


def test_what_else_would_explain_it_is_told_in_shares(context: Context) -> None:
    rows = facts(said(context.source), "What else would explain it")
    assert [*rows.values()] == ["1.9 %", "0.5 % (assumed, nobody measured it)", "96\xa0% of the fall", "−18.0 points"]
    never = Explanation(guess_rate=None, guess_rate_allowed=0.25, guess_source="known to the grader", even_loss=0.876)
    rows = facts(said(context.source, explanation=never, size_given_label=None), "What else would explain it")
    assert [*rows.values()] == ["more than half", "25 % (known to the grader)", "88\xa0% of the fall"]


FIRST = {0: 0.25, 10: 0.4, 20: 0.3, 30: 0.5}


@pytest.mark.parametrize(
    ("states", "first", "title", "ship"),
    [
        (("kept", "kept", "lost"), FIRST, "1 lost something, 2 kept it", "step 10: of the 2 checkpoints that surely "
         "kept pass@k to within 2 points the highest pass@1 (0.400, the base's is 0.250)."),
        (("open", "kept", "lost"), {20: 0.3}, "1 lost something, 1 kept it, 1 open", "step 20: of the one checkpoint "
         "that surely kept pass@k to within 2 points the highest pass@1 (0.300)."),
        (("kept", "open", "open"), {}, "1 kept it, 2 open", "the one checkpoint surely kept pass@k to within 2 points; "
         "which has the highest pass@1 is unknown."),
        (("open", "open", "lost"), FIRST, "1 lost something, 2 open", "none is shown to have kept pass@k to within 2 "
         "points, so only the base is known to be safe. With 40 problems only a checkpoint that rose at every k can be "
         "shown to."),
        (("lost", "lost", "lost"), FIRST, "3 lost something", "none is shown to have kept pass@k to within 2 points, "
         "so only the base is known to be safe. At all of them it lies below the base's."),
    ],
)  # fmt: skip
def test_the_checkpoint_to_ship_is_that_of_the_highest_pass_at_1_among_those_that_surely_kept_pass_at_k(
    context: Context, states: tuple[str, ...], first: dict[int, float], title: str, ship: str
) -> None:
    steps = tuple(step(number, state) for number, state in zip((10, 20, 30), states, strict=True))
    verdict = replace(VERDICT, steps=steps, n_problems=40)
    text = verdict_text(replace(context.series[0], verdict=verdict), first)
    assert text.ship == ship
    rows = texts(table(text, f"Every checkpoint: {title}"))
    assert [row[:2] for row in rows] == [[str(one.step), state] for one, state in zip(steps, states, strict=True)]
    assert rows[1][3:] == ["−1.0 [−3.0, +1.0]", "2"]


def test_few_problems_and_no_single_checkpoints_are_told(context: Context) -> None:
    assert said(context.source).ship == ""
    few = said(context.source, steps=(step(10, "open"),), n_within_reach=28).ship
    assert few.endswith("With fewer than 30 problems none can be shown to.")
    many = said(context.source, steps=(step(10, "open"),), n_problems=200).ship
    assert many.endswith("More problems or samples may show one.")
    before = table(said(context.source, label="guessing", steps=(step(10, "lost"),)), "Every checkpoint").note
    assert "before what else would explain it is looked at" in before


def test_what_was_compared_and_where_it_fell(context: Context) -> None:
    rows = facts(said(context.source))
    assert rows["problems that show their modes"] == "7"
    assert rows["base"] == "16 samples per problem"
    assert rows["late window"] == "steps 10 to 30, 24 samples per problem in all"
    assert rows["crossing"] == "k* = 2.5, 95\xa0% interval from 1.5 to beyond 4"
    assert rows["detected by"] == "step 20"
    assert rows["decline began"] == "step 5, 95\xa0% interval 0 to 12"


def test_what_is_averaged_is_said_where_the_window_has_several_checkpoints(context: Context) -> None:
    *_, basis, changes, _ = said(context.source).tables
    assert "how far pass@k fell, the bound and k* are means over its checkpoints" in basis.note
    assert changes.note.startswith("Late: the mean over these checkpoints.")
    *_, alone, changes, _ = said(context.source, window=(30,)).tables
    assert "means" not in alone.note
    assert changes.note.startswith("Brackets")


@pytest.mark.parametrize(
    ("label", "what"),
    [
        ("over_sharpened", "that do not show the loss"),
        ("over_sharpened", "a second training seed"),
        ("over_sharpened_here", "12 problems leave open whether others like them lost it too"),
        ("mode_collapse", "A fall of pass@k beyond k = 4 cannot be seen"),
        ("no_loss", "a fall at k above 4, which this audit cannot see"),
        ("no_loss", "less than 2 points would not have been called a loss"),
        ("degraded", "a second training seed"),
        ("format", "audit again with a larger --max-tokens, or grade again with oversharp regrade"),
        ("guessing", "a measured share of wrong answers that this one accepts below 1.9 %, given with --guess-rate"),
        ("lost_at_steps", "the same audit with a larger --n draws them"),
        ("inconclusive", "500 problems, 256 samples each and 1\u202f024 of the base, find a fall of 5.0 points"),
    ],
)
def test_every_label_says_what_would_change_it(context: Context, label: VerdictLabel, what: str) -> None:
    text = said(context.source, label=label).overturn
    assert what in text
    assert "`" not in text


def test_an_audit_that_is_large_enough_is_not_asked_for_again(context: Context) -> None:
    small = Remedy(drop=0.05, n_problems=12, n=8, n_base=8, tokens=1e4)
    text = said(context.source, label="inconclusive", remedy=small).overturn
    assert text.startswith("a larger audit: one of this size finds a fall of 5.0 points in 80\xa0% of cases")
    assert said(context.source, label="inconclusive", remedy=None).overturn.startswith("more problems or more samples")
    assert said(context.source, label="no_verdict").overturn == ""


def test_an_onset_is_told_after_a_loss_alone(context: Context) -> None:
    rows = facts(said(context.source, label="inconclusive"))
    assert "detected by" not in rows
    assert "decline began" not in rows


def test_changes_keep_their_interval_or_have_none_and_sort_by_number(context: Context) -> None:
    (*_, changes, _) = said(context.source).tables
    assert [row[3].sort for row in changes.rows] == [0.15, -0.2]
    assert texts(changes) == [
        ["1", "0.250", "0.400", "+15.0 [+10.0, +20.0]"],
        ["4", "0.800", "0.600", "−20.0"],
    ]


def test_the_worst_rate_stands_in_the_title(context: Context) -> None:
    rates = said(context.source).tables[-1]
    assert rates.title == "Samples cut off, not parsed or out of time: at most 12.5\xa0%"
    assert texts(rates)[1] == ["30", "12.5\xa0%", "0.0\xa0%", "0.0\xa0%"]
    quiet = said(context.source, rates=(replace(VERDICT.rates[0], not_parsed=0.0),)).tables[-1]
    assert quiet.title.endswith("out of time: none")


def test_a_store_from_before_verdicts_says_how_to_get_one(page: Page) -> None:
    text = page.headline.cards[0].verdict
    assert (text.title, text.tables) == ("No verdict", ())
    assert "Run the same audit again" in text.sentence


def test_a_series_without_a_comparison_shows_why_and_no_empty_table(context: Context) -> None:
    nothing = Verdict(series="grpo", label="no_verdict", sentence="No verdict: only the base.", why="only the base")
    text = verdict_text(replace(context.series[0], verdict=nothing))
    assert (text.sentence, text.scope, text.tables) == ("No verdict: only the base.", (), ())


def test_the_verdict_heads_its_card_and_its_tables_are_folded(context: Context) -> None:
    page = build_page(with_series(context, 0, verdict=VERDICT))
    html = render_page(replace(page, sections=()))
    order = ("</span> Over-sharpened</h3>", VERDICT.sentence, "What would change this:", "What was tested")
    below = ("pass@1 rose while pass@4 fell", "What this cannot tell you")
    places = [html.index(text) for text in (*order, *below)]
    assert places == sorted(places)
    assert all(table.folded for table in page.headline.cards[0].verdict.tables)


def test_the_verdict_is_read_from_the_store(store_of: Callable[..., Path], measures: tuple[Measure, ...]) -> None:
    with Store.open(store_of(names=("grpo",))) as store:
        store.replace_verdict(audit_key("grpo"), VERDICT)
        page = load_page(store, measures, store_name="audit.duckdb")
    assert page.headline.cards[0].verdict.sentence == VERDICT.sentence
