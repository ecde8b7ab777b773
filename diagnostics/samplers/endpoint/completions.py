"""Requests for completions, and the check that a reply has every response in full."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

from oversharp.diagnostics.http.transport import BadReplyError, RefusedError, Transport
from oversharp.diagnostics.records.errors import EndpointError
from oversharp.diagnostics.records.types import FinishReason

#: Server whose extensions of the API are used. "other" gets only fields that OpenAI documents.
ServerKind = Literal["vllm", "sglang", "other"]

_OTHER_SEEDS = 2**31 - 1
#: Replies with too few responses after which the responses of a request are requested one by one.
MOST_TOO_FEW = 3
#: Prompts whose numbers of tokens are compared.
_LEAST_COUNTED, _MOST_COUNTED = 8, 256


@dataclass(frozen=True, kw_only=True)
class CompletionRequest:
    """``n`` responses to one prompt.

    Attributes:
        model: model name of the server.
        prompt: tokens of the prompt, or its text.
        n: number of responses. Response ``i`` has the seed ``seed + i``.
        seed: seed of the first response, None for a greedy response.
        end_ids: tokens that end a response. Without any, a response has always ``max_tokens`` tokens.
        temperature, top_p, top_k, max_tokens, system_prompt, chat_args: as in ``SamplingSettings``.
        chat: whether the server applies its chat template to the text.
    """

    model: str
    prompt: tuple[int, ...] | str
    n: int
    seed: int | None
    end_ids: tuple[int, ...]
    temperature: float
    top_p: float
    top_k: int
    max_tokens: int
    chat: bool = False
    system_prompt: str = ""
    chat_args: str | None = None

    @property
    def route(self) -> str:
        """The server's route."""
        return "/v1/chat/completions" if self.chat else "/v1/completions"

    def body(self, kind: ServerKind) -> dict[str, Any]:
        """Return the content of the request.

        Settings without effect are also sent. A server could otherwise use those of the model's generation config.
        """
        body: dict[str, Any] = {
            "model": self.model,
            **self._prompt(),
            "max_tokens": self.max_tokens,
            "temperature": self.temperature,
            "top_p": self.top_p,
        }
        if self.n > 1:
            body["n"] = self.n
        if self.seed is not None:
            body["seed"] = self.seed if kind == "vllm" else self.seed % _OTHER_SEEDS  # others have 32 bits
        if kind == "other":
            return body | ({"top_k": self.top_k} if self.top_k else {})
        body |= {"top_k": self.top_k or -1, "min_p": 0.0, "repetition_penalty": 1.0}
        if isinstance(self.prompt, str):  # the server knows the end tokens
            return body | {"return_token_ids": True}
        return body | {
            "ignore_eos": True,  # end_ids has all end tokens, so the server must not add others
            "stop_token_ids": list(self.end_ids),
            "return_token_ids": True,
            "logprobs": 0 if kind == "vllm" else 1,
        }

    def _prompt(self) -> dict[str, Any]:
        if not self.chat:
            return {"prompt": self.prompt if isinstance(self.prompt, str) else list(self.prompt)}
        system = [{"role": "system", "content": self.system_prompt}] if self.system_prompt else []
        more = {} if self.chat_args is None else {"chat_template_kwargs": json.loads(self.chat_args)}
        return {"messages": [*system, {"role": "user", "content": self.prompt}], **more}

    def single_requests(self) -> list[CompletionRequest]:
        """Return one request per response, with the seed of that response."""
        seeds = [None if self.seed is None else self.seed + place for place in range(self.n)]
        return [replace(self, n=1, seed=seed) for seed in seeds]


@dataclass(frozen=True, kw_only=True)
class ServedResponse:
    """One response. ``token_ids`` and their log-probabilities are None if the server returns none."""

    text: str
    finish_reason: FinishReason
    token_ids: tuple[int, ...] | None
    logps: tuple[float, ...] | None


@dataclass(frozen=True, kw_only=True)
class Completion:
    """The responses to one request, and the tokens that the server counted, 0 if it counts none.

    ``model`` is the name of the model that the server gives, None without one.
    """

    responses: tuple[ServedResponse, ...]
    prompt_tokens: int
    completion_tokens: int
    model: str | None = None


class TooFewChoicesError(BadReplyError):
    """A reply has fewer responses than requested."""


