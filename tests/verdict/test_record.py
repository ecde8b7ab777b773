"""The verdict as a record: its sentence, its JSON, and what a notebook shows."""

from __future__ import annotations

import json
from dataclasses import is_dataclass, replace
from html.parser import HTMLParser
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oversharp.diagnostics.verdict.claims import FELL_HERE, HERE
from oversharp.diagnostics.verdict.headings import HEADINGS
from oversharp.diagnostics.verdict.record import Verdict
from oversharp.diagnostics.verdict.results import ChangeAtK, Claim, Explanation, LeftOut, Remedy, StepClaim
from oversharp.diagnostics.verdict.words.sentence import largest_fall, sentence_of


def _change(k: int, change: float, spread: float | None = 0.02) -> ChangeAtK:
    low, high = (None, None) if spread is None else (change - spread, change + spread)
    return ChangeAtK(k=k, base=0.5, late=0.5 + change, change=change, low=low, high=high)


def _step(step: int, change: float = 0.0) -> StepClaim:
    """What is said of a checkpoint: it lost something where pass@64 changed by less than 0."""
    return StepClaim(
        step=step, checkpoint=f"checkpoint-{step}", lost=change < 0, kept=change == 0, p=0.001 if change < 0 else 1.0,
        k=64, change=change, low=change - 0.05, high=change + 0.05, is_of_population=change < 0,
    )  # fmt: skip


#: Lost on these problems, not in their population: the interval reaches 0.
_HERE = replace(_step(160, -0.04), is_of_population=False)
FELL = Verdict(
    series="grpo", label="over_sharpened", sentence="", p_exact=0.01, p_population=0.02, n_problems=100, n_base=512,
    n_late=768, window=(120, 140, 160), k_most=128,
    changes=(_change(1, 0.201), _change(32, -0.053, 0.022), _change(128, -0.031)),
)  # fmt: skip
LARGER = Remedy(drop=0.05, n_problems=400, n=256, n_base=512, tokens=1e6)
GUESSES = Explanation(guess_rate=0.0018, guess_rate_allowed=0.005, guess_source="assumed")
EVEN = replace(GUESSES, even_loss=0.876)
FELL_CLAIM = Claim(name=FELL_HERE, null="it fell at no k", scope=HERE, level=0.03, holds=True, p=0.001)


