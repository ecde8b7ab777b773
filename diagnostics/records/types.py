"""Records shared by all rooms of oversharp: frozen dataclasses with validation and content hashes.

No heavy imports: ``oversharp --help`` loads this module.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal, get_args

FinishReason = Literal["stop", "length"]
GradeState = Literal["ok", "parse_fail", "ambiguous", "timeout", "error"]
#: How a response states its answer: in a box, in <answer> tags, after ####, after a label ("The answer is"), as
#: mathematics without other text, in unmarked prose, or not at all.
AnswerStyle = Literal["boxed", "tagged", "hashes", "labelled", "bare", "prose", "none"]

#: Answer of an unparsed response. It is a separate class in every answer entropy ([B] C.5).
NO_ANSWER = "NA"

#: Sampler name of a series imported as counts of correct samples. Its samples have no texts.
COUNTS_ALONE = "counts"

#: Family-wise level of confirmations of lost and gained problems. The view confirmed_problems uses it too.
CONFIRMED_LEVEL = 0.05

#: Default token limit of responses if neither the user nor the task sets one.
DEFAULT_MAX_TOKENS = 1024


def content_hash(*parts: object) -> str:
    """Return a content hash of ``parts``: 16 hex digits, equal on every machine.

    >>> content_hash("a", 1) == content_hash("a", 1)
    True
    >>> content_hash("a", 1) == content_hash("a1")
    False
    """
    blob = json.dumps(parts, sort_keys=True, ensure_ascii=False, separators=(",", ":"), default=str)
    return blake2b(blob.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


#: Copied for each of millions of responses, because a copy is cheaper than a new hash object.
_response_digest = blake2b(digest_size=8).copy


def response_digest(text: bytes) -> bytes:
    """Return the content hash of a response in UTF-8, 8 bytes."""
    digest = _response_digest()
    digest.update(text)
    return digest.digest()


def response_id(text: str | bytes) -> str:
    """Return the content hash of a response given as text or UTF-8.

    Responses with equal texts share their grade and log-probability.
    """
    return response_digest(text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")).hex()


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A prompt with a verifiable answer.

    ``modes`` has all accepted responses if they can be enumerated. Then a response is correct if and only if it is one
    of them, and the exact measures (Definition 2.1 of [A]) are available. Problems of the same ``cluster`` are related,
    such as variants of a template. A problem without a cluster is independent.
    """

    task: str
    prompt: str
    gold: str
    verifier: str
    modes: tuple[str, ...] = ()
    source_id: str | None = None
    difficulty: float | None = None
    meta: Mapping[str, Any] = field(default_factory=dict)
    cluster: str | None = None

    @property
    def problem_id(self) -> str:
        """Content hash. It is the same in every file, task and store, and does not depend on the cluster."""
        return content_hash(self.prompt, self.gold, self.verifier, self.modes, dict(self.meta))


@dataclass(frozen=True, kw_only=True)
class SamplingSettings:
    """Sampling settings.

    They are part of a sample's identity, so samples with different settings never mix. ``top_p = 1`` and ``top_k = 0``
    disable truncation of the distribution. ``prompt_template`` must contain ``{prompt}``. With ``chat``, the filled
    template becomes the user turn of the tokenizer's chat template, which also receives ``chat_args`` (a JSON object,
    None for no arguments). ``environment`` is the name of the class whose tools the model calls, with the hash of its
    file, and ``max_turns`` the largest number of the model's turns; both are None for plain responses.
    """

    sampler: str
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    max_tokens: int = DEFAULT_MAX_TOKENS
    prompt_template: str = "{prompt}"
    system_prompt: str = ""
    chat: bool = False
    seed: int = 0
    dtype: str = "float32"
    chat_args: str | None = None
    environment: str | None = None
    max_turns: int | None = None

    @property
    def settings_id(self) -> str:
        """Content hash of all fields: 16 hex digits."""
        return content_hash(_identity_fields(self))


@dataclass(frozen=True, kw_only=True)
class RecordedSettings:
    """Known sampling settings of another tool. The fields are those of ``SamplingSettings``."""

    sampler: str
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    max_tokens: int | None = None
    prompt_template: str | None = None
    system_prompt: str | None = None
    chat: bool | None = None
    seed: int | None = None
    dtype: str | None = None
    chat_args: str | None = None

    @property
    def settings_id(self) -> str:
        """Content hash of all fields: 16 hex digits."""
        return content_hash("recorded", _identity_fields(self))


