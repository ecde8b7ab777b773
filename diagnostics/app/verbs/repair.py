"""The verb ``repair`` of the API."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from oversharp.diagnostics.records.arguments import checked_arguments

if TYPE_CHECKING:
    from oversharp.diagnostics.records.progress import ProgressSink
    from oversharp.diagnostics.repair.points import RepairResult


@checked_arguments
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
    """Write checkpoints between the base and a trained one, which may give back what training lost.

    Weights part of the way back to the base often keep most of the gain in pass@1 and return much of the coverage
    (arXiv:2109.01903, arXiv:2504.10478). Whether they do here is for an audit to say: OUT is a series that
    `oversharp audit` takes as it is, checkpoint-25 for λ = 0.25 and so on, with the base as checkpoint-0 and the
    checkpoint as checkpoint-100. Of adapters lora_B is scaled, and their model is the base. Nothing is drawn, and no
    GPU is needed. Killed or stopped, the same command continues.

    Parameters
    ----------
    series
        A directory that holds checkpoints, several checkpoint directories, or a quoted glob, as for an audit.
    out
        Directory to write into: a new one, or one with points of the same checkpoint.
    base
        The base model. Default: the lowest step; for LoRA adapters, the model that they belong to.
    checkpoint
        Step of the checkpoint. Default: the last.
    lambdas
        How far from the base, above 0 and at most 1.5, in hundredths: 0 is the base, 1 the checkpoint.
    average
        In place of the checkpoint take the mean of so many, up to it. Adapters of one rank become one of the sum of
        their ranks.
    float32
        Write the points in float32 rather than in the dtype of the checkpoint. bfloat16 has few numbers between a base
        and a checkpoint that was trained with a small learning rate: the result tells where each point came to lie.

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
