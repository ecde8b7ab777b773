"""The first screen: what to ship, what it costs, and where that lies."""

from __future__ import annotations

from dataclasses import replace

import pytest

from oversharp.diagnostics.verdict.recommendation import ShippingStep, TossUp
from oversharp.diagnostics.verdict.record import Verdict
from oversharp.diagnostics.verdict.results import Estimate, Sharpening, SharpeningLabel
from oversharp.diagnostics.verdict.words.sharpening import sharpening_text
from oversharp.reports.context import Context
from oversharp.reports.decision.section import _distance_text, decision
from oversharp.reports.records import ChangeMap
from oversharp.reports.sections.coverage_figures import change_map
from oversharp.reports.sharpening.figure import HOW, HOW_OF_SAMPLES
from tests.reports.decision.judged import BASE, judged, shipping_step
from tests.reports.parts import texts, with_series, with_source
from tests.reports.sharpening.test_figure import controlled


def colder(one: ShippingStep) -> ShippingStep:
    """The base drawn at T = 0.6 in place of the checkpoint."""
    return replace(one, series="grpo", step=0, checkpoint="checkpoint-0", is_base=True, temperature=0.6)


def hotter(one: ShippingStep) -> ShippingStep:
    """The last checkpoint of the series drawn at T = 1.5."""
    return replace(one, step=30, checkpoint="checkpoint-30", temperature=1.5)


def test_series_that_were_compared_have_one_advice_in_the_words_of_ship(context: Context) -> None:
    (advice,) = decision(judged(context)).advice
    assert advice.title == "Ship checkpoint-20 of iac"
    assert advice.text == "pass@1 25.0 % → 40.0 %; up by at least 5.0 points."
    equal = judged(context)
    verdict = equal.series[1].verdict
    assert verdict is not None
    assert verdict.shipping is not None
    other = shipping_step("iac", 30, "candidate", may_be_best=True)
    said = replace(verdict.shipping, steps=(*verdict.shipping.steps[:-1], other))
    (advice,) = decision(with_series(equal, 1, verdict=replace(verdict, shipping=said))).advice
    assert advice.text.endswith(" Pass@1 may be as high at checkpoint-30 of iac.")


def test_the_table_holds_the_recommended_first_and_the_last_of_every_series(context: Context) -> None:
    made = decision(judged(context))
    assert made.chosen == (True, False, False)
    assert texts(made.table) == [
        ["iac", "step 20", "40.0\xa0%, +15.0 [+12.0, +18.0]", "−1.0 [−4.0, +2.0] at k = 4", "0 of 12", "recommended"],
        [
            "grpo",
            "step 30, last",
            "50.0\xa0%, +25.0 [+22.0, +28.0]",
            "−20.0 [−23.0, −17.0] at k = 4",
            "2 of 12, 0 significant",  # 3 and 1 of 8 at the base
            "▼ Coverage lost",
        ],
        [
            "iac",
            "step 30, last",
            "45.0\xa0%, +20.0 [+17.0, +23.0]",
            "−1.0 [−4.0, +2.0] at k = 4",
            "0 of 12",
            "? Not shown",
        ],
    ]


@pytest.mark.parametrize(("step", "cell"), [(30, "eligible, toss-up with the base"), (20, "eligible")])
def test_a_toss_up_with_the_base_is_marked_in_its_row_and_no_other(context: Context, step: int, cell: str) -> None:
    toss_up = TossUp(
        series="iac", step=step, checkpoint=f"checkpoint-{step}", is_base=False, temperature=None, gain=0.2,
        expected_gain=0.1, better=0.7, needed=0.8,
    )  # fmt: skip
    made = judged(context)
    for place, series in enumerate(made.source.series):
        verdict = series.verdict
        assert verdict is not None
        assert verdict.shipping is not None
        steps = [
            replace(one, role="candidate") if (one.series, one.step) == ("iac", 30) else one
            for one in verdict.shipping.steps
        ]
        shipping = replace(verdict.shipping, steps=tuple(steps), toss_up=toss_up)
        made = with_series(made, place, verdict=replace(verdict, shipping=shipping))
    assert texts(decision(made).table)[-1][-1] == f"{cell}; ? Not shown"


