"""Settings of one toy run."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

from oversharp.diagnostics.records.errors import ConfigError

Estimator = Literal[
    "raw", "mean_shifted", "normalised", "rloo", "reinforce_pp", "grpo_n", "grpo_n_shifted", "expected", "mle"
]
OptimizerName = Literal["sgd", "momentum", "adam", "adamw"]
ImportanceWeights = Literal["none", "truncated", "exact"]

#: Estimators without sampling: the gradient is exact and every seed takes the same path.
EXACT_ESTIMATORS: frozenset[str] = frozenset({"expected", "mle"})


@dataclass(frozen=True, kw_only=True)
class ToyConfig:
    """Training settings of a softmax world. The defaults are those of [A] 2.4 where it states one.

    Attributes
    ----------
    estimator
        Computes advantages from a group's rewards. Sampled: ``raw``, ``mean_shifted``, ``normalised``, ``rloo``,
        ``reinforce_pp``, ``grpo_n`` (normalised, negative advantages only), ``grpo_n_shifted`` (mean-shifted,
        negative only; the one that fits [B] Algorithm 1). Exact gradients, no sampling: ``expected`` (of
        sum r_k pi_k, REINFORCE in [C] Eq 19) and ``mle`` (of sum r_k log pi_k; negative rewards push down).
    group_size
        Samples per step, G. Not used by the exact estimators.
    learning_rate
        Constant. [A] prints none, but lets every policy collapse within 500 steps. With SGD and raw rewards nearly
        all do at 2 (98 % for G=4, 89 % for G=32), none at 0.1.
    optimizer
        ``sgd``; ``momentum`` (heavy ball as torch has it, no dampening); ``adam``; ``adamw``. The last two with
        betas .9 and .999, eps 1e-8.
    momentum
        Coefficient of ``momentum``.
    weight_decay
        Decoupled decay of ``adamw``; the others have none.
    steps
        Updates.
    seeds
        Independent runs, side by side. Run number s draws the same numbers however many there are.
    seed
        The seed that all runs' streams derive from.
    temperature
        The policy is softmax(logits / temperature): in sampling, in the gradient (with its factor 1 / temperature)
        and in the recorded probabilities.
    iac_alpha
        Exponent of inverse-success calibration; 0 is none.
    iac_scale_matched
        Rescale the calibrated advantages of each group to the mean absolute advantage they had before.
    dlc_mu
        Weight of the memory's logits that sampling subtracts; 0 is none.
    dlc_learning_rate
        SGD learning rate of the memory. Default: ``learning_rate``.
    importance_weights
        Weight of a sample drawn with the memory's help: ``none``, ``exact`` (policy over sampling probability), or
        ``truncated`` (the same, cut at ``importance_cap``).
    importance_cap
        Largest weight of ``truncated``.
    record_every
        Steps between records; step 0 and the last step are always recorded.
    keep_logits
        Whether the run also holds its logits.
    """

    estimator: Estimator = "raw"
    group_size: int = 8
    learning_rate: float = 2.0
    optimizer: OptimizerName = "sgd"
    momentum: float = 0.9
    weight_decay: float = 0.01
    steps: int = 500
    seeds: int = 200
    seed: int = 0
    temperature: float = 1.0
    iac_alpha: float = 0.0
    iac_scale_matched: bool = False
    dlc_mu: float = 0.0
    dlc_learning_rate: float | None = None
    importance_weights: ImportanceWeights = "none"
    importance_cap: float = 1.0
    record_every: int = 1
    keep_logits: bool = False

    def __post_init__(self) -> None:
        _one_of("estimator", self.estimator, get_args(Estimator))
        _one_of("optimizer", self.optimizer, get_args(OptimizerName))
        _one_of("importance_weights", self.importance_weights, get_args(ImportanceWeights))
        for name, whole, least in (
            ("group_size", self.group_size, 1),
            ("steps", self.steps, 1),
            ("seeds", self.seeds, 1),
            ("seed", self.seed, 0),
            ("record_every", self.record_every, 1),
        ):
            if whole < least:
                raise ConfigError(f"{name} {whole}: must be at least {least}")
        for name, number in (
            ("learning_rate", self.learning_rate),
            ("temperature", self.temperature),
            ("dlc_learning_rate", self.memory_learning_rate),
            ("importance_cap", self.importance_cap),
        ):
            if not (math.isfinite(number) and number > 0):
                raise ConfigError(f"{name} {number}: must be above 0")
        for name, number in (
            ("weight_decay", self.weight_decay),
            ("iac_alpha", self.iac_alpha),
            ("dlc_mu", self.dlc_mu),
        ):
            if not (math.isfinite(number) and number >= 0):
                raise ConfigError(f"{name} {number}: must be 0 or more")
        if not 0 <= self.momentum < 1:
            raise ConfigError(f"momentum {self.momentum}: must lie in [0, 1)")
        self._check_combination()

    def _check_combination(self) -> None:
        if self.samples and self.estimator != "raw" and self.group_size < 2:
            raise ConfigError(
                f"group_size {self.group_size}: a single rollout is not a group; {self.estimator} compares at least 2"
            )
        if not self.samples and (self.iac_alpha or self.dlc_mu):
            raise ConfigError(f"estimator {self.estimator!r} draws no sample; iac_alpha and dlc_mu need one that does")
        if self.iac_scale_matched and not self.iac_alpha:
            raise ConfigError("iac_scale_matched: needs iac_alpha above 0")
        if self.importance_weights != "none" and not self.dlc_mu:
            raise ConfigError(f"importance_weights {self.importance_weights!r}: without dlc_mu every weight is 1")

    @property
    def samples(self) -> bool:
        """Whether the estimator samples."""
        return self.estimator not in EXACT_ESTIMATORS

    @property
    def memory_learning_rate(self) -> float:
        """Learning rate of the memory, with its default applied."""
        return self.learning_rate if self.dlc_learning_rate is None else self.dlc_learning_rate


def _one_of(name: str, chosen: str, known: tuple[str, ...]) -> None:
    if chosen not in known:
        raise ConfigError(f"{name} {chosen!r}: choose from {', '.join(known)}")
