"""``repair``: weights between the base and a checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from oversharp.diagnostics.records.arguments import check_arguments

if TYPE_CHECKING:
    from oversharp.diagnostics.records.progress import ProgressSink
    from oversharp.diagnostics.repair.points import RepairResult


@check_arguments
def repair(
    series: Path | str | Sequence[Path | str],
    out: Path | str,
    *,
    base: Path | str | None = None,
    checkpoint: int | None = None,
    lambdas: Sequence[float] = (0.25, 0.5, 0.75),
    average: int = 1,
    float32: bool = False,
    progress: ProgressSink | None = None,
) -> RepairResult:
    """Write checkpoints between the base and a trained one, which may restore what training lost.

    Weights interpolated between base and checkpoint often keep most of the gain in pass@1 and restore much of the
    coverage (arXiv:2109.01903, arXiv:2504.10478). An audit tests whether they do here: OUT is a series for
    `oversharp audit`, with checkpoint-25 for λ = 0.25 and so on, the base as checkpoint-0 and the checkpoint as
    checkpoint-100. For adapters, lora_B is scaled, and their model is the base. Samples nothing and needs no GPU. If it
    is interrupted, the same command continues.

    Parameters
    ----------
    series
        A directory of checkpoints, several checkpoint directories, or a quoted glob, as for an audit.
    out
        Directory to write into: a new one, or one with points of the same checkpoint.
    base
        The base model. Default: the lowest step; for LoRA adapters, their model.
    checkpoint
        Step of the checkpoint. Default: the last.
    lambdas
        Distances from the base, above 0 and at most 1.5, in steps of 0.01: 0 is the base, 1 the checkpoint.
    average
        Replace the checkpoint by the mean of this many checkpoints, up to it. The mean of adapters of one rank has the
        sum of their ranks.
    float32
        Write float32 instead of the checkpoint's dtype. bfloat16 has few numbers between a base and a checkpoint that
        was trained with a small learning rate; the result reports the λ of each point after rounding.

    Examples
    --------
    ::

        repaired = oversharp.repair("runs/grpo", "runs/repaired", lambdas=[0.5, 0.75])
        oversharp.audit(repaired.out, oversharp.AuditConfig(task="countdown", n=64, out="audit"))
    """
    from oversharp.diagnostics.repair.repair import repair as run

    return run(
        [series] if isinstance(series, str | Path) else list(series),
        Path(out),
        base=None if base is None else Path(base),
        checkpoint=checkpoint,
        lambdas=lambdas,
        average=average,
        float32=float32,
        progress=progress,
    )
