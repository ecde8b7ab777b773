"""Base classes of the parts of an objective: ten kinds, each a frozen dataclass of settings with at most one method.

In a step, *shapings* change rewards, an *estimator* turns them into advantages, *calibrations* change advantages or
remove samples, the *surrogate* computes a loss per token, *penalties* add to this loss, and the *aggregation* combines
the losses of all tokens into one number. In addition, a *correction* gives importance weights to rollouts of another
distribution, a *rehearsal* adds samples of the reference, a *decoding* changes how rollouts are sampled, and a
*resampling* changes which prompts are used.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

#: Inputs that a part may need in addition to rewards: log-probabilities of the rollouts under the reference policy,
#: correctness of the greedy response to each prompt, or entropies of the trained policy.
Need = Literal["reference_logp", "greedy", "entropy"]


@dataclass(frozen=True, kw_only=True)
class GroupedRewards:
    """Inputs from which an objective computes the advantages of the rollouts of one step, with one row per prompt.

    ``correct_PG`` is from the verifier and does not depend on shaped rewards. ``reference_logp_PG`` is log π_ref(y|x),
    summed over the response, in nats. ``greedy_correct_P`` is whether the greedy response to the prompt is correct.
    Both are None unless a part needs them. ``reference_gap_BT`` is log π_old − log π_ref of every response token
    (``mask_BT``), with one row per rollout in order of the prompts. It is None unless the objective ``is_by_token``.
    """

    reward_PG: Float[Tensor, "prompt group"]
    correct_PG: Bool[Tensor, "prompt group"]
    n_tokens_PG: Int[Tensor, "prompt group"]
    truncated_PG: Bool[Tensor, "prompt group"]
    reference_logp_PG: Float[Tensor, "prompt group"] | None = None
    greedy_correct_P: Bool[Tensor, " prompt"] | None = None
    reference_gap_BT: Float[Tensor, "row token"] | None = None
    mask_BT: Bool[Tensor, "row token"] | None = None


@dataclass(frozen=True, kw_only=True)
class Credit:
    """Advantages of the samples, and whether the divisor of the loss counts each sample (``counted_PG``).

    Samples that it does not count have advantage 0. If tokens have different advantages, ``token_advantage_BT`` has
    these (0 after the response), and ``advantage_PG`` has their means.
    """

    advantage_PG: Float[Tensor, "prompt group"]
    counted_PG: Bool[Tensor, "prompt group"]
    token_advantage_BT: Float[Tensor, "row token"] | None = field(default=None, repr=False)

    @property
    def advantage_BT(self) -> Float[Tensor, "row one_or_token"]:  # noqa: N802
        """Advantages of the tokens of each row. It has one column if all tokens of a row have the same advantage."""
        return self.advantage_PG.reshape(-1, 1) if self.token_advantage_BT is None else self.token_advantage_BT

    def select_prompts(self, first: int, last: int) -> Credit:
        """Return the credit of prompts ``first`` … ``last - 1``."""
        group_size = self.advantage_PG.shape[1]
        token_BT = self.token_advantage_BT
        return Credit(
            advantage_PG=self.advantage_PG[first:last],
            counted_PG=self.counted_PG[first:last],
            token_advantage_BT=None if token_BT is None else token_BT[first * group_size : last * group_size],
        )

    def with_advantages(self, advantage_PG: Float[Tensor, "prompt group"], *, keep_scale: bool = False) -> Credit:
        """Replace the advantages. ``keep_scale`` rescales them to the previous mean |A| of the batch."""
        kept_PG = scale_matched(advantage_PG, self.advantage_PG) if keep_scale else advantage_PG
        return replace(self, advantage_PG=kept_PG)

    def remove_samples(self, out_PG: Bool[Tensor, "prompt one_or_group"]) -> Credit:
        """Remove these samples: they are not counted, and their advantages are 0."""
        return Credit(advantage_PG=self.advantage_PG.masked_fill(out_PG, 0.0), counted_PG=self.counted_PG & ~out_PG)


@dataclass(frozen=True, kw_only=True)
class TokenLogps:
    """Log-probabilities of response tokens, in nats at the sampling temperature. ``mask_BT`` covers the response.

    ``logp_BT`` and ``entropy_BT`` (over the full vocabulary) are those of the trained policy and have gradients.
    ``old_logp_BT`` is under the policy before the first update on this batch, ``reference_logp_BT`` under the reference
    policy. Entropies and reference values are None unless a part needs them.
    """

    logp_BT: Float[Tensor, "row token"]
    old_logp_BT: Float[Tensor, "row token"]
    mask_BT: Bool[Tensor, "row token"]
    entropy_BT: Float[Tensor, "row token"] | None = None
    reference_logp_BT: Float[Tensor, "row token"] | None = None


@dataclass(frozen=True, kw_only=True)
class SurrogateLoss:
    """Loss of every token before aggregation, and whether its gradient is clipped."""

    loss_BT: Float[Tensor, "row token"]
    clipped_BT: Bool[Tensor, "row token"]


class Part(ABC):
    """Base class of all parts.

    Attributes:
        title: Name to display.
        source: Paper and section.
        needs: Additional inputs that the part needs.
        brings: Expression of further parts that are added unless the expression has others of their kind.
        acts_on: What a shaping, a calibration or an estimator's setting changes, for error messages.
        caution: Warning at the start of a run with this part; "" for none.
    """

    title: ClassVar[str]
    source: ClassVar[str]
    needs: ClassVar[frozenset[Need]] = frozenset()
    brings: ClassVar[str] = ""
    acts_on: ClassVar[str] = ""
    caution: ClassVar[str] = ""


class Shaping(Part):
    """Changes rewards before they are compared."""

    @abstractmethod
    def shape(self, rewards: GroupedRewards) -> Float[Tensor, "prompt group"]:
        """Return the new rewards."""


class Estimator(Part):
    """Turns rewards into advantages."""

    @abstractmethod
    def advantages(self, rewards: GroupedRewards) -> Float[Tensor, "prompt group"]:
        """Return one advantage per sample. Raise ``ValueError`` if groups are too small to compare."""


class TokenEstimator(Estimator):
    """Estimator with advantages per token if ``kl``, the weight of the KL in the reward, is not 0."""

    kl: float

    @abstractmethod
    def token_advantages(
        self,
        reward_PG: Float[Tensor, "prompt group"],
        reference_gap_BT: Float[Tensor, "row token"],
        mask_BT: Bool[Tensor, "row token"],
    ) -> Float[Tensor, "row token"]:
        """Return one advantage per token, 0 outside ``mask_BT``. The gap is log π_old − log π_ref."""


class Calibration(Part):
    """Changes advantages, or removes samples from the loss and its divisor."""

    @abstractmethod
    def calibrate(self, credit: Credit, rewards: GroupedRewards) -> Credit:
        """Return the new advantages and counted samples."""


class Surrogate(Part):
    """Loss of each token. If nothing is clipped, its gradient is the policy gradient."""

    @abstractmethod
    def token_loss(self, tokens: TokenLogps, advantage_B: Float[Tensor, "row ..."]) -> SurrogateLoss:
        """Return the loss of each token, which training minimizes. Advantages are per row or per token."""


class Aggregation(Part):
    """Weights of the tokens in the total loss. They depend only on the lengths of the responses."""

    @abstractmethod
    def token_weights(
        self, mask_BT: Bool[Tensor, "row token"], counted_B: Bool[Tensor, " row"], *, max_tokens: int
    ) -> Float[Tensor, "row token"]:
        """Return the weights of all tokens of the batch. The total loss is the sum of weight times token loss.

        The weights are computed once for the whole batch, so the number of responses per pass does not change the loss.
        """


class Penalty(Part):
    """Adds a loss to every token of every counted sample, regardless of its advantage."""

    @abstractmethod
    def token_penalty(self, tokens: TokenLogps) -> Float[Tensor, "row token"]:
        """Return the loss per token, including its coefficient."""


class Correction(Part):
    """Importance weights for rollouts that are sampled from a distribution other than the policy."""

    @abstractmethod
    def importance(
        self, log_ratio_BT: Float[Tensor, "row token"], mask_BT: Bool[Tensor, "row token"]
    ) -> Float[Tensor, "row token"]:
        """Return the factor of each token's loss, from log π_old − log(behaviour). It has no gradient."""


