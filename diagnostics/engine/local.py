"""Samples and teacher-forces the checkpoints of a series in this process, as the protocol ``AuditEngine`` asks.

One model is in memory at a time. ``oversharp.diagnostics.engine.ray_pool`` has an engine whose work Ray's workers do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pandas as pd

from oversharp.diagnostics.engine.config import EngineConfig
from oversharp.diagnostics.models.holder import ModelHolder
from oversharp.diagnostics.records.errors import SamplerError
from oversharp.diagnostics.records.memory import trim_heap
from oversharp.diagnostics.records.shard import WHOLE, Shard, Task, finish
from oversharp.diagnostics.records.types import (
    Checkpoint,
    ForcedResponse,
    Problem,
    Sample,
    SamplingSettings,
    training_problem,
)
from oversharp.diagnostics.samplers import (
    BatchPlan,
    EngineSettings,
    PlanningSampler,
    RestingSampler,
    Sampler,
    SamplerContext,
    SampleRequest,
    make_sampler,
)

if TYPE_CHECKING:
    from oversharp.diagnostics.engine.teacher_forcing import ForcedRequest
    from oversharp.diagnostics.kernel import GradientKernel
    from oversharp.diagnostics.models.load import Dtype, LoadedModel

#: What is to be drawn: problem id → (sample indices, whether the greedy response).
Missing = Mapping[str, tuple[tuple[int, ...], bool]]


class AuditEngine(Protocol):
    """What an audit asks for. Work may begin when a method is called, and comes as it is done.

    An empty list among the results says that others may go on meanwhile. Raises ``CheckpointError`` and
    ``SamplerError`` as samplers and teacher forcing do, ``KernelError`` for a kernel.
    """

    def sample(
        self, checkpoint: Checkpoint, problems: Sequence[Problem], missing: Missing, settings: SamplingSettings
    ) -> Iterator[list[Sample]]:
        """Draw what is missing."""

    def teacher_force(
        self,
        checkpoint: Checkpoint,
        problems: Sequence[Problem],
        responses: pd.DataFrame,
        settings: SamplingSettings,
        *,
        again: bool = False,
    ) -> Iterator[list[ForcedResponse]]:
        """Teacher-force ``responses`` (``problem_id, response_id, prompt, text, ends, token_ids``).

        Text without token ids is tokenized, and ends with the end token where ``ends``. ``again`` computes in smaller
        batches, whose shape rounds in another way, and in float32 whatever the audit's dtype; where a model is spread
        over devices, which have no room for that, in the audit's.
        """

    def kernel(
        self, checkpoint: Checkpoint, problems: Sequence[Problem], responses: pd.DataFrame, settings: SamplingSettings
    ) -> Iterator[list[tuple[GradientKernel, list[int]]]]:
        """The gradient kernel over ``responses`` (columns as for ``teacher_force``), and how many tokens each has."""

    def run(self, tasks: Sequence[Task[None]]) -> None:
        """Do pieces of work that do not wait for one another, in the order or side by side."""

    def close(self) -> None:
        """Let go of the models."""


@dataclass(frozen=True, kw_only=True)
class EngineSpec:
    """What an engine is made of; ``why`` it has this sampler is told to the user.

    ``dtype`` is the model's precision, ``kernel_memory_gib`` the most memory for the gradients of a kernel,
    None for what is free.
    """

    config: EngineConfig
    dtype: Dtype
    sampler_name: str
    why: str
    lora_ranks: Mapping[Path, int]
    kernel_memory_gib: float | None = None


class Engine:
    """Computes in this process. Loads a checkpoint when something of it is first wanted, and not before.

    A finished audit that runs again therefore loads no model at all. Of what is asked for, ``part`` is done.
    """

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
        self._held: Sampler | None = None
        self._told_spread = False

    @property
    def _sampler(self) -> Sampler:
        if self._held is None:
            config = self._spec.config
            engine = EngineSettings(
                tensor_parallel=config.tensor_parallel,
                gpu_memory_share=config.gpu_memory_share,
                max_model_len=config.max_model_len,
                cpu_cache_gib=config.cpu_cache_gib,
                trust_remote_code=config.trust_remote_code,
                lora_ranks=self._spec.lora_ranks,
            )
            context = SamplerContext(models=self._models, batch_size=config.batch_size, engine=engine, note=self._note)
            self._held = make_sampler(self._spec.sampler_name, context)
            self._note(f"sampler {self._spec.sampler_name} on {self._models.device}: {self._spec.why}")
        return self._held

    def sample(
        self,
        checkpoint: Checkpoint,
        problems: Sequence[Problem],
        missing: Missing,
        settings: SamplingSettings,
        *,
        part: Shard = WHOLE,
        plan: BatchPlan | None = None,
    ) -> Iterator[list[Sample]]:
        """Draw what is missing, in batches by ``plan`` where the sampler makes plans."""
        requests = _requests(problems, missing)
        sampler = self._sampler
        if isinstance(sampler, PlanningSampler):
            return sampler.sample(checkpoint, requests, settings, part=part, plan=plan)
        return sampler.sample(checkpoint, part.take(requests), settings)

    def plan_samples(
        self, checkpoint: Checkpoint, problems: Sequence[Problem], missing: Missing, settings: SamplingSettings
    ) -> BatchPlan:
        """The batches that ``sample`` makes; of a sampler without a plan, one per problem."""
        requests = _requests(problems, missing)
        sampler = self._sampler
        if isinstance(sampler, PlanningSampler):
            return sampler.plan(checkpoint, requests, settings)
        return BatchPlan(n_batches=len(requests), rows_per_batch=1)

    def teacher_force(
        self,
        checkpoint: Checkpoint,
        problems: Sequence[Problem],
        responses: pd.DataFrame,
        settings: SamplingSettings,
        *,
        again: bool = False,
        part: Shard = WHOLE,
    ) -> Iterator[list[ForcedResponse]]:
        """Teacher-force responses, see ``AuditEngine``."""
        from oversharp.diagnostics.engine.teacher_forcing import budget_for, teacher_force
        from oversharp.diagnostics.models.devices import in_float32
        from oversharp.diagnostics.models.placement import placement_note

        self._rest()
        loaded = self._models.load(checkpoint)
        if loaded.room is not None and not self._told_spread:
            self._told_spread = True
            self._note(placement_note(loaded.room))
        requests = self._forced_requests(loaded, checkpoint, problems, responses, settings)
        budget = max(1, budget_for(loaded) // 8) if again else budget_for(loaded)
        with in_float32(loaded.model) if again and loaded.room is None else nullcontext():
            yield from teacher_force(loaded, requests, settings, token_budget=budget, part=part)

    def count_forced_batches(
        self, checkpoint: Checkpoint, problems: Sequence[Problem], responses: pd.DataFrame, settings: SamplingSettings
    ) -> int:
        """How many batches ``teacher_force`` makes of these responses."""
        from oversharp.diagnostics.engine.teacher_forcing import budget_for, count_batches

        loaded = self._models.load(checkpoint)
        requests = self._forced_requests(loaded, checkpoint, problems, responses, settings)
        return count_batches(loaded, requests, settings, token_budget=budget_for(loaded))

    def _forced_requests(
        self,
        loaded: LoadedModel,
        checkpoint: Checkpoint,
        problems: Sequence[Problem],
        responses: pd.DataFrame,
        settings: SamplingSettings,
    ) -> list[ForcedRequest]:
        """What can be scored of ``responses``; the trainer's may be in no words that this model reads."""
        from oversharp.diagnostics.engine.teacher_forcing import ForcedRequest
        from oversharp.diagnostics.models.tokens import encode_prompt, require_fit

        by_id = {problem.problem_id: problem for problem in problems}
        requests: list[ForcedRequest] = []
        unreadable: list[str] = []
        for row in responses.itertuples():
            problem = by_id.get(str(row.problem_id))
            try:
                token_ids = _response_ids(loaded, row)
                if problem is None:
                    problem = training_problem(str(row.prompt))
                    prompt_ids = encode_prompt(loaded.tokenizer, problem, settings)
                    require_fit(loaded, problem, prompt_ids, n_response=len(token_ids))
            except SamplerError as error:
                if str(row.problem_id) in by_id:
                    raise
                unreadable.append(str(error))
                continue
            if token_ids:
                requests.append(ForcedRequest(problem=problem, response_id=str(row.response_id), token_ids=token_ids))
        if unreadable:
            count = f"{len(unreadable)} of the trainer's responses left out, the first because of {unreadable[0]}"
            self._note(f"{checkpoint.label}: {count}")
        return requests

    def kernel(
        self, checkpoint: Checkpoint, problems: Sequence[Problem], responses: pd.DataFrame, settings: SamplingSettings
    ) -> Iterator[list[tuple[GradientKernel, list[int]]]]:
        """The gradient kernel over ``responses``, see ``AuditEngine``."""
        from oversharp.diagnostics.kernel import KernelRow, gradient_kernel
        from oversharp.diagnostics.models.tokens import encode_prompt

        self._rest()
        loaded = self._models.load(checkpoint)
        by_id = {problem.problem_id: problem for problem in problems}
        rows = []
        for row in responses.itertuples():
            problem = by_id.get(str(row.problem_id)) or training_problem(str(row.prompt))
            prompt_ids = tuple(encode_prompt(loaded.tokenizer, problem, settings))
            rows.append(KernelRow(prompt_ids=prompt_ids, token_ids=_response_ids(loaded, row)))
        given = self._spec.kernel_memory_gib
        kernel = gradient_kernel(
            loaded,
            rows,
            memory_bytes=None if given is None else int(given * 2**30),
            note=lambda line: self._note(f"kernel of {checkpoint.label}: {line}"),
        )
        yield [(kernel, [len(row.token_ids) for row in rows])]

    def _rest(self) -> None:
        """The engine leaves its memory to what is computed here, and the heap what nobody uses to the machine."""
        if isinstance(self._held, RestingSampler):
            self._held.rest()
        trim_heap()

    def run(self, tasks: Sequence[Task[None]]) -> None:
        """Do one task after the other: so every model is loaded once."""
        for task in tasks:
            finish(task)

    def close(self) -> None:
        """Let go of the engine and the model."""
        if self._held is not None:
            self._held.close()
        self._models.close()
        self._held = None


def _requests(problems: Sequence[Problem], missing: Missing) -> list[SampleRequest]:
    return [
        SampleRequest(
            problem=problem, sample_indices=missing[problem.problem_id][0], greedy=missing[problem.problem_id][1]
        )
        for problem in problems
        if problem.problem_id in missing
    ]


def _response_ids(loaded: LoadedModel, row: Any) -> tuple[int, ...]:
    """The tokens of a response as they were drawn; where only its text is known, as the tokenizer writes it."""
    from oversharp.diagnostics.models.tokens import response_ids

    if pd.api.types.is_list_like(row.token_ids):
        return tuple(map(int, row.token_ids))
    ids = response_ids(loaded.tokenizer, str(row.text))  # token_ids is NULL
    return ids if row.ends else ids[:-1]
