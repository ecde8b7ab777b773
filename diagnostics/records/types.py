"""The records that cross borders inside oversharp.

Everything here is a frozen dataclass without behaviour beyond validation and content hashing.
No heavy import: this module is loaded by ``oversharp --help``.
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
#: How a response states its answer: in a box, in <answer> tags, after ####, after a label ("The answer is"), as nothing
#: but mathematics, in prose without a mark, or not at all.
AnswerStyle = Literal["boxed", "tagged", "hashes", "labelled", "bare", "prose", "none"]

#: The answer of a response that holds no parseable answer: its own class in every entropy ([B] C.5).
NO_ANSWER = "NA"

#: The sampler of a series of which only counts of correct samples were imported: its samples have no texts.
COUNTS_ALONE = "counts"

#: Chance that any problem is confirmed as lost or gained that is not; the view confirmed_problems has it too.
CONFIRMED_LEVEL = 0.05

#: Longest response in tokens where neither the user nor the task says otherwise.
DEFAULT_MAX_TOKENS = 1024


def content_hash(*parts: object) -> str:
    """16 hex digits that identify ``parts`` by content, stable across processes and machines.

    >>> content_hash("a", 1) == content_hash("a", 1)
    True
    >>> content_hash("a", 1) == content_hash("a1")
    False
    """
    blob = json.dumps(parts, sort_keys=True, ensure_ascii=False, separators=(",", ":"), default=str)
    return blake2b(blob.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


#: A copy costs less than a hash that begins anew, and a dump holds millions of responses.
_response_digest = blake2b(digest_size=8).copy


def response_digest(text: bytes) -> bytes:
    """Content hash of one response in UTF-8, 8 bytes."""
    digest = _response_digest()
    digest.update(text)
    return digest.digest()


def response_id(text: str | bytes) -> str:
    """Content hash of one response, as text or in UTF-8; equal texts share one grade and one teacher-forced score."""
    return response_digest(text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")).hex()


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One prompt with a verifiable answer.

    ``modes`` lists every accepted response where they can be enumerated; then a response is correct
    if and only if it is one of them, and the exact measures (Definition 2.1 of [A]) are available. Problems of one
    ``cluster`` are related, as variants of a template are; a problem without one stands for itself.
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
        """Content hash: the same problem has the same id in every file, task and store, whatever its cluster is."""
        return content_hash(self.prompt, self.gold, self.verifier, self.modes, dict(self.meta))


@dataclass(frozen=True, kw_only=True)
class SamplingSettings:
    """How responses are drawn. Part of a sample's identity: samples under different settings never mix.

    ``top_p = 1`` and ``top_k = 0`` switch the truncation off. ``prompt_template`` must contain
    ``{prompt}``; with ``chat`` the result becomes the user turn of the tokenizer's chat template, which is given
    ``chat_args`` besides: a JSON object, None for none.
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

    @property
    def settings_id(self) -> str:
        """Content hash of all fields: 16 hex digits."""
        return content_hash(_told(self))


@dataclass(frozen=True, kw_only=True)
class RecordedSettings:
    """How another tool drew its samples, as far as that is known; fields as in ``SamplingSettings``."""

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
        return content_hash("recorded", _told(self))


def _told(settings: SamplingSettings | RecordedSettings) -> dict[str, Any]:
    """What identifies settings: stores that are older than chat arguments hold the ids of settings without any."""
    told = asdict(settings)
    if told["chat_args"] is None:
        del told["chat_args"]
    return told


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    """One sampled response to one problem under one checkpoint.

    ``logp_sum_raw`` is the sum over response tokens (end token included) of the log-probability at
    temperature 1 without truncation, in nats, whatever the sampling temperature was.
    ``n_tokens`` counts response tokens, the end token included. ``token_ids`` are those tokens. ``entropy_sum`` is the
    entropy of the next-token distributions the tokens were drawn from, at temperature 1 over the full vocabulary, in
    nats, summed over the tokens; None where the sampler does not know it.
    """

    problem_id: str
    sample_index: int
    greedy: bool
    text: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason
    logp_sum_raw: float
    entropy_sum: float | None = None

    @property
    def n_tokens(self) -> int:
        """Response tokens, the end token included."""
        return len(self.token_ids)


