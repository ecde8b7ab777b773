"""Greedy responses to a few prompts as a fingerprint of the weights that answer.

A server can return the wrong model without an error: an outdated name, a reload that did nothing, other files under the
same path. So the fingerprint is taken before and after the samples of a checkpoint, and compared between checkpoints.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from oversharp.diagnostics.records.types import content_hash
from oversharp.diagnostics.samplers.endpoint.completions import ServedResponse

#: Stage of the store's events that contain fingerprints.
FINGERPRINT_STAGE = "endpoint answers"
#: Number of prompts, and tokens of each response.
PROMPTS, TOKENS = 4, 16
#: Differences of log-probabilities up to this value can be rounding in half precision, in nats. It is the largest
#: tolerance of the comparison with transformers.
ROUNDING_NATS = 0.5
#: Largest log-probability of a token that another token can equal, with room for rounding.
_MOST_OF_A_TIE = math.log(0.5) + 0.25


@dataclass(frozen=True, kw_only=True)
class GreedyAnswer:
    """A greedy response.

    ``prompt`` is a hash of the prompt. ``token_ids`` and ``logps`` are None if the server returns none.
    """

    prompt: str
    text: str
    token_ids: tuple[int, ...] | None = None
    logps: tuple[float, ...] | None = None

    @property
    def tokens(self) -> tuple[int | str, ...]:
        """Token ids, else the text."""
        return (self.text,) if self.token_ids is None else self.token_ids


@dataclass(frozen=True, kw_only=True)
class AnswerFingerprint:
    """Greedy responses of a served model. ``noise`` is the server's difference between two tries, in nats."""

    answers: tuple[GreedyAnswer, ...]
    noise: float = 0.0

    def as_json(self) -> str:
        """Return the fingerprint as text for the store."""
        return json.dumps(asdict(self), ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> AnswerFingerprint:
        """Read the text of ``as_json``."""
        content = json.loads(text)
        answers: Iterator[dict[str, Any]] = (
            {name: tuple(value) if isinstance(value, list) else value for name, value in row.items()}
            for row in content["answers"]
        )
        return cls(answers=tuple(GreedyAnswer(**row) for row in answers), noise=content["noise"])


def make_answer(prompt: Sequence[int] | str, response: ServedResponse) -> GreedyAnswer:
    """Return the fingerprint of one response."""
    return GreedyAnswer(
        prompt=content_hash(prompt), text=response.text, token_ids=response.token_ids, logps=response.logps
    )


def difference_nats(first: AnswerFingerprint, second: AnswerFingerprint) -> float | None:
    """Return the largest difference of log-probabilities on common prompts, None without common prompts.

    Tokens are compared up to the first that differs. Equal weights choose another token only where two tokens are
    nearly equally likely, so a token with more than about half of the probability shows other weights: the result is
    then infinite. Without log-probabilities the result is 0 if all responses are equal, and infinite if none is:
    rounding changes some responses, not all of them.

    >>> def fingerprint(last, logp):
    ...     answer = GreedyAnswer(prompt="p", text="", token_ids=(3, last), logps=(-0.1, logp))
    ...     return AnswerFingerprint(answers=(answer,))
    >>> round(difference_nats(fingerprint(4, -0.75), fingerprint(5, -0.7)), 2)
    0.05
    >>> difference_nats(fingerprint(4, -0.3), fingerprint(5, -0.7))
    inf
    """
    others = {answer.prompt: answer for answer in second.answers}
    pairs = [(answer, others[answer.prompt]) for answer in first.answers if answer.prompt in others]
    if not pairs:
        return None
    if any(one.logps is None or other.logps is None for one, other in pairs):
        n_same = sum(one.tokens == other.tokens for one, other in pairs)
        return 0.0 if n_same == len(pairs) else math.inf if n_same == 0 else ROUNDING_NATS
    largest = 0.0
    for one, other in pairs:
        for mine, theirs, my_logp, their_logp in zip(
            one.tokens, other.tokens, one.logps or (), other.logps or (), strict=False
        ):
            largest = max(largest, abs(my_logp - their_logp))
            if mine != theirs:
                largest = math.inf if max(my_logp, their_logp) > _MOST_OF_A_TIE else largest
                break
    return largest


def are_alike(first: AnswerFingerprint, second: AnswerFingerprint) -> bool:
    """Return whether two checkpoints give equal responses, within the server's own noise.

    >>> answers = (GreedyAnswer(prompt="p", text="", token_ids=(3, 4), logps=(-0.1, -0.7)),)
    >>> moved = (GreedyAnswer(prompt="p", text="", token_ids=(3, 4), logps=(-0.1, -0.8)),)
    >>> first, second = AnswerFingerprint(answers=answers), AnswerFingerprint(answers=moved)
    >>> are_alike(first, first), are_alike(first, second)
    (True, False)
    """
    others = {answer.prompt: answer.tokens for answer in second.answers}
    if any(answer.tokens != others.get(answer.prompt, answer.tokens) for answer in first.answers):
        return False
    difference = difference_nats(first, second)
    return difference is not None and difference <= max(first.noise, second.noise)
