"""Sampling and scoring of a series with one model in memory at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from diagnostics.config import AuditConfig
from diagnostics.errors import SamplerError
from diagnostics.model_holder import ModelHolder
from diagnostics.samplers import EngineSettings, Sampler, SamplerContext, SampleRequest, make_sampler
from diagnostics.types import Checkpoint, Problem, ResponseScore, Sample, SamplingSettings, training_problem

if TYPE_CHECKING:
    from diagnostics.kernel import GradientKernel
    from diagnostics.models import LoadedModel


class Engine:
    """Loads a checkpoint when the first sample or score of it is wanted, and not before.

    A finished audit that runs again therefore loads no model at all.
    """

    def __init__(
        self,
        config: AuditConfig,
        sampler_name: str,
        why: str,
        *,
        lora_ranks: Mapping[Path, int],
        note: Callable[[str], None],
    ) -> None:
        self._config = config
        self._sampler_name, self._why = sampler_name, why
        self._lora_ranks = lora_ranks
        self._note = note
        self._models = ModelHolder(device=config.device, dtype=config.dtype)
        self._sampler: Sampler | None = None

    def sample(
        self,
        checkpoint: Checkpoint,
        problems: Sequence[Problem],
        missing: Mapping[str, tuple[tuple[int, ...], bool]],
        settings: SamplingSettings,
    ) -> Iterator[list[Sample]]:
        """Draw what ``missing`` names: problem id → (sample indices, whether the greedy response)."""
        if self._sampler is None:
            config = self._config
            engine = EngineSettings(
                tensor_parallel=config.tensor_parallel,
                gpu_memory_share=config.gpu_memory_share,
                max_model_len=config.max_model_len,
                cpu_cache_gib=config.cpu_cache_gib,
                lora_ranks=self._lora_ranks,
            )
            context = SamplerContext(models=self._models, batch_size=config.batch_size, engine=engine, note=self._note)
            self._sampler = make_sampler(self._sampler_name, context)
            self._note(f"sampler {self._sampler_name} on {self._models.device}: {self._why}")
        requests = [
            SampleRequest(
                problem=problem, sample_indices=missing[problem.problem_id][0], greedy=missing[problem.problem_id][1]
            )
            for problem in problems
            if problem.problem_id in missing
        ]
        return self._sampler.sample(checkpoint, requests, settings)

    def score(
        self,
        checkpoint: Checkpoint,
        problems: Sequence[Problem],
        responses: pd.DataFrame,
        settings: SamplingSettings,
        *,
        again: bool = False,
    ) -> Iterator[list[ResponseScore]]:
        """Teacher-force ``responses`` (``problem_id, response_id, prompt, text, ends, token_ids``).

        Text without token ids is tokenized, and ends with the end token where ``ends``. ``again`` computes in smaller
        batches, whose shape rounds in another way, and in float32 whatever the audit's dtype.
        """
        from diagnostics.models import encode_prompt, in_float32, require_fit
        from diagnostics.scoring import TOKEN_BUDGET, ScoreRequest, score

        loaded = self._models.load(checkpoint)
        by_id = {problem.problem_id: problem for problem in problems}
        requests: list[ScoreRequest] = []
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
                requests.append(ScoreRequest(problem=problem, response_id=str(row.response_id), token_ids=token_ids))
        if unreadable:
            count = f"{len(unreadable)} of the trainer's responses left out, the first because of {unreadable[0]}"
            self._note(f"{checkpoint.label}: {count}")
        with in_float32(loaded.model) if again else nullcontext():
            yield from score(loaded, requests, settings, token_budget=TOKEN_BUDGET // 8 if again else TOKEN_BUDGET)

    def kernel(
        self, checkpoint: Checkpoint, problems: Sequence[Problem], responses: pd.DataFrame, settings: SamplingSettings
    ) -> tuple[GradientKernel, list[int]]:
        """The gradient kernel over ``responses`` (columns as for ``score``), and how many tokens each has."""
        from diagnostics.kernel import KernelRow, gradient_kernel
        from diagnostics.models import encode_prompt

        loaded = self._models.load(checkpoint)
        by_id = {problem.problem_id: problem for problem in problems}
        rows = []
        for row in responses.itertuples():
            problem = by_id.get(str(row.problem_id)) or training_problem(str(row.prompt))
            prompt_ids = tuple(encode_prompt(loaded.tokenizer, problem, settings))
            rows.append(KernelRow(prompt_ids=prompt_ids, token_ids=_response_ids(loaded, row)))
        memory_bytes = int(self._config.kernel_memory_gib * 2**30)
        return gradient_kernel(loaded, rows, memory_bytes=memory_bytes), [len(row.token_ids) for row in rows]

    def close(self) -> None:
        """Let go of the engine and the model."""
        if self._sampler is not None:
            self._sampler.close()
        self._models.close()
        self._sampler = None


def _response_ids(loaded: LoadedModel, row: Any) -> tuple[int, ...]:
    """The tokens of a response as they were drawn; where only its text is known, as the tokenizer writes it."""
    from diagnostics.models import response_ids

    if pd.api.types.is_list_like(row.token_ids):
        return tuple(map(int, row.token_ids))
    ids = response_ids(loaded.tokenizer, str(row.text))  # token_ids is NULL
    return ids if row.ends else ids[:-1]
