"""Properties of every part and preset."""

from __future__ import annotations

import doctest
import inspect
from contextlib import nullcontext
from dataclasses import FrozenInstanceError, fields, is_dataclass, replace
from typing import Any, get_args

import pytest
import torch
from torch import Tensor

from oversharp.diagnostics.records.errors import ConfigError
from oversharp.trainers import objectives
from oversharp.trainers.objectives.contract import Credit, GroupedRewards, Need, Objective, Preset, TokenLogps
from oversharp.trainers.objectives.estimators import grpo
from tests.cases import each_case
from tests.trainers.batches import rewards_of, tokens_of

#: Required settings.
MUST_BE_GIVEN = {"overlong": "overlong:length=6"}
#: Estimators that compare the rollouts of a prompt.
GROUP_RELATIVE = ("dr_grpo", "grpo", "reinforce_pp_baseline", "rloo")

ENTRIES = {name: objectives.module_of(name) for name in objectives.names()}
PARTS = {name: module.PART for name, module in ENTRIES.items() if hasattr(module, "PART")}
PRESETS = {name: module.PRESET for name, module in ENTRIES.items() if hasattr(module, "PRESET")}


def of_kind(kind: str) -> list[str]:
    return [name for name, part in PARTS.items() if objectives.kind_of(part) == kind]


def parsed(name: str) -> Objective:
    """Parse a name with its required settings."""
    return objectives.parse(MUST_BE_GIVEN.get(name, name))


def make(name: str) -> Any:
    """Return the part with default settings."""
    [result] = [part for part in parsed(name).parts if type(part) is PARTS[name]]
    return result


def random_rewards(seed: int = 0, n_prompts: int = 5, group_size: int = 4) -> GroupedRewards:
    draw = torch.Generator().manual_seed(seed)
    shape = (n_prompts, group_size)
    correct_PG = torch.rand(shape, generator=draw) < 0.4
    correct_PG[0], correct_PG[1] = True, False
    return GroupedRewards(
        reward_PG=correct_PG.double(),
        correct_PG=correct_PG,
        n_tokens_PG=torch.randint(1, 7, shape, generator=draw),
        truncated_PG=torch.rand(shape, generator=draw) < 0.2,
        reference_logp_PG=-20 * torch.rand(shape, generator=draw, dtype=torch.float64),
        greedy_correct_P=torch.rand(n_prompts, generator=draw) < 0.5,
    )


def shuffled(rewards: GroupedRewards, order_G: Tensor) -> GroupedRewards:
    """Permute the rollouts within each group."""
    per_sample = [field.name for field in fields(rewards) if field.name.endswith("_PG")]
    return replace(rewards, **{name: getattr(rewards, name)[:, order_G] for name in per_sample})


def bare(rewards: GroupedRewards) -> GroupedRewards:
    """Remove the inputs that only some parts need."""
    return replace(rewards, reference_logp_PG=None, greedy_correct_P=None)


def random_credit(rewards: GroupedRewards) -> Credit:
    advantage_PG = torch.randn(rewards.reward_PG.shape, generator=torch.Generator().manual_seed(9)).double()
    return Credit(advantage_PG=advantage_PG, counted_PG=torch.ones_like(rewards.correct_PG))


def random_tokens(seed: int = 0) -> TokenLogps:
    draw = torch.Generator().manual_seed(seed)
    mask_BT = torch.arange(4) < torch.tensor([4, 2, 1, 3, 0])[:, None]
    # ratios up to e^3, also after the response, where they must have no effect
    logp_BT, old_BT, reference_BT = (-3 * torch.rand(5, 4, generator=draw) for _ in range(3))
    return TokenLogps(
        logp_BT=logp_BT,
        entropy_BT=torch.rand(5, 4, generator=draw),
        old_logp_BT=old_BT,
        mask_BT=mask_BT,
        reference_logp_BT=reference_BT,
    )


@each_case("name", objectives.names())
def test_every_file_has_a_description_a_source_and_an_example(name: str) -> None:
    module = ENTRIES[name]
    assert "Source" in inspect.getdoc(module)
    entry = module.PRESET if hasattr(module, "PRESET") else module.PART
    assert entry.title
    assert entry.source
    assert hasattr(module, "PRESET") != hasattr(module, "PART")
    examples = [test for test in doctest.DocTestFinder().find(module) if test.examples]
    assert examples, f"{name} has no doctest"


