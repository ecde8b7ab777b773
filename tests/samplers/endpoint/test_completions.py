"""The client of a completion server: every response once and unchanged, also from a faulty server."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from oversharp.diagnostics.http import transport as transport_module
from oversharp.diagnostics.http.pace import AdaptiveGate, RequestLimits
from oversharp.diagnostics.http.transport import BadReplyError, RefusedError, Transport
from oversharp.diagnostics.records.errors import ConfigError, EndpointError
from oversharp.diagnostics.samplers.endpoint.completions import (
    CompletionClient,
    CompletionRequest,
    ServerKind,
    read_completion,
)
from tests.samplers.endpoint.serving import StubProcess, stub_server
from tests.samplers.endpoint.stub import tokens_of

QUICK = RequestLimits(concurrent=16, timeout_s=0.3, tries=12, patience_s=0.0, backoff_s=0.01, most_backoff_s=0.05)


def request(place: int, n: int = 4) -> CompletionRequest:
    return CompletionRequest(
        model="m", prompt=(2, 3 + place), n=n, seed=100 * place, end_ids=(1,), temperature=1.0, top_p=1.0, top_k=0,
        max_tokens=8,
    )  # fmt: skip


def expected(asked: CompletionRequest) -> list[tuple[int, ...]]:
    seeds = [(asked.seed or 0) + place for place in range(asked.n)]
    return [tuple(tokens_of("m", list(asked.prompt), seed, asked.max_tokens)) for seed in seeds]


def rows(client: CompletionClient, asked: list[CompletionRequest]) -> dict[int, list[tuple[int, ...] | None]]:
    results: dict[int, list[tuple[int, ...] | None]] = {}
    for one, completion in client.transport.stream(asked, client.complete):
        assert asked.index(one) not in results  # no request is answered twice
        results[asked.index(one)] = [choice.token_ids for choice in completion.responses]
    return results


@pytest.fixture
def opened() -> Iterator[Any]:
    """Open clients, which are closed after the test."""
    clients: list[Transport] = []

    def open_client(
        url: str, kind: ServerKind = "vllm", limits: RequestLimits = QUICK, **more: Any
    ) -> CompletionClient:
        clients.append(Transport(url, limits=limits, **more))
        return CompletionClient(clients[-1], kind)

    yield open_client
    for each in clients:
        each.close()


FAULTS = {"429": 0.1, "500": 0.05, "hang": 0.01, "cut": 0.03, "drop": 0.03, "abort": 0.03, "few": 0.03, "409": 0.02}


@pytest.mark.slow
def test_every_response_arrives_once_and_unchanged_from_a_server_with_all_faults(opened: Any) -> None:
    asked = [request(place) for place in range(400)]
    with stub_server(**FAULTS) as (url, stub):
        client = opened(url)
        found = rows(client, asked)
    assert found == {place: expected(one) for place, one in enumerate(asked)}
    assert len(stub.calls) > 480  # faults of a fifth of the requests were repeated
    assert {"status 429", "status 500", "no reply in 0.3 s"} <= set(client.transport.faults)


def test_a_server_without_faults_gets_each_request_once(opened: Any) -> None:
    asked = [request(place) for place in range(20)]
    with stub_server() as (url, stub):
        client = opened(url)
        assert rows(client, asked) == {place: expected(one) for place, one in enumerate(asked)}
    assert len(stub.calls) == 20
    assert not client.transport.faults
    assert (client.prompt_tokens, client.completion_tokens) == (40, 240)


@pytest.mark.slow
def test_a_server_that_is_killed_and_restarted_loses_nothing(opened: Any) -> None:
    server = StubProcess(wait_s=0.02)
    limits = RequestLimits(concurrent=8, timeout_s=2.0, tries=3, patience_s=60.0, backoff_s=0.05, most_backoff_s=0.2)
    asked = [request(place) for place in range(300)]
    results: dict[int, Any] = {}
    client = opened(server.url, limits=limits)
    try:
        for one, completion in client.transport.stream(asked, client.complete):
            assert asked.index(one) not in results
            results[asked.index(one)] = [choice.token_ids for choice in completion.responses]
            if len(results) in (50, 150):
                server.kill()
                time.sleep(0.3)
                server.start()
    finally:
        server.kill()
    assert results == {place: expected(one) for place, one in enumerate(asked)}


@pytest.mark.parametrize("server", [{"single": True}, {"no_n": True}])
def test_a_server_without_n_gets_a_request_per_response_with_the_same_seeds(opened: Any, server: dict) -> None:
    asked = [request(place) for place in range(5)]
    with stub_server(**server) as (url, stub):
        client = opened(url)
        assert rows(client, asked) == {place: expected(one) for place, one in enumerate(asked)}
        before = len(stub.calls)
        later = [request(9)]
        assert rows(client, later) == {0: expected(later[0])}
        assert len(stub.calls) == before + 4  # n is not tried again
    assert {body.get("n", 1) for _, body in stub.calls[before:]} == {1}


def test_a_refused_key_or_model_is_one_line_without_the_key_and_is_not_repeated(opened: Any) -> None:
    with stub_server(key="sk-right") as (url, stub):
        with pytest.raises(RefusedError) as raised:
            rows(opened(url, api_key="sk-wrong", key_name="MY_KEY"), [request(0)])
        assert "MY_KEY" in str(raised.value)
        assert "--api-key-env" in str(raised.value)
        assert "sk-" not in str(raised.value)
        right = opened(url, api_key="sk-right")
        with pytest.raises(RefusedError, match=r"The model `x` does not exist.*--model"):
            rows(right, [CompletionRequest(**{**vars(request(0)), "model": "x"})])
        assert rows(right, [request(0)]) == {0: expected(request(0))}
    assert len(stub.calls) == 3


def test_a_server_that_stays_broken_ends_with_the_last_fault(opened: Any) -> None:
    limits = RequestLimits(tries=3, patience_s=0.0, backoff_s=0.001)
    with stub_server(**{"500": 1.0}) as (url, stub), pytest.raises(EndpointError, match=r"failed 3 times .*status 500"):
        rows(opened(url, limits=limits), [request(0)])
    assert len(stub.calls) == 3


def test_no_server_at_the_url_is_one_line(opened: Any) -> None:
    client = opened("http://127.0.0.1:9/v1")
    with pytest.raises(EndpointError, match=r"^http://127\.0\.0\.1:9: no server answers .*; start it"):
        client.transport.run(client.transport.get("/v1/models"))


def test_an_early_stop_cancels_unfinished_requests(opened: Any) -> None:
    with stub_server(wait_s=0.05) as (url, stub):
        client = opened(url)
        stream = client.transport.stream((request(place) for place in range(10_000)), client.complete)
        next(stream)
        stream.close()
        time.sleep(0.1)  # the sent requests arrive
        sent = len(stub.calls)
        time.sleep(0.2)
        assert len(stub.calls) == sent < 100


def test_a_slow_reader_bounds_the_requests_that_are_sent(opened: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport_module, "MOST_UNREAD", 8)
    asked = [request(place, n=1) for place in range(60)]
    with stub_server() as (url, stub):
        client = opened(url)
        stream = client.transport.stream(asked, client.complete)
        results = [next(stream)[0]]
        time.sleep(0.15)
        assert len(stub.calls) <= 8 + 2 * QUICK.concurrent
        results += [one for one, _ in stream]
    assert sorted(map(asked.index, results)) == list(range(60))


def test_a_proxy_variable_has_no_effect(opened: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with stub_server() as (url, _):
        assert rows(opened(url), [request(0)]) == {0: expected(request(0))}


def test_a_missing_aiohttp_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "aiohttp", None)
    with pytest.raises(ConfigError, match=r"aiohttp is not installed; pip install '\.\[endpoint\]'"):
        Transport("http://127.0.0.1:9", limits=QUICK)


def test_the_gate_doubles_then_halves_once_per_overload_then_grows_slowly() -> None:
    gate = AdaptiveGate(64)
    assert gate.limit == 8
    for _ in range(8):
        gate.grow()
    assert gate.limit == 16
    gate.halve(0)
    gate.halve(0)  # sent before the cut
    assert gate.limit == 8
    for _ in range(9):
        gate.grow()
    assert gate.limit == 9
    for _ in range(9):
        gate.halve(gate._n_cuts)
    assert gate.limit == 1


def test_no_more_requests_than_the_limit_are_active_and_a_cancelled_one_frees_its_place() -> None:
    async def most_active() -> int:
        gate, active, most = AdaptiveGate(3), 0, 0

        async def enter() -> None:
            nonlocal active, most
            async with gate.enter():
                active += 1
                most = max(most, active)
                await asyncio.sleep(0.001)
                active -= 1

        tasks = [asyncio.create_task(enter()) for _ in range(30)]
        await asyncio.sleep(0)
        for task in tasks[4:10]:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.wait_for(enter(), timeout=1.0)
        return most

    with ThreadPoolExecutor(1) as pool:  # another test may have left an event loop in this thread
        assert pool.submit(lambda: asyncio.run(most_active())).result() == 3


CHOICE = {
    "index": 0,
    "text": "a",
    "finish_reason": "stop",
    "token_ids": [2, 1],
    "logprobs": {"token_logprobs": [-1, 0.0]},
}


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ([], "without choices"),
        ({"choices": []}, "0 of 1 responses"),
        ({"choices": [CHOICE, CHOICE]}, "indices"),
        ({"choices": [CHOICE | {"index": 1}]}, "indices"),
        ({"choices": [CHOICE | {"text": None}]}, "without text"),
        ({"choices": [CHOICE | {"finish_reason": None}]}, "ended with None"),
        ({"choices": [CHOICE | {"token_ids": []}]}, "incorrect token_ids"),
        ({"choices": [CHOICE | {"token_ids": [2, "x"]}]}, "incorrect token_ids"),
        ({"choices": [CHOICE | {"token_ids": [2]}]}, "1 tokens and 2 log-probabilities"),
    ],
)
def test_an_incomplete_reply_is_refused_with_its_fault(content: Any, fault: str) -> None:
    assert read_completion({"choices": [CHOICE]}, 1).responses[0].logps == (-1.0, 0.0)
    with pytest.raises(BadReplyError, match=fault):
        read_completion(content, 1)


def test_a_chat_request_has_turns_and_its_reply_a_message(opened: Any) -> None:
    asked = replace(
        request(0, n=2), prompt="2 + 2?", chat=True, system_prompt="Be brief.", chat_args='{"think": false}'
    )
    turns = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "2 + 2?"}]
    with stub_server(owner="openai") as (url, stub):
        client = opened(url, "other")
        ((_, completion),) = client.transport.stream([asked], client.complete)
    assert [path for path, _ in stub.calls] == ["/v1/chat/completions"]
    assert stub.calls[0][1]["messages"] == turns
    assert stub.calls[0][1]["chat_template_kwargs"] == {"think": False}
    assert [response.token_ids for response in completion.responses] == [None, None]
    assert all(response.text for response in completion.responses)


def test_closing_twice_ends_the_thread(opened: Any) -> None:
    client = opened("http://127.0.0.1:9")
    client.transport.close()
    client.transport.close()
    assert "oversharp-endpoint" not in {thread.name for thread in threading.enumerate()}
