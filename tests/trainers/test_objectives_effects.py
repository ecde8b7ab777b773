"""Parts and settings without effect in a run of a given size are rejected by name, others are accepted."""

from __future__ import annotations

import pytest

from oversharp.diagnostics.records.errors import ConfigError
from oversharp.trainers import objectives
from oversharp.trainers.checking import check_objective, correct_note, rounding_note
from oversharp.trainers.config import TrainConfig
from oversharp.trainers.objectives.effects import find_void_parts, uses_correctness
from tests.cases import each_case


def void(expression: str, *, prompts: int = 32, group_size: int = 8, longest: int = 1024) -> list[str]:
    return find_void_parts(
        objectives.parse(expression), expression, prompts=prompts, group_size=group_size, longest=longest
    )


@pytest.mark.parametrize("expression", ["iac", "iac:alpha=3", "iac:s_plus=positive", "rloo+iac", "iac_paper"])
def test_iac_with_two_rollouts_per_prompt_has_no_effect(expression: str) -> None:
    """The factor is (2 - 1)^alpha if one of two is correct; if both are, no advantage is positive."""
    (only,) = [fault for fault in void(expression, group_size=2) if fault.startswith("iac has no effect")]
    assert "--group-size 2" in only
    assert void(expression, group_size=3) == []


def test_a_share_of_less_than_one_prompt_filters_nothing() -> None:
    assert void("easy_filter:share=0.1", prompts=9)[0].startswith("easy_filter has no effect with --batch-prompts 9")
    assert void("easy_filter:share=0.1", prompts=10) == []


def test_a_punishment_beyond_the_longest_response_has_no_effect() -> None:
    assert void("overlong:length=200,buffer=100", longest=100)[0].startswith("overlong has no effect")
    assert void("overlong:length=200,buffer=101", longest=100) == []


@pytest.mark.parametrize(
    ("expression", "setting"),
    [
        ("importance:mode=exact,cap=3", "importance: cap"),
        ("kl:kind=k2,straight_through=true", "kl: straight_through"),
        ("grpo:convention=trl,ddof=0,eps=0.1", "grpo: convention"),
        ("clip:high=0.3+negative_only", "clip: high"),
        ("dapo:high=0.3+negative_only", "clip: high"),
        ("gspo_n:high=0.1", "gspo: high"),
    ],
)
def test_an_unused_setting_is_reported(expression: str, setting: str) -> None:
    assert void(expression) == [f"{setting} has no effect together with the other parts and settings"]


@pytest.mark.parametrize(
    "expression",
    [
        "importance:mode=mask,cap=3",
        "kl:kind=k1,straight_through=true",
        "grpo:convention=trl,eps=0.1",
        "grpo:ddof=1",
        "clip:low=0.3+negative_only",
        "dapo+negative_only",
        "iac:alpha=0",
        "kl:beta=0",
        "entropy_bonus:coefficient=0",
        "reference_weighting:cap=1",
        "dlc:mu=0.3,memory=copy",
        "dynamic_sampling:max_rounds=2",
        "forward_kl:samples_per_prompt=3",
        "seq_sum_constant:divisor=1024",
    ],
)
def test_disabled_parts_rollout_parts_and_explicit_defaults_are_accepted(expression: str) -> None:
    assert void(expression) == []


@each_case("entry", [part for part in objectives.entries() if part.kind != "decoding"])
def test_every_part_and_preset_alone_has_an_effect_in_a_usual_run(entry: objectives.Entry) -> None:
    needed = {"overlong": "overlong:length=1024"}
    assert void(needed.get(entry.name, entry.name)) == []


def test_the_run_is_rejected_before_it_starts() -> None:
    with pytest.raises(ConfigError, match=r"--algorithm iac: iac has no effect with .*--group-size 2 .*remove it"):
        check_objective(TrainConfig(algorithm="iac", group_size=2))


def test_correct_above_without_parts_that_use_it_causes_a_note() -> None:
    note = correct_note(TrainConfig(algorithm="grpo", correct_above=0.5))
    assert note is not None
    assert note.startswith("--correct-above 0.5 only changes metrics: no part of grpo uses")
    assert correct_note(TrainConfig(algorithm="iac", correct_above=0.5)) is None
    assert correct_note(TrainConfig(algorithm="grpo")) is None


@pytest.mark.parametrize(("name", "looks"), [("grpo", False), ("iac", True), ("nsr", True), ("iac_paper", False)])
def test_uses_correctness_of_each_part(name: str, looks: bool) -> None:
    assert uses_correctness(objectives.parse(name), prompts=8, group_size=4, longest=64) is looks


def test_correction_none_in_a_float32_run_causes_a_note() -> None:
    note = rounding_note(TrainConfig(correction="none"))
    assert note is not None
    assert "has no effect" in note
    assert rounding_note(TrainConfig()) is None
