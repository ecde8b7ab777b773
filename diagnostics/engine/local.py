"""The engine of an audit in this process: sampling, teacher forcing, kernels.

One model is in memory at a time. ``oversharp.diagnostics.engine.ray_pool`` has the engine that uses Ray's workers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pandas as pd

from oversharp.diagnostics.engine.config import EngineConfig
from oversharp.diagnostics.engine.jobs import (
    JOB_ERRORS,
    ComputedKernel,
    ForceJob,
    Job,
    JobResult,
    KernelJob,
    Missing,
    SampleJob,
)
from oversharp.diagnostics.models.holder import ModelHolder
from oversharp.diagnostics.records.errors import SamplerError
from oversharp.diagnostics.records.memory import trim_heap
from oversharp.diagnostics.records.types import Checkpoint, ForcedResponse, Problem, Sample, training_problem
from oversharp.diagnostics.samplers import (
    EngineSettings,
    ReportingSampler,
    RestingSampler,
    Sampler,
    SamplerContext,
    SampleRequest,
    SamplerReport,
    ScoringSampler,
    make_sampler,
)

if TYPE_CHECKING:
    from oversharp.diagnostics.engine.teacher_forcing import ForcedRequest
    from oversharp.diagnostics.models.load import Dtype
    from oversharp.diagnostics.samplers.agents.environment import Environment
    from oversharp.diagnostics.samplers.endpoint.places import EndpointSettings
    from oversharp.diagnostics.samplers.seeded import PromptEncoder


class AuditEngine(Protocol):
    """Interface of an engine: it runs jobs, in this process or on the workers of a cluster."""

    def group(self, checkpoints: Sequence[Checkpoint]) -> list[list[Checkpoint]]:
        """Group the checkpoints. A group is sampled together, then scored together."""

    def run(self, jobs: Sequence[Job]) -> Iterator[JobResult]:
        """Run the jobs, and yield results as they arrive.

        An error in ``JOB_ERRORS`` ends only its job, and is yielded. Any other error is raised.
        """

    def close(self) -> None:
        """Release the models. The next job loads its model again."""


@dataclass(frozen=True, kw_only=True)
class EngineSpec:
    """Settings from which an engine is built.

    ``dtype`` is the floating-point type of the model. ``why`` is the printed reason for the sampler.
    ``kernel_memory_gib`` limits the memory for the gradients of a kernel; None means the free memory. ``endpoint`` has
    the servers of the sampler "endpoint", and ``environment`` the tools of its trajectories.
    """

    config: EngineConfig
    dtype: Dtype
    sampler_name: str
    why: str
    lora_ranks: Mapping[Path, int]
    kernel_memory_gib: float | None = None
    endpoint: EndpointSettings | None = None
    environment: Environment | None = None


class Engine:
    """Engine that runs jobs in this process. It loads a checkpoint when a job needs it."""

    def __init__(self, spec: EngineSpec, *, note: Callable[[str], None]) -> None:
        self._spec = spec
        self._note = note
        config = spec.config
        self._models = ModelHolder(
            device=config.device,
            dtype=spec.dtype,
            trust_remote_code=config.trust_remote_code,
            engine_share=config.gpu_memory_share if spec.sampler_name == "vllm" else 0.0,
        )
        self._open_sampler: Sampler | None = None
        self._has_noted_placement = False

    def group(self, checkpoints: Sequence[Checkpoint]) -> list[list[Checkpoint]]:
        """Return one group per checkpoint, so that its model is loaded once for samples and scores."""
        return [[checkpoint] for checkpoint in checkpoints]

    def run(self, jobs: Sequence[Job]) -> Iterator[JobResult]:
        """Run the jobs one after the other; see ``AuditEngine``."""
        for job in jobs:
            checkpoint = job.checkpoint
            try:
                match job:
                    case SampleJob():
                        batches = self.sample(job)
                        results = (JobResult(checkpoint=checkpoint, samples=samples) for samples in batches)
                        yield from self._add_reports(checkpoint, results)
                    case ForceJob():
                        scores = self.teacher_force(job)
                        results = (JobResult(checkpoint=checkpoint, forced=forced) for forced in scores)
                        yield from self._add_reports(checkpoint, results)
                    case KernelJob():
                        yield JobResult(checkpoint=checkpoint, kernel=self.compute_kernel(job))
            except JOB_ERRORS as error:
                yield JobResult(checkpoint=checkpoint, error=error)

    def _add_reports(self, checkpoint: Checkpoint, results: Iterable[JobResult]) -> Iterator[JobResult]:
        """Yield the results, and an error, with the sampler's reports."""
        try:
            for result in results:
                yield replace(result, reports=self._reports())
        except JOB_ERRORS as error:
            yield JobResult(checkpoint=checkpoint, error=error)
        if reports := self._reports():
            yield JobResult(checkpoint=checkpoint, reports=reports)

    @property
    def _sampler(self) -> Sampler:
        if self._open_sampler is None:
            config = self._spec.config
            engine = EngineSettings(
                tensor_parallel=config.tensor_parallel,
                gpu_memory_share=config.gpu_memory_share,
                max_model_len=config.max_model_len,
                cpu_cache_gib=config.cpu_cache_gib,
                trust_remote_code=config.trust_remote_code,
                lora_ranks=self._spec.lora_ranks,
            )
            endpoint = self._spec.endpoint
            context = SamplerContext(
                models=self._models,
                batch_size=config.batch_size,
                engine=engine,
                endpoint=endpoint,
                environment=self._spec.environment,
                note=self._note,
            )
            self._open_sampler = make_sampler(self._spec.sampler_name, context)
            where = f"on {self._models.device}" if endpoint is None else f"at {endpoint.describe()}"
            self._note(f"sampler {self._spec.sampler_name} {where}: {self._spec.why}")
        return self._open_sampler

    def sample(self, job: SampleJob) -> Iterator[list[Sample]]:
        """Yield samples batch by batch."""
        return self._sampler.sample(job.checkpoint, _requests(job.problems, job.missing), job.settings)

    def _reports(self) -> Sequence[SamplerReport]:
        return self._open_sampler.take_reports() if isinstance(self._open_sampler, ReportingSampler) else ()

    def teacher_force(self, job: ForceJob) -> Iterator[list[ForcedResponse]]:
        """Yield scores batch by batch: of the server that samples if it can score, else of the model here."""
        if (scores := self._scores_of_server(job)) is not None:
            yield from scores
            return
        from oversharp.diagnostics.engine.teacher_forcing import budget_for, teacher_force
        from oversharp.diagnostics.models.devices import in_float32
        from oversharp.diagnostics.models.placement import placement_note

        self._free_memory()
        loaded = self._models.load(job.checkpoint)
        if loaded.room is not None and not self._has_noted_placement:
            self._has_noted_placement = True
            self._note(placement_note(loaded.room))
        requests = self._forced_requests(loaded, job)
        budget = max(1, budget_for(loaded) // 8) if job.is_repeat else budget_for(loaded)
        with in_float32(loaded.model) if job.is_repeat and loaded.room is None else nullcontext():
            yield from teacher_force(loaded, requests, job.settings, token_budget=budget)

    def _scores_of_server(self, job: ForceJob) -> Iterator[list[ForcedResponse]] | None:
        """Return the scores of the server, None if they are computed here."""
        endpoint, config = self._spec.endpoint, self._spec.config
        if endpoint is None or not endpoint.scores_responses:
            return None
        sampler = self._sampler
        if not isinstance(sampler, ScoringSampler):
            return None
        if not sampler.can_score(job.checkpoint, job.problems, job.settings):
            return None
        from oversharp.diagnostics.engine.teacher_forcing import encode_rows
        from oversharp.diagnostics.models.encoders import load_encoder

        encoder = load_encoder(job.checkpoint, trust_remote_code=config.trust_remote_code)
        rows = encode_rows(encoder, self._forced_requests(encoder, job), job.settings)
        return sampler.score(job.checkpoint, rows, job.problems, job.settings, one_by_one=job.is_repeat)

    def _forced_requests(self, encoder: PromptEncoder, job: ForceJob) -> list[ForcedRequest]:
        """Return the responses to score, without those of the trainer that cannot be encoded."""
        from oversharp.diagnostics.engine.teacher_forcing import ForcedRequest
        from oversharp.diagnostics.models.tokens import encode_prompt, require_fit

        by_id = {problem.problem_id: problem for problem in job.problems}
        requests: list[ForcedRequest] = []
        errors: list[str] = []
        for row in job.responses.itertuples():
            problem = by_id.get(str(row.problem_id))
            try:
                token_ids = _response_ids(encoder, row)
                if problem is None:
                    problem = training_problem(str(row.prompt))
                    prompt_ids = encode_prompt(encoder.tokenizer, problem, job.settings)
                    require_fit(encoder, problem, prompt_ids, n_response=len(token_ids))
            except SamplerError as error:
                if str(row.problem_id) in by_id:
                    raise
                errors.append(str(error))
                continue
            if token_ids:
                requests.append(ForcedRequest(problem=problem, response_id=str(row.response_id), token_ids=token_ids))
        if errors:
            reason = f"{len(errors)} of the trainer's responses left out, the first because of {errors[0]}"
            self._note(f"{job.checkpoint.label}: {reason}")
        return requests

    def compute_kernel(self, job: KernelJob) -> ComputedKernel:
        """Compute the gradient kernel over the job's responses."""
        from oversharp.diagnostics.kernel import KernelRow, gradient_kernel
        from oversharp.diagnostics.models.tokens import encode_prompt

        self._free_memory()
        checkpoint = job.checkpoint.trained
        loaded = self._models.load(checkpoint)
        by_id = {problem.problem_id: problem for problem in job.problems}
        rows = []
        for row in job.responses.itertuples():
            problem = by_id.get(str(row.problem_id)) or training_problem(str(row.prompt))
            prompt_ids = tuple(encode_prompt(loaded.tokenizer, problem, job.settings))
            rows.append(KernelRow(prompt_ids=prompt_ids, token_ids=_response_ids(loaded, row)))
        memory_gib = self._spec.kernel_memory_gib
        kernel = gradient_kernel(
            loaded,
            rows,
            memory_bytes=None if memory_gib is None else int(memory_gib * 2**30),
            note=lambda line: self._note(f"kernel of {checkpoint.label}: {line}"),
        )
        return ComputedKernel(kernel=kernel, n_tokens=[len(row.token_ids) for row in rows])

    def _free_memory(self) -> None:
        """Release the sampler's memory and unused heap pages, for the model."""
        if isinstance(self._open_sampler, RestingSampler):
            self._open_sampler.rest()
        trim_heap()

    def close(self) -> None:
        """Release the sampler and the model."""
        if self._open_sampler is not None:
            self._open_sampler.close()
        self._models.close()
        self._open_sampler = None


def _requests(problems: Sequence[Problem], missing: Missing) -> list[SampleRequest]:
    return [
        SampleRequest(
            problem=problem, sample_indices=missing[problem.problem_id][0], greedy=missing[problem.problem_id][1]
        )
        for problem in problems
        if problem.problem_id in missing
    ]


def _response_ids(encoder: PromptEncoder, row: Any) -> tuple[int, ...]:
    """Return the tokens of a response. If only its text is known, the text is tokenized."""
    from oversharp.diagnostics.models.tokens import response_ids

    if pd.api.types.is_list_like(row.token_ids):
        return tuple(map(int, row.token_ids))
    ids = response_ids(encoder.tokenizer, str(row.text))  # token_ids is NULL
    return ids if row.ends else ids[:-1]
