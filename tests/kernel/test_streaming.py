"""Every budget gives the same kernel, by different plans."""

from __future__ import annotations

import pickle
import re
from typing import Any

import numpy as np
import pytest
import torch

from oversharp.diagnostics.kernel import (
    certificate,
    cross_kernel,
    gradient_kernel,
    layers,
    memory_plan,
    parameters,
    streaming,
)
from oversharp.diagnostics.kernel.rows import KernelBatch
from oversharp.diagnostics.records.errors import KernelError, KernelTooLargeError
from tests.kernel.small_models import MEMORY_BYTES, as_loaded, build, draw_rows, reference, trained_names


def record_runs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that gets "model" or "layer" for each run from now on."""
    taken: list[str] = []
    run_layer, response_logps = layers.LayerStack.run_layer, streaming.response_logps

    def layer(self: layers.LayerStack, index: int, number: int) -> Any:
        taken.append("layer")
        return run_layer(self, index, number)

    def whole(*arguments: Any) -> Any:
        taken.append("model")
        return response_logps(*arguments)

    monkeypatch.setattr(layers.LayerStack, "run_layer", layer)
    monkeypatch.setattr(streaming, "response_logps", whole)
    return taken


@pytest.mark.slow
@pytest.mark.parametrize("name", ["qwen3_tied", "gpt2", "lora", "hybrid"])
def test_every_budget_gives_the_same_kernel(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded, rows = as_loaded(build(name)), draw_rows(9)
    wanted = gradient_kernel(loaded, rows, memory_bytes=MEMORY_BYTES)
    scale_N = np.sqrt(wanted.kernel_NN.diagonal())
    taken = record_runs(monkeypatch)
    kinds = set()
    for memory_bytes in (1_200_000, 400_000, 120_000):
        taken.clear()
        kernel = gradient_kernel(loaded, rows, memory_bytes=memory_bytes)
        kinds |= set(taken)
        error_NN = (kernel.kernel_NN - wanted.kernel_NN) / np.outer(scale_N, scale_N)
        assert np.abs(error_NN).max() <= 3e-6
        assert np.allclose(kernel.logp_sum_N, wanted.logp_sum_N, atol=1e-5)
        assert kernel.certificate <= 1e-6
    assert kinds == {"layer", "model"} or name == "lora"  # the small gradients of an adapter fit in any budget


def test_rows_that_fit_run_through_the_model_once(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded, rows = as_loaded(build("qwen3_tied")), draw_rows(9)
    taken = record_runs(monkeypatch)
    gradient_kernel(loaded, rows, memory_bytes=MEMORY_BYTES)
    assert taken == ["model"] * 2  # all rows, and the row that runs alone


@pytest.mark.slow
def test_rows_with_much_padding_are_split_into_batches_with_the_same_kernel(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = build("qwen3_tied")
    loaded, rows = as_loaded(model), draw_rows(40)
    monkeypatch.setattr(parameters, "_MULTIPLICATIONS_PER_PASS", 0)  # else no pass over this model is worth it
    taken = record_runs(monkeypatch)
    kernel = gradient_kernel(loaded, rows, memory_bytes=MEMORY_BYTES)
    assert taken == ["model"] * 4  # three batches, and the row that runs alone
    expected_NN, logp_N = reference(model, rows, trained_names(model))
    scale_N = np.sqrt(expected_NN.diagonal())
    assert np.abs((kernel.kernel_NN - expected_NN) / np.outer(scale_N, scale_N)).max() <= 1e-5
    assert np.allclose(kernel.logp_sum_N, logp_N, atol=2e-5)
    assert kernel.certificate <= 1e-6


@pytest.mark.slow
def test_each_layer_runs_once_for_every_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded, rows = as_loaded(build("qwen3_tied")), draw_rows(9)
    taken = record_runs(monkeypatch)
    cuts: list[tuple[list[KernelBatch], bool]] = []
    cut_in_batches = streaming.cut_in_batches

    def kept(*arguments: Any) -> tuple[list[KernelBatch], bool]:
        cuts.append(cut_in_batches(*arguments))
        return cuts[-1]

    monkeypatch.setattr(streaming, "cut_in_batches", kept)
    gradient_kernel(loaded, rows, memory_bytes=400_000)
    batches, _ = cuts[0]
    assert len(batches) > 2
    assert taken == ["layer"] * 3 * len(batches)


@pytest.mark.slow
def test_layers_that_are_not_consecutive_do_not_run_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    model, rows = build("qwen3_tied"), draw_rows(9)
    loaded = as_loaded(model)
    wanted_NN = gradient_kernel(loaded, rows, memory_bytes=MEMORY_BYTES).kernel_NN
    monkeypatch.setattr(layers, "find_layers", lambda _model: (model.model.layers[0], model.model.layers[2]))
    taken = record_runs(monkeypatch)
    kernel_NN = gradient_kernel(loaded, rows, memory_bytes=400_000).kernel_NN
    assert set(taken) == {"model"}
    assert np.allclose(kernel_NN, wanted_NN, rtol=1e-5, atol=1e-5 * wanted_NN.max())


@pytest.mark.slow
def test_layers_that_get_the_embeddings_do_not_run_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The gradient of the embeddings would lack the part that does not flow through the first layer's input."""

    class WithEmbeddings(torch.nn.Module):
        """A decoder layer that also adds the embeddings, which it gets as an argument."""

        def __init__(self, layer: torch.nn.Module) -> None:
            super().__init__()
            self.layer = layer

        def forward(self, hidden_BLH: torch.Tensor, *, embeddings_BLH: torch.Tensor, **keywords: Any) -> torch.Tensor:
            return self.layer(hidden_BLH + 0.5 * embeddings_BLH, **keywords)

    model, rows = build("qwen3_tied"), draw_rows(9)
    embeddings: list[torch.Tensor] = []
    model.model.layers = torch.nn.ModuleList(map(WithEmbeddings, model.model.layers))
    model.model.layers[0].register_forward_pre_hook(lambda _layer, inputs: embeddings.append(inputs[0]))
    for layer in model.model.layers:
        layer.register_forward_pre_hook(
            lambda _layer, inputs, keywords: (inputs, keywords | {"embeddings_BLH": embeddings[-1]}), with_kwargs=True
        )
    loaded = as_loaded(model)
    wanted_NN = gradient_kernel(loaded, rows, memory_bytes=MEMORY_BYTES).kernel_NN
    taken = record_runs(monkeypatch)
    kernel_NN = gradient_kernel(loaded, rows, memory_bytes=400_000).kernel_NN
    assert set(taken) == {"model"}
    assert np.allclose(kernel_NN, wanted_NN, rtol=1e-5, atol=1e-5 * wanted_NN.max())