@pytest.mark.parametrize(
    ("verdict", "sentence"),
    [
        (
            FELL,
            "Coverage lost (over-sharpened): pass@32 is 5.3 points below the base [3.1, 7.5] on average over steps "
            "120–160. "
            "pass@1 is 20.1 points above the base. Scope: the population of these 100 problems, k = 1 to 128, one "
            "training seed.",
        ),
        (
            # the keys look at all k at once: an interval at this one k that holds 0 would contradict the label
            replace(FELL, changes=(_change(1, 0.201), _change(32, -0.053, 0.06))),
            "Coverage lost (over-sharpened): pass@32 is 5.3 points below the base on average over steps 120–160. "
            "pass@1 is "
            "20.1 points above the base. Scope: the population of these 100 problems, k = 1 to 128, one training "
            "seed.",
        ),
        (
            replace(FELL, modes_collapsed=True, window=(160,), changes=(_change(1, -0.3, None),)),
            "Coverage lost: pass@1 is 30.0 points below the base at step 160. Also, correct answers outside each "
            "problem's dominant mode became fewer. Scope: the population of these 100 problems, k = 1 to 128, one "
            "training seed.",
        ),
        (
            replace(FELL, label="over_sharpened_here", n_problems=1),
            "Coverage lost (over-sharpened): pass@32 is 5.3 points below the base on average over steps 120–160. "
            "pass@1 is "
            "20.1 points above the base. Scope: this one problem, k = 1 to 128, one training seed.",
        ),
        (
            replace(FELL, label="mode_collapse", least_change=-0.1, n_minority_problems=80),
            "Coverage lost (modes): correct answers outside each problem's dominant mode became fewer at steps "
            "120–160. No fall of pass@k is shown. pass@1 is 20.1 points above the base. Scope: the 80 of these "
            "100 problems that show their modes, k = 1 to 128, one training seed.",
        ),
        (
            replace(FELL, label="mode_collapse", least_change=0.01, n_minority_problems=100, changes=()),
            "Coverage lost (modes): correct answers outside each problem's dominant mode became fewer at steps "
            "120–160. No pass@k is more than 2 points below the base. Scope: these 100 problems only, k = 1 to "
            "128, one training seed.",
        ),
        (
            replace(FELL, label="no_loss", changes=(_change(1, -0.0001), _change(2, 0.1))),
            "No loss (within 2 points): no pass@k is more than 2 points below the base on average over steps "
            "120–160 (95 % "
            "confidence). pass@1 equals the base's. Scope: the population of these 100 problems, k = 1 to 128, "
            "one training seed.",
        ),
        (
            replace(FELL, label="inconclusive", changes=(_change(1, -0.012),)),
            "Not shown: the data neither show a drop of pass@k nor rule out one of more than 2 points on average "
            "over steps "
            "120–160. pass@1 is not significantly different (−1.2 points [−3.2, +0.8]). Scope: these 100 problems, "
            "k = 1 to 128, one training seed.",
        ),
        (
            replace(FELL, label="inconclusive", changes=(), remedy=LARGER),
            "Not shown: the data neither show a drop of pass@k nor rule out one of more than 2 points on average "
            "over steps "
            "120–160. About 400 problems with 256 samples each (512 of the base) would show a drop of 5 points "
            "with 80 % power. Scope: these 100 problems, k = 1 to 128, one training seed.",
        ),
        (
            replace(FELL, label="inconclusive", changes=(), remedy=replace(LARGER, first=16, enough=4)),
            "Not shown: the data neither show a drop of pass@k nor rule out one of more than 2 points on average "
            "over steps "
            "120–160. About 400 problems, each sampled until 4 of at most 256 samples are correct (512 of the base), "
            "would show a drop of 5 points with 80 % power. Scope: these 100 problems, k = 1 to 128, one training "
            "seed.",
        ),
        (
            replace(FELL, label="inconclusive", changes=(), remedy=replace(LARGER, n_problems=100)),
            "Not shown: the data neither show a drop of pass@k nor rule out one of more than 2 points on average "
            "over steps "
            "120–160. An audit of this size would show a drop of 5 points with 80 % power. Scope: these 100 "
            "problems, k = 1 to 128, one training seed.",
        ),
        (Verdict(series="run", label="no_verdict", sentence="", why="no data"), "No verdict: no data."),
        (
            replace(FELL, label="degraded", changes=(_change(1, -0.04), _change(4, -0.06)), explanation=GUESSES),
            "Coverage lost (degraded): pass@4 is 6.0 points below the base [4.0, 8.0] on average over steps "
            "120–160. pass@1 is "
            "4.0 points below the base. Scope: these 100 problems only, k = 1 to 128, one training seed.",
        ),
        (
            replace(FELL, label="degraded", changes=(_change(1, -0.3, None),), explanation=EVEN),
            "Coverage lost (degraded): pass@1 is 30.0 points below the base on average over steps 120–160. An equal "
            "loss of "
            "correct samples on every problem explains 88 % of the fall. Scope: these 100 problems only, k = 1 to "
            "128, one training seed.",
        ),
        (
            replace(
                FELL,
                label="degraded",
                changes=(_change(1, -0.04), _change(4, -0.06)),
                explanation=replace(GUESSES, format=0.44, format_most=1.0),
            ),
            "Coverage lost (degraded): pass@4 is 6.0 points below the base [4.0, 8.0] on average over steps "
            "120–160. pass@1 is "
            "4.0 points below the base. More samples than the base's were truncated, unparsed, or timed out in "
            "grading, which explains 44 % of the fall, 100 % if all of them were correct. Scope: these 100 "
            "problems only, k = 1 to 128, one training seed.",
        ),
        (
            replace(FELL, changes=(_change(4, -0.06),), explanation=replace(GUESSES, format=0.02, format_most=0.25)),
            "Coverage lost: pass@4 is 6.0 points below the base [4.0, 8.0] on average over steps 120–160. Scope: the "
            "population of these 100 problems, k = 1 to 128, one training seed.",
        ),
        (
            replace(FELL, label="format", changes=(_change(4, -0.06),), explanation=replace(GUESSES, format=0.96)),
            "Not shown, although a fall was found: pass@4 is 6.0 points below the base [4.0, 8.0] on average over "
            "steps "
            "120–160. More samples than the base's were truncated, unparsed, or timed out in grading, which "
            "explains 96 % of the fall. The parsed samples show no significant fall. Scope: these 100 problems, k "
            "= 1 to 128, one training seed.",
        ),
        (
            replace(FELL, label="guessing", changes=(_change(4, -0.06),), explanation=GUESSES, claims=(FELL_CLAIM,)),
            "Not shown, although a fall was found: pass@4 is 6.0 points below the base [4.0, 8.0] on average over "
            "steps "
            "120–160. If the grader accepted 0.18 % of the base's wrong answers and none later, the fall would not be "
            "significant. Up to 0.5 % is assumed, because this grader was not measured (--guess-rate). Scope: "
            "these 100 problems, k = 1 to 128, one training seed.",
        ),
        (
            replace(
                FELL,
                label="guessing",
                changes=(_change(4, -0.001),),
                modes_collapsed=True,
                explanation=replace(GUESSES, guess_rate_allowed=0.25, guess_source="known to the grader"),
            ),
            "Not shown, although a fall was found: correct answers outside each problem's dominant mode became "
            "fewer at steps 120–160. If the grader accepted 0.18 % of the base's wrong answers and none later, the "
            "fall would not be significant. This grader accepts up to 25 %. Scope: these 100 problems, k = 1 to "
            "128, one training seed.",
        ),
        (
            replace(FELL, label="lost_at_steps", steps=(_step(120), _step(140), _step(160, -0.3))),
            "Coverage lost at step 160: pass@64 is 30.0 points below the base [25.0, 35.0] at step 160. "
            "The fall of the last third of the "
            "checkpoints together (steps 120–160) is not significant. "
            "pass@1 is 20.1 points "
            "above the base. Scope: the population of these 100 problems, k = 1 to 128, one training seed.",
        ),
        (
            replace(FELL, label="lost_at_steps", steps=(_step(120), _HERE)),
            "Coverage lost at step 160: pass@64 is 4.0 points below the base at step 160. "
            "The fall of the last third of the "
            "checkpoints together (steps 120–160) is not significant. "
            "pass@1 is 20.1 points above the base. Scope: "
            "these 100 problems only, k = 1 to 128, one training seed.",
        ),
        (
            replace(FELL, label="no_loss", changes=(), steps=(_step(20), replace(_HERE, step=40), _step(60))),
            "Coverage lost at step 40; no loss (within 2 points) at the end: no pass@k is more than 2 points below the "
            "base on average over steps 120–160 (95 % confidence). Step 40 had lost up to 4.0 points of pass@64 on "
            "these problems, "
            "regained later. Scope: the population of these 100 problems, k = 1 to 128, one training seed.",
        ),
        (
            replace(FELL, label="no_loss", changes=(), steps=(_step(20, -0.1), _step(40, -0.3), _step(60))),
            "Coverage lost at steps 20–40; no loss (within 2 points) at the end: no pass@k is more than 2 points "
            "below the base on average over steps 120–160 (95 % confidence). Steps 20–40 had lost up to 30.0 points "
            "[25.0, "
            "35.0] of pass@64 at step 40, regained later. Scope: the population of these 100 problems, k = 1 to "
            "128, one training seed.",
        ),
        (
            replace(FELL, label="inconclusive", changes=(), steps=(_step(20), _step(40, -0.3), _step(60))),
            "Coverage lost at step 40; not shown at the end: the data neither show a drop of pass@k nor rule out "
            "one of more than 2 points on average over steps 120–160. Step 40 had lost up to 30.0 points [25.0, "
            "35.0] of "
            "pass@64. Scope: these 100 problems, k = 1 to 128, one training seed.",
        ),
        (
            replace(FELL, label="inconclusive", changes=(), steps=(_step(20, -0.1), _step(160, -0.3))),
            "Coverage lost at steps 20–160; not shown at the end: the data neither show a drop of pass@k nor rule "
            "out one of more than 2 points on average over steps 120–160. Steps 20–160 lost up to 30.0 points "
            "[25.0, 35.0] of "
            "pass@64 at step 160. Scope: these 100 problems, k = 1 to 128, one training seed.",
        ),
        (
            replace(
                FELL,
                label="format",
                steps=(_step(20), replace(_step(160, -0.3), cause="format")),
                explanation=replace(GUESSES, format=0.96, step=160),
            ),
            "Not shown, although a fall was found: pass@64 is 30.0 points below the base [25.0, 35.0] at step "
            "160. The fall of the last third of the "
            "checkpoints together (steps 120–160) is not significant. "
            "More samples "
            "than the base's were truncated, unparsed, or timed out in grading, which explains 96 % of the fall. "
            "The parsed samples show no significant fall. pass@1 is 20.1 points above the base. Scope: the "
            "population of these 100 problems, k = 1 to 128, one training seed.",
        ),
        (
            replace(
                FELL, label="mode_collapse", changes=(), steps=(_step(20), replace(_step(160, -0.3), cause="unread"))
            ),
            "Coverage lost (modes): correct answers outside each problem's dominant mode became fewer at steps "
            "120–160. No fall of pass@k is shown. Step 160 lost up to 30.0 points [25.0, 35.0] of pass@64. At "
            "step 160, too few samples were parsed for a conclusion. Scope: the 0 of these 100 problems that "
            "show their modes, k = 1 to 128, one training seed.",
        ),
    ],
)
def test_every_label_is_one_sentence_with_its_range_of_k_and_its_scope(verdict: Verdict, sentence: str) -> None:
    assert sentence_of(verdict) == sentence