class CompletionClient:
    """Requests completions, with several responses per request if the server supports it."""

    def __init__(self, transport: Transport, kind: ServerKind) -> None:
        self.transport = transport
        self.kind = kind
        self.prompt_tokens = self.completion_tokens = 0
        self.other_models: set[str] = set()  # that answered in place of a requested one
        self._counted: dict[str, int] = {}  # prompts as text, and their tokens by the server's count
        self._has_several: bool | None = None  # whether a request may have n > 1, None before the first reply

    async def complete(self, request: CompletionRequest) -> Completion:
        """Return all responses. Raises ``EndpointError``, see ``Transport.post``."""
        if request.n > 1 and self._has_several is not False:
            n_too_few = 0

            def check(content: Any) -> Completion | None:
                nonlocal n_too_few
                try:
                    return read_completion(content, request.n)
                except TooFewChoicesError:
                    n_too_few += 1
                    if self._has_several is None or n_too_few == MOST_TOO_FEW:
                        return None
                    raise

            try:
                result = await self.transport.post(request.route, request.body(self.kind), check)
            except RefusedError as error:
                if error.status not in (400, 422) or self._has_several:
                    raise
                result = None
            if result is not None:
                self._has_several = True
                return self.count(request, result)
        parts = [await self._complete_one(single) for single in request.single_requests()]
        if request.n > 1 and self._has_several is None:
            self._has_several = False
        return Completion(
            responses=tuple(part.responses[0] for part in parts),
            prompt_tokens=sum(part.prompt_tokens for part in parts),
            completion_tokens=sum(part.completion_tokens for part in parts),
        )

    async def _complete_one(self, request: CompletionRequest) -> Completion:
        body = request.body(self.kind)
        completion = await self.transport.post(request.route, body, lambda content: read_completion(content, 1))
        return self.count(request, completion)

    def count(self, request: CompletionRequest, completion: Completion) -> Completion:
        """Add the tokens of a completion, and return it. Raises ``EndpointError`` if its prompt was truncated."""
        n_used = completion.prompt_tokens
        if not isinstance(request.prompt, str) and 0 < n_used < len(request.prompt):
            raise EndpointError(
                f"{self.transport.url}: used only {n_used} of the {len(request.prompt)} tokens of a prompt; raise the "
                "server's context length, or turn off its truncation"
            )
        elif isinstance(request.prompt, str) and len(self._counted) < _MOST_COUNTED:
            self._counted[request.prompt] = n_used
        if completion.model and not completion.model.startswith(request.model):  # such as a name without its date
            self.other_models.add(completion.model)
        self.prompt_tokens += completion.prompt_tokens
        self.completion_tokens += completion.completion_tokens
        return completion

    @property
    def counts_alike(self) -> int | None:
        """Number of tokens that the server counts for each prompt, if it is the same for prompts of unequal length."""
        lengths, counts = [len(text) for text in self._counted], set(self._counted.values())
        is_odd = len(lengths) >= _LEAST_COUNTED and max(lengths) >= 1.5 * min(lengths) and len(counts) == 1
        return next(iter(counts)) or None if is_odd else None


def read_completion(content: Any, n: int) -> Completion:
    """Return the responses of a reply's content, in the order of their indices.

    Raises ``BadReplyError`` unless it has ``n`` complete responses with the indices 0 to ``n`` - 1.

    >>> choice = {"index": 0, "text": "4", "finish_reason": "stop"}
    >>> read_completion({"choices": [choice], "usage": {"completion_tokens": 2}}, 1).completion_tokens
    2
    >>> read_completion({"choices": [choice | {"finish_reason": "abort"}]}, 1)
    Traceback (most recent call last):
    oversharp.diagnostics.http.transport.BadReplyError: a response that ended with 'abort'
    """
    choices = content.get("choices") if isinstance(content, dict) else None
    if not isinstance(choices, list) or not all(isinstance(choice, dict) for choice in choices):
        raise BadReplyError("a reply without choices")
    by_index = {choice.get("index"): choice for choice in choices if isinstance(choice.get("index"), int)}
    if len(choices) < n:
        raise TooFewChoicesError(f"a reply with {len(choices)} of {n} responses")
    if len(choices) > n or by_index.keys() != set(range(n)):
        raise BadReplyError(f"a reply whose choices do not have the indices 0 to {n - 1}")
    prompt_tokens, completion_tokens = count_tokens(content)
    return Completion(
        responses=tuple(_read_choice(by_index[index]) for index in range(n)),
        prompt_tokens=prompt_tokens,
        completion_tokens=completion_tokens,
        model=content["model"] if isinstance(content.get("model"), str) else None,
    )


def count_tokens(content: Mapping[str, Any]) -> tuple[int, int]:
    """Return the numbers of prompt and response tokens that the server counted, 0 if it counts none."""
    usage = content.get("usage")
    usage = usage if isinstance(usage, dict) else {}
    return _count_of(usage.get("prompt_tokens")), _count_of(usage.get("completion_tokens"))


def _read_choice(choice: dict[str, Any]) -> ServedResponse:
    text, reason = choice.get("text"), choice.get("finish_reason")
    if text is None and isinstance(choice.get("message"), dict):
        text = choice["message"].get("content")
    if reason not in ("stop", "length"):
        raise BadReplyError(f"a response that ended with {reason!r}")
    if not isinstance(text, str):
        raise BadReplyError("a response without text")
    token_ids = choice.get("token_ids")
    if token_ids is not None and not (_is_list_of(token_ids, int) and token_ids):
        raise BadReplyError("a response with incorrect token_ids")
    logps = choice["logprobs"].get("token_logprobs") if isinstance(choice.get("logprobs"), dict) else None
    if logps is not None and not (_is_list_of(logps, int | float) and all(map(math.isfinite, logps))):
        logps = None
    if logps is not None and token_ids is not None and len(logps) != len(token_ids):
        raise BadReplyError(f"a response with {len(token_ids)} tokens and {len(logps)} log-probabilities")
    return ServedResponse(
        text=text,
        finish_reason=cast(FinishReason, reason),
        token_ids=None if token_ids is None else tuple(token_ids),
        logps=None if logps is None else tuple(map(float, logps)),
    )


def _is_list_of(values: object, kind: Any) -> bool:
    return isinstance(values, list) and all(
        isinstance(value, kind) and not isinstance(value, bool) for value in cast(Sequence[object], values)
    )


def _count_of(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