@pytest.mark.slow
def test_layer_by_layer_the_weight_gradients_of_only_one_part_are_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded, rows = as_loaded(build("qwen3_tied")), draw_rows(9)
    finish, kept = certificate.SignedGradients.finish, list[set[str]]()

    def record(self: certificate.SignedGradients, trained: Any) -> None:
        kept.append({name.split(".layers.")[-1][0] for name, sums in self._sums.items() if sums})
        finish(self, trained)
        assert not any(self._sums.values())

    monkeypatch.setattr(certificate.SignedGradients, "finish", record)
    gradient_kernel(loaded, rows, memory_bytes=400_000)
    assert kept == [{"2"}, {"1"}, {"0"}, {"m"}]


@pytest.mark.slow
def test_a_rectangle_streams_too() -> None:
    loaded, rows = as_loaded(build("qwen3_tied")), draw_rows(9)
    wanted_RC = cross_kernel(loaded, rows[:5], rows[3:], memory_bytes=MEMORY_BYTES)
    streamed_RC = cross_kernel(loaded, rows[:5], rows[3:], memory_bytes=400_000)
    assert np.abs(streamed_RC - wanted_RC).max() <= 1e-6 * np.abs(wanted_RC).max()


def with_memory(monkeypatch: pytest.MonkeyPatch, *, least: int, free: int) -> None:
    """Set the smallest budget and the activations' limit to ``least``, and the machine's free memory to ``free``."""
    for module in (memory_plan, streaming):
        monkeypatch.setattr(module, "ACTIVATION_BYTES", least)
    monkeypatch.setattr(memory_plan, "LEAST_BYTES", least)
    monkeypatch.setattr(memory_plan, "free_bytes", lambda: free)


