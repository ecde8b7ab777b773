"""A chat server whose model uses a calculator, by a rule of the prompt, the seed and the messages before.

The prompt is "A + B". Settings: ``rule`` (``mixed``, ``loop``, or the name of a tool that each first turn calls),
``refuses_tools`` (as vLLM without a parser of calls: the calls are then in the text), ``most_messages``, ``room``
(largest number of tokens, of which each message has 10), and the faults of the stub.
"""

from __future__ import annotations

import json
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tests.samplers.endpoint.stub import Stub

#: Rule of a first turn by the seed: name and arguments of its calls. None: an answer without a call.
MIXED: tuple[list[tuple[str, str]] | None, ...] = (
    None,
    [("add", '{"a": %s, "b": %s}')],
    [("subtract", '{"a": %s, "b": %s}')],
    [("add", '{"a": %s, "b": %s')],
    [("add", '{"a": 0, "b": 0}'), ("add", '{"a": %s, "b": %s}')],
)


class AgentStub(Stub):
    """The stub with tool calls."""

    async def completions(self, request: Request) -> Response:
        body = await request.json()
        if "tools" in body and self.settings.get("refuses_tools") and body.get("tool_choice") != "none":
            text = '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'
            return JSONResponse({"error": {"message": text}}, 400)
        n_messages = len(body.get("messages", ()))
        n_used = 10 * n_messages + body["max_tokens"]
        if n_messages > self.settings.get("most_messages", 1 << 20) or n_used > self.settings.get("room", 1 << 20):
            return JSONResponse({"error": {"message": "This model's maximum context length is 64 tokens."}}, 400)
        return await super().completions(request)

    def make_choices(self, body: dict[str, Any], n: int) -> list[dict[str, Any]]:
        if "tools" not in body:  # the greedy responses by which the weights are verified
            return super().make_choices(body, n)
        assert n == 1
        messages = body["messages"]
        a, _, b = messages[-1 if len(messages) == 1 else 0]["content"].split()[:3]
        calls = self._calls(body, a, b)
        turn = len([message for message in messages if message["role"] == "assistant"])
        if calls is None or body["max_tokens"] < 3:
            results = [message["content"] for message in messages if message["role"] == "tool"]
            message = {"role": "assistant", "content": f"The answer is {results[-1] if results else 7}."}
            return [{"index": 0, "message": message, "finish_reason": "stop" if body["max_tokens"] >= 3 else "length"}]
        if self.settings.get("refuses_tools"):
            text = "".join(
                f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>\n'
                for name, arguments in calls
            )
            message = {"role": "assistant", "content": text}
            return [{"index": 0, "message": message, "finish_reason": "stop"}]
        listed = [
            {
                "id": f"chatcmpl-{self.dice.random()}-{turn}",  # random, as those of servers
                "type": "function",
                "function": {"name": name, "arguments": arguments},
            }
            for name, arguments in calls
        ]
        message = {"role": "assistant", "content": None, "tool_calls": listed, "refusal": None}
        return [{"index": 0, "message": message, "finish_reason": "tool_calls"}]

    def _calls(self, body: dict[str, Any], a: str, b: str) -> list[tuple[str, str]] | None:
        for message in body["messages"]:
            for call in message.get("tool_calls", ()):
                json.loads(call["function"]["arguments"])  # servers reject a request with other arguments
        rule, is_first = self.settings.get("rule", "mixed"), len(body["messages"]) == 1
        if rule == "loop":
            return [("add", f'{{"a": {a}, "b": {b}}}')]
        if not is_first:
            return None
        if rule != "mixed":
            return [(rule, "{}"), ("add", f'{{"a": {a}, "b": {b}}}')]
        calls = MIXED[(body.get("seed") or 0) % len(MIXED)]
        return calls and [(name, text % (a, b) if "%" in text else text) for name, text in calls]
