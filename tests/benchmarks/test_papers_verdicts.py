"""Verdicts on numbers made by hand."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.papers.claim import (
    FAILS_AS_PRINTED,
    PART,
    Above,
    Below,
    Check,
    Claim,
    Estimate,
    Finding,
    Form,
    Never,
    Printed,
    Rule,
)
from benchmarks.papers.estimates import counterexamples, enumerated, exact, mean, share
from benchmarks.papers.verdicts import agreement, condition, same_share, verdict


def estimate(low: float, high: float, *, value: float | None = None, n: int = 200) -> Estimate:
    middle = (low + high) / 2 if value is None else value
    return Estimate(value=middle, low=low, high=high, n=n, of="seeds", unit="share of seeds")


HIGH, LOW, ACROSS = estimate(0.9, 0.95), estimate(0.1, 0.2), estimate(0.4, 0.6)


def check(number: Estimate, *setting: tuple[str, str], rule: Rule = Above(threshold=0.5)) -> Check:  # noqa: B008
    return Check(setting=setting, quantity="share", estimate=number, rule=rule)


def universal(name: str, *, refuted: bool, form: Form = "printed") -> Check:
    return Check(
        setting=((PART, name),), quantity="share", estimate=counterexamples([refuted]), rule=Never(), form=form
    )


def claim(*checks: Check, independent: Finding | None = None) -> Claim:
    said = {"claim_id": "made-up", "paper": "A", "place": "nowhere", "statement": "It holds", "setting": "None."}
    return Claim(**said, checks=checks, independent=independent)


@pytest.mark.parametrize(
    ("rule", "number", "outcome"),
    [
        (Above(threshold=0.5), HIGH, "holds"),
        (Above(threshold=0.5), LOW, "fails"),
        (Above(threshold=0.5), ACROSS, "undecided"),
        (Above(threshold=0.4), ACROSS, "undecided"),  # a bound on the threshold decides nothing
        (Below(threshold=0.5), LOW, "holds"),
        (Below(threshold=0.5), HIGH, "fails"),
        (Below(threshold=0.5), ACROSS, "undecided"),
        (Never(), estimate(0.0, 0.01, value=0.0), "holds"),
        (Never(), estimate(0.0, 0.01, value=0.0001), "fails"),
        (Printed(number=1.38, decimals=2), exact(1.3849, unit="ratio"), "holds"),
        (Printed(number=1.38, decimals=2), exact(1.3851, unit="ratio"), "fails"),
        (Above(threshold=0.0), exact(0.1, unit="ratio"), "holds"),
        (Above(threshold=0.0), exact(0.0, unit="ratio"), "fails"),  # no interval, no doubt
    ],
)
def test_a_rule_decides_where_the_interval_lies_on_one_side(rule: Rule, number: Estimate, outcome: str) -> None:
    assert rule.outcome(number) == outcome


@pytest.mark.parametrize("rule", [Above(threshold=0.5), Below(threshold=0.5), Never(), Printed(number=0.0, decimals=1)])
def test_no_seed_at_all_decides_nothing(rule: Rule) -> None:
    assert rule.outcome(share(np.zeros(0, dtype=bool))) == "undecided"


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        ((HIGH, HIGH), "holds"),
        ((LOW, LOW), "fails"),
        ((ACROSS, ACROSS), "undecided"),
        ((LOW, ACROSS), "fails (fails in 1, undecided in 1 of 2)"),
    ],
    ids=["both hold", "both fail", "both undecided", "one of each"],
)
def test_all_settings_must_hold_for_a_claim_to_hold(numbers: tuple[Estimate, Estimate], text: str) -> None:
    assert verdict([check(number, ("G", group)) for number, group in zip(numbers, "48", strict=True)]).text == text


def grid(groups: tuple[str, ...], holding: set[tuple[str, str]]) -> list[Check]:
    return [
        check(HIGH if (name, group) in holding else LOW, ("", name), ("G", group))
        for name in ("raw", "normalised")
        for group in groups
    ]


def test_some_settings_that_hold_are_named_as_restrictions_of_factors() -> None:
    checks = grid(("4", "8", "32"), {("raw", "4"), ("raw", "8")})
    assert verdict(checks).text == "holds when raw and G = 4 or 8 (fails in 4 of 6)"


def test_settings_that_are_no_product_are_listed_by_the_first_factor() -> None:
    checks = grid(("4", "8"), {("raw", "4"), ("raw", "8"), ("normalised", "8")})
    assert condition([one for one in checks if one.outcome == "holds"], checks) == "raw; normalised (G = 8)"


def test_a_statement_holds_for_its_parts() -> None:
    parts = [check(HIGH, (PART, "the first bound")), check(LOW, (PART, "the second bound"))]
    assert verdict(parts).text == "holds for the first bound (fails in 1 of 2)"
    assert verdict(parts).kind == "holds when"


def test_a_corrected_form_that_holds_saves_no_printed_one() -> None:
    printed, corrected = universal("Eq 3", refuted=True), universal("Eq 3 mended", refuted=False, form="corrected")
    found = verdict([printed, corrected])
    assert found.kind == FAILS_AS_PRINTED
    assert found.text == "fails as printed, holds corrected: Eq 3 mended"
    assert verdict([printed, universal("Eq 3 mended", refuted=True, form="corrected")]).kind == "fails"
    assert verdict([universal("Eq 3", refuted=False), corrected]).text == "holds"
    # one printed form that holds beside one that fails
    assert verdict([universal("Eq 2", refuted=False), printed, corrected]).kind == FAILS_AS_PRINTED


def test_a_universal_statement_fails_with_any_of_its_parts() -> None:
    parts = [universal("the rise", refuted=False), universal("the fall", refuted=True)]
    assert verdict(parts).text == "fails (holds for the rise, fails in 1 of 2)"
    assert verdict(parts[:1]).kind == "holds"
    assert verdict(parts[1:]).text == "fails"


def test_a_share_outside_the_told_range_is_no_full_agreement() -> None:
    told = Finding(text="15 to 27 %", kind="fails", why_apart="drawn otherwise")
    ours = Check(
        setting=(), quantity="share", estimate=counterexamples([True] * 42 + [False] * 58), rule=Never(),
        independent_range=(0.15, 0.27),
    )  # fmt: skip
    assert agreement(claim(ours, independent=told)) == "same verdict, other share: drawn otherwise"
    near = Check(**{**vars(ours), "independent_range": (0.15, 0.35)})
    assert agreement(claim(near, independent=told)) == "agrees"


def test_agreement_compares_the_verdict_and_the_numbers() -> None:
    same = check(share(np.arange(200) < 100), ("G", "4"))
    near = Check(**{**vars(same), "independent": 0.55})
    far = Check(**{**vars(same), "independent": 0.75})
    assert same_share(near)
    assert not same_share(far)
    assert agreement(claim(same)) == ""
    assert agreement(claim(near)) == "agrees"
    assert agreement(claim(far)) == "same verdict, other share"
    holds = claim(check(HIGH), independent=Finding(text="holds", kind="holds"))
    fails = claim(check(LOW), independent=Finding(text="holds", kind="holds"))
    assert agreement(holds) == "agrees"
    assert agreement(fails) == "verdict differs: holds there, fails here"


def test_a_claim_refuses_what_no_verdict_can_follow_from() -> None:
    with pytest.raises(ValueError, match="no number, no verdict"):
        claim()
    with pytest.raises(ValueError, match="different factors"):
        claim(check(HIGH, ("G", "4")), check(HIGH, ("τ", "4")))
    with pytest.raises(ValueError, match="checked twice"):
        claim(check(HIGH, ("G", "4")), check(LOW, ("G", "4")))
    with pytest.raises(ValueError, match="NaN"):
        estimate(float("nan"), 1.0)


def test_estimates_know_what_they_count() -> None:
    assert counterexamples([False, True, False, False]).value == 0.25
    every = enumerated([False, True], of="kinds")
    assert (every.value, every.low, every.high, every.n) == (0.5, None, None, 2)
    found = mean(np.array([1.0, 2.0, 3.0]), unit="steps")
    assert (found.n, found.unit, found.of) == (3, "steps", "seeds")
    assert found.low == pytest.approx(2 - 4.3027 / 3**0.5, abs=1e-4)
