"""The parts of an objective: ten kinds, each a frozen record of its settings with one method.

The order of a step: rewards are *shaped*, an *estimator* turns them into advantages, *calibrations* change these or
take samples out, the *surrogate* gives every token a loss, *penalties* add to it, the *aggregation* weighs the tokens
into one number. Beside them, *correction* answers for rollouts that another law drew, *rehearsal* adds samples of the
reference, *decoding* changes how rollouts are drawn, and *resampling* which prompts are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

#: What a part asks of the step beyond rewards: log-probabilities of the rollouts under the reference policy, whether
#: the greedy response of each prompt is correct, or the entropies of the policy that is being trained.
Need = Literal["reference_logp", "greedy", "entropy"]


@dataclass(frozen=True, kw_only=True)
class GroupedRewards:
    """The rollouts of one step as credit sees them, before any gradient, one row per prompt.

    ``correct_PG`` is the verifier's word, whatever the reward. ``reference_logp_PG`` is log π_ref(y|x), summed over
    the response, in nats, and ``greedy_correct_P`` tells whether the prompt's greedy response is correct; both are
    None unless a part needs them. ``reference_gap_BT`` is log π_old − log π_ref of every token that ``mask_BT``, the
    response, covers, rows as prompts and their rollouts; None unless advantages are ``by_token``.
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
    """The worth of the samples: an advantage each, and whether they count in the divisor of the loss.

    A sample that does not count has advantage 0 too. Where tokens have advantages of their own, these are
    ``token_advantage_BT``, 0 behind the response, and ``advantage_PG`` their means.
    """

    advantage_PG: Float[Tensor, "prompt group"]
    counted_PG: Bool[Tensor, "prompt group"]
    token_advantage_BT: Float[Tensor, "row token"] | None = field(default=None, repr=False)

    @property
    def by_token(self) -> Float[Tensor, "row one_or_token"]:
        """The advantage of every token of each row; one column where they are equal."""
        return self.advantage_PG.reshape(-1, 1) if self.token_advantage_BT is None else self.token_advantage_BT

    def of_prompts(self, first: int, last: int) -> Credit:
        """The credit of prompts ``first`` … ``last - 1``."""
        group_size = self.advantage_PG.shape[1]
        token_BT = self.token_advantage_BT
        return Credit(
            advantage_PG=self.advantage_PG[first:last],
            counted_PG=self.counted_PG[first:last],
            token_advantage_BT=None if token_BT is None else token_BT[first * group_size : last * group_size],
        )

    def with_advantages(self, advantage_PG: Float[Tensor, "prompt group"], *, keep_scale: bool = False) -> Credit:
        """The same samples with other advantages; ``keep_scale``: at the batch's mean |A| before."""
        kept_PG = scale_matched(advantage_PG, self.advantage_PG) if keep_scale else advantage_PG
        return replace(self, advantage_PG=kept_PG)

    def without(self, out_PG: Bool[Tensor, "prompt one_or_group"]) -> Credit:
        """These samples count no more and have advantage 0."""
        return Credit(advantage_PG=self.advantage_PG.masked_fill(out_PG, 0.0), counted_PG=self.counted_PG & ~out_PG)


@dataclass(frozen=True, kw_only=True)
class TokenLogps:
    """Log-probabilities of response tokens in nats, at the sampling temperature; ``mask_BT`` covers the response.

    ``logp_BT`` and ``entropy_BT`` (full vocabulary) belong to the policy that is being trained and carry gradient,
    ``old_logp_BT`` is that of the policy before the first update on this batch, ``reference_logp_BT`` that of the
    reference policy. Entropies and the reference's are None unless a part needs them.
    """

    logp_BT: Float[Tensor, "row token"]
    old_logp_BT: Float[Tensor, "row token"]
    mask_BT: Bool[Tensor, "row token"]
    entropy_BT: Float[Tensor, "row token"] | None = None
    reference_logp_BT: Float[Tensor, "row token"] | None = None


@dataclass(frozen=True, kw_only=True)
class SurrogateLoss:
    """The loss of every token before weighing, and which tokens' gradient the clip has cut off."""

    loss_BT: Float[Tensor, "row token"]
    clipped_BT: Bool[Tensor, "row token"]


class Part(Protocol):
    """The common attributes of parts: a title, the paper and place they come from, and what they ask of the step.

    ``brings`` is an expression of other parts that belong to this one; whoever names one of their kind overrides it.
    ``acts_on`` names what a shaping or calibration changes, or what an estimator's setting weighs: the reason that is
    given where nothing of it is left. ``caution`` is said when a run with this part starts; empty for none.
    """

    title: ClassVar[str]
    source: ClassVar[str]
    needs: ClassVar[frozenset[Need]]
    brings: ClassVar[str]
    acts_on: ClassVar[str]
    caution: ClassVar[str]


class PartDefaults:
    """Nothing needed, nothing brought, nothing to beware of: the usual case."""

    needs: ClassVar[frozenset[Need]] = frozenset()
    brings: ClassVar[str] = ""
    acts_on: ClassVar[str] = ""
    caution: ClassVar[str] = ""


@runtime_checkable
class Shaping(Part, Protocol):
    """Changes rewards before anything compares them."""

    def shape(self, rewards: GroupedRewards) -> Float[Tensor, "prompt group"]:
        """The new rewards."""


@runtime_checkable
class Estimator(Part, Protocol):
    """Turns rewards into advantages."""

    def advantages(self, rewards: GroupedRewards) -> Float[Tensor, "prompt group"]:
        """One advantage per sample. ``ValueError`` for groups too small to compare."""


