"""The rates that were measured, as ``benchmarks/results/audit_cost.json`` has them; a test holds both together."""

from diagnostics.audit.cost.machines import MeasuredCpu

MEASURED = MeasuredCpu(
    hardware="x86-64 with AMX and avx512_bf16, one core",
    model="SmolLM2-135M-Instruct, 64 problems",
    sampling_flop=1e11,
    scoring_flop=1e11,
    kernel_flop=5e10,
    start_s=60.0,
    checkpoint_s=15.0,
    end_s=60.0,
    end_samples=30_000,
)
#: What a store takes before its first response, and for each token of a response.
STORE_BYTES = 5e6
TEXT_BYTES_PER_TOKEN = 2.0
