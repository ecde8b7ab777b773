from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import PreTrainedModel

from oversharp.trainers import objectives
from oversharp.trainers.batch import RolloutBatch
from oversharp.trainers.model.forward import ForwardSettings, _count_unshared, token_logps
from oversharp.trainers.model.network import Network, find_network
from oversharp.trainers.objectives.contract import Credit, Surrogate, SurrogateLoss, TokenLogps
from oversharp.trainers.update import (
    UpdateBatch,
    UpdateReport,
    accumulate_gradient,
    distinct_rollouts,
    frozen_logps,
    rehearse,
)
from tests.trainers.batches import rollouts_of, text_of
from tests.trainers.runs import gpt2, loaded_from, multiplied

PLAIN = ForwardSettings(temperature=1.0)
AGGREGATIONS = [name for name in objectives.names() if name.startswith(("seq_", "token_"))]


@pytest.fixture(params=["rotary positions", "learned positions"])
def model(request: pytest.FixtureRequest, model_path: Path) -> PreTrainedModel:
    """A model with large random weights, so that a wrong mask or position changes its output."""
    return multiplied(gpt2() if request.param == "learned positions" else loaded_from(model_path).model, 4)


@pytest.fixture
def rollouts() -> RolloutBatch:
    """Two prompts of different length, three responses each, of 1 to 4 tokens; the last row is a copy."""
    mask = torch.tensor(
        [[1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1], [1, 1, 1, 0]], dtype=torch.bool
    )
    ids = [[20, 21, 22, 1], [20, 1, 0, 0], [1, 0, 0, 0], [24, 25, 1, 0], [24, 26, 27, 1], [24, 25, 1, 0]]
    return rollouts_of(torch.tensor([[0, 0, 7, 8], [9, 10, 11, 12]]), torch.tensor(ids), mask)


def batch_of(rollouts: RolloutBatch, advantages: list[float], counted: list[bool] | None = None) -> UpdateBatch:
    return UpdateBatch(
        rollouts=rollouts,
        credit=Credit(
            advantage_PG=torch.tensor(advantages).view(-1, rollouts.group_size),
            counted_PG=torch.tensor(counted or [True] * len(advantages)).view(-1, rollouts.group_size),
        ),
    )


def run(
    network: Network | PreTrainedModel, batch: UpdateBatch, algorithm: str = "grpo", settings: ForwardSettings = PLAIN
) -> tuple[UpdateReport, torch.Tensor]:
    """Return the report and the whole gradient."""
    network = network if isinstance(network, Network) else Network(model=network)
    network.model.zero_grad()
    report = accumulate_gradient(network, batch, objectives.parse(algorithm), settings, max_tokens=4)
    return report, gradient(network.model)


def gradient(model: PreTrainedModel) -> torch.Tensor:
    return torch.cat(
        [
            torch.zeros_like(parameter).flatten() if parameter.grad is None else parameter.grad.flatten()
            for parameter in model.parameters()
        ]
    )


def assert_same(actual: torch.Tensor, expected: torch.Tensor, *, within: float) -> None:
    assert float((actual - expected).abs().max()) <= within * float(expected.abs().max())


def naive_logp(model: PreTrainedModel, rollouts: RolloutBatch, row: int, temperature: float = 1.0) -> torch.Tensor:
    """Return the log-probabilities of one response, without padding or batching."""
    prompt, response = text_of(rollouts, row)
    logits = model(torch.cat([prompt, response])[None]).logits[0, len(prompt) - 1 : -1]
    return (logits / temperature).log_softmax(-1).gather(1, response[:, None])[:, 0]


ADVANTAGES = [1.5, -0.5, 0.25, 2.0, -1.0, 0.5]


