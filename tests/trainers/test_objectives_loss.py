"""Hand-computed values, finite differences and properties of losses, penalties, weights and corrections."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from oversharp.trainers import objectives
from oversharp.trainers.objectives.contract import Surrogate, TokenLogps
from oversharp.trainers.objectives.penalties.kl import kl_estimate
from tests.trainers.batches import rewards_of, tokens_of

MASK_BT = torch.tensor([[True, True, True], [True, True, False]])


def one_token(ratio: float) -> TokenLogps:
    return tokens_of(torch.tensor([[math.log(ratio)]], dtype=torch.float64), torch.zeros(1, 1, dtype=torch.float64))


def surrogate(text: str) -> Surrogate:
    return objectives.parse(text).surrogate


def finite_difference(function: Callable[[Tensor], Tensor], at_BT: Tensor, step: float = 1e-6) -> Tensor:
    """Gradient of a scalar function by central differences."""
    slope_BT = torch.zeros_like(at_BT)
    for row, token in torch.cartesian_prod(torch.arange(at_BT.shape[0]), torch.arange(at_BT.shape[1])).tolist():
        ahead_BT, behind_BT = at_BT.clone(), at_BT.clone()
        ahead_BT[row, token] += step
        behind_BT[row, token] -= step
        slope_BT[row, token] = (function(ahead_BT) - function(behind_BT)) / (2 * step)
    return slope_BT


def autograd(function: Callable[[Tensor], Tensor], at_BT: Tensor) -> Tensor:
    moved_BT = at_BT.clone().requires_grad_()
    (slope_BT,) = torch.autograd.grad(function(moved_BT), moved_BT)
    return slope_BT


# --- surrogates -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "ratio", "advantage", "loss", "clipped"),
    [
        ("clip", 1.5, 1.0, -1.2, True),
        ("clip", 1.5, -1.0, 1.5, False),
        ("clip", 0.5, 1.0, -0.5, False),
        ("clip", 0.5, -1.0, 0.8, True),
        ("clip:high=0.28", 1.25, 1.0, -1.25, False),
        ("clip:dual=3", 4.0, -1.0, 3.0, True),
        ("clip:dual=3", 2.0, -1.0, 2.0, False),
        ("dapo", math.e**2, -1.0, 3.0, True),  # verl's default
        ("clip", math.e**2, -1.0, math.e**2, False),
        ("gspo", 1.001, 1.0, -1.0004, True),
        ("gspo", 1.001, -1.0, 1.001, False),
        ("gspo", 0.999, -1.0, 0.9997, True),
        ("cispo", 8.0, 1.0, -5 * math.log(8), True),
        ("cispo", 0.01, 1.0, -0.01 * math.log(0.01), False),
        ("cispo:low=0.2,high=0.2", 0.01, -1.0, 0.8 * math.log(0.01), True),
        ("reinforce", 8.0, -2.0, 2 * math.log(8), False),
    ],
)
def test_surrogates_by_hand(text: str, ratio: float, advantage: float, loss: float, clipped: bool) -> None:
    result = surrogate(text).token_loss(one_token(ratio), torch.tensor([advantage], dtype=torch.float64))
    assert result.loss_BT.item() == pytest.approx(loss, rel=1e-6)
    assert result.clipped_BT.item() is clipped


def test_gspo_in_its_token_form_has_the_gradient_of_the_sequence_form() -> None:
    draw = torch.Generator().manual_seed(3)
    logp_BT, old_BT = (-torch.rand(2, 3, generator=draw, dtype=torch.float64) for _ in range(2))
    advantage_B = torch.tensor([-0.7, -1.3], dtype=torch.float64)
    weight_BT = objectives.parse("gspo").aggregation.token_weights(
        MASK_BT, torch.ones(2, dtype=torch.bool), max_tokens=3
    )

    def token_form(at_BT: Tensor) -> Tensor:
        tokens = tokens_of(at_BT, old_BT, MASK_BT)
        return (surrogate("gspo:low=0.9,high=9").token_loss(tokens, advantage_B).loss_BT * weight_BT).sum()

    def sequence_form(at_BT: Tensor) -> Tensor:
        log_ratio_B = ((at_BT - old_BT) * MASK_BT).sum(dim=1) / MASK_BT.sum(dim=1)
        return -(advantage_B * log_ratio_B.exp()).mean()

    assert token_form(logp_BT).item() == pytest.approx(sequence_form(logp_BT).item(), rel=1e-6)
    torch.testing.assert_close(
        autograd(token_form, logp_BT), finite_difference(sequence_form, logp_BT), atol=1e-7, rtol=1e-5
    )


@pytest.mark.parametrize("text", ["clip", "clip:dual=1.5", "clip:low=0.1,high=0.3", "reinforce"])
def test_gradients_of_surrogates_are_their_finite_differences(text: str) -> None:
    draw = torch.Generator().manual_seed(1)
    logp_BT, old_BT = (-2 * torch.rand(6, 4, generator=draw, dtype=torch.float64) for _ in range(2))
    advantage_B = torch.randn(6, generator=draw, dtype=torch.float64)

    def loss(at_BT: Tensor) -> Tensor:
        return surrogate(text).token_loss(tokens_of(at_BT, old_BT), advantage_B).loss_BT.sum()

    found_BT = autograd(loss, logp_BT)
    torch.testing.assert_close(found_BT, finite_difference(loss, logp_BT), atol=1e-6, rtol=1e-6)
    clipped_BT = surrogate(text).token_loss(tokens_of(logp_BT, old_BT), advantage_B).clipped_BT
    assert (found_BT[clipped_BT] == 0).all()
    assert (found_BT[~clipped_BT] != 0).all()


def test_cispo_has_the_gradient_of_reinforce_with_its_weight_held_fixed() -> None:
    draw = torch.Generator().manual_seed(2)
    logp_BT, old_BT = (-3 * torch.rand(6, 4, generator=draw, dtype=torch.float64) for _ in range(2))
    advantage_B = torch.randn(6, generator=draw, dtype=torch.float64)
    weight_BT = (logp_BT - old_BT).exp().clamp(0.8, 1.2)

    def loss(at_BT: Tensor) -> Tensor:
        return surrogate("cispo:low=0.2,high=0.2").token_loss(tokens_of(at_BT, old_BT), advantage_B).loss_BT.sum()

    def loss_with_fixed_weight(at_BT: Tensor) -> Tensor:
        return -(weight_BT * advantage_B[:, None] * at_BT).sum()

    torch.testing.assert_close(
        autograd(loss, logp_BT), finite_difference(loss_with_fixed_weight, logp_BT), atol=1e-7, rtol=1e-6
    )
    assert (autograd(loss, logp_BT) != 0).all()


@pytest.mark.parametrize("text", ["clip", "gspo", "cispo", "reinforce"])
def test_on_policy_every_surrogate_has_the_plain_policy_gradient(text: str) -> None:
    logp_BT = -torch.rand(2, 3, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    advantage_B = torch.tensor([1.5, -0.5], dtype=torch.float64)

    def loss(at_BT: Tensor) -> Tensor:
        result = surrogate(text).token_loss(tokens_of(at_BT, logp_BT, MASK_BT), advantage_B)
        assert not result.clipped_BT.any()
        return (result.loss_BT * MASK_BT).sum()

    torch.testing.assert_close(autograd(loss, logp_BT), -advantage_B[:, None] * MASK_BT)


# --- penalties --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["k1", "k2", "k3"])
@pytest.mark.parametrize("straight_through", ["true", "false"])
def test_gradients_of_kl_penalties_are_finite_differences(kind: str, straight_through: str) -> None:
    draw = torch.Generator().manual_seed(7)
    logp_BT, reference_BT = (-2 * torch.rand(3, 4, generator=draw, dtype=torch.float64) for _ in range(2))
    (penalty,) = objectives.parse(f"kl:kind={kind},beta=0.5,straight_through={straight_through}").penalties

    def loss(at_BT: Tensor) -> Tensor:
        return penalty.token_penalty(replace(tokens_of(at_BT, at_BT), reference_logp_BT=reference_BT)).sum()

    sloped = "k2" if straight_through == "true" else kind
    expected_BT = finite_difference(lambda at_BT: 0.5 * kl_estimate(at_BT, reference_BT, sloped).sum(), logp_BT)
    torch.testing.assert_close(autograd(loss, logp_BT), expected_BT, atol=1e-7, rtol=1e-6)
    assert loss(logp_BT).item() == pytest.approx(0.5 * kl_estimate(logp_BT, reference_BT, kind).sum().item())


def test_the_expected_gradients_of_kl_estimates_are_as_documented() -> None:
    # exact expectation over 4 outcomes: k2 has the gradient of KL(pi||ref), k3 that of KL(ref||pi), k1 none
    draw = torch.Generator().manual_seed(11)
    logit_V, reference_V = (torch.randn(4, generator=draw, dtype=torch.float64) for _ in range(2))
    reference_V = reference_V.log_softmax(dim=0)
    logit_V.requires_grad_()
    logp_V = logit_V.log_softmax(dim=0)
    reverse = (logp_V.exp() * (logp_V - reference_V)).sum()
    forward = (reference_V.exp() * (reference_V - logp_V)).sum()
    for kind, kl in {"k1": 0 * reverse, "k2": reverse, "k3": forward}.items():
        estimate_V = kl_estimate(logp_V[None], reference_V[None], kind)[0]
        (found_V,) = torch.autograd.grad((logp_V.detach().exp() * estimate_V).sum(), logit_V, retain_graph=True)
        (expected_V,) = torch.autograd.grad(kl, logit_V, retain_graph=True)
        torch.testing.assert_close(found_V, expected_V, atol=1e-12, rtol=1e-9)


@given(st.floats(-3, 3))
def test_k2_and_k3_are_positive_and_0_only_for_equal_distributions(d: float) -> None:
    logp, reference = torch.tensor([[d]], dtype=torch.float64), torch.zeros(1, 1, dtype=torch.float64)
    for kind in ("k2", "k3"):
        value = kl_estimate(logp, reference, kind).item()
        assert value >= -1e-16  # rounding
        assert (value > 0) or abs(d) < 1e-7


def test_k3_of_close_distributions_is_accurate_in_float32() -> None:
    # exp(-d) - 1 + d in float32 is 0 or 6e-8 here; the exact value is 5e-9
    value = kl_estimate(torch.tensor([[1e-4]]), torch.zeros(1, 1), "k3").item()
    assert value == pytest.approx(5e-9, rel=0.02)


def test_a_group_of_equal_rewards_has_a_kl_penalty_without_advantages() -> None:
    objective = objectives.parse("grpo+kl")
    credit = objective.credit(rewards_of([[1.0, 1.0]]))
    assert (credit.advantage_PG == 0).all()
    weight_BT = objective.aggregation.token_weights(
        torch.ones(2, 1, dtype=torch.bool), credit.counted_PG.flatten(), max_tokens=1
    )
    assert weight_BT.tolist() == [[0.5], [0.5]]  # weights of the penalties


def test_the_entropy_bonus_lowers_the_loss_by_the_entropy() -> None:
    entropy_BT = torch.tensor([[2.0, 0.5]], requires_grad=True)
    tokens = replace(tokens_of(torch.zeros(1, 2), torch.zeros(1, 2)), entropy_BT=entropy_BT)
    (bonus,) = objectives.parse("entropy_bonus:coefficient=0.25").penalties
    penalty_BT = bonus.token_penalty(tokens)
    assert penalty_BT.tolist() == [[-0.5, -0.125]]
    penalty_BT.sum().backward()
    assert entropy_BT.grad is not None
    assert entropy_BT.grad.tolist() == [[-0.25, -0.25]]


# --- aggregations -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # losses 1, 2, 3 | 4, 5, and a third sample that does not count
        ("token_mean", 15 / 5),
        ("seq_mean_token_mean", (6 / 3 + 9 / 2) / 2),
        ("seq_mean_token_sum", (6 + 9) / 2),
        ("seq_sum_constant", (6 + 9) / 2 / 8),
        ("seq_sum_constant:divisor=3", (6 + 9) / 2 / 3),
    ],
)
def test_aggregations_by_hand(name: str, expected: float) -> None:
    loss_BT = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 99.0], [99.0, 99.0, 99.0]])
    mask_BT = torch.cat([MASK_BT, torch.ones(1, 3, dtype=torch.bool)])
    weight_BT = objectives.parse(name).aggregation.token_weights(
        mask_BT, torch.tensor([True, True, False]), max_tokens=8
    )
    assert (loss_BT * weight_BT).sum().item() == pytest.approx(expected, rel=1e-6)


lengths = st.lists(st.integers(1, 6), min_size=2, max_size=8)
AGGREGATIONS = ["token_mean", "seq_mean_token_mean", "seq_mean_token_sum", "seq_sum_constant"]


@pytest.mark.slow
@given(lengths, st.sampled_from(AGGREGATIONS), st.integers(1, 4), st.integers(0, 3))
def test_weights_depend_neither_on_the_order_of_samples_nor_on_padding(
    n_tokens: list[int], name: str, beyond: int, seed: int
) -> None:
    aggregation = objectives.parse(name).aggregation
    mask_BT = torch.arange(6) < torch.tensor(n_tokens)[:, None]
    counted_B = torch.rand(len(n_tokens), generator=torch.Generator().manual_seed(seed)) < 0.7
    weight_BT = aggregation.token_weights(mask_BT, counted_B, max_tokens=6)
    wider_BT = torch.nn.functional.pad(mask_BT, (0, beyond))
    padded_BT = aggregation.token_weights(wider_BT, counted_B, max_tokens=6)
    assert torch.equal(padded_BT[:, :6], weight_BT)
    assert (padded_BT[:, 6:] == 0).all()
    order_B = torch.randperm(len(n_tokens), generator=torch.Generator().manual_seed(seed))
    moved_BT = aggregation.token_weights(mask_BT[order_B], counted_B[order_B], max_tokens=6)
    assert torch.equal(moved_BT, weight_BT[order_B])
    if name in ("token_mean", "seq_mean_token_mean") and counted_B.any():
        assert weight_BT.sum().item() == pytest.approx(1.0, rel=1e-5)


# --- correction -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings_text", "expected"),
    [
        ("level=token,mode=truncate", [[2.0, 0.5, 2.0], [1.5, 1.0, 0.0]]),
        ("level=token,mode=mask", [[0.0, 0.5, 2.0], [1.5, 1.0, 0.0]]),
        ("level=token,mode=exact", [[4.0, 0.5, 2.0], [1.5, 1.0, 0.0]]),
        ("level=sequence,mode=truncate", [[2.0, 2.0, 2.0], [1.5, 1.5, 0.0]]),
        ("level=sequence,mode=mask", [[0.0, 0.0, 0.0], [1.5, 1.5, 0.0]]),
        ("level=sequence,mode=exact", [[4.0, 4.0, 4.0], [1.5, 1.5, 0.0]]),
        ("mode=truncate,cap=3", [[3.0, 0.5, 2.0], [1.5, 1.0, 0.0]]),
    ],
)
def test_importance_weights_by_hand(settings_text: str, expected: list[list[float]]) -> None:
    ratio_BT = torch.tensor([[4.0, 0.5, 2.0], [1.5, 1.0, 7.0]], dtype=torch.float64)
    correction = objectives.parse(f"importance:{settings_text}").correction
    assert correction is not None
    weight_BT = correction.importance(ratio_BT.log(), MASK_BT)
    torch.testing.assert_close(weight_BT, torch.tensor(expected, dtype=torch.float64))


def test_a_huge_ratio_is_capped_or_masked_and_never_nan() -> None:
    log_ratio_BT, mask_BT = torch.full((1, 3), 500.0), torch.tensor([[True, True, False]])
    for mode, expected in (("truncate", [2.0, 2.0, 0.0]), ("mask", [0.0, 0.0, 0.0])):
        correction = objectives.parse(f"importance:level=sequence,mode={mode}").correction
        assert correction is not None
        assert correction.importance(log_ratio_BT, mask_BT).tolist() == [expected]
