"""Controls: temperatures, cost, and no effect on the audit's own samples."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from oversharp.diagnostics.audit.audit import audit
from oversharp.diagnostics.audit.config import AuditConfig
from oversharp.diagnostics.audit.controls import ControlRequest, add_stored_controls, control_settings, plan_controls
from oversharp.diagnostics.audit.regrade import regrade
from oversharp.diagnostics.records.errors import ConfigError
from oversharp.diagnostics.records.types import SamplingSettings
from oversharp.diagnostics.verdict.recommendation import Recommendation, ShippingStep
from oversharp.diagnostics.verdict.record import Verdict
from tests.audit.small_audits import Notes, config, frame

SETTINGS = SamplingSettings(
    sampler="transformers", temperature=1.0, top_p=1.0, top_k=0, max_tokens=8, prompt_template="{prompt}",
    system_prompt="", chat=False, seed=0, dtype="float32",
)  # fmt: skip


def plan(controls: ControlRequest, settings: SamplingSettings = SETTINGS, *, n: int = 256, n_checkpoints: int = 9):
    return plan_controls(controls, settings, n=n, n_base=2 * n, n_checkpoints=n_checkpoints)


def test_by_default_they_are_a_quarter_of_the_audit_and_are_announced() -> None:
    controls, says = plan(ControlRequest())
    # a quarter of 512 + 8 · 256 is 640: three fifths over three temperatures, the rest over two of two checkpoints
    assert (controls.n, controls.n_higher) == (128, 64)
    assert [one.temperature for one in controls.lower] == [0.6, 0.3, 0.15]
    assert [one.temperature for one in controls.higher] == [1.2, 1.5]
    assert len({one.seed for one in (SETTINGS, *controls.lower, *controls.higher)}) == 6
    assert says == (
        "controls: 128 samples per problem of the base at each of T = 0.6, 0.3, 0.15; 64 of the last checkpoint and of "
        "the one to ship at each of T = 1.2, 1.5: at most 25 % more samples"
    )


def test_where_a_quarter_is_too_few_there_are_none_unless_they_are_asked_for() -> None:
    assert plan(ControlRequest(), n=16, n_checkpoints=3) == (None, "")
    asked, _ = plan(ControlRequest(wanted=True), n=16, n_checkpoints=3)
    assert asked.n == 16
    fewer, _ = plan(ControlRequest(n=4, lower=(0.5,), higher=(2.0,)), n=16)
    assert (fewer.n, len(fewer.lower), len(fewer.higher)) == (4, 1, 1)
    assert plan(ControlRequest(wanted=False)) == (None, "")


def test_temperatures_are_relative_to_the_audits_own_and_truncation_is_said() -> None:
    controls, says = plan(ControlRequest(), replace(SETTINGS, temperature=0.5, top_p=0.9))
    assert [one.temperature for one in controls.lower] == [0.3, 0.15, 0.075]
    assert says.endswith(", with top-p 0.9 as in the audit's own samples")


@pytest.mark.parametrize(
    ("made", "message"),
    [
        ({"control_temperatures": (1.0,)}, "--control-temperatures 1: must be above 0 and below the audit's"),
        ({"control_temperatures": (0.5, 0.5)}, "--control-temperatures 0.5, 0.5: contains a temperature twice"),
        ({"hot_temperatures": (0.5,)}, "--hot-temperatures 0.5: must be above 0 and above the audit's"),
        ({"n": 8, "control_n": 17}, "--control-n 17: a control cannot have more samples than the base, 16 "),
    ],
)
def test_temperatures_that_are_no_controls_are_refused(made: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message.replace("(", "\\(")):
        AuditConfig(task="countdown", **made)


def test_colder_draws_that_the_store_holds_are_taken_for_nothing() -> None:
    lower = {control_settings(SETTINGS, t).settings_id: (t, n) for t, n in ((0.6, 8), (0.3, 12), (1.5, 12))}
    taken, says = add_stored_controls(None, "", SETTINGS, lower)
    assert ([one.temperature for one in taken.lower], taken.n, taken.higher, taken.n_higher) == ([0.6, 0.3], 8, (), 0)
    assert says.endswith("8 samples per problem of the base at each of T = 0.6, 0.3 are in the store and are used")
    assert add_stored_controls(None, "", replace(SETTINGS, max_tokens=9), lower) == (None, "")
    planned, told = plan(ControlRequest(lower=(0.6, 0.3), n=4))
    more, told_more = add_stored_controls(planned, told, SETTINGS, lower)
    assert (more, told_more) == (
        replace(planned, n=8),
        f"{told}; 8 of the base at each are in the store and are used",
    )


def test_controls_that_are_named_and_switched_off_contradict_each_other() -> None:
    with pytest.raises(ConfigError, match="--control-n: --no-controls disables controls"):
        AuditConfig(task="countdown", controls=False, control_n=8)


OWN = "SELECT * FROM sampled_counts ORDER BY ALL"


@pytest.mark.slow
@pytest.mark.usefixtures("few_measures")
def test_an_audit_draws_them_once_beside_its_own_samples_and_a_regrade_keeps_them(
    countdown_series: Path, tmp_path: Path
) -> None:
    few = {"limit": 3, "n": 4, "n_base": 4, "panel": 0, "kernel_problems": 0}
    plain = audit([countdown_series], config(tmp_path / "plain", **few))
    first = audit([countdown_series], config(tmp_path / "more", **few, controls=True))
    assert first.samples_drawn == plain.samples_drawn + 3 * 4 * 5
    assert frame(first.store_path, OWN).equals(frame(plain.store_path, OWN))
    counts = frame(first.store_path, "SELECT step, temperature, sum(n) AS n FROM control_counts GROUP BY ALL")
    assert sorted(counts.itertuples(index=False, name=None)) == [
        (0, 0.15, 12), (0, 0.3, 12), (0, 0.6, 12), (40, 1.2, 12), (40, 1.5, 12),
    ]  # fmt: skip
    assert audit([countdown_series], config(tmp_path / "more", **few, controls=True)).samples_drawn == 0
    # an audit that does not ask for them keeps those that are there, and one that wants none says so
    audit([countdown_series], config(tmp_path / "more", **few))
    told = Notes()
    audit([countdown_series], config(tmp_path / "more", **few, controls=False), progress=told)
    assert any(
        note.startswith("--no-controls: none are sampled; the store has some from an earlier call")
        for note in told.notes
    )
    assert len(frame(first.store_path, "FROM control_counts")) == 3 * 5
    again = regrade(first.store_path, verifier="exact")
    counted = "SELECT count(*) AS n FROM control_counts WHERE series = '{}'"
    assert frame(again.store_path, counted.format(again.series))["n"].tolist() == [15]
    # another series of the same base takes what was drawn of it
    other = audit([countdown_series], config(tmp_path / "more", **few, name="other"))
    assert other.samples_drawn == 0
    assert frame(first.store_path, counted.format("other"))["n"].tolist() == [3 * 3]


@pytest.mark.slow
@pytest.mark.usefixtures("few_measures")
def test_the_checkpoint_to_ship_is_drawn_hotter_too(
    countdown_series: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = ShippingStep(series="run", step=20, checkpoint="checkpoint-20", is_base=False, role="recommended")
    ship = Recommendation(series=("run",), recommended=chosen)
    said = Verdict(series="run", label="inconclusive", sentence="", shipping=ship)
    monkeypatch.setattr("oversharp.diagnostics.audit.counts.series.judge", lambda *_: said)
    few = {"limit": 2, "n": 2, "n_base": 2, "panel": 0, "kernel_problems": 0, "hot_temperatures": (1.5,)}
    made = audit([countdown_series], config(tmp_path, **few))
    assert made.samples_drawn == 3 * 2 * (2 + 1) + 2 * 2 * (3 + 2)
    hot = frame(made.store_path, "SELECT step, count(*) AS n FROM control_counts WHERE temperature = 1.5 GROUP BY ALL")
    assert sorted(hot.itertuples(index=False, name=None)) == [(20, 2), (40, 2)]
