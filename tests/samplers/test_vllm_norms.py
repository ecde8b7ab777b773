"""The fused norms of vLLM's CPU build equal its reference."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from oversharp.diagnostics.samplers.vllm_worker import use_fused_norms
from tests.vllm_here import runs_or_must_run

pytestmark = [
    pytest.mark.skipif(not runs_or_must_run(), reason="vLLM does not run here"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of what vLLM imports
    pytest.mark.slow,  # that import takes ten seconds
]
SEED = torch.Generator().manual_seed(0)


@pytest.fixture
def _restored_norms() -> Iterator[None]:
    import vllm.kernels.vllm_c
    from vllm import ir

    assert vllm.kernels.vllm_c
    norms = [ir.ops.rms_norm, ir.ops.fused_add_rms_norm]
    before = [(norm, norm.impls["vllm_c"].supported, list(norm._priority_impls)) for norm in norms]
    yield
    for norm, supported, chosen in before:
        norm.impls["vllm_c"].supported = supported
        vars(norm.impls["vllm_c"]).pop("supports_args", None)
        norm._priority_impls = chosen


@pytest.mark.usefixtures("_restored_norms")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_norms_equal_the_reference(dtype: torch.dtype) -> None:
    from vllm import ir

    x, residual = (torch.randn(5, 64, generator=SEED).to(dtype) for _ in range(2))
    weight = torch.rand(64, generator=SEED).to(dtype)
    reference = [norm.impls["native"].impl_fn for norm in (ir.ops.rms_norm, ir.ops.fused_add_rms_norm)]
    expected = (reference[0](x, weight, 1e-5), *reference[1](x, residual, weight, 1e-5))
    assert use_fused_norms()
    assert ir.ops.rms_norm.dispatch(x, weight, 1e-5).provider == "vllm_c"
    actual = (ir.ops.rms_norm(x, weight, 1e-5), *ir.ops.fused_add_rms_norm(x.clone(), residual.clone(), weight, 1e-5))
    for fused, native in zip(actual, expected, strict=True):
        torch.testing.assert_close(fused, native, atol=2e-2 if dtype == torch.bfloat16 else 1e-6, rtol=1e-2)


@pytest.mark.usefixtures("_restored_norms")
def test_an_unsupported_size_uses_the_reference() -> None:
    from vllm import ir

    assert use_fused_norms()
    x, weight = torch.randn(5, 24, generator=SEED), torch.ones(24)
    assert ir.ops.rms_norm.dispatch(x, weight, 1e-5).provider == "native"
    assert ir.ops.fused_add_rms_norm.dispatch(x, x.clone(), weight, 1e-5).provider == "native"


@pytest.mark.usefixtures("_restored_norms")
def test_the_norm_of_a_slice_is_correct() -> None:
    from vllm import ir

    assert use_fused_norms()
    product, weight = torch.randn(5, 6 * 64, generator=SEED), torch.rand(64, generator=SEED)
    query = product[:, :128].view(5, 2, 64)
    assert not query.is_contiguous()
    expected = torch.nn.functional.rms_norm(query, (64,), weight, 1e-5)
    torch.testing.assert_close(ir.ops.rms_norm(query, weight, 1e-5), expected)
    part, residual = product[:, :64], product[:, 64:128]
    normed, added = ir.ops.fused_add_rms_norm.maybe_inplace(part, residual, weight, 1e-5)
    torch.testing.assert_close(added, part + residual)
    torch.testing.assert_close(normed, torch.nn.functional.rms_norm(added, (64,), weight, 1e-5))
