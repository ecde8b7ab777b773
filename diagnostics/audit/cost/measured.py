"""The measured rates, copied from ``benchmarks/results/audit_cost.json``; a test compares both."""

from oversharp.diagnostics.audit.cost.machines import MeasuredCpu
from oversharp.diagnostics.models.core_speed import CoreSpeed

MEASURED = MeasuredCpu(
    hardware="x86-64 with avx512_bf16",
    model="SmolLM2-135M-Instruct with an adapter of rank 16, in bfloat16",
    sampling_flop=133000000000.0,
    scoring_flop=120000000000.0,
    kernel_flop=82700000000.0,
    end_s=3.8,
    sample_s=3.1e-5,
    speed=CoreSpeed(dtype="bfloat16", decoding=126000000000.0, reading=368000000000.0, gradients=89800000000.0),
)
#: Memory of vLLM's process on a CPU besides weights and cache: torch, its code, activations of 16,384 tokens.
ENGINE_BYTES = 1.6 * 2**30
#: Size of an empty store, and of a token in it before compression: its number, and four letters on average.
STORE_BYTES = 5e6
TOKEN_BYTES = 8.0
#: Remark on a CPU of another kind than the measured one.
SLOWER = "this CPU has no instructions for bfloat16, which the measured one has: expect several times as long"
