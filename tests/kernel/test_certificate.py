"""Faults that are planted in the kernel: the certificate must refuse each, and pass the same rows without it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from diagnostics.errors import KernelError
from diagnostics.kernel import certificate, cross_kernel, gradient_kernel, pieces
from diagnostics.kernel.products import KernelSum
from tests.kernel.small_models import MEMORY_BYTES, as_loaded, build, draw_rows

REFUSED = r"its certificate is .* above 1e-06, most of it in "


def compute() -> None:
    gradient_kernel(as_loaded(build("qwen3_tied")), draw_rows(9), memory_bytes=MEMORY_BYTES)


def refused(where: str) -> None:
    with pytest.raises(KernelError, match=REFUSED + where):
        compute()
    with pytest.raises(KernelError, match=REFUSED):
        gradient_kernel(as_loaded(build("qwen3_tied")), draw_rows(9), memory_bytes=400_000)
    rows = draw_rows(9)
    with pytest.raises(KernelError, match=REFUSED):
        cross_kernel(as_loaded(build("qwen3_tied")), rows[:5], rows[5:], memory_bytes=MEMORY_BYTES)


def test_without_a_fault_the_certificate_is_small() -> None:
    loaded, rows = as_loaded(build("qwen3_tied")), draw_rows(9)
    certificates = [
        gradient_kernel(loaded, rows, memory_bytes=MEMORY_BYTES, seed=seed).certificate for seed in range(5)
    ]
    assert max(certificates) <= 3e-7
    assert len(set(certificates)) > 1


def test_a_dropped_cross_term_of_tied_embeddings_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    add = KernelSum.add

    def each_use_alone(self: KernelSum, name: str, given: Sequence[Any], *arguments: Any, **settings: Any) -> None:
        of_embedding = [piece for piece in given if isinstance(piece, pieces.Outer) and piece.one_hot]
        of_head = [piece for piece in given if piece not in of_embedding]
        for of_one_use in filter(None, (of_embedding, of_head)):
            add(self, name, of_one_use, *arguments, **settings)

    monkeypatch.setattr(KernelSum, "add", each_use_alone)
    for name in ("qwen3_tied", "gpt2"):
        with pytest.raises(KernelError, match=REFUSED + r".*(embed_tokens|wte)\.weight"):
            gradient_kernel(as_loaded(build(name)), draw_rows(9), memory_bytes=MEMORY_BYTES)


@pytest.mark.parametrize("name", ["model.norm.weight", "model.layers.1.self_attn.k_norm.weight"])
def test_an_omitted_norm_is_caught_and_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    add = KernelSum.add

    def all_but_one(self: KernelSum, given_name: str, *arguments: Any, **settings: Any) -> None:
        if given_name != name:
            add(self, given_name, *arguments, **settings)

    monkeypatch.setattr(KernelSum, "add", all_but_one)
    refused(name)


def test_omitted_prompt_positions_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    by_row = pieces.by_row

    def responses_only(tokens: torch.Tensor, batch: Any) -> Any:
        rows = by_row(tokens, batch)
        if rows is None or tokens.shape[0] != len(batch.rows):
            return rows
        if len(rows[0]) != batch.lengths[0]:
            return rows
        return tuple(one[len(row.prompt_ids) - 1 :] for one, row in zip(rows, batch.rows, strict=True))

    monkeypatch.setattr(pieces, "by_row", responses_only)
    refused("model.layers")


def test_rows_that_are_mixed_up_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    linear = pieces._linear

    def shifted(module: Any, inputs: Any, keywords: Any, gradient: Any, batch: Any) -> Any:
        turned = replace(batch, members=(*batch.members[1:], batch.members[0]))
        return linear(module, inputs, keywords, gradient, turned)

    monkeypatch.setattr(pieces, "_linear", shifted)
    refused("model")


def test_the_residual_of_nothing_at_all_is_zero() -> None:
    signs = certificate.draw_signs(2, 5, 9, rng=np.random.default_rng(0))
    assert np.flatnonzero(signs).tolist() == [2, 3, 4]
    assert set(np.abs(signs[2:5])) == {1.0}
    model, rows = build("qwen3_tied"), draw_rows(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    kernel = gradient_kernel(as_loaded(model), rows, memory_bytes=MEMORY_BYTES)
    assert not kernel.kernel_NN.any()
    assert kernel.certificate == 0
    assert np.allclose(kernel.logp_sum_N, [-len(row.token_ids) * np.log(40) for row in rows])


def test_signs_are_drawn_for_an_eighth_of_many_rows() -> None:
    signs = certificate.draw_signs(0, 80, 80, rng=np.random.default_rng(0))
    assert np.count_nonzero(signs) == 10
    assert set(signs) == {-1.0, 0.0, 1.0}