def test_the_largest_fall_is_a_fall() -> None:
    assert largest_fall(FELL.changes) == FELL.changes[1]
    assert largest_fall((_change(1, 0.0), _change(2, 0.1))) is None
    assert largest_fall(()) is None


def test_every_label_has_a_heading_and_a_loss_is_never_called_no_loss() -> None:
    lost = {"over_sharpened", "over_sharpened_here", "degraded", "mode_collapse", "lost_at_steps"}
    assert {label for label, heading in HEADINGS.items() if heading == "coverage_lost"} == lost
    assert {label for label in HEADINGS if replace(FELL, label=label).positive} == lost | {"format"}
    assert [label for label, heading in HEADINGS.items() if heading == "no_loss"] == ["no_loss"]


def test_a_title_names_what_happened_to_pass_at_1() -> None:
    assert FELL.title == "Coverage lost (over-sharpened)"
    assert replace(FELL, changes=(_change(1, 0.01), _change(8, -0.1))).title == "Coverage lost"
    assert replace(FELL, label="degraded").title == "Coverage lost (degraded)"
    assert replace(FELL, label="guessing").title == "Not shown, although a fall was found"


def test_attributes_are_fields_of_the_json() -> None:
    lost = replace(
        FELL, share_by_lost_problems=0.7, explanation=replace(GUESSES, guess_rate=0.004, guess_rate_allowed=0.0011)
    )
    document = json.loads(lost.to_json())
    assert (document["heading"], document["title"]) == ("coverage_lost", "Coverage lost (over-sharpened)")
    attributes = document["attributes"]
    assert (attributes["where"], attributes["steps"], attributes["scope"]) == ("window", [[120, 160]], "population")
    assert (attributes["pass_at_1"], attributes["kind"]) == ("up", "whole problems")
    assert (attributes["k"], attributes["change"]) == (32, -0.053)
    [other] = attributes["explanations"]
    assert (other["name"], other["is_enough"]) == ("false accepts", False)
    assert other["condition"] == "0.4 % of the base's wrong answers were accepted, and none later"


