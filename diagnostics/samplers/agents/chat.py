"""Requests for one turn of the model to a server's /v1/chat/completions, with the tools of an environment."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec import structs

from oversharp.diagnostics.http.transport import BadReplyError, RefusedError
from oversharp.diagnostics.samplers.endpoint.completions import (
    Completion,
    CompletionClient,
    CompletionRequest,
    TooFewChoicesError,
    count_tokens,
)
from oversharp.diagnostics.trajectories.messages import BadMessageError, read_turns
from oversharp.diagnostics.trajectories.record import Call, Turn
from oversharp.diagnostics.trajectories.transcripts import read_calls

Message = dict[str, Any]
_REFUSED = (400, 413, 422)
_REASONING = ("reasoning_content", "reasoning")
_ENDINGS = ("stop", "length", "tool_calls", "function_call")
_CALL_SIGN = "<tool_call>"
_TEXT_CALLS = (
    "the server parses no tool calls; calls are read from <tool_call> in the text (for vLLM, --enable-auto-tool-choice "
    "and --tool-call-parser make the server parse them)"
)


@dataclass(frozen=True, kw_only=True)
class ChatTurn:
    """A turn of the model: its record, and the message to send with the next request.

    ``is_truncated``: it reached its token limit. ``n_tokens`` is None if the server counts no tokens.
    """

    turn: Turn
    message: Message
    is_truncated: bool
    n_tokens: int | None


class ContextError(Exception):
    """The messages do not fit into the model's context."""


class ToolChat:
    """Requests turns from a server. ``note`` prints a line for the user."""

    def __init__(
        self, client: CompletionClient, tools: Sequence[Mapping[str, Any]], note: Callable[[str], None]
    ) -> None:
        self._client, self._note = client, note
        is_known = client.kind != "other"  # other servers may reject fields that OpenAI does not document
        self._tools = [tool if is_known else _plain_tool(tool) for tool in tools]
        self._reads_text = False

    async def ask(self, request: CompletionRequest, messages: Sequence[Message], *, n_calls: int) -> ChatTurn:
        """Return the next turn. ``n_calls`` is the number of calls before it, from which its calls get their ids.

        Raises ``ContextError`` if the messages are too long, ``EndpointError`` as ``Transport.post``.
        """
        body = {**request.body(self._client.kind), "messages": list(messages), "tools": self._tools}
        body.pop("return_token_ids", None)
        if self._reads_text:
            body["tool_choice"] = "none"

        def check(content: Any) -> tuple[ChatTurn, Completion]:
            return read_chat_turn(content, n_calls=n_calls, sends_reasoning=self._client.kind != "other")

        try:
            turn, usage = await self._client.transport.post(request.route, body, check)
        except RefusedError as error:
            text = str(error).lower()
            if (
                error.status in _REFUSED
                and ("tool choice" in text or "tool_choice" in text)
                and "tool_choice" not in body
            ):
                self._reads_text = True
                self._note(_TEXT_CALLS)
                return await self.ask(request, messages, n_calls=n_calls)
            if error.status in _REFUSED and "context" in text:
                raise ContextError(str(error)) from error
            raise
        self._client.count(request, usage)
        return turn


def read_chat_turn(content: Any, *, n_calls: int, sends_reasoning: bool) -> tuple[ChatTurn, Completion]:
    """Return the turn in a reply, and the tokens that the server counted. Raises ``BadReplyError``.

    >>> message = {"role": "assistant", "content": '<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>'}
    >>> reply = {"choices": [{"message": message, "finish_reason": "stop"}]}
    >>> read_chat_turn(reply, n_calls=0, sends_reasoning=True)[0].turn.calls[0].name
    'add'
    """
    choices = content.get("choices") if isinstance(content, dict) else None
    if not isinstance(choices, list) or not all(isinstance(choice, dict) for choice in choices):
        raise BadReplyError("a reply without choices")
    if len(choices) != 1:
        raise TooFewChoicesError(f"a reply with {len(choices)} of 1 responses")
    reason, message = choices[0].get("finish_reason"), choices[0].get("message")
    if reason not in _ENDINGS:
        raise BadReplyError(f"a response that ended with {reason!r}")
    try:
        turns = read_turns([message])
    except BadMessageError as error:
        raise BadReplyError(f"a reply whose {error}") from None
    if len(turns) != 1 or turns[0].role != "assistant":
        raise BadReplyError("a reply that is no turn of the model")
    prompt_tokens, completion_tokens = count_tokens(content)
    turn = structs.replace(turns[0], extra=None, n_tokens=completion_tokens or None)
    is_text = not turn.calls and _CALL_SIGN in turn.text
    sent: Message = {"role": "assistant", "content": turn.text}
    if is_text:
        read = read_calls(turn.text)
        turn = structs.replace(turn, text=read.text.strip(), calls=read.calls)
    # a server's ids are random; equal trajectories must have equal ids. Mistral's templates require nine characters
    calls = tuple(structs.replace(call, id=f"call{n_calls + place:05d}") for place, call in enumerate(turn.calls))
    turn = structs.replace(turn, calls=calls)
    if calls and not is_text:
        sent["tool_calls"] = [_sent_call(call) for call in calls]
    if sends_reasoning:  # the templates of some models keep the thoughts between calls
        sent |= {name: message[name] for name in _REASONING if isinstance(message.get(name), str)}
    usage = Completion(
        responses=(),
        prompt_tokens=prompt_tokens,
        completion_tokens=completion_tokens,
        model=content["model"] if isinstance(content.get("model"), str) else None,
    )
    return ChatTurn(turn=turn, message=sent, is_truncated=reason == "length", n_tokens=turn.n_tokens), usage


def parse_arguments(call: Call) -> object:
    """Return the arguments of a call as parsed JSON, None if they are none."""
    try:
        return json.loads(call.arguments)
    except (ValueError, RecursionError):
        return None


def _sent_call(call: Call) -> dict[str, Any]:
    """Return a call in OpenAI's form. Servers reject arguments that are no JSON object, so these are wrapped."""
    arguments = call.arguments if isinstance(parse_arguments(call), dict) else json.dumps({"invalid": call.arguments})
    return {"id": call.id, "type": "function", "function": {"name": call.name or "invalid", "arguments": arguments}}


def _plain_tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema without the type of the result, which only some servers accept."""
    return {**tool, "function": {name: value for name, value in tool["function"].items() if name != "return"}}
