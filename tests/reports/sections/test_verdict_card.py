"""The verdict at the top of a card: its words, its reach, and the numbers that it rests on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from oversharp.diagnostics.measures.contract import Measure
from oversharp.diagnostics.store import Store
from oversharp.diagnostics.verdict.claims import A_CHECKPOINT, FELL, HERE, NO_FALL, POPULATION, SOME_LOST
from oversharp.diagnostics.verdict.headings import HEADINGS, TITLES, VerdictLabel
from oversharp.diagnostics.verdict.recommendation import Recommendation, ShippingStep
from oversharp.diagnostics.verdict.record import Verdict
from oversharp.diagnostics.verdict.results import (
    ChangeAtK,
    Claim,
    Estimate,
    Explanation,
    LeftOut,
    Rates,
    Remedy,
    StepClaim,
)
from oversharp.reports.context import Context
from oversharp.reports.evidence.source import Source
from oversharp.reports.page import build_page, load_page
from oversharp.reports.records import Page, Table, VerdictText
from oversharp.reports.render import render_page
from oversharp.reports.sections.verdict_card import verdict_text
from tests.reports.parts import audit_key, texts, with_series

VERDICT = Verdict(
    series="grpo",
    label="over_sharpened",
    sentence="Coverage lost: up to k = 4, pass@4 fell by 20.0 points.",
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
        Rates(step=0, checkpoint="base", truncated=0.0, not_parsed=0.01, timed_out=0.0, ambiguous=0.0),
        Rates(step=30, checkpoint="checkpoint-30", truncated=0.125, not_parsed=0.0, timed_out=0.0, ambiguous=0.05),
    ),
    graders=("exact", "math"),
    caveats=("Few problems.",),
    remedy=Remedy(drop=0.05, n_problems=500, n=256, n_base=1024, tokens=3.2e7),
    n_within_reach=150,
    claims=(
        Claim(
            name=FELL, null="mean pass@k of the population did not fall at any k", scope=POPULATION, level=0.03,
            holds=True, p=3e-7, size=Estimate(value=-0.2, low=-0.3, high=-0.1),
            otherwise=("guesses", "cut-off samples"),
        ),
        Claim(
            name="minority modes lost", null="they became rarer at no k", scope=HERE, level=0.005, holds=False, p=None,
            why="no problem has correct samples of a second mode",
        ),
        Claim(
            name=SOME_LOST, null="no success rate fell", scope=HERE, level=0.03, holds=False, p=0.2,
            size=Estimate(value=0.25, low=None, high=None),
        ),
        Claim(
            name=NO_FALL, null="it fell", scope=POPULATION, level=0.05, holds=False, p=0.01, why="too few",
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


def facts(text: VerdictText, title: str = "Compared samples and bounds") -> dict[str, str]:
    return {name: value for name, value, *_ in texts(table(text, title))}


def test_the_card_says_label_sentence_range_and_scope(context: Context) -> None:
    text = said(context.source)
    assert (text.title, text.mark, text.tone) == ("Coverage lost (over-sharpened)", "▼", "loss")
    assert text.sentence == VERDICT.sentence
    assert text.scope == (
        "Range: k = 1 to 4. Larger k are not tested.",
        "Scope: one training seed; responses were graded by exact and math; 12 problems and the population they were "
        "sampled from.",
    )
    assert text.caveats == ("Few problems.",)


@pytest.mark.parametrize("label", sorted(set(HEADINGS) - {"selected"}))
def test_every_label_has_a_sign_beside_its_colour_and_reaches_as_far_as_its_sentence(
    context: Context, label: VerdictLabel
) -> None:
    text = said(context.source, label=label)
    assert text.title.startswith(TITLES[HEADINGS[label]])
    assert text.mark
    beyond = label in ("over_sharpened", "lost_at_steps", "no_loss", "degraded")
    assert text.scope[-1].endswith(
        "; 12 problems and the population they were sampled from." if beyond else "; 12 problems."
    )
    lost = replace(VERDICT, label=label).positive and label != "format"  # a fall, but perhaps no loss
    assert text.tone == ("loss" if lost else "held" if label == "no_loss" else "open")


def test_every_claim_stands_with_its_p_its_level_its_size_and_what_speaks_against_it(context: Context) -> None:
    claims = table(said(context.source), "Tested claims: 1 of 4 hold")
    assert [column.name for column in claims.columns[5:]] == [
        "null hypothesis",
        "scope",
        "other explanation, or why not claimed",
    ]
    fell = "mean pass@k of the population did not fall at any k"
    assert texts(claims) == [
        [FELL, "yes", "< 0.0001", "0.03", "−20.0 [−30.0, −10.0]", fell, POPULATION, "guesses; cut-off samples"],
        ["minority modes lost", "not tested", "–", "0.005", "–", "they became rarer at no k", HERE,
         "no problem has correct samples of a second mode"],
        [SOME_LOST, "not shown", "0.2000", "0.03", "25.0\xa0% of problems", "no success rate fell", HERE, ""],
        [NO_FALL, "not claimed", "0.0100", "0.05", "above −1.2", "it fell", POPULATION, "too few"],
    ]  # fmt: skip


def test_what_else_would_explain_it_is_told_in_shares(context: Context) -> None:
    rows = facts(said(context.source), "Other explanations of the fall")
    assert [*rows.values()] == ["1.9 %", "0.5 % (assumed, not measured)", "96\xa0% of the fall", "−18.0 points"]
    never = Explanation(guess_rate=None, guess_rate_allowed=0.25, guess_source="known to the grader", even_loss=0.876)
    rows = facts(said(context.source, explanation=never, size_given_label=None), "Other explanations of the fall")
    assert [*rows.values()] == ["more than half", "25 % (known to the grader)", "88\xa0% of the fall"]


FIRST = {0: 0.25, 10: 0.4, 20: 0.3, 30: 0.5}


@pytest.mark.parametrize(
    ("states", "title"),
    [
        (("kept", "kept", "lost"), "1 lost, 2 kept"),
        (("open", "kept", "lost"), "1 lost, 1 kept, 1 open"),
        (("lost", "lost", "lost"), "3 lost"),
    ],
)
def test_every_checkpoint_is_told_as_lost_kept_or_open(context: Context, states: tuple[str, ...], title: str) -> None:
    steps = tuple(step(number, state) for number, state in zip((10, 20, 30), states, strict=True))
    verdict = replace(VERDICT, steps=steps, n_problems=40)
    text = verdict_text(replace(context.series[0], verdict=verdict), FIRST)
    rows = texts(table(text, f"Checkpoints: {title}"))
    assert [row[:2] for row in rows] == [[str(one.step), state] for one, state in zip(steps, states, strict=True)]
    assert rows[1][3:] == ["−1.0 [−3.0, +1.0]", "2"]
    guessed = replace(step(10, "lost"), cause="guessing")
    told = table(said(context.source, label="guessing", steps=(guessed,)), "Checkpoints")
    assert texts(told)[0][:2] == ["10", "lost, or guessing"]
    assert "perhaps because of false accepts at the base" in told.note


def test_the_checkpoint_to_ship_is_the_one_that_is_recommended_with_those_as_good(context: Context) -> None:
    assert said(context.source).ship == ""  # a verdict of before
    base = ShippingStep(series="grpo", step=0, checkpoint="base", is_base=True, role="candidate", may_be_best=True)
    late = replace(base, step=10, checkpoint="checkpoint-10", is_base=False, role="recommended")
    shipping = Recommendation(series=("grpo",), sentence="Ship checkpoint-10.", recommended=late, steps=(base, late))
    told = said(context.source, shipping=shipping).ship
    assert told == "Ship checkpoint-10. Pass@1 may be as high at the base, base."
    assert said(context.source, shipping=replace(shipping, recommended=None)).ship == ""


def test_what_was_compared_and_where_it_fell(context: Context) -> None:
    rows = facts(said(context.source))
    assert rows["problems with distinguishable modes"] == "7"
    assert rows["base"] == "16 samples per problem"
    assert rows["late window"] == "steps 10 to 30, 24 samples per problem in total"
    assert rows["crossing"] == "k* = 2.5, 95\xa0% CI from 1.5 to above 4"
    assert rows["detected by"] == "step 20"
    assert rows["decline began"] == "step 5, 95\xa0% CI 0 to 12"


def test_what_is_averaged_is_said_where_the_window_has_several_checkpoints(context: Context) -> None:
    *_, basis, changes, _ = said(context.source).tables
    assert "The change of pass@k, the bound and k* are means over its checkpoints" in basis.note
    assert changes.note.startswith("Late: the mean over these checkpoints.")
    *_, alone, changes, _ = said(context.source, window=(30,)).tables
    assert "means" not in alone.note
    assert changes.note.startswith("Brackets")


@pytest.mark.parametrize(
    ("label", "what"),
    [
        ("over_sharpened", "that do not show the loss"),
        ("over_sharpened", "a second training seed"),
        ("over_sharpened_here", "To test the population too, audit more problems"),
        ("mode_collapse", "This audit does not test pass@k above k = 4"),
        ("no_loss", "a fall at k above 4, which this audit does not test"),
        ("no_loss", "does not exclude a fall of less than 2 points"),
        ("degraded", "a second training seed"),
        ("format", "audit again with a larger --max-tokens, or grade again with oversharp regrade"),
        ("guessing", "a measured false-accept rate of this grader below 1.9 % (pass it with --guess-rate)"),
        ("lost_at_steps", "run the same audit with a larger --n"),
        ("inconclusive", "500 problems with 256 samples each (base: 1\u202f024) detect a fall of 5.0 points"),
    ],
)
def test_every_label_says_what_would_change_it(context: Context, label: VerdictLabel, what: str) -> None:
    text = said(context.source, label=label).overturn
    assert what in text
    assert "`" not in text


def test_an_audit_that_is_large_enough_is_not_asked_for_again(context: Context) -> None:
    small = Remedy(drop=0.05, n_problems=12, n=8, n_base=8, tokens=1e4)
    text = said(context.source, label="inconclusive", remedy=small).overturn
    assert text.startswith("a larger audit: this size detects a fall of 5.0 points with 80\xa0% power")
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
    assert rates.title == "Samples truncated, unparsed, ambiguous or timed out: at most 12.5\xa0%"
    assert texts(rates)[1] == ["30", "12.5\xa0%", "0.0\xa0%", "5.0\xa0%", "0.0\xa0%"]
    quiet = said(context.source, rates=(replace(VERDICT.rates[0], not_parsed=0.0),)).tables[-1]
    assert quiet.title.endswith("timed out: none")


def test_a_store_from_before_verdicts_says_how_to_get_one(page: Page) -> None:
    text = page.headline.cards[0].verdict
    assert (text.title, text.tables) == ("No verdict", ())
    assert "Run the same audit again" in text.sentence


def test_a_series_without_a_comparison_shows_why_and_no_empty_table(context: Context) -> None:
    nothing = Verdict(series="grpo", label="no_verdict", sentence="No verdict: only the base.", why="only the base")
    text = verdict_text(replace(context.series[0], verdict=nothing))
    assert (text.sentence, text.scope, text.tables) == ("No verdict: only the base.", (), ())


@pytest.mark.slow
def test_the_verdict_heads_its_card_and_its_tables_are_folded(context: Context) -> None:
    page = build_page(with_series(context, 0, verdict=VERDICT))
    html = render_page(replace(page, sections=()))
    order = (
        "</span> Coverage lost (over-sharpened)</h3>",
        VERDICT.sentence,
        "Would change this verdict:",
        "Tested claims",
    )
    below = ("pass@1 rose while pass@4 fell", "Limits of this report")
    places = [html.index(text) for text in (*order, *below)]
    assert places == sorted(places)
    assert all(table.folded for table in page.headline.cards[0].verdict.tables)


@pytest.mark.slow
def test_the_verdict_is_read_from_the_store(store_of: Callable[..., Path], measures: tuple[Measure, ...]) -> None:
    with Store.open(store_of(names=("grpo",))) as store:
        store.replace_verdict(audit_key("grpo"), VERDICT)
        page = load_page(store, measures, store_name="audit.duckdb")
    assert page.headline.cards[0].verdict.sentence == VERDICT.sentence


def test_a_checkpoint_that_is_open_below_0_says_why_and_one_that_was_left_out_has_a_row(context: Context) -> None:
    at_level = Claim(name=A_CHECKPOINT, null="none is lost", scope=POPULATION, level=0.005, holds=False, p=0.03)
    below = replace(step(20, "open"), high=-0.002)
    gone = LeftOut(checkpoint="checkpoint-60", step=None, why="cut short")
    steps, left_out = (below, step(40, "open")), (gone,)
    told = table(said(context.source, steps=steps, left_out=left_out, claims=(at_level,)), "Checkpoints")
    assert told.title == "Checkpoints: 2 open, 1 omitted"
    assert texts(told)[-1] == ["checkpoint-60", "omitted", "–", "–", "–"]
    assert "At step 20 the 95\N{NO-BREAK SPACE}% CI is below 0, but the checkpoint is open" in told.note
    assert "level 0.005" in told.note
    assert told.note.endswith("checkpoint-60 is omitted: cut short.")
    plain = table(said(context.source, steps=(step(40, "open"),), claims=(at_level,)), "Checkpoints")
    assert "but the checkpoint is open" not in plain.note
