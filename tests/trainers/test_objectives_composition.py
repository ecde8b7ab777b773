"""Parts without effect next to others are detected: all pairs are compared on a random batch."""

from __future__ import annotations

from itertools import combinations

import pytest
import torch

from oversharp.diagnostics.records.errors import ConfigError
from oversharp.trainers import objectives
from oversharp.trainers.objectives import composition
from oversharp.trainers.objectives.contract import GroupedRewards, Objective, TokenLogps
from tests.cases import each_case

#: Every name as an expression.
EXPRESSIONS = {name: "overlong:length=6" if name == "overlong" else name for name in objectives.names()}
#: The setting weight of w_reinforce has no effect in these pairs.
VOID_SETTINGS = {frozenset({"w_reinforce", other}) for other in ("negative_only", "grpo_n", "gspo_n")}
VOID_SETTINGS |= {frozenset({"iac_paper", "negative_only"})}  # IAC of the preset has no effect then, but its KL has

Effect = tuple[torch.Tensor, tuple[object, ...]]


def rewards() -> GroupedRewards:
    """Return rewards of 24 prompts, from all wrong to all correct; wrong samples have partial rewards."""
    draw = torch.Generator().manual_seed(1)
    correct_PG = torch.rand(24, 4, generator=draw) < torch.linspace(0, 0.8, 24)[:, None]
    correct_PG[-1] = True
    return GroupedRewards(
        reward_PG=torch.where(correct_PG, 1.0, torch.rand(24, 4, generator=draw).double()),
        correct_PG=correct_PG,
        n_tokens_PG=torch.randint(1, 7, (24, 4), generator=draw),
        truncated_PG=torch.rand(24, 4, generator=draw) < 0.3,
        reference_logp_PG=-9 * torch.rand(24, 4, generator=draw, dtype=torch.float64),
        greedy_correct_P=torch.tensor([False, True] * 12),
    )


def effect(objective: Objective) -> Effect:
    """Return the gradient of the loss on a random off-policy batch, the counted samples, and other parts."""
    batch, draw = rewards(), torch.Generator().manual_seed(2)
    credit = objective.credit(batch)
    mask_BT = torch.arange(6) < batch.n_tokens_PG.flatten()[:, None]
    logp_BT, old_BT, reference_BT, drawn_BT = -3 * torch.rand(4, 96, 6, generator=draw, dtype=torch.float64)
    tokens = TokenLogps(
        logp_BT=logp_BT.requires_grad_(),
        entropy_BT=logp_BT**2,
        old_logp_BT=old_BT,
        mask_BT=mask_BT,
        reference_logp_BT=reference_BT,
    )
    counted_B = credit.counted_PG.flatten()
    weight_BT = objective.aggregation.token_weights(mask_BT, counted_B, max_tokens=6)
    loss_BT = objective.surrogate.token_loss(tokens, credit.advantage_PG.flatten()).loss_BT
    if objective.correction is not None:
        loss_BT = loss_BT * objective.correction.importance(old_BT - drawn_BT, mask_BT)
    loss_BT = loss_BT + sum(part.token_penalty(tokens) for part in objective.penalties)
    (slope_BT,) = torch.autograd.grad((weight_BT * loss_BT).sum(), logp_BT)
    outside = (objective.rehearsal, objective.decoding, objective.resampling)
    return torch.cat([slope_BT.flatten(), counted_B.double()]), outside


def same(first: Effect, other: Effect) -> bool:
    return first[1] == other[1] and torch.allclose(first[0], other[0], rtol=1e-9, atol=1e-12)


def is_silent(objective: Objective) -> bool:
    return bool((objective.credit(rewards()).advantage_PG == 0).all())


def refused(expression: str) -> bool:
    try:
        objectives.parse(expression)
    except ConfigError as error:
        return "keep one of them" not in str(error)
    return False


@pytest.mark.slow
def test_exactly_the_pairs_with_a_part_without_effect_are_rejected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calibrating = [entry.name for entry in objectives.entries() if entry.kind in ("calibration", "preset")]
    orders = [*combinations(EXPRESSIONS, 2), *((other, first) for first, other in combinations(calibrating, 2))]
    rejected = {(first, other) for first, other in orders if refused(f"{EXPRESSIONS[first]}+{EXPRESSIONS[other]}")}

    monkeypatch.setattr(composition, "find_faults", lambda objective: [])
    alone = {name: effect(objectives.parse(text)) for name, text in EXPRESSIONS.items()}
    void = set()
    for first, other in orders:
        try:
            both = objectives.parse(f"{EXPRESSIONS[first]}+{EXPRESSIONS[other]}")
        except ConfigError:
            continue  # two of a kind
        together = effect(both)
        idle = [name for name in (first, other) if not same(alone[name], alone["grpo"])]
        rests = [alone[other if name == first else first] for name in idle]
        if is_silent(both) or any(same(together, rest) for rest in rests):
            void.add((first, other))
    # an explicit part may equal one that a part or preset brings
    void -= {pair for pair in void if brought(*pair) or brought(*pair[::-1])}
    assert {pair for pair in rejected if frozenset(pair) not in VOID_SETTINGS} == void
    assert {frozenset(pair) for pair in rejected} >= VOID_SETTINGS
    assert len(void) > 10