@pytest.mark.slow
@pytest.mark.parametrize(("least", "says"), [(1 << 24, None), (1 << 17, "9 rows .* layer by layer, with 0.000244 GiB")])
def test_the_default_budget_is_the_smallest_that_avoids_runs_of_the_whole_model(
    least: int, says: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded, rows = as_loaded(build("qwen3_tied")), draw_rows(9)
    wanted_NN = gradient_kernel(loaded, rows, memory_bytes=MEMORY_BYTES).kernel_NN
    with_memory(monkeypatch, least=least, free=1 << 30)
    taken, notes = record_runs(monkeypatch), list[str]()
    kernel_NN = gradient_kernel(loaded, rows, note=notes.append).kernel_NN
    assert np.allclose(kernel_NN, wanted_NN, rtol=1e-5, atol=1e-5 * wanted_NN.max())
    assert set(taken) == {"model" if says is None else "layer"}
    assert [re.match(says, note) is not None for note in notes] == [True] if says else notes == []


def record_plans(monkeypatch: pytest.MonkeyPatch) -> list[memory_plan.MemoryPlan]:
    """Return a list that gets each plan made from now on."""
    made: list[memory_plan.MemoryPlan] = []
    find_plan = streaming.find_plan

    def kept(*arguments: Any, **keywords: Any) -> memory_plan.MemoryPlan:
        made.append(find_plan(*arguments, **keywords))
        return made[-1]

    monkeypatch.setattr(streaming, "find_plan", kept)
    return made


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "least", "kind", "share"),
    [
        ("qwen3_tied", 1 << 22, "layer by layer", 0.5),
        ("lora", 1 << 17, "kept", 1.0),  # half is enough too, but runs the whole model more than once
    ],
)
def test_on_a_cpu_half_of_the_smallest_budget_is_enough_where_layers_can_run_alone(
    name: str, least: int, kind: str, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded, rows = as_loaded(build(name)), draw_rows(30)
    wanted_NN = gradient_kernel(loaded, rows, memory_bytes=MEMORY_BYTES).kernel_NN
    with_memory(monkeypatch, least=least, free=1 << 30)
    plans = record_plans(monkeypatch)
    kernel_NN = gradient_kernel(loaded, rows).kernel_NN
    assert [(plan.kind, plan.memory_bytes / least) for plan in plans] == [(kind, share)]
    assert np.allclose(kernel_NN, wanted_NN, rtol=1e-5, atol=1e-5 * wanted_NN.max())


@pytest.mark.slow
@pytest.mark.parametrize(("least", "kept", "share"), [(1 << 17, 50_000, 1.0), (1 << 16, 50_000, 2.0)])
def test_on_a_cpu_layers_run_alone_where_all_factors_take_more_than_half_of_the_smallest_budget(
    least: int, kept: int, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded, rows = as_loaded(build("lora")), draw_rows(30)
    wanted_NN = gradient_kernel(loaded, rows, memory_bytes=MEMORY_BYTES).kernel_NN
    with_memory(monkeypatch, least=least, free=1 << 30)
    for module in (memory_plan, streaming):  # else inputs of layers exceed all factors of this small adapter
        monkeypatch.setattr(module, "kept_bytes", lambda *_: kept)
    plans, taken = record_plans(monkeypatch), record_runs(monkeypatch)
    kernel_NN = gradient_kernel(loaded, rows).kernel_NN
    assert [(plan.kind, plan.memory_bytes / least) for plan in plans] == [("layer by layer", share)]
    assert set(taken) == {"layer"}
    assert np.allclose(kernel_NN, wanted_NN, rtol=1e-5, atol=1e-5 * wanted_NN.max())


@pytest.mark.slow
@pytest.mark.parametrize(("name", "kind", "finer"), [("lora", "kept", True), ("qwen3_tied", "layer by layer", False)])
def test_on_a_cpu_batches_through_the_whole_model_are_smaller_than_those_through_a_layer(
    name: str, kind: str, finer: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded, rows = as_loaded(build(name)), draw_rows(30)
    wanted_NN = gradient_kernel(loaded, rows, memory_bytes=MEMORY_BYTES).kernel_NN
    with_memory(monkeypatch, least=1 << 19, free=1 << 30)
    monkeypatch.setattr(streaming, "ACTIVATION_BYTES_ON_A_CPU", 1 << 16)
    plans, cuts, cut = record_plans(monkeypatch), list[int](), streaming.cut_in_batches

    def counted(*arguments: Any) -> tuple[list[KernelBatch], bool]:
        batches, at_once = cut(*arguments)
        cuts.append(len(batches))
        return batches, at_once

    monkeypatch.setattr(streaming, "cut_in_batches", counted)
    kernel_NN = gradient_kernel(loaded, rows).kernel_NN
    assert [plan.kind for plan in plans] == [kind]
    assert len(cuts) == 1 + finer
    assert sorted(set(cuts)) == cuts  # each cut makes more batches
    assert np.allclose(kernel_NN, wanted_NN, rtol=1e-5, atol=1e-5 * wanted_NN.max())


def test_rows_that_exceed_the_free_memory_are_refused_with_the_share_that_fits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loaded, rows = as_loaded(build("qwen3_tied")), draw_rows(9)
    with_memory(monkeypatch, least=1 << 16, free=300_000)
    with pytest.raises(KernelTooLargeError, match="raise --kernel-memory-gib, or pass fewer rows") as caught:
        gradient_kernel(loaded, rows)
    assert 0 < caught.value.share < 1
    assert pickle.loads(pickle.dumps(caught.value)).share == caught.value.share  # a worker of Ray sends it


@pytest.mark.parametrize(("free", "says"), [(1 << 30, None), (700_000, "20 rows of 60 tokens do not fit .* about 5")])
def test_a_shortage_of_memory_is_predicted_from_shapes(
    free: int, says: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_memory(monkeypatch, least=1 << 16, free=free)
    outline = build("qwen3_tied").to("meta")
    warning = memory_plan.predict_shortage(
        outline, torch.device("cpu"), n_rows=20, row_tokens=60, response_tokens=40, memory_bytes=None
    )
    assert warning is None if says is None else re.match(says, str(warning))


def test_the_error_for_a_small_budget_gives_the_needed_memory() -> None:
    loaded, rows = as_loaded(build("qwen3_tied")), draw_rows(9)
    for memory_bytes in (100, 2_000, 10_000):
        with pytest.raises(KernelError, match=r"too small .* raise --kernel-memory-gib") as caught:
            gradient_kernel(loaded, rows, memory_bytes=memory_bytes)
        match = re.search(r"need at least ([\d.e-]+) GiB;", str(caught.value))
        assert match is not None
        needed_bytes = float(match[1]) * 2**30
        assert memory_bytes < needed_bytes < 200_000
