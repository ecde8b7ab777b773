"""Speed of machines: a measured CPU, and GPUs by their data sheets.

The measured rates are copied from ``benchmarks/results/audit_cost.json``. A test compares both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from oversharp.diagnostics.models.core_speed import CoreSpeed


@dataclass(frozen=True, kw_only=True)
class MeasuredCpu:
    """Measured rates of one CPU core in the stages of an audit.

    Rates are in FLOP per CPU second, fixed times in CPU seconds. ``sampling_flop`` includes the start of the engine and
    loading weights into it. ``end_s`` is the time of measures, verdict and report of a small audit. ``sample_s`` is the
    time per sample for grading and storing. ``speed`` was measured on the same core at the same time.
    """

    hardware: str
    model: str
    sampling_flop: float
    scoring_flop: float
    kernel_flop: float
    end_s: float
    sample_s: float
    speed: CoreSpeed

    def scaled_to(self, speed: CoreSpeed) -> MeasuredCpu:
        """Return the rates of a core of another speed.

        Rates are scaled in proportion, fixed seconds are not.
        """
        return replace(
            self,
            sampling_flop=self.sampling_flop * speed.decoding / self.speed.decoding,
            scoring_flop=self.scoring_flop * speed.reading / self.speed.reading,
            kernel_flop=self.kernel_flop * speed.gradients / self.speed.gradients,
            speed=speed,
        )


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """Data sheet of a GPU: FLOP per second (dense bfloat16, float32), bytes per second, memory."""

    name: str
    bfloat16_flop: float
    float32_flop: float
    bytes_per_s: float
    memory_bytes: float


GPUS: Mapping[str, Gpu] = MappingProxyType(
    {
        "h200": Gpu(name="H200 SXM", bfloat16_flop=989e12, float32_flop=67e12, bytes_per_s=4.8e12, memory_bytes=141e9),
        "h100": Gpu(name="H100 SXM", bfloat16_flop=989e12, float32_flop=67e12, bytes_per_s=3.35e12, memory_bytes=80e9),
        "a100": Gpu(
            name="A100 SXM 80GB", bfloat16_flop=312e12, float32_flop=19.5e12, bytes_per_s=2.04e12, memory_bytes=80e9
        ),
        "l40s": Gpu(name="L40S", bfloat16_flop=362e12, float32_flop=91.6e12, bytes_per_s=0.864e12, memory_bytes=48e9),
        "l4": Gpu(name="L4", bfloat16_flop=121e12, float32_flop=30.3e12, bytes_per_s=0.3e12, memory_bytes=24e9),
    }
)


MEASURED = MeasuredCpu(
    hardware="x86-64 with avx512_bf16",
    model="SmolLM2-135M-Instruct with an adapter of rank 16, in bfloat16",
    sampling_flop=133000000000.0,
    scoring_flop=120000000000.0,
    kernel_flop=82700000000.0,
    end_s=3.8,
    sample_s=3.8e-5,
    speed=CoreSpeed(dtype="bfloat16", decoding=126000000000.0, reading=368000000000.0, gradients=89800000000.0),
)
#: Memory of vLLM's process on a CPU, without weights and cache: torch, code, activations of 16,384 tokens.
ENGINE_BYTES = 1.6 * 2**30
#: Size of an empty store. Size of a token in it before compression: its id, and four letters on average.
STORE_BYTES = 5e6
TOKEN_BYTES = 8.0
#: Note for a CPU of another kind than the measured one.
SLOWER = "unlike the measured CPU, this one has no bfloat16 instructions: expect several times as long"