class Rehearsal(Part):
    """Additional loss on samples of the reference policy: β times their mean cross-entropy."""

    beta: float
    samples_per_prompt: int


class Decoding(Part):
    """Sampling of rollouts from softmax(f_θ − μ f_φ), with the logits of policy and memory network.

    See ``oversharp.trainers.rollouts``.
    """

    mu: float
    memory: str
    learning_rate: float | None
    optimizer: Literal["adamw", "sgd"]
    warm_start_steps: int


class Resampling(Part):
    """Sampling of further prompts until enough groups have mixed rewards, in at most ``max_rounds`` rounds per step."""

    max_rounds: int


@dataclass(frozen=True, kw_only=True)
class Preset:
    """Objective of a paper, as an ``expression`` of parts."""

    title: str
    source: str
    expression: str


@dataclass(frozen=True, kw_only=True)
class Objective:
    """Complete objective. ``expression`` lists its parts with all non-default settings."""

    expression: str
    shapings: tuple[Shaping, ...]
    estimator: Estimator
    calibrations: tuple[Calibration, ...]
    surrogate: Surrogate
    aggregation: Aggregation
    penalties: tuple[Penalty, ...]
    correction: Correction | None
    rehearsal: Rehearsal | None
    decoding: Decoding | None
    resampling: Resampling | None

    @property
    def parts(self) -> tuple[Part, ...]:
        """All parts, in the order in which a step uses them."""
        single = (self.correction, self.rehearsal, self.decoding, self.resampling)
        return (
            *self.shapings,
            self.estimator,
            *self.calibrations,
            self.surrogate,
            *self.penalties,
            self.aggregation,
            *(part for part in single if part is not None),
        )

    def asks_for(self, need: Need) -> bool:
        """Return whether any part needs this input."""
        return any(need in part.needs for part in self.parts)

    @property
    def is_by_token(self) -> bool:
        """Whether tokens of one response have different advantages."""
        return isinstance(self.estimator, TokenEstimator) and self.estimator.kl > 0

    def credit(self, rewards: GroupedRewards) -> Credit:
        """Shape the rewards, and estimate and calibrate the advantages.

        The advantages are per token if the rewards have the gap to the reference.
        """
        for shaping in self.shapings:
            rewards = replace(rewards, reward_PG=shaping.shape(rewards))
        advantage_PG = self.estimator.advantages(rewards)
        credit = Credit(advantage_PG=advantage_PG, counted_PG=torch.ones_like(advantage_PG, dtype=torch.bool))
        for calibration in self.calibrations:
            credit = calibration.calibrate(credit, rewards)
        if rewards.reference_gap_BT is None or rewards.mask_BT is None:
            return credit
        return self._credit_by_token(credit, rewards, rewards.reference_gap_BT, rewards.mask_BT)

    def _credit_by_token(
        self,
        credit: Credit,
        rewards: GroupedRewards,
        reference_gap_BT: Float[Tensor, "row token"],
        mask_BT: Bool[Tensor, "row token"],
    ) -> Credit:
        if not isinstance(self.estimator, TokenEstimator):
            raise ValueError(f"{name_of(self.estimator)} has no advantages per token")
        advantage_BT = self.estimator.token_advantages(rewards.reward_PG, reference_gap_BT, mask_BT)
        mean_B = advantage_BT.sum(dim=1) / mask_BT.sum(dim=1).clamp(min=1)
        mean_PG = mean_B.view_as(credit.advantage_PG).to(credit.advantage_PG)
        return replace(credit, advantage_PG=mean_PG, token_advantage_BT=advantage_BT)


