"""How the policy does on problems that it is not trained on, while it trains."""

from __future__ import annotations

import numpy as np

from oversharp.diagnostics.models.tokens import encode_prompt
from oversharp.diagnostics.statistics.pass_at_k import pass_at_k_table
from oversharp.diagnostics.verifiers import Verifiers
from oversharp.trainers.seeds import stream_seed
from oversharp.trainers.step import Learner, graded, is_correct


def validated(learner: Learner, step: int, verifiers: Verifiers) -> dict[str, float | int]:
    """pass@1 and pass@n (means over problems, unbiased), entropy per token (nats) and cut-off responses (share).

    Sampled as in training, with noise of a stream of its own, so that it changes nothing of what is trained. Samples
    are drawn as many at once as a step's.
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
        grades = graded(learner, chosen, rollouts, verifiers).grades
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