@each_case("name", sorted(PARTS))
def test_every_part_is_a_frozen_dataclass_of_one_kind_with_documented_settings(name: str) -> None:
    part = PARTS[name]
    assert is_dataclass(part)
    assert objectives.kind_of(part)
    made = make(name)
    for field in fields(part):
        with pytest.raises(FrozenInstanceError):
            setattr(made, field.name, None)
    with pytest.raises(TypeError):
        part(1)  # settings are named


@each_case("name", sorted(PARTS))
def test_every_part_brings_existing_parts_and_needs_available_inputs(name: str) -> None:
    part = PARTS[name]
    assert set(part.needs) <= set(get_args(Need))
    brought = [term.name for term in objectives.terms(part.brings)] if part.brings else []
    assert name not in brought
    assert set(brought) <= {term.name for term in objectives.terms(parsed(name).expression)}


@each_case("name", sorted(PRESETS))
def test_every_preset_is_its_expression(name: str) -> None:
    assert isinstance(PRESETS[name], Preset)
    assert objectives.parse(name) == objectives.parse(PRESETS[name].expression)


def test_every_kind_has_a_part_and_all_parts_are_listed() -> None:
    kinds = {objectives.kind_of(part) for part in PARTS.values()}
    single = {"correction", "rehearsal", "decoding", "resampling"}
    assert kinds == {"shaping", "estimator", "calibration", "surrogate", "aggregation", "penalty", *single}
    assert sorted(entry.name for entry in objectives.entries()) == list(objectives.names())


@each_case("name", objectives.names())
def test_the_expression_of_an_objective_parses_to_the_same_objective(name: str) -> None:
    assert objectives.parse(parsed(name).expression) == parsed(name)


@pytest.mark.parametrize("name", of_kind("estimator"))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_every_estimator_is_finite_and_independent_of_sample_order(name: str, dtype: torch.dtype) -> None:
    rewards = random_rewards()
    advantage_PG = make(name).advantages(replace(bare(rewards), reward_PG=rewards.reward_PG.to(dtype)))
    assert (advantage_PG.shape, advantage_PG.dtype) == (rewards.reward_PG.shape, dtype)
    assert advantage_PG.isfinite().all()
    order_G = torch.tensor([2, 0, 3, 1])
    torch.testing.assert_close(
        make(name).advantages(shuffled(rewards, order_G)), make(name).advantages(rewards)[:, order_G]
    )


@each_case("name", GROUP_RELATIVE)
def test_a_single_rollout_is_not_a_group(name: str) -> None:
    with pytest.raises(ValueError, match="a single rollout is not a group"):
        make(name).advantages(random_rewards(group_size=1))


@each_case("name", sorted(set(of_kind("estimator")) - set(GROUP_RELATIVE)))
def test_estimators_without_groups_accept_a_single_rollout(name: str) -> None:
    assert make(name).advantages(random_rewards(group_size=1)).isfinite().all()


CONVENTIONS = [f"grpo:convention={convention}" for convention in grpo.CONVENTIONS]


@pytest.mark.parametrize("text", [*GROUP_RELATIVE, "reinforce_pp", *CONVENTIONS])
def test_equal_float32_rewards_have_no_gradient_although_their_std_is_not_zero(text: str) -> None:
    reward_PG = torch.full((1, 8), 0.1)
    assert reward_PG.std(dim=1).item() != 0  # the computed deviation is not 0
    rewards = rewards_of(reward_PG, correct=[[False] * 8], n_tokens=[list(range(1, 9))])
    assert objectives.parse(text).credit(rewards).advantage_PG.tolist() == [[0.0] * 8]


@each_case("name", of_kind("shaping"))
def test_every_shaping_is_independent_of_sample_order(name: str) -> None:
    rewards, order_G = random_rewards(), torch.tensor([2, 0, 3, 1])
    shaped_PG = make(name).shape(rewards)
    assert (shaped_PG.shape, shaped_PG.dtype) == (rewards.reward_PG.shape, rewards.reward_PG.dtype)
    assert shaped_PG.isfinite().all()
    assert torch.equal(make(name).shape(shuffled(rewards, order_G)), shaped_PG[:, order_G])


