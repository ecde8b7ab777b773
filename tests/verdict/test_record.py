"""The verdict as a record: its sentence, its JSON, and what a notebook shows."""

from __future__ import annotations

from dataclasses import is_dataclass, replace
from html.parser import HTMLParser
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oversharp.diagnostics.verdict.claims import FELL_HERE, HERE
from oversharp.diagnostics.verdict.record import TITLES, ChangeAtK, Claim, Explanation, Remedy, StepClaim, Verdict
from oversharp.diagnostics.verdict.sentence import largest_fall, sentence_of


def _change(k: int, change: float, spread: float | None = 0.02) -> ChangeAtK:
    low, high = (None, None) if spread is None else (change - spread, change + spread)
    return ChangeAtK(k=k, base=0.5, late=0.5 + change, change=change, low=low, high=high)


def _step(step: int, change: float = 0.0) -> StepClaim:
    """What is said of a checkpoint: it lost something where pass@64 changed by less than 0."""
    return StepClaim(
        step=step, checkpoint=f"checkpoint-{step}", lost=change < 0, kept=change == 0, p=0.001 if change < 0 else 1.0,
        k=64, change=change, low=change - 0.05, high=change + 0.05,
    )  # fmt: skip


FELL = Verdict(
    series="grpo", label="over_sharpened", sentence="", p_exact=0.01, p_population=0.02, n_problems=100, n_base=512,
    n_late=768, window=(120, 140, 160), k_most=128,
    changes=(_change(1, 0.201), _change(32, -0.053, 0.022), _change(128, -0.031)),
)  # fmt: skip
LARGER = Remedy(drop=0.05, n_problems=400, n=256, n_base=512, tokens=1e6)
WHEN = "in the last third of this one training run (steps 120–160)"
FELL_BY_6 = "pass@k fell below the base, most at k = 4: by 6.0 points [4.0, 8.0]"
GUESSES = Explanation(guess_rate=0.0018, guess_rate_allowed=0.005, guess_source="assumed")
EVEN = replace(GUESSES, even_loss=0.876)
FELL_CLAIM = Claim(name=FELL_HERE, null="it fell at no k", scope=HERE, level=0.03, holds=True, p=0.001)
MOST_AT = "most at k = 64: by 30.0 points [25.0, 35.0]"
NOTHING_SHOWN = (
    "Inconclusive: up to k = 128, neither a fall of pass@k below the base nor its absence (to within 2 points) is "
    f"shown {WHEN}, on these 100 problems; "
)


def nothing_shown(lost: str) -> str:
    return NOTHING_SHOWN.replace("Inconclusive:", f"Inconclusive at the end, {lost}:")