@dataclass(frozen=True, kw_only=True, slots=True)
class Grade:
    """What a verifier says of one response.

    ``answer`` is the canonical final answer (``NO_ANSWER`` if none was found); ``mode`` the canonical
    form of the whole solution, the equivalence class of Definition 2.1 in [A] (None if none).
    A response that could not be graded is never "wrong": ``state`` says what happened, ``reason`` why; ``ambiguous``
    is one that names no single answer, by negation, comparison or alternatives. ``n_boxed`` counts the different
    contents of its ``\\boxed{}``, None where the verifier does not look at boxes. ``style`` is how the response states
    its answer, ``lenient`` whether the response is correct or a lenient reader accepts it; None where the verifier
    reads no text.
    """

    answer: str
    mode: str | None
    reward: float
    state: GradeState = "ok"
    reason: str = ""
    n_boxed: int | None = None
    style: AnswerStyle | None = None
    lenient: bool | None = None

    @property
    def correct(self) -> bool:
        """Whether the response was graded (state ``ok``) and its reward is full: at least 1."""
        return self.state == "ok" and self.reward >= 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class ForcedResponse:
    """Teacher-forced score of one response under one checkpoint (temperature 1, full vocabulary, fp32).

    ``logp_sum`` and ``entropy_sum`` in nats, summed over the response tokens (end included); ``token_logps`` and
    ``token_entropies`` are what they sum.
    """

    problem_id: str
    response_id: str
    logp_sum: float
    entropy_sum: float
    token_logps: tuple[float, ...]
    token_entropies: tuple[float, ...]

    @property
    def n_tokens(self) -> int:
        """Response tokens, the end token included."""
        return len(self.token_logps)


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """One complete checkpoint on disk. ``weights_hash`` identifies its weights.

    ``repeats``: an earlier checkpoint of the series has the same weights; this one gets samples of its own.
    """

    step: int
    label: str
    path: Path
    kind: Literal["full", "lora", "recorded"]  # recorded: another tool's samples, without weights
    weights_hash: str
    base_path: Path | None = None  # the model that a LoRA adapter belongs to
    untrained: Checkpoint | None = None  # the adapter that began on this model and adds nothing to it yet
    repeats: bool = False

    @property
    def trained(self) -> Checkpoint:
        """The checkpoint whose weights the run trains: of a model under an untrained adapter that adapter."""
        return self.untrained or self

    @property
    def checkpoint_id(self) -> str:
        """The hash of the weights, with the step where the series has these weights at an earlier step already.

        So runs that start from one base share its samples, and a run that learned nothing is compared with its base by
        independent samples.
        """
        return f"{self.weights_hash}-{self.step}" if self.repeats else self.weights_hash


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingMetric:
    """One number that the trainer logged at one step (reward, entropy, KL, …)."""

    step: int
    name: str
    value: float


@dataclass(frozen=True, kw_only=True)
class Series:
    """Checkpoints of one training run in ascending step order; the first is the base."""

    name: str
    path: Path
    layout: str
    checkpoints: tuple[Checkpoint, ...]
    metrics: tuple[TrainingMetric, ...] = ()
    skipped: tuple[str, ...] = ()  # "checkpoint-40: model.safetensors is cut short …"
    notes: tuple[str, ...] = ()  # prefixes that were removed, indexes that were made, equal weights

    @property
    def base(self) -> Checkpoint:
        """The checkpoint that the others are compared with."""
        return self.checkpoints[0]


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One number the audit stands behind, or the reason why there is none.

    ``low``/``high`` bound a 95 % interval over problems unless the measure says otherwise; ``n`` counts the
    units the value rests on (``unit`` is the physical unit of ``value``: nats, probability, tokens, …).
    ``interval_over`` says what the interval takes as independent, None without one; ``why_no_interval`` why related
    problems leave none.
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
            raise ValueError(f"{self.measure}: give a value or the reason why it is unknown, not both or neither")
        for number in (self.value, self.low, self.high):
            if number is not None and not math.isfinite(number):
                raise ValueError(f"{self.measure}: {number} is not a finding; unknown is None with a reason")


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingResponse:
    """One response that the trainer drew on the way to the checkpoint of ``step``, ``draws`` times in its group."""

    step: int
    prompt: str
    text: str
    truncated: bool
    correct: bool
    draws: int = 1


def training_problem(prompt: str) -> Problem:
    """The problem of a training prompt whose answer nobody recorded: its responses can be scored, not graded."""
    return Problem(task="training", prompt=prompt, gold="", verifier="")


@dataclass(frozen=True, kw_only=True)
class VerdictTerms:
    """What a verdict is told that no sample shows.

    ``guess_rate`` is the share of wrong responses that the graders may accept, None where nobody gave one. ``looks`` is
    how often the verdict will be read before training ends, None where nobody knows; of ``runs`` one will be chosen.
    """

    guess_rate: float | None = None
    looks: int | None = 1
    runs: int = 1


@dataclass(frozen=True, kw_only=True)
class AuditKey:
    """What one audit compares: a series, a problem set, sampling settings and how many samples are used.

    ``panel`` counts the responses per problem that the base drew under ``panel_settings_id`` for every checkpoint to
    score, and the own samples of each checkpoint that the base scores. The gradient kernel of each checkpoint holds
    ``kernel_responses`` fixed ones of each of ``kernel_problems`` problems, and as many own samples. ``verifier`` names
    whose grades count, None for each problem's own verifier. ``terms`` are for the verdict alone.
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
    verifier: str | None = None
    terms: VerdictTerms = field(default_factory=VerdictTerms)


#: Formats that a picture can be written in.
PictureFormat = Literal["svg", "png", "pdf"]
PICTURE_FORMATS: tuple[PictureFormat, ...] = get_args(PictureFormat)

#: What a problem seemed to be before it was drawn afresh.
Change = Literal["lost", "gained"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Confirmation:
    """A problem that seemed lost or gained, drawn afresh at the base and at a late checkpoint.

    ``p`` is one-sided, ``p_adjusted`` corrected for all problems that were drawn again with this one.
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
        """Whether fresh samples show the change too, at 5 % over all that were drawn again."""
        return self.p_adjusted <= CONFIRMED_LEVEL
