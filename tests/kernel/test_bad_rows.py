"""Rows and models without a kernel: each error is one line that names the cause."""

from __future__ import annotations

import pytest
import torch

from oversharp.diagnostics.kernel import KernelRow, cross_kernel, gradient_kernel
from oversharp.diagnostics.records.errors import KernelError
from tests.kernel.small_models import CONTEXT, MEMORY_BYTES, as_loaded, build, draw_rows


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (KernelRow(prompt_ids=(2,), token_ids=()), "row 3 of the gradient kernel: the response has no tokens"),
        (KernelRow(prompt_ids=(), token_ids=(2,)), "row 3 of the gradient kernel: the prompt has no tokens"),
        (
            KernelRow(prompt_ids=(2,), token_ids=(3, 40)),
            "row 3 .*: token 40 of the response is outside the model's vocabulary of 40; the tokenizer belongs to",
        ),
        (KernelRow(prompt_ids=(-1,), token_ids=(3,)), "row 3 .*: token -1 of the prompt is outside"),
        (
            KernelRow(prompt_ids=(2, 3), token_ids=(2,) * (CONTEXT - 1)),
            "row 3 .*: 2 prompt tokens and 63 response tokens exceed the model's context of 64; leave the row out",
        ),
    ],
)
def test_a_row_that_cannot_be_computed_is_named(row: KernelRow, message: str) -> None:
    loaded, rows = as_loaded(build("qwen3_tied")), draw_rows(3)
    with pytest.raises(KernelError, match=message) as caught:
        gradient_kernel(loaded, [*rows, row], memory_bytes=MEMORY_BYTES)
    assert "\n" not in str(caught.value)
    with pytest.raises(KernelError, match=message.replace("row 3", "column 3", 1)):
        cross_kernel(loaded, rows, [*rows, row], memory_bytes=MEMORY_BYTES)


def test_the_longest_row_that_fits_the_context_is_computed() -> None:
    row = KernelRow(prompt_ids=(2, 3), token_ids=(2,) * (CONTEXT - 2))
    gradient_kernel(as_loaded(build("gpt2")), [row, *draw_rows(1)], memory_bytes=MEMORY_BYTES)


def test_one_row_makes_no_pair_and_an_empty_side_no_block() -> None:
    loaded, rows = as_loaded(build("qwen3_tied")), draw_rows(2)
    with pytest.raises(KernelError, match="needs at least two rows; got 1 row"):
        gradient_kernel(loaded, rows[:1], memory_bytes=MEMORY_BYTES)
    with pytest.raises(KernelError, match="no columns; pass at least one"):
        cross_kernel(loaded, rows, [], memory_bytes=MEMORY_BYTES)


@pytest.mark.parametrize("weight", [float("nan"), float("inf"), 3e38])
def test_a_model_with_infinite_numbers_raises_an_error(weight: float) -> None:
    model = build("qwen3_tied")
    with torch.no_grad():
        model.model.norm.weight.fill_(weight)
    with pytest.raises(KernelError, match="NaN or infinite log-probabilities or gradients"):
        gradient_kernel(as_loaded(model), draw_rows(3), memory_bytes=MEMORY_BYTES)


def test_a_frozen_model_has_no_kernel() -> None:
    model = build("qwen3_tied").requires_grad_(False)
    with pytest.raises(KernelError, match="no parameter of the model is trained"):
        gradient_kernel(as_loaded(model), draw_rows(3), memory_bytes=MEMORY_BYTES)