def _of(hint: Any) -> st.SearchStrategy[Any]:
    """Values of a type, as JSON can carry them: finite numbers, short tuples, records in records."""
    if is_dataclass(hint):
        return st.builds(hint, **{name: _of(own) for name, own in get_type_hints(hint).items()})
    if get_origin(hint) is tuple:
        return st.lists(_of(get_args(hint)[0]), max_size=3).map(tuple)
    if get_origin(hint) in (UnionType, Union):
        return st.one_of(*map(_of, get_args(hint)))
    if hint is float:
        return st.floats(allow_nan=False, allow_infinity=False)
    return st.from_type(hint)


@pytest.mark.slow
@given(_of(Verdict))
def test_json_gives_an_equal_verdict(verdict: Verdict) -> None:
    again = Verdict.from_json(verdict.to_json())
    assert again == verdict
    assert again.to_json() == verdict.to_json()
    assert hash(again) == hash(verdict)  # tuples, not lists


@pytest.mark.parametrize("text", ["", "{", "{}", "[]", "null", '{"series": "run"}'])
def test_what_is_no_verdict_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        Verdict.from_json(text)


def test_an_unknown_field_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="mood"):
        Verdict.from_json(FELL.to_json().replace('"why":', '"mood": 1, "why":'))


def test_a_number_that_is_none_is_not_written() -> None:
    with pytest.raises(ValueError, match="JSON"):
        replace(FELL, p_exact=float("nan")).to_json()


