"""The certificate refuses every planted fault of the kernel, and accepts the same rows without it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from oversharp.diagnostics.kernel import (
    KernelRow,
    capture,
    certificate,
    cross_kernel,
    exact,
    gradient_kernel,
    pieces,
    streaming,
)
from oversharp.diagnostics.kernel.layers import LayerStack
from oversharp.diagnostics.kernel.products import KernelSum
from oversharp.diagnostics.kernel.rows import Pairs, make_batch
from oversharp.diagnostics.records.errors import KernelError
from tests.kernel.small_models import MEMORY_BYTES, as_loaded, build, draw_rows

REFUSED = r"its certificate is .* above 1e-06, mostly from "


#: A budget that is enough for one layer at a time.
LAYER_BYTES = 400_000


def compute(memory_bytes: int = MEMORY_BYTES) -> None:
    gradient_kernel(as_loaded(build("qwen3_tied")), draw_rows(9), memory_bytes=memory_bytes)


def refused(where: str) -> None:
    with pytest.raises(KernelError, match=REFUSED + where):
        compute()
    with pytest.raises(KernelError, match=REFUSED):
        compute(LAYER_BYTES)
    rows = draw_rows(9)
    with pytest.raises(KernelError, match=REFUSED):
        cross_kernel(as_loaded(build("qwen3_tied")), rows[:5], rows[5:], memory_bytes=MEMORY_BYTES)


@pytest.mark.slow
def test_without_a_fault_the_certificate_is_small() -> None:
    loaded, rows = as_loaded(build("qwen3_tied")), draw_rows(9)
    certificates = [
        gradient_kernel(loaded, rows, memory_bytes=MEMORY_BYTES, seed=seed).certificate for seed in range(5)
    ]
    assert max(certificates) <= 3e-7
    assert len(set(certificates)) > 1


@pytest.mark.parametrize("memory_bytes", [MEMORY_BYTES, LAYER_BYTES])
def test_a_dropped_cross_term_of_tied_embeddings_is_caught(memory_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    add = KernelSum.add

    def add_uses_separately(self: KernelSum, name: str, given: Sequence[Any], *rest: Any, **settings: Any) -> None:
        embedding = [piece for piece in given if isinstance(piece, pieces.OneHot)]
        head = [piece for piece in given if piece not in embedding]
        for use in filter(None, (embedding, head)):
            add(self, name, use, *rest, **settings)

    monkeypatch.setattr(KernelSum, "add", add_uses_separately)
    for name in ("qwen3_tied", "gpt2"):
        with pytest.raises(KernelError, match=REFUSED + r".*(embed_tokens|wte)\.weight"):
            gradient_kernel(as_loaded(build(name)), draw_rows(9), memory_bytes=memory_bytes)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["model.norm.weight", "model.layers.1.self_attn.k_norm.weight"])
def test_an_omitted_norm_is_caught_and_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    add = KernelSum.add

    def all_but_one(self: KernelSum, given_name: str, *arguments: Any, **settings: Any) -> None:
        if given_name != name:
            add(self, given_name, *arguments, **settings)

    monkeypatch.setattr(KernelSum, "add", all_but_one)
    refused(name)


@pytest.mark.slow
def test_omitted_prompt_positions_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    split_bands = pieces.split_bands

    def responses_only(tokens: torch.Tensor, batch: Any) -> Any:
        if tokens.ndim == 3 and tokens.shape[:2] == batch.ids_BL.shape:
            tokens = tokens.clone()
            for row_tokens, row in zip(tokens, batch.rows, strict=True):
                row_tokens[: len(row.prompt_ids) - 1] = 0
        return split_bands(tokens, batch)

    monkeypatch.setattr(pieces, "split_bands", responses_only)
    refused("model.layers")


def test_swapped_sides_of_a_rectangle_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, rules = draw_rows(9), capture.find_rule

    def find_reversed_rule(module: Any) -> Any:
        rule = rules(module)
        return rule and (lambda call: rule(replace(call, batch=reverse(call.batch))))

    def reverse(batch: Any) -> Any:
        return replace(batch, members=tuple(8 - member for member in reversed(batch.members)))

    monkeypatch.setattr(capture, "find_rule", find_reversed_rule)
    with pytest.raises(KernelError, match=REFUSED):
        cross_kernel(as_loaded(build("qwen3_tied")), rows[:5], rows[5:], memory_bytes=MEMORY_BYTES)


def test_rows_are_unclear_where_a_later_axis_of_their_size_may_be_theirs() -> None:
    loaded, rows = as_loaded(build("qwen3_tied")), [KernelRow(prompt_ids=(2,), token_ids=(3, 4)) for _ in range(3)]
    pairs = Pairs(rows=tuple(rows), row_end=3, column_start=0)
    batch = make_batch(loaded, pairs, torch.ones(3), [0, 1, 2])
    gradient_BLF = torch.ones(3, 3, 2)
    gradient_BLF[:, -1] = 0  # the last token predicts nothing
    assert not pieces.rows_are_unclear(gradient_BLF, batch)
    assert pieces.rows_are_unclear(gradient_BLF.transpose(0, 1), batch)
    assert not pieces.rows_are_unclear(torch.ones(3, 4, 2), batch)


def test_the_certificate_of_a_model_with_zero_weights_is_zero() -> None:
    model, rows = build("qwen3_tied"), draw_rows(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    kernel = gradient_kernel(as_loaded(model), rows, memory_bytes=MEMORY_BYTES)
    assert not kernel.kernel_NN.any()
    assert kernel.certificate == 0
    assert np.allclose(kernel.logp_sum_N, [-len(row.token_ids) * np.log(40) for row in rows])


def test_every_row_has_a_sign() -> None:
    signs = certificate.draw_signs(80, rng=np.random.default_rng(0))
    assert len(signs) == 80
    assert set(signs) == {-1.0, 1.0}


@pytest.mark.parametrize("memory_bytes", [MEMORY_BYTES, LAYER_BYTES])
def test_swapped_rows_are_caught(memory_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    linear = pieces._linear

    def shifted(call: Any) -> Any:
        rotated = replace(call.batch, members=(*call.batch.members[1:], call.batch.members[0]))
        return linear(replace(call, batch=rotated))

    monkeypatch.setattr(pieces, "_linear", shifted)
    with pytest.raises(KernelError, match="a row that ran alone differs"):
        compute(memory_bytes)


@pytest.mark.parametrize("check", ["gradients", "products"])
def test_a_gradient_that_is_lost_between_layers_is_caught(check: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernel and weight gradients both have the fault, so only the row that runs alone differs."""
    descend = LayerStack.descend

    def lose(self: LayerStack, below: list[torch.Tensor], index: int) -> None:
        descend(self, [0.9 * gradient for gradient in below] if index == 1 else below, index)

    if check == "products":
        monkeypatch.setattr(streaming, "require_equal_gradients", lambda *_: None)
    compute(LAYER_BYTES)
    monkeypatch.setattr(LayerStack, "descend", lose)
    with pytest.raises(KernelError, match="a row that ran alone differs"):
        compute(LAYER_BYTES)


def test_an_error_of_the_model_is_reported_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def out_of_memory(*_: Any, **__: Any) -> None:
        raise RuntimeError("can't allocate memory\nwith a long tail")

    monkeypatch.setattr(exact, "add_all", out_of_memory)
    with pytest.raises(
        KernelError, match=r"running the model failed \(can't allocate memory\); lower --kernel-problems"
    ):
        compute()
