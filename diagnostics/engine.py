"""Sampling and scoring of a series with one model in memory at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import pandas as pd

from diagnostics.config import AuditConfig
from diagnostics.samplers import Sampler, SampleRequest, get_sampler
from diagnostics.types import Checkpoint, Problem, ResponseScore, Sample, SamplingSettings

if TYPE_CHECKING:
    from diagnostics.models import LoadedModel


class Engine:
    """Loads a checkpoint when the first sample or score of it is wanted, and not before.

    A finished audit that runs again therefore loads no model at all.
    """

    def __init__(self, config: AuditConfig) -> None:
        self._config = config
        self._sampler: Sampler | None = None
        self._scored: tuple[str, LoadedModel] | None = None

    @property
    def sampler_name(self) -> str:
        """What ``auto`` stands for on this machine."""
        return "transformers" if self._config.sampler == "auto" else self._config.sampler

    def sample(
        self,
        checkpoint: Checkpoint,
        problems: Sequence[Problem],
        missing: Mapping[str, tuple[tuple[int, ...], bool]],
        settings: SamplingSettings,
    ) -> Iterator[list[Sample]]:
        """Draw what ``missing`` names: problem id → (sample indices, whether the greedy response)."""
        if self._sampler is None:
            self._sampler = get_sampler(
                self.sampler_name,
                device=self._config.device,
                dtype=self._config.dtype,
                batch_size=self._config.batch_size,
            )
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
        *,
        own: pd.DataFrame,
        modes: pd.DataFrame,
        settings: SamplingSettings,
    ) -> Iterator[list[ResponseScore]]:
        """Teacher-force own samples (``problem_id, response_id, token_ids``) and modes (``…, mode``)."""
        from diagnostics.models import response_ids
        from diagnostics.scoring import ScoreRequest, score

        loaded = self._load(checkpoint)
        by_id = {problem.problem_id: problem for problem in problems}
        tokens = {(row.problem_id, row.response_id): tuple(map(int, row.token_ids)) for row in own.itertuples()}
        # a sample cut at max_tokens can read like a whole mode, yet lacks its end token: the mode's own tokens count
        for row in modes.itertuples():
            tokens[row.problem_id, row.response_id] = response_ids(loaded.tokenizer, str(row.mode))
        requests = [
            ScoreRequest(problem=by_id[problem_id], response_id=response, token_ids=token_ids)
            for (problem_id, response), token_ids in tokens.items()
        ]
        return score(loaded, requests, settings)

    def close(self) -> None:
        """Let go of the engine and the model."""
        if self._sampler is not None:
            self._sampler.close()
        self._sampler = self._scored = None

    def _load(self, checkpoint: Checkpoint) -> LoadedModel:
        """The model to score with: the sampler's own where that is a transformers model."""
        from diagnostics.models import load_model, pick_device
        from diagnostics.samplers.transformers import TransformersSampler

        if isinstance(self._sampler, TransformersSampler):
            return self._sampler.load(checkpoint)
        if self._scored is None or self._scored[0] != checkpoint.weights_hash:
            self._scored = None  # free the old model before the new one comes
            device = pick_device(self._config.device)
            loaded = load_model(checkpoint, device=device, dtype=self._config.dtype)
            self._scored = (checkpoint.weights_hash, loaded)
        return self._scored[1]