def test_a_last_checkpoint_that_may_be_shipped_says_so_beside_its_verdict(context: Context) -> None:
    made = judged(context)
    verdict = made.source.series[1].verdict
    assert verdict is not None
    assert verdict.shipping is not None
    *earlier, last = verdict.shipping.steps
    assert (last.series, last.step, last.role) == ("iac", 30, "out")
    said = replace(verdict.shipping, steps=(*earlier, replace(last, role="candidate")))
    table = decision(with_series(made, 1, verdict=replace(verdict, shipping=said))).table
    assert [row[-1] for row in texts(table)] == ["recommended", "▼ Coverage lost", "eligible; ? Not shown"]


def test_beside_a_base_that_was_not_drawn_sharper_it_says_so_and_what_it_takes(context: Context) -> None:
    audited = with_source(context, series=context.series[:1])
    imported = with_series(audited, 0, checkpoints=audited.series[0].checkpoints.assign(kind="recorded"))
    assert decision(audited).sentences[:1] == (HOW,)
    assert decision(imported).sentences[:1] == (HOW_OF_SAMPLES,)


def test_what_is_recommended_of_a_series_that_is_not_shown_is_not_called_one_of_those_that_are(
    context: Context,
) -> None:
    made = decision(with_source(judged(context), series=judged(context).series[:1]))
    assert made.title == "Ship checkpoint-20 of iac"
    assert texts(made.table)[0] == [
        "step 20 of iac, not in this report", "40.0\xa0%, +15.0 [+12.0, +18.0]", "−1.0 [−4.0, +2.0] at k = 4", "–",
        "recommended",
    ]  # fmt: skip


def test_the_same_weights_in_another_series_have_the_band_that_holds_them(context: Context) -> None:
    told = judged(context)
    verdict = told.series[1].verdict
    assert verdict is not None
    assert verdict.shipping is not None
    twin = ShippingStep(
        series="iac", step=30, checkpoint="checkpoint-30", is_base=False, role=None, why="the same weights"
    )
    said = replace(verdict.shipping, steps=(*verdict.shipping.steps[:-1], twin))
    told = with_series(told, 1, verdict=replace(verdict, shipping=said))
    alone = decision(told)
    assert texts(alone.table)[2][2] == "45.0\xa0%, +20.0 [+17.0, +23.0]"  # of the finding, at k = 1 by itself
    assert any("iac step 30 (not in that band)" in text for text in alone.reading)
    ids = {int(row.step): row.checkpoint_id for row in told.series[0].checkpoints.itertuples()}
    same = told.series[1].checkpoints.assign(checkpoint_id=lambda frame: frame["step"].map(ids))
    shared = decision(with_series(told, 1, checkpoints=same))
    assert texts(shared.table)[2][2] == "50.0\xa0%, +25.0 [+22.0, +28.0]"  # that of GRPO's step 30
    assert not any("which that band does not hold" in text for text in shared.reading)


def test_a_base_drawn_colder_is_of_all_series_and_nobody_counted_what_it_lost(context: Context) -> None:
    made = decision(judged(context, colder))
    assert made.advice[0].title == "Ship the base sampled at T = 0.6, without any training"
    assert texts(made.table)[0][:2] == ["all", "base at T = 0.6"]
    assert texts(made.table)[0][4] == "–"


def test_without_a_verdict_nothing_is_recommended_and_the_costs_are_told_all_the_same(context: Context) -> None:
    made = decision(context)
    assert made.advice[0].title == "No checkpoint is recommended"
    assert made.advice[0].text.startswith("No verdict: this audit predates")
    assert made.chosen == (False, False)
    assert texts(made.table)[0][2:5] == [
        "50.0\xa0%, +25.0 [+22.0, +28.0]",
        "−20.0 [−23.0, −17.0] at k = 4",
        "2 of 12, 0 significant",
    ]


def test_series_without_a_recommendation_of_their_own_have_one_of_their_own(context: Context) -> None:
    apart = with_series(judged(context), 0, verdict=None)
    made = decision(apart)
    assert made.title == "What to ship: 2 answers"
    assert [one.title for one in made.advice] == [
        "No checkpoint is recommended for grpo",
        "Ship checkpoint-20 of iac",
    ]


