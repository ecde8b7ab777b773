"""Log-probabilities of given responses from a vLLM server: prompt and response are sent as one prompt."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from oversharp.diagnostics.http.transport import BadReplyError
from oversharp.diagnostics.records.errors import EndpointError
from oversharp.diagnostics.records.types import ForcedResponse
from oversharp.diagnostics.samplers.contract import EncodedResponse
from oversharp.diagnostics.samplers.endpoint.completions import CompletionClient, count_tokens

#: vLLM returns this value for a token of probability 0.
_LEAST_LOGP = -9999.0


class NoScoresError(EndpointError):
    """A server that returns no log-probabilities of prompts."""


@dataclass(frozen=True, kw_only=True)
class ScoreRequest:
    """A response to score by the model ``model`` of a server."""

    model: str
    response: EncodedResponse

    def body(self) -> dict[str, Any]:
        """Return the content of the request.

        vLLM generates at least one token. The log-probabilities of a prompt do not depend on the sampling settings.
        """
        return {
            "model": self.model,
            "prompt": [*self.response.prompt_ids, *self.response.token_ids],
            "max_tokens": 1,
            "temperature": 1.0,
            "prompt_logprobs": 0,  # of the prompt's own tokens only
        }


async def request_scores(client: CompletionClient, request: ScoreRequest) -> ForcedResponse:
    """Return the scores of a response, without entropies.

    Raises ``NoScoresError`` if the server returns no log-probabilities of prompts, ``EndpointError`` if one is not
    finite, or see ``Transport.post``.
    """
    response = request.response

    def check(content: Any) -> tuple[float, ...]:
        logps = read_scores(content, response, url=client.transport.url)
        prompt_tokens, completion_tokens = count_tokens(content)
        client.prompt_tokens += prompt_tokens
        client.completion_tokens += completion_tokens
        return logps

    logps = await client.transport.post("/v1/completions", request.body(), check)
    return ForcedResponse(
        problem_id=response.problem_id,
        response_id=response.response_id,
        # as in an engine here, which sums float32 values
        logp_sum=float(np.array(logps, np.float32).sum(dtype=np.float64)),
        token_logps=logps,
    )


def read_scores(content: Any, response: EncodedResponse, *, url: str) -> tuple[float, ...]:
    """Return the log-probability of each token of ``response``, in nats, from a reply's content.

    The reply has an entry per token of prompt and response: a dict from token id to its log-probability, and null for
    the first token. Raises ``BadReplyError`` unless each entry contains the token that was sent.

    >>> response = EncodedResponse(problem_id="q", response_id="r", prompt_ids=(5,), token_ids=(6, 1))
    >>> entries = [None, {"6": {"logprob": -0.5}}, {"1": {"logprob": -0.25}}]
    >>> read_scores({"choices": [{"prompt_logprobs": entries}]}, response, url="http://a")
    (-0.5, -0.25)
    >>> read_scores({"choices": [{"prompt_logprobs": entries[:2]}]}, response, url="http://a")
    Traceback (most recent call last):
    oversharp.diagnostics.http.transport.BadReplyError: a reply with log-probabilities of 2 of 3 tokens
    """
    choices = content.get("choices") if isinstance(content, dict) else None
    if not (isinstance(choices, list) and len(choices) == 1 and isinstance(choices[0], dict)):
        raise BadReplyError("a reply without choices")
    entries = choices[0].get("prompt_logprobs")
    if not isinstance(entries, list):
        raise NoScoresError(f"{url} returns no prompt_logprobs")
    n_tokens = len(response.prompt_ids) + len(response.token_ids)
    if len(entries) != n_tokens:
        raise BadReplyError(f"a reply with log-probabilities of {len(entries)} of {n_tokens} tokens")
    own_entries = entries[len(response.prompt_ids) :]
    return tuple(_logp_of(token, entry, url=url) for token, entry in zip(response.token_ids, own_entries, strict=True))


def _logp_of(token: int, entry: Any, *, url: str) -> float:
    """Return the log-probability of ``token`` in an entry. Raises ``BadReplyError`` if the entry has only others."""
    of_token = entry.get(str(token)) if isinstance(entry, Mapping) else None
    logp = of_token.get("logprob") if isinstance(of_token, Mapping) else None
    if not isinstance(logp, int | float) or isinstance(logp, bool):
        raise BadReplyError("a reply whose log-probabilities are not those of the prompt's tokens")
    if not math.isfinite(logp) or logp <= _LEAST_LOGP:
        raise EndpointError(
            f"{url}: the server returns a NaN or infinite log-probability; check its weights, or remove this checkpoint"
        )
    return float(logp)
