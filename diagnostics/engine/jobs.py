"""Jobs of an engine: sample, teacher-force or compute the kernel of one checkpoint.

A job is plain data, so any process can run it. It can be split into shards: jobs on part of its responses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pandas as pd

from oversharp.diagnostics.records.errors import CheckpointError, KernelError, OversharpError, SamplerError
from oversharp.diagnostics.records.types import Checkpoint, ForcedResponse, Problem, Sample, SamplingSettings

if TYPE_CHECKING:
    from oversharp.diagnostics.kernel import GradientKernel
    from oversharp.diagnostics.samplers import SamplerReport

#: Samples to draw: problem id → (sample indices, whether the greedy response is also missing).
Missing = Mapping[str, tuple[tuple[int, ...], bool]]


@dataclass(frozen=True, kw_only=True)
class SampleJob:
    """Draw the ``missing`` samples of one checkpoint."""

    checkpoint: Checkpoint
    problems: Sequence[Problem]
    settings: SamplingSettings
    missing: Missing


@dataclass(frozen=True, kw_only=True)
class ForceJob:
    """Teacher-force ``responses`` under one checkpoint.

    ``responses`` has the columns ``problem_id, response_id, prompt, text, ends, token_ids``. A text without token ids
    is tokenized, with the end token if ``ends``. If ``is_repeat``, they are scored in float32 and in smaller batches,
    so that rounding errors differ. A distributed model keeps its floating-point type, because float32 would not fit. A
    server keeps it too, and gets the responses one by one.
    """

    checkpoint: Checkpoint
    problems: Sequence[Problem]
    settings: SamplingSettings
    responses: pd.DataFrame
    is_repeat: bool = False


@dataclass(frozen=True, kw_only=True)
class KernelJob:
    """Compute the gradient kernel of ``checkpoint.trained``; ``responses`` as in ``ForceJob``."""

    checkpoint: Checkpoint
    problems: Sequence[Problem]
    settings: SamplingSettings
    responses: pd.DataFrame


Job = SampleJob | ForceJob | KernelJob
#: Errors that end one job but not the others.
JOB_ERRORS = (CheckpointError, SamplerError, KernelError)


@dataclass(frozen=True, kw_only=True)
class ComputedKernel:
    """A gradient kernel and the number of tokens of each response."""

    kernel: GradientKernel
    n_tokens: list[int]


@dataclass(frozen=True, kw_only=True)
class JobResult:
    """A part of the results of a job, or the error that ended it. ``reports`` are the sampler's events."""

    checkpoint: Checkpoint
    samples: Sequence[Sample] = ()
    forced: Sequence[ForcedResponse] = ()
    kernel: ComputedKernel | None = None
    error: OversharpError | None = None
    reports: Sequence[SamplerReport] = ()


def count_tokens(job: Job) -> int:
    """Return an upper bound on the response tokens of a job."""
    n_rows = len(_rows(job)) if isinstance(job, SampleJob) else len(job.responses)
    return n_rows * job.settings.max_tokens


def split_job(job: Job, n_shards: int) -> list[Job]:
    """Split a job into at most ``n_shards`` jobs. Kernels and repeats are not split.

    >>> settings = SamplingSettings(sampler="transformers")
    >>> missing = {"a": ((0, 1, 2), True), "b": ((4,), False)}
    >>> job = SampleJob(checkpoint=None, problems=(), settings=settings, missing=missing)
    >>> [shard.missing for shard in split_job(job, 2)]
    [{'a': ((0, 1), False)}, {'a': ((2,), True), 'b': ((4,), False)}]
    """
    if isinstance(job, KernelJob) or (isinstance(job, ForceJob) and job.is_repeat):
        return [job]
    if isinstance(job, ForceJob):
        return [
            replace(job, responses=rows, problems=_named(job.problems, set(rows["problem_id"])))
            for first, last in _bounds(len(job.responses), n_shards)
            for rows in [job.responses.iloc[first:last]]
        ]
    rows = _rows(job)
    shards: list[Job] = []
    for first, last in _bounds(len(rows), n_shards):
        missing: dict[str, tuple[tuple[int, ...], bool]] = {}
        for problem_id, index in rows[first:last]:
            indices, greedy = missing.get(problem_id, ((), False))
            missing[problem_id] = (indices, True) if index is None else ((*indices, index), greedy)
        shards.append(replace(job, missing=missing, problems=_named(job.problems, missing)))
    return shards


def _rows(job: SampleJob) -> list[tuple[str, int | None]]:
    """Return (problem id, sample index) of each missing response.

    The index of a greedy one is None.
    """
    return [
        (problem_id, index)
        for problem_id, (indices, greedy) in job.missing.items()
        for index in (*indices, *([None] if greedy else []))
    ]


def _bounds(n_rows: int, n_shards: int) -> list[tuple[int, int]]:
    """Return (first row, row after the last) of each shard. Sizes differ by at most 1.

    >>> _bounds(5, 2), _bounds(2, 4), _bounds(0, 3)
    ([(0, 2), (2, 5)], [(0, 1), (1, 2)], [])
    """
    n = min(n_rows, n_shards)
    return [(shard * n_rows // n, (shard + 1) * n_rows // n) for shard in range(n)]


def _named(problems: Sequence[Problem], problem_ids: Any) -> list[Problem]:
    return [problem for problem in problems if problem.problem_id in problem_ids]
