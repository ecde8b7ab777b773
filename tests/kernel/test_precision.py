"""The kernel equals that of float64 autograd on every architecture, and predicts the effect of a training step."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from oversharp.diagnostics.kernel import GradientKernel, KernelRow, cross_kernel, gradient_kernel
from oversharp.diagnostics.models.load import load_model
from tests.kernel.small_models import (
    ARCHITECTURES,
    MEMORY_BYTES,
    as_loaded,
    build,
    draw_rows,
    logp_sum,
    reference,
    trained_names,
)
from tests.samplers.tiny_models import checkpoint_at, write_adapter, write_checkpoint


def largest_error(
    kernel_RC: np.ndarray, reference_RC: np.ndarray, row_square_R: object, column_square_C: object
) -> float:
    scale = np.sqrt(np.outer(np.asarray(row_square_R), np.asarray(column_square_C)))
    return float(np.abs((kernel_RC - reference_RC) / scale).max())


def check(kernel: GradientKernel, reference_NN: np.ndarray, reference_N: np.ndarray) -> None:
    """Check the documented precision: entries, extremes, and the shift of other rows by eight rows."""
    kernel_NN, square_N = kernel.kernel_NN, reference_NN.diagonal()
    assert largest_error(kernel_NN, reference_NN, square_N, square_N) <= 1e-5
    off = ~np.eye(len(kernel_NN), dtype=bool)
    for extreme in (np.min, np.max):
        assert extreme(kernel_NN.diagonal()) == pytest.approx(extreme(square_N), rel=1e-5)
        assert extreme(kernel_NN[off]) == pytest.approx(extreme(reference_NN[off]), rel=1e-5)
    y = np.abs(np.random.default_rng(0).normal(size=8))
    shift, expected = (k[8:, :8] @ np.linalg.pinv(k[:8, :8]) @ y for k in (kernel_NN, reference_NN))
    assert np.abs(shift - expected).max() <= 1e-4 * np.abs(expected).max()
    assert np.allclose(kernel.logp_sum_N, reference_N, atol=2e-5, rtol=1e-6)
    assert kernel.certificate <= 1e-6
    assert np.array_equal(kernel_NN, kernel_NN.T)


@pytest.mark.slow
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_the_kernel_equals_that_of_float64_autograd(name: str) -> None:
    model, rows = build(name), draw_rows(12)
    expected = reference(model, rows, trained_names(model))
    check(gradient_kernel(as_loaded(model), rows, memory_bytes=MEMORY_BYTES), *expected)


@pytest.mark.slow
def test_products_by_tokens_equal_those_of_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    from oversharp.diagnostics.kernel import products

    model, rows = build("qwen3_tied"), draw_rows(12)
    expected = reference(model, rows, trained_names(model))
    monkeypatch.setattr(products, "_MULTIPLICATIONS_PER_NUMBER", 1e9)  # always compute by tokens
    check(gradient_kernel(as_loaded(model), rows, memory_bytes=MEMORY_BYTES), *expected)


@pytest.mark.slow
def test_an_adapter_loaded_for_use_has_the_kernel_of_the_adapter(tmp_path: Path) -> None:
    base = write_checkpoint(tmp_path / "base", seed=0)
    adapter = write_adapter(tmp_path / "adapter", base, seed=1)
    loaded = load_model(checkpoint_at(adapter, base_path=base), device=torch.device("cpu"), dtype="float32")
    assert not trained_names(loaded.model)
    rows = [KernelRow(prompt_ids=(2, 3 + token), token_ids=(4, 5, token, 1)) for token in range(5)]
    names = {name for name, _ in loaded.model.named_parameters() if "lora_" in name}
    reference_NN, _ = reference(loaded.model, rows, names)
    kernel_NN = gradient_kernel(loaded, rows, memory_bytes=MEMORY_BYTES).kernel_NN
    assert largest_error(kernel_NN, reference_NN, reference_NN.diagonal(), reference_NN.diagonal()) <= 1e-5
    assert not trained_names(loaded.model)


def test_a_model_in_bfloat16_is_computed_in_float32_and_restored(tmp_path: Path) -> None:
    model, rows = build("qwen3_tied").bfloat16(), draw_rows(6)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    model.lm_head.weight.grad = torch.ones_like(model.lm_head.weight)
    reference_NN, _ = reference(model, rows, trained_names(model))
    kernel_NN = gradient_kernel(as_loaded(model), rows, memory_bytes=MEMORY_BYTES).kernel_NN
    assert largest_error(kernel_NN, reference_NN, reference_NN.diagonal(), reference_NN.diagonal()) <= 1e-5
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert model.lm_head.weight.dtype is torch.bfloat16
    assert torch.equal(model.lm_head.weight.grad, torch.ones_like(model.lm_head.weight))
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_the_kernel_excludes_frozen_parameters() -> None:
    model, rows = build("llama_biases"), draw_rows(6)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("norm" in name or "layers.1.mlp" in name)
    reference_NN, _ = reference(model, rows, trained_names(model))
    kernel_NN = gradient_kernel(as_loaded(model), rows, memory_bytes=MEMORY_BYTES).kernel_NN
    assert largest_error(kernel_NN, reference_NN, reference_NN.diagonal(), reference_NN.diagonal()) <= 1e-5


def test_the_kernel_covers_parameters_of_unknown_modules() -> None:
    class Scaled(torch.nn.Module):
        """A wrapper of a layer with a separate parameter."""

        def __init__(self, inner: torch.nn.Module) -> None:
            super().__init__()
            self.inner = inner
            self.gain_H = torch.nn.Parameter(torch.linspace(0.5, 1.5, 24))

        def forward(self, hidden_BLH: torch.Tensor) -> torch.Tensor:
            return self.inner(hidden_BLH) * self.gain_H

    model, rows = build("qwen3_tied"), draw_rows(6)
    model.model.layers[1].mlp = Scaled(model.model.layers[1].mlp)
    names = trained_names(model)
    assert "model.layers.1.mlp.gain_H" in names
    reference_NN, _ = reference(model, rows, names)
    kernel_NN = gradient_kernel(as_loaded(model), rows, memory_bytes=MEMORY_BYTES).kernel_NN
    assert largest_error(kernel_NN, reference_NN, reference_NN.diagonal(), reference_NN.diagonal()) <= 1e-5


@pytest.mark.slow
def test_a_weight_that_two_layers_share_is_summed_before_it_is_multiplied() -> None:
    model, rows = build("qwen3_tied"), draw_rows(6)
    model.model.layers[2].mlp.up_proj.weight = model.model.layers[0].mlp.up_proj.weight
    model.model.layers[2].input_layernorm.weight = model.model.layers[0].input_layernorm.weight
    reference_NN, _ = reference(model, rows, trained_names(model))
    for memory_bytes in (MEMORY_BYTES, 400_000):
        kernel_NN = gradient_kernel(as_loaded(model), rows, memory_bytes=memory_bytes).kernel_NN
        assert largest_error(kernel_NN, reference_NN, reference_NN.diagonal(), reference_NN.diagonal()) <= 1e-5


@pytest.mark.slow
def test_a_rectangle_is_a_block_of_the_square() -> None:
    loaded, rows = as_loaded(build("qwen3_tied")), draw_rows(11)
    square_NN = gradient_kernel(loaded, rows, memory_bytes=MEMORY_BYTES).kernel_NN
    square_N = square_NN.diagonal()
    rectangle_RC = cross_kernel(loaded, rows[:7], rows[4:], memory_bytes=MEMORY_BYTES)  # three rows are on both sides
    assert largest_error(rectangle_RC, square_NN[:7, 4:], square_N[:7], square_N[4:]) <= 1e-6
    apart_RC = cross_kernel(loaded, rows[:1], rows[1:], memory_bytes=MEMORY_BYTES)
    assert apart_RC.shape == (1, 10)
    assert largest_error(apart_RC, square_NN[:1, 1:], square_N[:1], square_N[1:]) <= 1e-6


def test_equal_rows_have_equal_entries() -> None:
    loaded, rows = as_loaded(build("gpt2")), draw_rows(3)
    kernel = gradient_kernel(loaded, [*rows, rows[1]], memory_bytes=MEMORY_BYTES)
    assert np.array_equal(kernel.kernel_NN[1], kernel.kernel_NN[3])
    assert kernel.kernel_NN[1, 3] == kernel.kernel_NN[1, 1]
    assert kernel.logp_sum_N[1] == kernel.logp_sum_N[3]
    alone = gradient_kernel(loaded, [rows[0], rows[0]], memory_bytes=MEMORY_BYTES)
    assert np.all(alone.kernel_NN == alone.kernel_NN[0, 0])


@pytest.mark.slow
@settings(max_examples=8)
@given(order=st.permutations(range(6)))
def test_the_order_of_rows_changes_only_the_order_of_entries(order: list[int]) -> None:
    loaded, rows = as_loaded(build("qwen3_tied")), draw_rows(6)
    kernel = gradient_kernel(loaded, rows, memory_bytes=MEMORY_BYTES)
    other = gradient_kernel(loaded, [rows[row] for row in order], memory_bytes=MEMORY_BYTES)
    assert np.array_equal(other.kernel_NN, kernel.kernel_NN[np.ix_(order, order)])
    assert np.array_equal(other.logp_sum_N, kernel.logp_sum_N[order])


@pytest.mark.slow
def test_the_kernel_predicts_the_effect_of_a_small_sgd_step() -> None:
    """Δ log π_i ≈ η·Σ_j K_ij A_j, also for rows outside the training batch."""
    model, rows, learning_rate = build("qwen3_tied"), draw_rows(14), 1e-6
    advantage_C = np.random.default_rng(0).normal(size=5)
    influence_RC = cross_kernel(as_loaded(model), rows, rows[:5], memory_bytes=MEMORY_BYTES)
    predicted_R = learning_rate * influence_RC @ advantage_C
    model = model.double()  # the change is too small for float32
    before_R = np.array([float(logp_sum(model, row).detach()) for row in rows])
    optimizer = torch.optim.SGD(model.parameters(), lr=learning_rate)
    objective = sum(advantage * logp_sum(model, row) for advantage, row in zip(advantage_C, rows[:5], strict=True))
    (-objective).backward()
    optimizer.step()
    change_R = np.array([float(logp_sum(model, row).detach()) for row in rows]) - before_R
    assert np.corrcoef(change_R, predicted_R)[0, 1] > 0.99
    assert np.polyfit(predicted_R, change_R, 1)[0] == pytest.approx(1, abs=0.05)
    unseen = np.corrcoef(change_R[5:], predicted_R[5:])[0, 1]
    assert unseen > 0.99