@each_case("name", of_kind("calibration"))
def test_calibrations_keep_shape_and_order_and_uncounted_samples_have_advantage_0(name: str) -> None:
    rewards, order_G = random_rewards(), torch.tensor([2, 0, 3, 1])
    credit = random_credit(rewards)
    before_PG = credit.advantage_PG.clone()
    after = make(name).calibrate(credit, rewards)
    assert torch.equal(credit.advantage_PG, before_PG)  # not in place
    assert after.advantage_PG.dtype == torch.float64
    assert after.counted_PG.dtype == torch.bool
    assert after.advantage_PG.shape == after.counted_PG.shape == before_PG.shape
    assert after.advantage_PG.isfinite().all()
    assert (after.advantage_PG[~after.counted_PG] == 0).all()
    assert (after.advantage_PG.sign() * before_PG.sign() >= 0).all()
    moved_credit = Credit(advantage_PG=before_PG[:, order_G], counted_PG=credit.counted_PG)
    moved = make(name).calibrate(moved_credit, shuffled(rewards, order_G))
    torch.testing.assert_close(moved.advantage_PG, after.advantage_PG[:, order_G])
    assert torch.equal(moved.counted_PG, after.counted_PG[:, order_G])


@each_case("name", of_kind("calibration"))
def test_no_calibration_restores_a_removed_sample(name: str) -> None:
    rewards = random_rewards()
    out_PG = torch.rand(rewards.reward_PG.shape, generator=torch.Generator().manual_seed(4)) < 0.5
    credit = Credit(advantage_PG=random_credit(rewards).advantage_PG.masked_fill(out_PG, 0.0), counted_PG=~out_PG)
    after = make(name).calibrate(credit, rewards)
    assert not (after.counted_PG & out_PG).any()
    assert (after.advantage_PG[out_PG] == 0).all()


@each_case("name", of_kind("calibration"))
def test_a_calibration_reports_a_missing_input(name: str) -> None:
    rewards = random_rewards()
    with pytest.raises(ValueError, match=name) if PARTS[name].needs else nullcontext():
        make(name).calibrate(random_credit(rewards), bare(rewards))


@each_case("name", of_kind("surrogate"))
def test_every_surrogate_has_a_finite_loss_per_token_and_row(name: str) -> None:
    tokens, advantage_B = random_tokens(), torch.tensor([1.0, -1.0, 0.0, 0.5, 1.0])
    result = make(name).token_loss(tokens, advantage_B)
    assert (result.loss_BT.shape, result.loss_BT.dtype) == (tokens.logp_BT.shape, torch.float32)
    assert result.loss_BT.isfinite().all()
    assert result.clipped_BT.dtype == torch.bool
    assert not result.clipped_BT[~tokens.mask_BT].any()
    assert (result.loss_BT[2] == 0).all()  # advantage 0
    single = tokens_of(tokens.logp_BT[1:2], tokens.old_logp_BT[1:2], tokens.mask_BT[1:2])
    assert torch.equal(make(name).token_loss(single, advantage_B[1:2]).loss_BT, result.loss_BT[1:2])


@each_case("name", of_kind("penalty"))
def test_every_penalty_has_a_finite_loss_per_token_and_reports_a_missing_input(name: str) -> None:
    tokens = random_tokens()
    found_BT = make(name).token_penalty(tokens)
    assert (found_BT.shape, found_BT.dtype) == (tokens.logp_BT.shape, torch.float32)
    assert found_BT.isfinite().all()
    with pytest.raises(ValueError, match=name) if PARTS[name].needs else nullcontext():
        alone_BT = make(name).token_penalty(tokens_of(tokens.logp_BT, tokens.old_logp_BT, tokens.mask_BT))
        assert torch.equal(alone_BT, found_BT)


@each_case("name", of_kind("aggregation"))
def test_every_aggregation_only_weights_counted_samples(name: str) -> None:
    mask_BT = random_tokens().mask_BT
    counted_B = torch.tensor([True, True, False, True, True])
    weight_BT = make(name).token_weights(mask_BT, counted_B, max_tokens=4)
    used_BT = mask_BT & counted_B[:, None]
    assert weight_BT.dtype == torch.float32
    assert (weight_BT[used_BT] > 0).all()
    assert (weight_BT[~used_BT] == 0).all()
    # uncounted samples do not change the weights of the others
    alone_BT = make(name).token_weights(mask_BT[counted_B], counted_B[counted_B], max_tokens=4)
    assert torch.equal(alone_BT, weight_BT[counted_B])


@each_case("name", of_kind("aggregation"))
def test_without_counted_samples_every_weight_is_zero(name: str) -> None:
    weight_BT = make(name).token_weights(random_tokens().mask_BT, torch.zeros(5, dtype=torch.bool), max_tokens=4)
    assert (weight_BT == 0).all()