@pytest.mark.parametrize(
    ("verdict", "sentence"),
    [
        (
            FELL,
            "Over-sharpened: up to k = 128, pass@k fell below the base, most at k = 32: by 5.3 points [3.1, 7.5] "
            f"{WHEN}, on these 100 problems and on problems like them; pass@1 rose by 20.1.",
        ),
        (
            # the keys look at all k at once: an interval at this one k that holds 0 would contradict the label
            replace(FELL, changes=(_change(1, 0.201), _change(32, -0.053, 0.06))),
            "Over-sharpened: up to k = 128, pass@k fell below the base, most at k = 32: by 5.3 points "
            f"{WHEN}, on these 100 problems and on problems like them; pass@1 rose by 20.1.",
        ),
        (
            replace(FELL, modes_collapsed=True, window=(160,), changes=(_change(1, -0.3, None),)),
            "Over-sharpened: up to k = 128, pass@k fell below the base, most at k = 1: by 30.0 points at the end of "
            "this one training run (step 160), on these 100 problems and on problems like them; correct answers "
            "outside each problem's dominant mode were lost too.",
        ),
        (
            replace(FELL, label="over_sharpened_here", n_problems=1),
            "Over-sharpened on these problems: up to k = 128, pass@k fell below the base, most at k = 32: by 5.3 "
            "points "
            f"{WHEN}, on this one problem (whether on others like them, the data cannot say); pass@1 rose by 20.1.",
        ),
        (
            replace(FELL, label="mode_collapse", least_change=-0.1, n_minority_problems=80),
            "Mode collapse: up to k = 128, no fall of pass@k is shown, but correct answers outside each problem's "
            f"dominant mode were lost {WHEN}, on the 80 of these 100 problems that show their modes; pass@1 rose by "
            "20.1.",
        ),
        (
            replace(FELL, label="mode_collapse", least_change=0.01, n_minority_problems=100, changes=()),
            "Mode collapse: up to k = 128, pass@k fell by no more than 2 points, but correct answers outside each "
            f"problem's dominant mode were lost {WHEN}, on these 100 problems.",
        ),
        (
            replace(FELL, label="no_loss", changes=(_change(1, -0.0001), _change(2, 0.1))),
            f"No loss found: up to k = 128, pass@k fell by no more than 2 points below the base {WHEN}, on these "
            "100 problems and on problems like them (95 % confidence); pass@1 did not move.",
        ),
        (
            replace(FELL, label="inconclusive", changes=(_change(1, -0.012),)),
            f"{NOTHING_SHOWN}pass@1 fell by 1.2.",
        ),
        (
            replace(FELL, label="inconclusive", changes=(), remedy=LARGER),
            f"{NOTHING_SHOWN}about 400 problems with 256 samples each (512 of the base) would show a fall of 5 points "
            "with 80 % power.",
        ),
        (
            replace(FELL, label="inconclusive", changes=(), remedy=replace(LARGER, n_problems=100)),
            f"{NOTHING_SHOWN}an audit of this size would show a fall of 5 points with 80 % power.",
        ),
        (Verdict(series="run", label="no_verdict", sentence="", why="no data"), "No verdict: no data."),
        (
            replace(FELL, label="degraded", changes=(_change(1, -0.04), _change(4, -0.06)), explanation=GUESSES),
            f"Degraded: up to k = 128, {FELL_BY_6} {WHEN}, on these 100 problems; pass@1 fell by 4.0.",
        ),
        (
            replace(FELL, label="degraded", changes=(_change(1, -0.3, None),), explanation=EVEN),
            "Degraded: up to k = 128, pass@k fell below the base, most at k = 1: by 30.0 points "
            f"{WHEN}, on these 100 problems; the same share of correct answers lost on every problem explains 88 % of "
            "the fall.",
        ),
        (
            replace(
                FELL,
                label="degraded",
                changes=(_change(1, -0.04), _change(4, -0.06)),
                explanation=replace(GUESSES, format=0.44, format_most=1.0),
            ),
            f"Degraded: up to k = 128, {FELL_BY_6} {WHEN}, on these 100 problems; pass@1 fell by 4.0; more samples "
            "than of the base's were cut off, not parsed or out of the grader's time, which explains 44 % of the fall, "
            "up to 100 % if all of them were right.",
        ),
        (
            replace(FELL, changes=(_change(4, -0.06),), explanation=replace(GUESSES, format=0.02, format_most=0.25)),
            f"Over-sharpened: up to k = 128, {FELL_BY_6} {WHEN}, on these 100 problems and on problems like them.",
        ),
        (
            replace(FELL, label="format", changes=(_change(4, -0.06),), explanation=replace(GUESSES, format=0.96)),
            f"Explained by format: up to k = 128, {FELL_BY_6} {WHEN}, on these 100 problems, but more samples than of "
            "the base's were cut off, not parsed or out of the grader's time, which explains 96 % of the fall: those "
            "that could be read show no sure fall.",
        ),
        (
            replace(FELL, label="guessing", changes=(_change(4, -0.06),), explanation=GUESSES, claims=(FELL_CLAIM,)),
            f"Not distinguishable from lucky guessing: up to k = 128, {FELL_BY_6} {WHEN}, on these 100 problems, but a "
            "grader that accepted 0.18 % of the base's wrong answers and none later would leave the same behind, and "
            "up to 0.5 % is assumed of one that nobody measured.",
        ),
        (
            replace(
                FELL,
                label="guessing",
                changes=(_change(4, -0.001),),
                modes_collapsed=True,
                explanation=replace(GUESSES, guess_rate_allowed=0.25, guess_source="known to the grader"),
            ),
            "Not distinguishable from lucky guessing: up to k = 128, correct answers outside each problem's dominant "
            f"mode became fewer {WHEN}, on these 100 problems, but a grader that accepted 0.18 % of the base's wrong "
            "answers and none later would leave the same behind, and this one accepts up to 25 %.",
        ),
        (
            replace(FELL, label="lost_at_steps", steps=(_step(120), _step(140), _step(160, -0.3))),
            f"Loss at step 160: up to k = 128, pass@k fell below the base at step 160, {MOST_AT}, on these "
            "100 problems and on problems like them, though the last third of the checkpoints, taken together (steps "
            "120–160), does not show it.",
        ),
        (
            replace(FELL, label="no_loss", changes=(), steps=(_step(20, -0.1), _step(40, -0.3), _step(60))),
            "No loss found at the end, loss at steps 20–40: up to k = 128, pass@k fell by no more than 2 points below "
            f"the base {WHEN}, on these 100 problems and on problems like them (95 % confidence); earlier, at steps "
            f"20–40, pass@k had fallen below the base, {MOST_AT.replace('at k', 'at step 40 and k')}, and came back "
            "later.",
        ),
        (
            replace(FELL, label="inconclusive", changes=(), steps=(_step(20), _step(40, -0.3), _step(60))),
            f"{nothing_shown('loss at step 40')}earlier, at step 40, pass@k had fallen below the base, {MOST_AT}.",
        ),
        (
            replace(FELL, label="inconclusive", changes=(), steps=(_step(20, -0.1), _step(160, -0.3))),
            f"{nothing_shown('loss at steps 20–160')}at steps 20–160, pass@k fell below the base, "
            f"{MOST_AT.replace('at k', 'at step 160 and k')}.",
        ),
        (
            replace(
                FELL,
                label="format",
                steps=(_step(20), replace(_step(160, -0.3), cause="format")),
                explanation=replace(GUESSES, format=0.96, step=160),
            ),
            f"Explained by format: up to k = 128, pass@k fell below the base at step 160, {MOST_AT}, on these 100 "
            "problems and on problems like them, though the last third of the checkpoints, taken together (steps "
            "120–160), does not show it, but more samples than of the base's were cut off, not parsed or out of the "
            "grader's time, which explains 96 % of the fall: those that could be read show no sure fall.",
        ),
        (
            replace(
                FELL, label="mode_collapse", changes=(), steps=(_step(20), replace(_step(160, -0.3), cause="unread"))
            ),
            "Mode collapse: up to k = 128, no fall of pass@k is shown, but correct answers outside each problem's "
            f"dominant mode were lost {WHEN}, on the 0 of these 100 problems that show their modes; at step 160, "
            f"pass@k fell below the base, {MOST_AT}; at step 160 too few could be read to tell.",
        ),
    ],
)
def test_every_label_is_one_sentence_with_its_range_of_k_and_its_scope(verdict: Verdict, sentence: str) -> None:
    assert sentence_of(verdict) == sentence


def test_the_largest_fall_is_a_fall() -> None:
    assert largest_fall(FELL.changes) == FELL.changes[1]
    assert largest_fall((_change(1, 0.0), _change(2, 0.1))) is None
    assert largest_fall(()) is None


def test_what_is_positive_and_how_it_is_called() -> None:
    positive = {label for label in TITLES if replace(FELL, label=label).positive}
    lost = {"over_sharpened", "over_sharpened_here", "degraded", "format", "mode_collapse", "lost_at_steps"}
    assert positive == lost
    assert replace(FELL, label="over_sharpened_here").title == "Over-sharpened on these problems"


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