def brought(part: str, by: str) -> bool:
    """Return whether ``by`` includes the part with the same settings."""
    with_part = objectives.parse(f"{EXPRESSIONS[part]}+{EXPRESSIONS[by]}").parts
    return set(with_part) == set(objectives.parse(EXPRESSIONS[by]).parts)


@pytest.mark.parametrize(
    ("expression", "what", "beside"),
    [
        ("iac+grpo_n", "iac", "negative_only"),
        ("negative_only+iac:scale_matched=true", "iac", "negative_only"),
        ("iac:scale_matched=true+negative_only", "iac", "negative_only"),  # it only scales the step
        ("grpo+nsr+iac", "iac", "nsr"),
        ("reference_weighting+nsr", "reference_weighting", "nsr"),
        ("overlong:length=512+nsr", "overlong", "w_reinforce"),
        ("w_reinforce:weight=0+iac", "iac", "w_reinforce"),
        ("nsr+negative_only", "negative_only", "w_reinforce and nsr"),
        ("w_reinforce+negative_only", "the setting of w_reinforce", "negative_only"),
        ("w_reinforce:weight=0.5+nsr", "the setting of w_reinforce", "nsr"),
        ("easy_filter+iac+overlong_filter+negative_only", "iac", "negative_only"),
    ],
)
def test_a_part_without_effect_is_rejected_with_the_reason(expression: str, what: str, beside: str) -> None:
    with pytest.raises(ConfigError) as raised:
        objectives.parse(expression)
    start = f"algorithm {expression!r}: {what} has no effect together with {beside}: it acts on "
    assert str(raised.value).startswith(start)
    assert str(raised.value).endswith(", which have no effect there; remove one of them")
    assert "\n" not in str(raised.value)


def test_an_objective_without_gradient_is_rejected() -> None:
    with pytest.raises(
        ConfigError, match="every advantage is 0, because negative_only removes all advantages of raw_reward"
    ):
        objectives.parse("raw_reward+negative_only")


@pytest.mark.parametrize(
    "expression",
    [
        "iac:alpha=0+grpo_n",  # turned off by its setting, as in a sweep over alpha
        "reference_weighting:samples=all+grpo_n",
        "raw_reward+overlong:length=512+negative_only",
        "w_reinforce+nsr",
        "grpo_n+iac:alpha=0",
        "rloo+nsr+iac:alpha=0",
    ],
)
def test_parts_with_an_effect_and_parts_turned_off_are_accepted(expression: str) -> None:
    objective = objectives.parse(expression)
    assert objectives.parse(objective.expression) == objective


def test_a_part_without_effect_for_binary_rewards_only_causes_a_note() -> None:
    (caution,) = composition.find_cautions(objectives.parse("grpo+nsr+negative_only"))
    assert caution.startswith("if all rewards are 0 or 1, negative_only has no effect together with nsr")
    (caution,) = composition.find_cautions(objectives.parse("raw_reward+nsr"))
    assert caution.startswith("if all rewards are 0 or 1, every advantage is 0")
    (caution,) = composition.find_cautions(objectives.parse("reinforce_pp_baseline"))
    assert caution.startswith("groups of equal rewards have a gradient")
    for silent in ("iac+kl", "reinforce_pp_baseline:over=samples"):
        assert composition.find_cautions(objectives.parse(silent)) == []


def test_every_shaping_and_calibration_has_acts_on() -> None:
    for name in EXPRESSIONS:
        for part in objectives.parse(EXPRESSIONS[name]).parts:
            if objectives.kind_of(type(part)) in ("shaping", "calibration"):
                assert part.acts_on, f"{name}: needs acts_on, the reason that a refusal gives"


@pytest.mark.parametrize(
    ("idle", "twin"),
    [
        ("iac:alpha=0", "iac:alpha=0.1"),
        ("kl:beta=0", "kl:beta=0.1"),
        ("entropy_bonus:coefficient=0", "entropy_bonus:coefficient=0.1"),
        ("overlong:length=8,factor=0", "overlong:length=8"),
        ("forward_kl:beta=0", "forward_kl:beta=0.1"),
        ("dlc:mu=0", "dlc:mu=0.1"),
        ("dynamic_sampling:max_rounds=1", "dynamic_sampling:max_rounds=2"),
    ],
)
def test_a_part_turned_off_by_its_settings_causes_a_note(idle: str, twin: str) -> None:
    name = idle.partition(":")[0]
    assert f"{name} has no effect with these settings" in composition.find_cautions(objectives.parse(idle))
    assert composition.find_idle_parts(objectives.parse(twin)) == []


@each_case("name", EXPRESSIONS)
def test_no_part_is_idle_by_default(name: str) -> None:
    assert composition.find_idle_parts(objectives.parse(EXPRESSIONS[name])) == []