@pytest.mark.parametrize("level", ["token", "sequence"])
@pytest.mark.parametrize("mode", ["truncate", "mask", "exact"])
@pytest.mark.parametrize("name", of_kind("correction"))
def test_every_correction_is_1_for_equal_distributions_and_has_no_gradient(name: str, level: str, mode: str) -> None:
    mask_BT = random_tokens().mask_BT
    log_ratio_BT = torch.zeros(mask_BT.shape, requires_grad=True)
    weight_BT = PARTS[name](level=level, mode=mode).importance(log_ratio_BT, mask_BT)
    assert torch.equal(weight_BT, mask_BT.float())
    assert not weight_BT.requires_grad


OUT_OF_RANGE = {
    "reinforce_pp": ["over=groups", "kl=-0.1"],
    "reinforce_pp_baseline": ["over=groups"],
    "iac": ["alpha=-1", "alpha=inf", "alpha=nan", "s_plus=wrong"],
    "clip": ["low=1", "high=-0.1", "dual=0.5"],
    "gspo": ["low=1", "high=-1"],
    "cispo": ["low=1.5", "high=-1"],
    "kl": ["beta=-0.1", "beta=nan", "kind=k4"],
    "entropy_bonus": ["coefficient=-1"],
    "importance": ["cap=0", "level=word", "mode=none"],
    "forward_kl": ["beta=-1", "samples_per_prompt=0"],
    "dlc": ["mu=-0.5", "learning_rate=0", "optimizer=lion", "warm_start_steps=-1"],
    "dynamic_sampling": ["max_rounds=0"],
    "easy_filter": ["share=1", "share=-0.1"],
    "overlong": ["length=0", "length=10,buffer=11", "length=10,buffer=0", "length=10,factor=-1"],
    "reference_weighting": ["cap=0.5", "samples=wrong"],
    "seq_sum_constant": ["divisor=0"],
    "w_reinforce": ["weight=-1", "weight=nan"],
    "grpo": ["convention=mine", "ddof=2", "ddof=-1", "eps=-1", "eps=inf"],
}


@pytest.mark.parametrize("text", [f"{name}:{settings}" for name, faulty in OUT_OF_RANGE.items() for settings in faulty])
def test_settings_out_of_range_are_rejected_with_their_name(text: str) -> None:
    name, _, settings = text.partition(":")
    setting = settings.split(",")[-1].partition("=")[0]
    with pytest.raises(ConfigError, match=rf"algorithm {name}: {setting}[ =:]"):
        objectives.parse(text)


#: Settings without a range: booleans and text.
ANY_VALUE = {"scale_matched", "straight_through", "counted", "memory"}


@each_case("name", sorted(PARTS))
def test_every_setting_with_a_range_is_in_the_list_of_rejected_values(name: str) -> None:
    refused = {pair.partition("=")[0] for text in OUT_OF_RANGE.get(name, []) for pair in text.split(",")}
    assert {field.name for field in fields(PARTS[name])} - ANY_VALUE <= refused


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("overlong", r"overlong: length is required, a whole number: overlong:length=\.\.\."),
        ("grop", "unknown objective 'grop'; did you mean grpo"),
        ("iac:alpa=1", "unknown setting 'alpa'; did you mean alpha"),
        *((text, "keep one of them") for text in ("grpo+rloo", "clip+gspo", "token_mean+seq_sum_constant", "iac+iac")),
    ],
)
def test_an_invalid_expression_is_rejected_with_the_fix(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        objectives.parse(text)


def test_an_explicit_part_replaces_brought_parts_and_those_of_presets() -> None:
    assert objectives.parse("dr_grpo+token_mean").expression == "dr_grpo+token_mean+clip"
    assert type(objectives.parse("dapo+gspo").surrogate) is PARTS["gspo"]
    assert objectives.parse("dapo+self").rehearsal == objectives.parse("self").rehearsal
    assert type(objectives.parse("nsr").estimator) is PARTS["w_reinforce"]
    assert type(objectives.parse("grpo+nsr").estimator) is PARTS["grpo"]


def test_an_objective_computes_credit_in_the_order_of_a_step() -> None:
    # shaping makes an all-wrong group unequal; GRPO standardises; IAC leaves wrong samples alone; truncated ones leave
    objective = objectives.parse("overlong:length=4,buffer=2+grpo:ddof=0,eps=0+iac+overlong_filter")
    credit = objective.credit(rewards_of([[0.0, 0.0]], n_tokens=[[1, 4]], truncated=[[False, True]]))
    assert credit.advantage_PG.tolist() == [[1.0, 0.0]]
    assert credit.counted_PG.tolist() == [[True, False]]