@pytest.mark.slow
@pytest.mark.parametrize("micro_batch", [None, 2])
def test_a_token_learns_from_its_own_advantage(
    model: PreTrainedModel, rollouts: RolloutBatch, micro_batch: int | None
) -> None:
    mask_BT = rollouts.response_mask_BT
    advantage_BT = torch.linspace(-1, 2, mask_BT.numel()).view_as(mask_BT).where(mask_BT, 0.0)
    batch = batch_of(rollouts, [0.0] * 6)  # the means are only for metrics
    batch = replace(batch, credit=replace(batch.credit, token_advantage_BT=advantage_BT))
    settings = replace(PLAIN, micro_batch=micro_batch)
    report, actual = run(model, batch, "reinforce+token_mean", settings)
    assert report.n_used == 6
    model.zero_grad()
    logps = [naive_logp(model, rollouts, row) for row in range(6)]
    loss_B = torch.stack([-(advantage_BT[row, : len(logp)] * logp).sum() for row, logp in enumerate(logps)])
    (loss_B.sum() / mask_BT.sum()).backward()
    assert_same(actual, gradient(model), within=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_log_probabilities_are_those_of_each_response_alone(
    model: PreTrainedModel, rollouts: RolloutBatch, temperature: float
) -> None:
    network = find_network(model)
    assert network.layouts == ("rows", "tree", "packed")
    for layout in network.layouts:
        logp_RT, _ = token_logps(
            network, rollouts, torch.tensor([4, 0, 2]), ForwardSettings(temperature=temperature), layout=layout
        )
        for place, row in enumerate((4, 0, 2)):
            torch.testing.assert_close(
                logp_RT[place][rollouts.response_mask_BT[row]],
                naive_logp(model, rollouts, row, temperature),
                rtol=1e-4,
                atol=1e-4,
            )
            assert float(logp_RT[place][~rollouts.response_mask_BT[row]].detach().abs().sum()) == 0


@pytest.mark.slow
def test_loss_and_gradient_are_those_of_the_formula(model: PreTrainedModel, rollouts: RolloutBatch) -> None:
    # every ratio is 1, and the gradient is that of -A log pi
    naive = -sum(ADVANTAGES[row] * naive_logp(model, rollouts, row).mean() for row in range(6)) / 6
    naive.backward()
    expected = gradient(model)
    report, actual = run(find_network(model), batch_of(rollouts, ADVANTAGES))
    assert report.loss == pytest.approx(-sum(ADVANTAGES) / 6, rel=1e-5)
    assert_same(actual, expected, within=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("algorithm", ["grpo", "gspo", "grpo+entropy_bonus:coefficient=0.1"])
def test_micro_batches_change_neither_loss_nor_gradient(
    model: PreTrainedModel, rollouts: RolloutBatch, algorithm: str, aggregation: str
) -> None:
    network, batch = find_network(model), batch_of(rollouts, ADVANTAGES)
    expression = f"{algorithm}+{aggregation}"
    whole, expected = run(network, batch, expression)
    for micro_batch in (1, 3):
        report, actual = run(network, batch, expression, ForwardSettings(temperature=1.0, micro_batch=micro_batch))
        assert report.loss == pytest.approx(whole.loss, rel=1e-5, abs=1e-6)
        assert_same(actual, expected, within=5e-6)


@pytest.mark.parametrize("algorithm", ["grpo", "grpo+entropy_bonus:coefficient=0.1"])
def test_entropies_are_computed_only_if_a_part_needs_them(
    model: PreTrainedModel, rollouts: RolloutBatch, algorithm: str
) -> None:
    seen: list[TokenLogps] = []

    class Seen(Surrogate):
        def __init__(self, surrogate: Surrogate) -> None:
            self._surrogate = surrogate

        def token_loss(self, tokens: TokenLogps, advantage_B: torch.Tensor) -> SurrogateLoss:
            seen.append(tokens)
            return self._surrogate.token_loss(tokens, advantage_B)

    objective = objectives.parse(algorithm)
    watched = replace(objective, surrogate=Seen(objective.surrogate))
    for network in (find_network(model), Network(model=model)):
        accumulate_gradient(network, batch_of(rollouts, ADVANTAGES), watched, PLAIN, max_tokens=4)
    assert len(seen) == 2
    assert all((tokens.entropy_BT is not None) == ("entropy_bonus" in algorithm) for tokens in seen)


@pytest.mark.slow
def test_a_bare_model_gives_the_same_gradient(model: PreTrainedModel, rollouts: RolloutBatch) -> None:
    batch = batch_of(rollouts, ADVANTAGES)
    assert_same(run(model, batch)[1], run(find_network(model), batch)[1], within=1e-5)


@pytest.mark.slow
def test_recomputed_activations_give_the_same_gradient(model: PreTrainedModel, rollouts: RolloutBatch) -> None:
    network, batch = find_network(model, recompute=True), batch_of(rollouts, ADVANTAGES)
    assert network.recomputed
    assert_same(run(network, batch)[1], run(find_network(model), batch)[1], within=1e-5)
    assert not any("forward" in vars(layer) for layer in network.recomputed)


@pytest.mark.slow
def test_bfloat16_products_leave_float32_weights_and_nearly_the_gradient(
    model: PreTrainedModel, rollouts: RolloutBatch
) -> None:
    network, batch = find_network(multiplied(model, 0.25)), batch_of(rollouts, ADVANTAGES)
    expected = run(network, batch)[1]
    actual = run(network, batch, settings=ForwardSettings(temperature=1.0, autocast=torch.bfloat16))[1]
    assert all(
        parameter.dtype == torch.float32 and parameter.grad.dtype == torch.float32 for parameter in model.parameters()
    )
    assert 1e-5 < float((actual - expected).norm() / expected.norm()) < 0.05


def test_rollouts_without_advantage_are_skipped_but_stay_in_the_divisor(
    model: PreTrainedModel, rollouts: RolloutBatch
) -> None:
    report, actual = run(find_network(model), batch_of(rollouts, [1.0, 0, 0, 0, 0, 0]))
    assert report.n_used == 1
    model.zero_grad()
    (-naive_logp(model, rollouts, 0).mean() / 6).backward()
    assert_same(actual, gradient(model), within=1e-5)


def test_without_any_advantage_there_is_no_gradient(model: PreTrainedModel, rollouts: RolloutBatch) -> None:
    report, actual = run(find_network(model), batch_of(rollouts, [0.0] * 6))
    assert (report.loss, report.n_used, report.logp_gap_max) == (0.0, 0, 0.0)
    assert not bool(actual.any())


def test_the_gap_to_the_sampler_covers_response_tokens(model: PreTrainedModel, rollouts: RolloutBatch) -> None:
    logp_BT = frozen_logps(find_network(model), rollouts, PLAIN)
    shifted = replace(rollouts, behaviour_logp_BT=logp_BT + torch.tensor([0.0, 0.0, 0.0, 0.5]))
    report, _ = run(find_network(model), batch_of(shifted, ADVANTAGES))
    assert report.logp_gap_max == pytest.approx(0.5, abs=1e-4)
    # two of the 17 tokens are fourth ones
    assert report.logp_gap_mean == pytest.approx(2 * 0.5 / int(rollouts.response_mask_BT.sum()), abs=1e-4)


@pytest.mark.slow
def test_frozen_log_probabilities_keep_the_order_of_rows(model: PreTrainedModel, rollouts: RolloutBatch) -> None:
    logp_BT = frozen_logps(find_network(model), rollouts, ForwardSettings(temperature=1.0, micro_batch=2))
    for row in range(6):
        torch.testing.assert_close(
            logp_BT[row].sum(), naive_logp(model, rollouts, row).sum().detach(), rtol=1e-4, atol=1e-4
        )


def test_rehearsal_is_the_mean_cross_entropy(model: PreTrainedModel, rollouts: RolloutBatch) -> None:
    naive = -0.5 * sum(naive_logp(model, rollouts, row).mean() for row in range(6)) / 6
    naive.backward()
    expected = gradient(model)
    model.zero_grad()
    loss = rehearse(find_network(model), rollouts, 0.5, ForwardSettings(temperature=1.0, micro_batch=4))
    assert loss == pytest.approx(naive.item(), rel=1e-5)
    assert_same(gradient(model), expected, within=1e-5)


def test_copies_of_a_response_are_computed_once(rollouts: RolloutBatch) -> None:
    # the same tokens after another prompt are no copy, nor is a longer response
    ids = torch.tensor([[20, 1, 0, 0], [20, 1, 7, 7], [20, 1, 1, 0]] * 2)
    mask = torch.tensor([[1, 1, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0]] * 2, dtype=torch.bool)
    copies = replace(rollouts, response_ids_BT=ids, response_mask_BT=mask)
    row_U, copy_of_B = distinct_rollouts(copies, torch.tensor([True, True, True, True, False, True]))
    assert sorted(row_U.tolist()) == [0, 2, 3, 5]
    assert copy_of_B[0] == copy_of_B[1]
    assert copy_of_B[4] == -1
    assert row_U[copy_of_B[[0, 2, 3, 5]]].tolist() == [0, 2, 3, 5]


def test_the_size_of_a_tree_is_counted_without_building_it(rollouts: RolloutBatch) -> None:
    row_U, _ = distinct_rollouts(rollouts, torch.ones(6, dtype=torch.bool))
    # (1), (20 1), (20 21 22 1) and (24 25 1), (24 26 27 1): the last token of each is never an input
    assert row_U.tolist() == [2, 1, 0, 3, 4]
    assert _count_unshared(rollouts, row_U).tolist() == [0, 1, 2, 2, 2]
    assert _count_unshared(rollouts, torch.tensor([1])).tolist() == [1]
