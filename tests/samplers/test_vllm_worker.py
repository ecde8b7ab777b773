"""Additions to vLLM's worker that need no vLLM: entropies of many rows, and releasing the cache's memory."""

from __future__ import annotations

import ctypes
import mmap
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from oversharp.diagnostics.models.devices import elements_per_chunk
from oversharp.diagnostics.samplers import vllm_worker
from oversharp.diagnostics.samplers.vllm_worker import empty_pages, entropy_nats, logp_and_entropy

MIB = 1 << 20


@pytest.fixture
def _fresh_sizes() -> Iterator[None]:
    elements_per_chunk.cache_clear()
    yield
    elements_per_chunk.cache_clear()


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE


@pytest.mark.slow
def test_emptied_pages_are_released_and_contain_zeros() -> None:
    cache = torch.ones(64 * MIB, dtype=torch.uint8)
    other = torch.ones(64 * MIB, dtype=torch.uint8)
    before = resident_bytes()
    released = empty_pages(cache[5:].view(-1))  # the whole storage of a view is emptied
    assert 64 * MIB - 2 * mmap.PAGESIZE <= released <= 64 * MIB
    assert before - resident_bytes() >= 0.9 * released
    assert int(cache[mmap.PAGESIZE : -mmap.PAGESIZE].max()) == 0
    assert int(other.min()) == 1
    cache[:] = 7
    assert int(cache.sum(dtype=torch.int64)) == 7 * 64 * MIB


def test_a_resting_engine_releases_unused_heap_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    on_a_cpu = SimpleNamespace(current_platform=SimpleNamespace(is_cpu=lambda: True))
    monkeypatch.setitem(sys.modules, "vllm", SimpleNamespace(platforms=on_a_cpu))
    monkeypatch.setitem(sys.modules, "vllm.platforms", on_a_cpu)
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "malloc_trim"):
        pytest.skip("this C library cannot release heap memory")
    libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    blocks = [libc.malloc(4096) for _ in range(64 * MIB // 4096)]
    for block in blocks:
        ctypes.memset(block, 1, 4096)
    for block in blocks[:-1]:  # the last block stays, above a free hole
        libc.free(block)
    before = resident_bytes()
    resting = vllm_worker.WorkerExtension()
    resting.model_runner = SimpleNamespace(kv_caches=[])
    assert resting.oversharp_empty_cache() == 0
    assert before - resident_bytes() > 48 * MIB
    libc.free(blocks[-1])


def test_a_tensor_without_a_whole_page_is_unchanged() -> None:
    small = torch.ones(100, dtype=torch.uint8)
    assert empty_pages(small) == 0
    assert int(small.min()) == 1


@pytest.mark.usefixtures("_fresh_sizes")
def test_a_gpu_computes_the_entropies_of_all_rows_of_a_large_vocabulary_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (1 << 30, 80 * 10**9))
    on_gpu = elements_per_chunk(torch.device("cuda", 0), 1 << 18)
    assert on_gpu >= 256 * 152_064
    assert on_gpu * 2 * 4 <= 80e9 / 64
    assert elements_per_chunk(torch.device("cpu"), 1 << 18) == 1 << 18


def test_entropies_do_not_depend_on_the_chunk_size(monkeypatch: pytest.MonkeyPatch) -> None:
    logp_BV = torch.randn(37, 50, generator=torch.Generator().manual_seed(0)).log_softmax(-1)
    together = entropy_nats(logp_BV)
    assert together.tolist() == pytest.approx((-(logp_BV.exp() * logp_BV).sum(-1)).tolist(), rel=1e-6)
    monkeypatch.setattr(vllm_worker, "elements_per_chunk", lambda device, on_a_cpu: 120)
    assert torch.equal(entropy_nats(logp_BV), together)


def test_logits_and_log_probabilities_give_the_same_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    logits_BV = 4 * torch.randn(37, 50, generator=torch.Generator().manual_seed(0))
    logits_BV[:, 7] = -torch.inf
    token_B = torch.arange(37) % 7
    logp_BV = logits_BV.log_softmax(-1)
    monkeypatch.setattr(vllm_worker, "elements_per_chunk", lambda device, on_a_cpu: 120)
    for given_BV in (logits_BV, logp_BV):
        logp_B, entropy_B = logp_and_entropy(given_BV, token_B)
        assert logp_B.tolist() == pytest.approx(logp_BV.gather(-1, token_B[:, None])[:, 0].tolist(), abs=1e-5)
        assert entropy_B.tolist() == pytest.approx(entropy_nats(logp_BV).tolist(), abs=1e-5)