def _identity_fields(settings: SamplingSettings | RecordedSettings) -> dict[str, Any]:
    """Return the fields that identify settings.

    Fields that were added later are included only if set, so that ids in older stores stay valid.
    """
    added = ("chat_args", "environment", "max_turns")
    return {name: value for name, value in asdict(settings).items() if value is not None or name not in added}


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    """A sampled response to a problem from a checkpoint.

    ``logp_sum_raw`` is the sum over response tokens (end token included) of the log-probability at temperature 1
    without truncation, in nats, regardless of the sampling temperature; None if a server does not return it.
    ``n_tokens`` is the number of response tokens, end token included. ``token_ids`` and ``n_tokens`` are None if only
    the text is known. ``entropy_sum`` is the sum over the same tokens of the entropy of the next-token distribution at
    temperature 1 over the full vocabulary, in nats; None if the sampler does not compute it.
    """

    problem_id: str
    sample_index: int
    greedy: bool
    text: str
    token_ids: tuple[int, ...] | None
    finish_reason: FinishReason
    logp_sum_raw: float | None
    entropy_sum: float | None = None

    @property
    def n_tokens(self) -> int | None:
        """Number of response tokens, end token included."""
        return None if self.token_ids is None else len(self.token_ids)

    @property
    def response_id(self) -> str:
        """Content hash of the response."""
        return response_id(self.text)


@dataclass(frozen=True, kw_only=True, slots=True)
class Grade:
    """Grade of one response by a verifier.

    ``answer`` is the canonical final answer (``NO_ANSWER`` if there is none). ``mode`` is the canonical form of the
    whole solution, the equivalence class of Definition 2.1 in [A]; None if there is none. A response that could not be
    graded is never "wrong": ``state`` is its state and ``reason`` the cause. The state ``ambiguous`` means that it
    states no single answer (negation, comparison, alternatives). ``n_boxed`` is the number of distinct contents of its
    ``\boxed{}``, None if the verifier reads no boxes. ``style`` is how the response states its answer, and ``lenient``
    is whether the lenient reader accepts it too. Both are None if the verifier parses no text. ``correct_at`` is the
    smallest reward of a correct response.
    """

    answer: str
    mode: str | None
    reward: float
    state: GradeState = "ok"
    reason: str = ""
    n_boxed: int | None = None
    style: AnswerStyle | None = None
    lenient: bool | None = None
    correct_at: float = 1.0

    @property
    def correct(self) -> bool:
        """Whether the response was graded (state ``ok``) and its reward is at least ``correct_at``."""
        return self.state == "ok" and self.reward >= self.correct_at


