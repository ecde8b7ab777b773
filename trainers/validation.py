"""Evaluate the policy during training on problems outside the training set."""

from __future__ import annotations

import numpy as np

from oversharp.diagnostics.models.tokens import encode_prompt
from oversharp.diagnostics.statistics.pass_at_k import pass_at_k_table
from oversharp.diagnostics.verifiers import Verifiers
from oversharp.trainers.seeds import stream_seed
from oversharp.trainers.step import Learner, grade_rollouts, is_correct


def validate(learner: Learner, step: int, verifiers: Verifiers) -> dict[str, float | int]:
    """Return pass@1 and pass@n (unbiased, mean over problems), token entropy (nats) and share of truncated responses.

    Samples are drawn as in training but from a separate random stream, so that validation does not affect training.
    Each call to the engine draws at most as many samples as a training step.
    """
    config, n = learner.config, learner.config.validation_samples
    at_once = max(1, config.batch_prompts * config.group_size // n)
    correct_P: list[int] = []
    n_tokens, entropy_sum, n_truncated = 0, 0.0, 0
    for first in range(0, len(learner.validation), at_once):
        chosen = learner.validation[first : first + at_once]
        rollouts = learner.engine.sample(
            [encode_prompt(learner.policy.tokenizer, problem, config) for problem in chosen],
            group_size=n,
            max_tokens=config.used_max_tokens,
            temperature=config.temperature,
            seed=stream_seed(config.seed, f"validation {first}", step),
        )
        grades = grade_rollouts(learner, chosen, rollouts, verifiers).grades
        right = np.array([is_correct(grade, config.correct_above) for grade in grades])
        correct_P += right.reshape(-1, n).sum(axis=1).tolist()
        n_tokens += int(rollouts.n_tokens_B.sum())
        entropy_sum += float(rollouts.entropy_sum_B.double().sum())
        n_truncated += int(rollouts.truncated_B.sum())
    ks = sorted({1, n})
    passed = pass_at_k_table(n, ks)[correct_P].mean(axis=0).tolist()
    return {
        **{f"val_pass_at_{k}": value for k, value in zip(ks, passed, strict=True)},
        "val_token_entropy_nats": entropy_sum / n_tokens,
        "val_truncation_rate": n_truncated / (n * len(learner.validation)),
    }