@runtime_checkable
class TokenEstimator(Estimator, Protocol):
    """Gives every token an advantage of its own where ``kl``, the weight of the KL in the reward, is not 0."""

    kl: float

    def token_advantages(
        self,
        reward_PG: Float[Tensor, "prompt group"],
        reference_gap_BT: Float[Tensor, "row token"],
        mask_BT: Bool[Tensor, "row token"],
    ) -> Float[Tensor, "row token"]:
        """One advantage per token, 0 outside ``mask_BT``; the gap is log π_old − log π_ref."""


@runtime_checkable
class Calibration(Part, Protocol):
    """Changes advantages, or takes samples out of the divisor."""

    def calibrate(self, credit: Credit, rewards: GroupedRewards) -> Credit:
        """The new credit."""


@runtime_checkable
class Surrogate(Part, Protocol):
    """The loss of each token, whose gradient is the policy gradient where nothing is clipped."""

    def token_loss(self, tokens: TokenLogps, advantage_B: Float[Tensor, "row ..."]) -> SurrogateLoss:
        """Loss per token, to be minimised; an advantage for each row, or for each of its tokens."""


@runtime_checkable
class Aggregation(Part, Protocol):
    """Weighs the losses of tokens into one number: a weight each, from lengths alone."""

    def token_weights(
        self, mask_BT: Bool[Tensor, "row token"], counted_B: Bool[Tensor, " row"], *, max_tokens: int
    ) -> Float[Tensor, "row token"]:
        """Weights of all tokens of the batch: the loss is the sum of weight times loss. 0 where nothing counts.

        Taken once over the whole batch, so splitting it into micro-batches cannot change the loss.
        """


@runtime_checkable
class Penalty(Part, Protocol):
    """Adds a loss to every token of every sample that counts, whatever its advantage."""

    def token_penalty(self, tokens: TokenLogps) -> Float[Tensor, "row token"]:
        """Loss per token, its coefficient included."""


@runtime_checkable
class Correction(Part, Protocol):
    """Importance weights for rollouts that another law than the policy's drew."""

    def importance(
        self, log_ratio_BT: Float[Tensor, "row token"], mask_BT: Bool[Tensor, "row token"]
    ) -> Float[Tensor, "row token"]:
        """Factor of each token's loss, without gradient, from log π_old − log(behaviour)."""


@runtime_checkable
class Rehearsal(Part, Protocol):
    """Samples of the reference policy to learn from beside the rollouts: β times their mean cross-entropy."""

    beta: float
    samples_per_prompt: int


@runtime_checkable
class Decoding(Part, Protocol):
    """Draws rollouts from softmax(f_θ − μ f_φ): the policy less a memory network (``oversharp.trainers.rollouts``)."""

    mu: float
    memory: str
    learning_rate: float | None
    optimizer: Literal["adamw", "sgd"]
    warm_start_steps: int


@runtime_checkable
class Resampling(Part, Protocol):
    """Draws further prompts until enough groups are mixed, at most ``max_rounds`` times a step."""

    max_rounds: int


@dataclass(frozen=True, kw_only=True)
class Preset:
    """A name for a composition that a paper made: ``expression`` is what a user could write instead."""

    title: str
    source: str
    expression: str


@dataclass(frozen=True, kw_only=True)
class Objective:
    """A whole objective. ``expression`` names its parts with every setting that is not a default."""

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
        """All parts in the order of a step."""
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
        """Whether any part needs it."""
        return any(need in part.needs for part in self.parts)

    @property
    def by_token(self) -> bool:
        """Whether tokens of one response have different advantages."""
        return isinstance(self.estimator, TokenEstimator) and self.estimator.kl > 0

    def credit(self, rewards: GroupedRewards) -> Credit:
        """Shape the rewards, estimate advantages, calibrate them; by token where the gap to the reference is given."""
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
            raise ValueError(f"{name_of(self.estimator)} gives no advantages by token")
        advantage_BT = self.estimator.token_advantages(rewards.reward_PG, reference_gap_BT, mask_BT)
        mean_B = advantage_BT.sum(dim=1) / mask_BT.sum(dim=1).clamp(min=1)
        mean_PG = mean_B.view_as(credit.advantage_PG).to(credit.advantage_PG)
        return replace(credit, advantage_PG=mean_PG, token_advantage_BT=advantage_BT)


def as_column(advantage_B: Float[Tensor, "row ..."]) -> Float[Tensor, "row one_or_token"]:
    """Advantages of rows as a column beside their tokens; those of tokens as they are."""
    return advantage_B[:, None] if advantage_B.ndim == 1 else advantage_B


def name_of(part: Part) -> str:
    """The name of a part in an expression: its file's name."""
    return type(part).__module__.rpartition(".")[2]


def check_range(least: float, below: float = math.inf, /, **settings: float | None) -> None:
    """Raise ``ValueError`` for a setting outside [least, below); None is no value.

    >>> check_range(0, beta=-1.0)
    Traceback (most recent call last):
    ...
    ValueError: beta -1.0: must be 0 or more
    """
    for name, value in settings.items():
        if value is not None and not least <= value < below:
            wanted = f"be {least:g} or more" if below == math.inf else f"lie in [{least:g}, {below:g})"
            raise ValueError(f"{name} {value}: must {wanted}")


def scale_matched(changed: Float[Tensor, "*axes"], before: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
    """``changed`` advantages with the mean absolute value that they had ``before``; zeros stay zeros.

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
    """Groups whose rewards are all equal and hence teach nothing.

    Decided by max == min. The standard deviation of eight equal float32 rewards of 0.1 is not zero, and dividing by
    it turns rounding noise into an advantage (-0.83 with an eps of 1e-9).

    >>> import torch
    >>> is_constant(torch.tensor([[0.1] * 8, [0.0] * 7 + [1.0]])).tolist()
    [True, False]
    """
    return reward_PG.amax(dim=1) == reward_PG.amin(dim=1)
