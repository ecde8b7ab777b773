"""The rates that were measured, as ``benchmarks/results/audit_cost.json`` has them; a test holds both together."""

from diagnostics.audit.cost.machines import MeasuredCpu
from diagnostics.audit.cost.pace import Pace

MEASURED = MeasuredCpu(
    hardware="x86-64 with AMX and avx512_bf16, one core",
    model="SmolLM2-135M-Instruct and an adapter of rank 16",
    sampling_flop=60800000000.0,
    scoring_flop=39800000000.0,
    kernel_flop=64000000000.0,
    start_s=4.33,
    end_s=6.97,
    sample_s=3.1e-5,
    pace=Pace(dtype="bfloat16", decoding=1.28e11, reading=3.73e11, gradients=9.1e10),
)
#: What vLLM's process holds on a CPU besides weights and cache: torch, its own code, activations of 16,384 tokens.
ENGINE_BYTES = 1.6 * 2**30
#: An empty store, and a token in it before compression: its number, and the four letters that it has on average.
STORE_BYTES = 5e6
TOKEN_BYTES = 8.0
#: Of a CPU that is of another kind than the measured one.
SLOWER = "this CPU has no instructions for bfloat16, which the measured one has: expect several times as long"