class _Tags(HTMLParser):
    """The names of all tags, and whether they close in order."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.names.append(tag)
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_a_notebook_shows_sentence_numbers_and_caveats_and_no_foreign_markup() -> None:
    hostile = '<script>alert(1)</script> & "co"'
    html = replace(FELL, series=hostile, sentence=hostile, caveats=(hostile,))._repr_html_()
    parser = _Tags()
    parser.feed(html)
    assert not parser.open
    assert set(parser.names) == {"div", "p", "strong", "table", "thead", "tbody", "tr", "th", "td", "ul", "li"}
    assert html.count("&lt;script&gt;") == 3
    assert "<td>32</td><td>0.500</td><td>0.447</td><td>−5.3 [−7.5, −3.1]</td>" in html
    assert "<td>+20.1 [18.1, 22.1]</td>" in html
    bare = Verdict(series="run", label="no_verdict", sentence="No verdict: no data.")._repr_html_()
    assert "<table>" not in bare
    assert "<ul>" not in bare


@pytest.mark.parametrize("holds", [True, False])
def test_a_bound_of_the_steps_before_a_missing_end_is_stated_only_if_its_claim_holds(holds: bool) -> None:
    claim = Claim(name="no fall that matters", null="", scope="population", level=0.05, holds=holds, p=0.01)
    missing = LeftOut(checkpoint="checkpoint-180", step=180, why="lacks samples")
    verdict = replace(FELL, label="inconclusive", changes=(), claims=(claim,), left_out=(missing,))
    assert verdict.is_end_unknown is holds
    assert verdict.title.endswith("the end is unknown") is holds
    assert ("no pass@k is more than 2 points below the base" in sentence_of(verdict)) is holds
    assert not replace(verdict, left_out=(replace(missing, step=20),)).is_end_unknown