def as_column(advantage_B: Float[Tensor, "row ..."]) -> Float[Tensor, "row one_or_token"]:
    """Return advantages per row as one column. Advantages per token are returned unchanged."""
    return advantage_B[:, None] if advantage_B.ndim == 1 else advantage_B


def name_of(part: Part) -> str:
    """Return the name of a part in expressions, which is the name of its file."""
    return type(part).__module__.rpartition(".")[2]


def check_range(least: float, below: float = math.inf, /, **settings: float | None) -> None:
    """Raise ``ValueError`` for a setting outside [least, below). None is allowed.

    >>> check_range(0, beta=-1.0)
    Traceback (most recent call last):
    ...
    ValueError: beta -1.0: must be 0 or more
    """
    for name, value in settings.items():
        if value is not None and not least <= value < below:
            wanted = f"be {least:g} or more" if below == math.inf else f"be in [{least:g}, {below:g})"
            raise ValueError(f"{name} {value}: must {wanted}")


def scale_matched(changed: Float[Tensor, "*axes"], before: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
    """Rescale the advantages ``changed`` to the mean absolute value of ``before``.

    >>> scale_matched(torch.tensor([4.0, -2.0]), torch.tensor([2.0, -2.0]))
    tensor([ 2.6667, -1.3333])
    """
    changed_mean = changed.abs().mean()
    return torch.where(changed_mean > 0, changed * (before.abs().mean() / changed_mean), changed)


def check_group(reward_PG: Float[Tensor, "prompt group"]) -> None:
    """Raise ``ValueError`` unless every prompt has at least two rollouts to compare.

    >>> import torch
    >>> check_group(torch.zeros(4, 1))
    Traceback (most recent call last):
    ...
    ValueError: a single rollout is not a group: rewards have shape (4, 1); give at least 2 rollouts per prompt
    """
    if reward_PG.ndim != 2 or reward_PG.shape[1] < 2:
        raise ValueError(
            f"a single rollout is not a group: rewards have shape {tuple(reward_PG.shape)}; "
            "give at least 2 rollouts per prompt"
        )


def is_constant(reward_PG: Float[Tensor, "prompt group"]) -> Bool[Tensor, " prompt"]:
    """Return which groups have equal rewards, so that their advantages are 0.

    The test is max == min, because rounding makes the standard deviation of eight float32 rewards of 0.1 nonzero.
    Division by it would give an advantage of -0.83 (with an eps of 1e-9).

    >>> import torch
    >>> is_constant(torch.tensor([[0.1] * 8, [0.0] * 7 + [1.0]])).tolist()
    [True, False]
    """
    return reward_PG.amax(dim=1) == reward_PG.amin(dim=1)
