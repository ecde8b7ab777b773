"""A completion server that computes responses from prompt and seed, and misbehaves at given rates.

``python stub.py PORT '{"429": 0.1, …}'`` serves until it is killed. Faults: a status code, ``hang``, ``cut`` (JSON that
ends early), ``drop`` (a connection that ends early), ``abort``, ``few`` (too few choices), ``empty`` (none). Other
settings: ``single`` (ignores n), ``no_n`` (refuses n), ``wrong`` (a name → the seed of its "weights").
``prompt_fault``: how the log-probabilities of prompts are wrong (``missing``, ``null``, ``short``, ``other``,
``infinite``, ``scaled``, ``refused``), in the first ``n_prompt_faults`` replies, or in all.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from hashlib import blake2b
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

FAULTS = ("408", "409", "429", "500", "503", "hang", "cut", "drop", "abort", "few", "empty")


def tokens_of(weights: str, prompt: Any, seed: int | None, max_tokens: int, *, n_words: int = 8) -> list[int]:
    """Tokens of a response: 2 to 9 until the end token 1."""
    key = json.dumps([weights, prompt, seed])
    draws = random.Random(blake2b(key.encode(), digest_size=8).digest())
    ids: list[int] = []
    while len(ids) < max_tokens and 1 not in ids:
        ids.append(draws.choice([1, *range(2, 2 + n_words)]))
    return ids


class Stub:
    """The server's state: settings, weights behind each model name, and the requests so far."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings
        self.weights: dict[str, str] = dict(settings.get("models", {"m": "m"}))
        self.version = "default"
        self.calls: list[tuple[str, Any]] = []
        self.dice = random.Random(0)
        self.rows: list[tuple[str, int | None]] = []
        self.n_scored = 0

    async def completions(self, request: Request) -> Response:
        body = await request.json()
        self.calls.append((request.url.path, body))
        is_chat = "messages" in body
        body |= {"prompt": body["messages"]} if is_chat else {}
        if (key := self.settings.get("key")) and request.headers.get("authorization") != f"Bearer {key}":
            return JSONResponse({"error": {"message": f"Incorrect API key: {key}"}}, 401)
        if body["model"] not in self.weights:
            return JSONResponse({"error": {"message": f"The model `{body['model']}` does not exist."}}, 404)
        n = body.get("n", 1)
        if n > 1 and body["prompt"] == self.settings.get("broken"):
            return JSONResponse({"error": "broken"}, 500)
        if n > 1 and self.settings.get("no_n"):
            return JSONResponse({"error": {"message": "n must be 1"}}, 400)
        if "prompt_logprobs" in body and self.settings.get("prompt_fault") == "refused":
            return JSONResponse({"error": {"message": "prompt_logprobs is not supported"}}, 400)
        if self.settings.get("html"):
            return Response("<html> <body>Welcome", media_type="text/html")
        await asyncio.sleep(self.settings.get("wait_s", 0.0))
        roll, fault = self.dice.random(), None
        for name in FAULTS:
            roll -= self.settings.get(name, 0.0)
            if fault is None and roll < 0:
                fault = name
        if fault is not None and fault.isdigit():
            return JSONResponse({"error": "busy"}, int(fault), headers={"retry-after": "0.02"})
        if fault == "hang":
            await asyncio.sleep(60)
        n = 1 if self.settings.get("single") else max(1, n - 1) if fault == "few" else n
        choices = [] if fault == "empty" else self.make_choices(body, n)
        if fault == "abort" and choices:
            choices[-1]["finish_reason"] = "abort"
        if is_chat:
            choices = [
                each if "message" in each else each | {"message": {"role": "assistant", "content": each.pop("text")}}
                for each in choices
            ]
        out = json.dumps(
            {
                **({"model": self.settings["named"]} if "named" in self.settings else {}),
                "choices": choices,
                "usage": {
                    "prompt_tokens": min(len(body["prompt"]), self.settings.get("context", 1 << 20)),
                    "completion_tokens": 3 * n,
                },
            }
        )
        if fault == "cut":
            return Response(out[: len(out) // 2], media_type="application/json")
        if fault == "drop":

            async def half() -> Any:
                yield out[: len(out) // 2].encode()

            return StreamingResponse(half(), headers={"content-length": str(len(out))})
        return Response(out, media_type="application/json")

    def make_choices(self, body: dict[str, Any], n: int) -> list[dict[str, Any]]:
        """The responses to a request."""
        return [self._choice(body, place) for place in range(n)]

    def _choice(self, body: dict[str, Any], place: int) -> dict[str, Any]:
        seed = body.get("seed")
        own_seed = None if seed is None else seed + place
        ids = tokens_of(self.weights[body["model"]], body["prompt"], own_seed, body["max_tokens"])
        ended = ids[-1] == 1
        words = ["<pad>", "<eos>", "a", "b", "c", "d", "e", "f", "g", "?"]
        choice = {
            "index": place,
            "text": " ".join(words[token] for token in ids if token > 1),
            "finish_reason": "stop" if ended else "length",
        }
        if body.get("return_token_ids"):
            choice |= {"token_ids": ids, "logprobs": {"token_logprobs": [-token / 10 for token in ids]}}
        if "prompt_logprobs" in body:
            choice |= self._prompt_logprobs(body["prompt"])
        return choice

    def _prompt_logprobs(self, prompt: list[int]) -> dict[str, Any]:
        """The log-probability of a token is that of ``_choice``."""
        self.n_scored += 1
        is_faulty = self.n_scored <= self.settings.get("n_prompt_faults", 1 << 30)
        fault = self.settings.get("prompt_fault") if is_faulty else None
        scale = 30 if fault == "scaled" else 1
        entries: list[Any] = [None, *({str(token): {"logprob": -scale * token / 10}} for token in prompt[1:])]
        if fault == "missing":
            return {}
        if fault == "other":
            entries[-1] = {str(prompt[-1] + 1): entries[-1][str(prompt[-1])]}
        if fault == "infinite":
            entries[-1][str(prompt[-1])]["logprob"] = -9999.0
        return {"prompt_logprobs": None if fault == "null" else entries[:-1] if fault == "short" else entries}

    def app(self) -> Starlette:
        async def models(_: Request) -> Response:
            owner = self.settings.get("owner", "vllm")
            return JSONResponse({"data": [{"id": name, "owned_by": owner} for name in self.weights]})

        async def openapi(_: Request) -> Response:
            return JSONResponse({"paths": {route: {} for route in self.settings.get("routes", [])}})

        async def weights(request: Request) -> Response:
            is_sglang = request.url.path == "/get_model_info"
            return JSONResponse({"model_path": self.weights["m"]} if is_sglang else {"weight_version": self.version})

        async def control(request: Request) -> Response:
            raw = await request.body()
            body = json.loads(raw) if raw else {}
            self.calls.append((request.url.path, body))
            if request.url.path == "/collective_rpc" and body["method"] == "reload_weights":
                if not self.settings.get("stale"):
                    self.weights["m"] = body["kwargs"]["weights_path"]
            elif request.url.path == "/update_weight_version":
                self.version = body["new_version"]
            elif request.url.path == "/update_weights_from_disk":
                self.weights["m"] = body["model_path"]
                return JSONResponse({"success": True, "message": ""})
            elif request.url.path == "/v1/load_lora_adapter":
                self.weights[body["lora_name"]] = body["lora_path"]
            elif request.url.path == "/set":
                self.settings |= body.get("settings", {})
                self.weights |= body.get("weights", {})
            return JSONResponse({})

        controls = ["/pause", "/resume", "/reset_prefix_cache", "/flush_cache", "/collective_rpc", "/set"]
        controls += ["/update_weights_from_disk", "/update_weight_version", "/v1/load_lora_adapter"]
        return Starlette(
            routes=[
                Route("/v1/completions", self.completions, methods=["POST"]),
                Route("/v1/chat/completions", self.completions, methods=["POST"]),
                Route("/v1/models", models),
                Route("/weight_info", weights),
                Route("/get_model_info", weights),
                Route("/openapi.json", openapi),
                Route("/health", lambda _: Response("ok")),
                *[Route(path, control, methods=["POST"]) for path in controls],
            ]
        )


def main() -> None:
    import uvicorn

    settings = json.loads(sys.argv[2]) if len(sys.argv) > 2 else {}
    uvicorn.run(Stub(settings).app(), host="127.0.0.1", port=int(sys.argv[1]), log_level="critical")


if __name__ == "__main__":
    main()
