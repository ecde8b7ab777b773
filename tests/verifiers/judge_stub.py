"""A chat server that judges responses, with planted errors, biases and faults.

It accepts a response whose last number equals the reference in the request ("Reference: 5"). Settings: status codes and
``cut``, ``prose`` (rates of faults), ``no_schema`` (refuses JSON schemas), ``contradicts`` (two verdicts in one reply),
``context`` (most characters), ``dies_after`` (requests until status 500), ``key`` (the API key), ``models``, ``fickle``
(share of verdicts that depend on the seed), ``obeys`` (accepts a response that asks for it), ``likes`` (accepts any
response with this text), ``first`` (accepts if "correct" is listed first).
"""

from __future__ import annotations

import json
import random
import re
from hashlib import blake2b
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

RUBRIC = "Problem: {prompt}\nReference: {answer}\n{response}\nIs the final answer equal to the reference?"
_RESPONSE = re.compile(r"<response (\w+)>\n(.*)\n</response \1>", re.DOTALL)


def request_text(body: dict[str, Any]) -> str:
    return str(body["messages"][-1]["content"])


class JudgeStub:
    """The server's settings, and the requests so far."""

    def __init__(self, **settings: Any) -> None:
        self.settings = settings
        self.bodies: list[dict[str, Any]] = []
        self.dice = random.Random(0)

    async def chat(self, request: Request) -> Response:
        body = await request.json()
        self.bodies.append(body)
        key = self.settings.get("key")
        if key and request.headers.get("authorization") != f"Bearer {key}":
            sent = request.headers.get("authorization", "")
            return JSONResponse({"error": {"message": f"Incorrect API key: {sent}"}}, 401)
        if self.settings.get("no_schema") and "response_format" in body:
            return JSONResponse({"error": {"message": "response_format is not supported"}}, 400)
        if len(request_text(body)) > self.settings.get("context", 10**9):
            return JSONResponse({"error": {"message": "maximum context length is 4096 tokens"}}, 400)
        if len(self.bodies) > self.settings.get("dies_after", 10**9):
            return JSONResponse({"error": "out of memory"}, 500)
        roll = self.dice.random()
        for fault in ("429", "500", "cut", "prose"):
            roll -= self.settings.get(fault, 0.0)
            if roll < 0:
                break
        else:
            fault = ""
        if fault.isdigit():
            return JSONResponse({"error": "busy"}, int(fault), headers={"retry-after": "0.01"})
        text = "I think it is probably fine." if fault == "prose" else self._reply(body)
        out = json.dumps({"choices": [{"message": {"content": text}, "finish_reason": "stop"}]})
        return Response(out[: len(out) // 2] if fault == "cut" else out, media_type="application/json")

    def _reply(self, body: dict[str, Any]) -> str:
        verdict = "correct" if self._accepts(body) else "incorrect"
        if self.settings.get("contradicts"):
            return "Verdict: correct\nOn reflection:\nVerdict: incorrect"
        if "response_format" in body:
            return json.dumps({"reason": "it is so", "verdict": verdict})
        return f"The numbers were compared.\n\n**Verdict: {verdict.upper()}**"

    def _accepts(self, body: dict[str, Any]) -> bool:
        request = request_text(body)
        found = _RESPONSE.search(request)
        assert found is not None
        response, instruction = found[2], request[found.end() :]
        key = blake2b(json.dumps([response, body["seed"]]).encode(), digest_size=8).digest()
        if random.Random(key).random() < self.settings.get("fickle", 0.0):
            return random.Random(key[::-1]).random() < 0.5
        if self.settings.get("obeys") and "ignore the rubric" in response.lower():
            return True
        if self.settings.get("likes") and self.settings["likes"] in response:
            return True
        if self.settings.get("first"):
            return "correct or incorrect" in instruction
        numbers = re.findall(r"-?\d+", response)
        gold = re.search(r"Reference: (\S+)", request)
        return bool(numbers) and gold is not None and numbers[-1] == gold[1]

    def app(self) -> Starlette:
        async def models(_: Request) -> Response:
            return JSONResponse({"data": [{"id": name} for name in self.settings.get("models", ["j"])]})

        return Starlette(
            routes=[Route("/v1/chat/completions", self.chat, methods=["POST"]), Route("/v1/models", models)]
        )