@dataclass(frozen=True, kw_only=True, slots=True)
class ForcedResponse:
    """Teacher-forced score of a response under a checkpoint (temperature 1, full vocabulary).

    ``logp_sum`` and ``entropy_sum`` are the sums of ``token_logps`` and ``token_entropies`` over the response tokens
    (end token included), in nats. Entropies are None if a server scored the response.
    """

    problem_id: str
    response_id: str
    logp_sum: float
    token_logps: tuple[float, ...]
    entropy_sum: float | None = None
    token_entropies: tuple[float, ...] | None = None

    @property
    def n_tokens(self) -> int:
        """Number of response tokens, end token included."""
        return len(self.token_logps)


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A complete checkpoint on disk. ``weights_hash`` identifies its weights.

    ``repeats``: an earlier checkpoint of the series has the same weights, and this one is sampled separately.
    """

    step: int
    label: str
    path: Path
    kind: Literal["full", "lora", "recorded"]  # "recorded" is another tool's samples, without weights
    weights_hash: str
    base_path: Path | None = None  # the model that a LoRA adapter belongs to
    untrained: Checkpoint | None = None  # a LoRA adapter at initialisation, which does not change this model yet
    repeats: bool = False

    @property
    def trained(self) -> Checkpoint:
        """The checkpoint whose weights are trained: the untrained adapter, if there is one."""
        return self.untrained or self

    @property
    def checkpoint_id(self) -> str:
        """Hash of the weights, with the step if an earlier step has the same weights.

        So runs from the same base share its samples, and a run that learned nothing is compared with its base by
        independent samples.
        """
        return f"{self.weights_hash}-{self.step}" if self.repeats else self.weights_hash


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingMetric:
    """A number that the trainer logged at a step (reward, entropy, KL, …)."""

    step: int
    name: str
    value: float


@dataclass(frozen=True, kw_only=True)
class Series:
    """Checkpoints of a training run in ascending step order. The first is the base."""

    name: str
    path: Path
    layout: str
    checkpoints: tuple[Checkpoint, ...]
    metrics: tuple[TrainingMetric, ...] = ()
    skipped: tuple[str, ...] = ()  # "checkpoint-40: model.safetensors is cut short …"
    notes: tuple[str, ...] = ()  # removed prefixes, generated indexes, equal weights

    @property
    def base(self) -> Checkpoint:
        """The checkpoint that all others are compared with."""
        return self.checkpoints[0]


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """A number of an audit, or the reason why it is unknown.

    ``low`` and ``high`` are a 95 % interval over problems unless the measure states another one. ``n`` is the number of
    units that ``value`` uses. ``unit`` is its physical unit: nats, probability, tokens, … ``interval_over`` is the
    resampling unit of the interval, None without one. ``why_no_interval`` is the reason why clusters allow no interval.
    """

    checkpoint_id: str
    measure: str
    unit: str
    scope: str = "all"
    k: int | None = None
    value: float | None = None
    low: float | None = None
    high: float | None = None
    n: int | None = None
    why: str | None = None
    interval_over: Literal["problems", "clusters"] | None = None
    why_no_interval: str | None = None

    def __post_init__(self) -> None:
        if (self.value is None) == (self.why is None):
            raise ValueError(f"{self.measure}: pass either a value or the reason why it is unknown")
        for number in (self.value, self.low, self.high):
            if number is not None and not math.isfinite(number):
                raise ValueError(f"{self.measure}: {number} is not a finding; use None and a reason for unknown values")


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingResponse:
    """Response of the training run before the checkpoint of ``step``, sampled ``draws`` times in its group."""

    step: int
    prompt: str
    text: str
    truncated: bool
    correct: bool
    draws: int = 1


def training_problem(prompt: str) -> Problem:
    """Return the problem of a training prompt. It has no answer, so it is scored but not graded."""
    return Problem(task="training", prompt=prompt, gold="", verifier="")


@dataclass(frozen=True, kw_only=True)
class VerdictTerms:
    """Verdict settings that cannot be derived from the samples.

    ``guess_rate`` is the false-accept rate of the graders on wrong responses, None if not given. ``looks`` is the
    number of looks at the verdict before training ends, None if unknown. ``runs`` is the number of runs from which one
    will be chosen. ``selected_by`` is "base" if the base's samples chose the problems, "none" if not, None if not
    given.
    """

    guess_rate: float | None = None
    looks: int | None = 1
    runs: int = 1
    selected_by: str | None = None


@dataclass(frozen=True, kw_only=True)
class AuditKey:
    """Identity of an audit: series, problem set, sampling settings and sample counts.

    With ``enough``, samples are drawn in rounds of ``first_round``, 2 ``first_round``, … up to ``n``, or ``n_base`` for
    the base. A problem of a checkpoint stops after the first round that leaves it with ``enough`` correct samples. Both
    are None if every problem has ``n`` samples.
    ``panel`` is the number of the base's responses per problem that every checkpoint scores, sampled with
    ``panel_settings_id``. It is also the number of each checkpoint's samples that the base scores. The gradient kernel
    of each checkpoint uses ``kernel_responses`` fixed responses to each of ``kernel_problems`` problems, and as many
    samples of the checkpoint. ``verifier`` is the verifier whose grades are used, None for each problem's own.
    ``terms`` affect only the verdict.
    """

    audit_id: str
    series: str
    settings_id: str
    n: int
    n_base: int
    entropy_samples: int
    panel: int
    panel_settings_id: str
    kernel_problems: int
    kernel_responses: int
    ks: tuple[int, ...]
    strategy_regex: str
    first_round: int | None = None
    enough: int | None = None
    verifier: str | None = None
    terms: VerdictTerms = field(default_factory=VerdictTerms)


#: File formats of figures.
PictureFormat = Literal["svg", "png", "pdf"]
PICTURE_FORMATS: tuple[PictureFormat, ...] = get_args(PictureFormat)

#: Change of a problem that the audit's samples suggest, and that fresh samples may confirm.
Change = Literal["lost", "gained"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Confirmation:
    """Test of a seemingly lost or gained problem with fresh samples of base and late checkpoint.

    ``p`` is one-sided. ``p_adjusted`` is corrected for all problems that were sampled again in the same test.
    """

    problem_id: str
    change: Change
    n_base: int
    correct_base: int
    n_late: int
    correct_late: int
    p: float
    p_adjusted: float

    @property
    def confirmed(self) -> bool:
        """Whether fresh samples show the change, at a family-wise level of 5 % over all problems sampled again."""

        return self.p_adjusted <= CONFIRMED_LEVEL