def test_samples_that_a_second_verifier_graded_are_no_second_answer(context: Context) -> None:
    told = judged(context)
    iac = told.series[1]
    assert iac.verdict is not None
    assert iac.verdict.shipping is not None
    by_exact = replace(
        iac.verdict.shipping, series=("iac (exact)",), sentence="Ship the base, checkpoint-0: no fall is allowed."
    )
    by_exact = replace(by_exact, recommended=replace(BASE, series="iac (exact)", role="recommended"))
    verdict = replace(iac.verdict, series="iac (exact)", shipping=by_exact)
    own = replace(iac.verdict.shipping, series=("iac",))
    twice = with_series(told, 1, verdict=replace(iac.verdict, shipping=own))
    again = {"name": "iac (exact)", "verifier": "exact", "checkpoints": iac.checkpoints, "verdict": verdict}
    made = decision(with_series(twice, 0, **again))
    assert made.title == "Ship checkpoint-20"
    assert [one.title for one in made.advice] == [
        made.title,
        "Graded by exact: Ship the base, checkpoint-0 (iac (exact))",
    ]
    assert made.advice[1].text == "No fall is allowed."
    marked = [row[-1] for row, chosen in zip(texts(made.table), made.chosen, strict=True) if chosen]
    assert marked == ["recommended"]
    assert "recommended, graded by exact" in [row[-1] for row in texts(made.table)]
    apart = decision(with_series(twice, 0, **{**again, "name": "another (exact)"}))
    assert apart.title == "What to ship: 2 answers"


@pytest.mark.parametrize(
    ("recommend", "grpo", "iac"),
    [
        (lambda one: one, (None, ("10", "20", "30")), (1, ("10", "20", "30"))),
        (colder, (0, ("T=0.6", "10", "20", "30")), (0, ("T=0.6", "10", "20", "30"))),
        (
            lambda one: replace(one, temperature=1.5, step=30),
            (None, ("10", "20", "30")),
            (0, ("30, T=1.5", "10", "20", "30")),
        ),
    ],
    ids=["a checkpoint", "the base, colder", "a checkpoint, hotter"],
)
def test_the_map_outlines_what_is_recommended(context: Context, recommend, grpo, iac) -> None:  # type: ignore[no-untyped-def]
    panels = change_map(controlled(judged(context, recommend))).panels  # type: ignore[union-attr]
    assert all(isinstance(panel, ChangeMap) for panel in panels)
    assert [(panel.outlined, panel.rows) for panel in panels] == [grpo, iac]
    if panels[0].outlined == 0:
        assert panels[0].cells[0] == pytest.approx((5.0, -2.0))  # 0.3 and 0.78 of the colder base


#: A change with both ends, with one, and one that the colder base does not reach. Ends are rounded outward.
WHOLE, ONE_END, NONE = (
    Estimate(value=0.04, low=-0.0003, high=0.0966),
    Estimate(value=0.019, low=-0.0421, high=None),
    Estimate(value=None, low=None, high=None),
)


@pytest.mark.parametrize(
    ("label", "gain", "loss", "said"),
    [
        ("not_shown", WHOLE, ONE_END, "pass@1 +4.0 [−0.1, +9.7]"),
        ("not_shown", ONE_END, WHOLE, "pass@1 +1.9, lower bound −4.3"),
        ("better", NONE, WHOLE, "pass@64 +4.0 [−0.1, +9.7]"),
        ("better", NONE, NONE, "no lower temperature of the base has this pass@1 and pass@64"),
        ("sharpening_only", WHOLE, WHOLE, "pass@64 +4.0 [−0.1, +9.7]"),
        ("sharpening_only", WHOLE, NONE, "pass@64 below the base at every lower temperature"),
    ],
)
def test_beside_the_decision_stands_what_the_sentence_on_sharpening_says(
    label: SharpeningLabel, gain: Estimate, loss: Estimate, said: str
) -> None:
    found = Sharpening(label=label, k=64, rise=WHOLE, gain=gain, loss=loss, share=WHOLE)
    assert _distance_text(found) == said
    sentence = sharpening_text(Verdict(series="run", label="inconclusive", sentence="", window=(30,), sharpening=found))
    assert ("at equal pass@1, pass@64" in sentence or "pass@64 is below" in sentence) == said.startswith("pass@64")


def test_of_several_series_each_has_its_sentence_on_sharpening_in_the_table(context: Context) -> None:
    made = judged(context)
    found = Sharpening(label="not_shown", k=4, rise=WHOLE, gain=WHOLE, loss=WHOLE, share=WHOLE)
    verdict = made.series[0].verdict
    assert verdict is not None
    shown = decision(with_series(made, 0, verdict=replace(verdict, sharpening=found)))
    last = {row[0]: row[-1] for row in texts(shown.table) if "last" in row[1]}
    assert last == {"grpo": "not shown: pass@1 +4.0 [−0.1, +9.7]", "iac": "not measured"}
    assert any(text.startswith("Better, or only sharper:") for text in shown.reading)
