"""The sampler "endpoint" with a stub server: right samples from the right weights, or an error."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from threading import Timer
from typing import Any

import pytest

from oversharp.diagnostics.http.prices import TokenPrices, money_text
from oversharp.diagnostics.models.encoders import load_encoder
from oversharp.diagnostics.models.tokens import encode_prompt
from oversharp.diagnostics.records.errors import ConfigError, EndpointError
from oversharp.diagnostics.records.types import Checkpoint, Sample, SamplingSettings
from oversharp.diagnostics.samplers import SampleRequest
from oversharp.diagnostics.samplers.contract import row_key
from oversharp.diagnostics.samplers.endpoint import keeper
from oversharp.diagnostics.samplers.endpoint.fingerprint import AnswerFingerprint, are_alike
from oversharp.diagnostics.samplers.endpoint.places import EndpointSettings, ServedPlace
from oversharp.diagnostics.samplers.endpoint.sampler import EndpointSampler
from tests.samplers.endpoint.conftest import LIMITS
from tests.samplers.endpoint.serving import StubProcess, stub_server
from tests.samplers.endpoint.stub import tokens_of
from tests.samplers.tiny_models import load, problem

SETTINGS = SamplingSettings(sampler="endpoint", max_tokens=8)
PROBLEMS = [problem("a b"), problem("c d e"), problem("f"), problem("g a")]
VLLM = ["/pause", "/resume", "/collective_rpc", "/reset_prefix_cache"]
STUB = str(Path(__file__).with_name("stub.py"))


def requests(n: int = 6, problems: Sequence[Any] = PROBLEMS) -> list[SampleRequest]:
    return [SampleRequest(problem=one, sample_indices=tuple(range(n)), greedy=True) for one in problems]


def draw(
    sampler: EndpointSampler, checkpoint: Checkpoint, asked: Sequence[SampleRequest] | None = None
) -> list[Sample]:
    return [sample for batch in sampler.sample(checkpoint, asked or requests(), SETTINGS) for sample in batch]


def expected_ids(weights: str, checkpoint: Checkpoint, sample: Sample) -> tuple[int, ...]:
    one = next(each for each in PROBLEMS if each.problem_id == sample.problem_id)
    prompt = list(encode_prompt(load_encoder(checkpoint).tokenizer, one, SETTINGS))
    seed = row_key(0, checkpoint.checkpoint_id, one.problem_id) % (1 << 62) + sample.sample_index
    return tuple(tokens_of(weights, prompt, None if sample.greedy else seed, 8))


def test_an_encoder_equals_the_loaded_model(tiny_checkpoint: Path) -> None:
    checkpoint = Checkpoint(step=0, label="a", path=tiny_checkpoint, kind="full", weights_hash="h")
    encoder, loaded = load_encoder(checkpoint), load(tiny_checkpoint)
    assert encoder.end_ids == loaded.end_ids == (1,)
    assert (encoder.context_tokens, encoder.vocabulary_size) == (loaded.context_tokens, loaded.vocabulary_size)


def test_samples_have_the_seed_of_their_index_and_the_name_of_their_step(
    opened: Any, checkpoints: list[Checkpoint]
) -> None:
    with stub_server(models={"m-0": "zero", "m-20": "twenty"}) as (url, _):
        sampler = opened(ServedPlace(url=url, model="m-{step}", how="names"))
        for weights, checkpoint in zip(("zero", "twenty"), checkpoints, strict=False):
            samples = draw(sampler, checkpoint)
            assert len({(one.problem_id, one.greedy, one.sample_index) for one in samples}) == len(samples) == 4 * 7
            for one in samples:
                assert one.token_ids == expected_ids(weights, checkpoint, one)
                assert one.finish_reason == ("stop" if one.token_ids[-1] == 1 else "length")
                assert one.logp_sum_raw == pytest.approx(-sum(one.token_ids) / 10, abs=1e-6)
        # the same samples in other runs: those that a continued audit lacks
        one = SampleRequest(problem=PROBLEMS[1], sample_indices=(2, 3, 5))
        again = draw(sampler, checkpoints[1], [one])
        assert {sample.token_ids for sample in again} <= {sample.token_ids for sample in samples}
        assert sorted(sample.sample_index for sample in again) == [2, 3, 5]
        with pytest.raises(EndpointError, match=r"model 'm-40': .* has only m-0, m-20"):
            draw(sampler, checkpoints[2])


def test_two_problems_with_the_same_prompt_have_a_greedy_response_each(
    opened: Any, checkpoints: list[Checkpoint]
) -> None:
    same = [PROBLEMS[0], replace(PROBLEMS[0], gold="another")]
    with stub_server() as (url, _):
        samples = draw(opened(ServedPlace(url=url, how="names")), checkpoints[0], requests(1, same))
    assert len({(one.problem_id, one.greedy) for one in samples}) == len(samples) == 4


def test_a_server_without_token_ids_gives_texts_with_a_note(opened: Any, checkpoints: list[Checkpoint]) -> None:
    with stub_server(owner="openai") as (url, stub):
        sampler = opened(ServedPlace(url=url, how="names"))
        samples = draw(sampler, checkpoints[0])
    assert {one.logp_sum_raw for one in samples} == {None}
    words = {sample.token_ids: sample.text for sample in samples}
    tokenizer = load_encoder(checkpoints[0]).tokenizer
    assert all(tokenizer.decode(list(ids), skip_special_tokens=True) == text for ids, text in words.items())
    assert [note.partition(":")[0] for note in sampler.notes] == ["the server returns no token ids"]
    assert not {"return_token_ids", "top_k", "ignore_eos"} & {key for _, body in stub.calls for key in body}


def test_vllm_reloads_weights_between_pause_and_resume(opened: Any, checkpoints: list[Checkpoint]) -> None:
    with stub_server(routes=VLLM) as (url, stub):
        sampler = opened(ServedPlace(url=url))
        for checkpoint in checkpoints[:2]:
            for one in draw(sampler, checkpoint):
                assert one.token_ids == expected_ids(str(checkpoint.path.resolve()), checkpoint, one)
            draw(sampler, checkpoint, requests(1))  # the panel or a round: no second reload
        control = [path for path, _ in stub.calls if path != "/v1/completions"]
    # the paths of the symbolic links are the same, the hashes are not
    assert control == ["/pause", "/collective_rpc", "/collective_rpc", "/reset_prefix_cache", "/resume"] * 2


def test_sglang_reloads_weights(opened: Any, checkpoints: list[Checkpoint]) -> None:
    with stub_server(routes=["/update_weights_from_disk"], owner="sglang") as (url, stub):
        draw(opened(ServedPlace(url=url)), checkpoints[0])
        control = [(path, body) for path, body in stub.calls if path != "/v1/completions"]
    assert control == [
        ("/update_weights_from_disk", {"model_path": str(checkpoints[0].path.resolve())}),
        ("/flush_cache", {}),
    ]


@pytest.mark.slow
def test_adapters_have_a_name_each_and_are_loaded_once(
    opened: Any, checkpoints: list[Checkpoint], tiny_checkpoint: Path
) -> None:
    base, *others = checkpoints
    adapters = [replace(one, kind="lora", base_path=tiny_checkpoint) for one in others]
    with stub_server(routes=["/v1/load_lora_adapter"]) as (url, stub):
        sampler = opened(ServedPlace(url=url))
        for weights, checkpoint in [("m", base), *((str(one.path.resolve()), one) for one in adapters)]:
            assert all(one.token_ids == expected_ids(weights, checkpoint, one) for one in draw(sampler, checkpoint))
        draw(sampler, adapters[0])
        loads = [body["lora_name"] for path, body in stub.calls if path == "/v1/load_lora_adapter"]
        assert loads == ["checkpoint-20-hash20", "checkpoint-40-hash40"]
        with pytest.raises(EndpointError, match=r"checkpoint-20: .* cannot load other weights; pass --model"):
            draw(sampler, others[0])


def test_a_server_that_cannot_load_other_weights_is_one_line(opened: Any, checkpoints: list[Checkpoint]) -> None:
    with (
        stub_server() as (url, _),
        pytest.raises(EndpointError, match=r"cannot load other weights; .*\{step\}.* VLLM_SERVER_DEV_MODE=1"),
    ):
        draw(opened(ServedPlace(url=url)), checkpoints[0])


def test_a_server_with_its_first_weights_again_is_noticed_and_then_reloaded(
    opened: Any, checkpoints: list[Checkpoint]
) -> None:
    with stub_server(routes=VLLM) as (url, stub):
        sampler = opened(ServedPlace(url=url))
        batches = sampler.sample(checkpoints[0], requests(300), SETTINGS)
        next(batches)
        stub.weights["m"] = "m"  # as after a restart
        with pytest.raises(EndpointError, match="greedy responses changed"):
            list(batches)
        weights = str(checkpoints[0].path.resolve())
        assert all(one.token_ids == expected_ids(weights, checkpoints[0], one) for one in draw(sampler, checkpoints[0]))


@pytest.mark.slow
def test_no_sample_of_a_server_that_restarted_with_other_weights_is_kept(
    opened: Any, checkpoints: list[Checkpoint]
) -> None:
    server = StubProcess(routes=VLLM, wait_s=0.02)
    try:
        sampler = opened(ServedPlace(url=server.url), limits=replace(LIMITS, patience_s=60.0))
        batches = sampler.sample(checkpoints[0], requests(2000), SETTINGS)
        kept = list(next(batches))
        server.kill()  # with requests on their way
        server.start()  # its weights are "m" again
        with pytest.raises(EndpointError, match=r"greedy responses changed .*; no sample of the new weights was kept"):
            kept.extend(sample for batch in batches for sample in batch)
        rest = draw(sampler, checkpoints[0])  # reloads the weights
    finally:
        server.kill()
    weights = str(checkpoints[0].path.resolve())
    assert len(kept) >= 256
    assert all(one.token_ids == expected_ids(weights, checkpoints[0], one) for one in (*kept, *rest))


@pytest.mark.slow
def test_a_server_that_restarts_between_the_reload_and_the_first_answer_is_reloaded(
    opened: Any, checkpoints: list[Checkpoint], monkeypatch: pytest.MonkeyPatch
) -> None:
    server, answer = StubProcess(routes=VLLM), EndpointSampler._answer
    n_answers = 0

    def restarted(self: EndpointSampler, *given: Any) -> AnswerFingerprint:
        nonlocal n_answers
        n_answers += 1
        if n_answers == 1:
            server.kill()
            Timer(0.5, server.start).start()  # its weights are "m"
        return answer(self, *given)

    monkeypatch.setattr(EndpointSampler, "_answer", restarted)
    try:
        sampler = opened(ServedPlace(url=server.url), limits=replace(LIMITS, patience_s=60.0))
        samples = draw(sampler, checkpoints[0])
    finally:
        server.kill()
    weights = str(checkpoints[0].path.resolve())
    assert all(one.token_ids == expected_ids(weights, checkpoints[0], one) for one in samples)


@pytest.mark.parametrize("kind", ["vllm", "sglang"])
def test_a_server_that_no_longer_names_the_loaded_weights_is_an_error(
    kind: str, opened: Any, checkpoints: list[Checkpoint], monkeypatch: pytest.MonkeyPatch
) -> None:
    routes = [*VLLM, "/update_weight_version", "/weight_info"]
    if kind == "sglang":
        routes = ["/update_weights_from_disk", "/get_model_info"]
    with stub_server(routes=routes, owner=kind) as (url, stub):
        draw(opened(ServedPlace(url=url)), checkpoints[0])  # as it should be
        sampler = opened(ServedPlace(url=url))
        batches = sampler.sample(checkpoints[0], requests(300), SETTINGS)
        next(batches)
        monkeypatch.setattr(sampler, "_require_same", lambda *given, **more: None)  # the same greedy responses
        stub.version, stub.weights["m"] = "default", "first weights"
        with pytest.raises(EndpointError, match="checkpoint-0: the server's greedy responses changed"):
            list(batches)


def test_weights_that_are_replaced_while_a_checkpoint_is_sampled_are_an_error(
    opened: Any, checkpoints: list[Checkpoint]
) -> None:
    with stub_server() as (url, stub):
        sampler = opened(ServedPlace(url=url, how="names"))
        batches = sampler.sample(checkpoints[0], requests(300), SETTINGS)
        next(batches)
        stub.weights["m"] = "other"
        with pytest.raises(EndpointError, match="checkpoint-0: the server's greedy responses changed"):
            list(batches)
        stages = [report.stage for report in sampler.take_reports()]
        assert stages == ["endpoint answers", "endpoint usage"]
        stub.weights["m"] = "m"
        draw(sampler, checkpoints[0])
        stub.weights["m"] = "other"
        with pytest.raises(EndpointError, match="greedy responses changed"):  # at the next start
            draw(sampler, checkpoints[0])


def test_the_price_of_tokens_is_stored_and_printed(opened: Any, checkpoints: list[Checkpoint]) -> None:
    with stub_server(models={"m": "m"}) as (url, _):
        sampler = opened(ServedPlace(url=url, how="names"), prices=TokenPrices(prompt=1e4, response=1e6))
        draw(sampler, checkpoints[0])
        (usage,) = [json.loads(report.note) for report in sampler.take_reports() if "usage" in report.stage]
        sampler.close()
    assert usage["cost"] == pytest.approx(usage["prompt_tokens"] / 100 + usage["completion_tokens"])
    assert sampler.notes[-1] == f"cost of the server's tokens in this run, by --prices: {money_text(usage['cost'])}"


def test_a_server_that_was_never_right_ends_the_audit_soon(opened: Any, checkpoints: list[Checkpoint]) -> None:
    with (
        stub_server(models={"m": "m"}, html=True) as (url, _),
        pytest.raises(
            EndpointError, match=r"8 replies failed, the last is .* JSON \(it begins '<html> <body>Welcome'\)"
        ),
    ):
        draw(opened(ServedPlace(url=url, how="names"), limits=replace(LIMITS, patience_s=600.0)), checkpoints[0])


def test_another_model_in_the_replies_is_a_warning(opened: Any, checkpoints: list[Checkpoint]) -> None:
    for named, is_other in (("gpt-zzz", True), ("m", False), ("m-2026-01-01", False)):
        with stub_server(models={"m": "m"}, named=named) as (url, _):
            sampler = opened(ServedPlace(url=url, how="names"))
            draw(sampler, checkpoints[0])
        assert any("the responses name gpt-zzz" in note for note in sampler.notes) is is_other
        usage = json.loads(sampler.take_reports()[-1].note)
        assert usage["answered_as"] == ([named] if is_other else [])


def test_a_server_that_truncates_prompts_is_an_error(opened: Any, checkpoints: list[Checkpoint]) -> None:
    with (
        stub_server(models={"m": "m"}, context=1) as (url, _),
        pytest.raises(EndpointError, match=r"used only 1 of the \d tokens of a prompt; raise the server's context"),
    ):
        draw(opened(ServedPlace(url=url, how="names")), checkpoints[0])


def test_responses_that_arrived_before_a_request_failed_are_kept(opened: Any, checkpoints: list[Checkpoint]) -> None:
    broken = list(encode_prompt(load_encoder(checkpoints[0]).tokenizer, PROBLEMS[2], SETTINGS))
    kept: list[Sample] = []
    with stub_server(broken=broken) as (url, _):
        batches = opened(ServedPlace(url=url, how="names")).sample(checkpoints[0], requests(), SETTINGS)
        with pytest.raises(EndpointError, match=r"failed 8 times .* status 500"):
            kept.extend(one for batch in batches for one in batch)
    assert sum(one.problem_id == PROBLEMS[2].problem_id for one in kept) == 1  # the greedy one
    assert len(kept) == 3 * 7 + 1


def test_fingerprints_of_checkpoints_differ_unless_the_reload_did_nothing(
    opened: Any, checkpoints: list[Checkpoint]
) -> None:
    for settings, alike in (({}, False), ({"stale": True}, True)):
        prints = []
        with stub_server(routes=VLLM, **settings) as (url, _):
            sampler = opened(ServedPlace(url=url))
            for checkpoint in checkpoints[:2]:
                path = checkpoint.path.with_name(f"of-{checkpoint.label}-{alike}")
                path.mkdir()
                for file in checkpoint.path.iterdir():
                    (path / file.name).symlink_to(file)
                draw(sampler, replace(checkpoint, path=path))
                (answers, usage) = sampler.take_reports()
                prints.append(AnswerFingerprint.from_json(answers.note))
                assert json.loads(usage.note)["requests"] == 2 * 4 + 4 + 4
                assert json.loads(usage.note)["completion_tokens"] == 3 * (2 * 4 + 4 + 4 * 6)
        assert are_alike(*prints) is alike


def test_a_server_with_other_weights_than_the_files_is_an_error(opened: Any, checkpoints: list[Checkpoint]) -> None:
    with stub_server() as (url, _):
        sampler = opened(ServedPlace(url=url, how="names"), compares_weights=True)
        with pytest.raises(EndpointError, match=r"checkpoint-0: log-probabilities of the server differ by up to"):
            draw(sampler, checkpoints[0])


@pytest.mark.slow
def test_a_command_serves_each_checkpoint_and_is_stopped(
    opened: Any, checkpoints: list[Checkpoint], tmp_path: Path
) -> None:
    models = '{{"models": {{"m": "{path}"}}}}'
    place = ServedPlace(serve=f"{sys.executable} {STUB} {{port}} '{models}'", how="serve")
    sampler = opened(place, log_folder=tmp_path / "logs")
    for checkpoint in checkpoints[:2]:
        samples = draw(sampler, checkpoint)
        assert all(one.token_ids == expected_ids(str(checkpoint.path.resolve()), checkpoint, one) for one in samples)
        command = sampler._placement._command[1]
        assert command.is_running
    sampler.rest()
    assert not command.is_running
    assert sorted(file.name for file in (tmp_path / "logs").iterdir()) == ["checkpoint-0.log", "checkpoint-20.log"]
    broken = opened(
        ServedPlace(serve=f"{sys.executable} -c 'exit(\"no weights in {{path}}, {{port}}\")'", how="serve"),
        log_folder=tmp_path / "logs",
    )
    with pytest.raises(EndpointError, match=r"ended with exit code 1 before it answered \(no weights in .*\); see"):
        draw(broken, checkpoints[2])


@pytest.mark.slow
def test_a_server_that_answers_before_the_command_is_not_mistaken_for_it(
    opened: Any, checkpoints: list[Checkpoint], tmp_path: Path
) -> None:
    with stub_server() as (url, _):
        place = ServedPlace(url=url, serve=f"{sys.executable} {STUB} 1 # {{path}}", how="serve")
        with pytest.raises(EndpointError, match="a server answers before --serve starts one"):
            draw(opened(place, log_folder=tmp_path), checkpoints[0])


@pytest.mark.slow
def test_the_server_of_a_killed_parent_ends() -> None:
    code = (
        "import os, subprocess, sys, time\n"
        f"child = subprocess.Popen([sys.executable, {keeper.__file__!r}, str(os.getpid()), 'sleep', '60'])\n"
        "time.sleep(0.7)\n"
        "print(subprocess.run(['pgrep', '-P', str(child.pid)], capture_output=True, text=True).stdout, flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout
    server = int(printed.split()[0])
    for _ in range(100):
        if not Path(f"/proc/{server}").exists():
            break
        time.sleep(0.1)
    assert not Path(f"/proc/{server}").exists()


def write(path: Path, text: str) -> EndpointSettings:
    from oversharp.diagnostics.samplers.endpoint.config import EndpointConfig

    path.write_text(text)
    settings = EndpointConfig(endpoints=path).endpoint_settings(path.parent, compares_weights=False)
    assert settings is not None
    return settings


def test_a_file_gives_each_step_its_place(tmp_path: Path, checkpoints: list[Checkpoint]) -> None:
    settings = write(
        tmp_path / "a.toml",
        """
        url = "http://one:8000/v1"
        timeout_s = 30
        [[checkpoint]]
        step = 0
        model = "base"
        [[checkpoint]]
        step = 20
        url = "http://two:8000"
        how = "reload"
        """,
    )
    assert settings.place_of(checkpoints[0]) == ServedPlace(url="http://one:8000", model="base")
    assert settings.place_of(checkpoints[1]) == ServedPlace(url="http://two:8000", how="reload")
    assert settings.limits.timeout_s == 30
    with pytest.raises(
        ConfigError, match=r"a\.toml: checkpoint-40 is missing; add a \[\[checkpoint\]\] with step = 40"
    ):
        settings.place_of(checkpoints[2])


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("url = 'http://a'", r"no \[\[checkpoint\]\] table"),
        ("[[checkpoint]]\nurl = 'http://a'", r"\[\[checkpoint\]\] 1: step must be a whole number"),
        ("[[checkpoint]]\nstep = 1", r"\[\[checkpoint\]\] 1: url: the server is missing"),
        ("[[checkpoint]]\nstep = 1\nurl = 'ftp://a'", r"url ftp://a: not a URL"),
        ("[[checkpoint]]\nstep = 1\nurls = 'http://a'", r"urls is unknown; did you mean: url"),
        ("[[checkpoint]]\nstep = 1\nurl = 'http://a'\nhow = 'relod'", r"'relod' is unknown; did you mean: reload"),
        ("[[checkpoint]]\nstep = 1\nurl = 'http://a'\n" * 2, r"2: step 1 is listed twice"),
        (
            "url = 'http://a'\n[[checkpoint]]\nstep = 0\n[[checkpoint]]\nstep = 8\nhow = 'reload'",
            r"http://a replaces its weights at step 8, so step 0 may get these; add how = \"reload\" to it",
        ),
        ("timeout_s = -1\n[[checkpoint]]\nstep = 1\nurl = 'http://a'", r"timeout_s must be a number above 0"),
        ("a = ", "not TOML"),
    ],
)
def test_a_fault_in_the_file_is_one_line_with_its_place(tmp_path: Path, text: str, fault: str) -> None:
    with pytest.raises(ConfigError, match=fault) as raised:
        write(tmp_path / "a.toml", text)
    assert str(raised.value).startswith(f"--endpoints {tmp_path / 'a.toml'}: ")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("flags", "fault"),
    [
        ({"endpoint": "localhost:8000"}, "--endpoint localhost:8000: not a URL"),
        ({"endpoint": "http://user:sk-secret@a"}, "--endpoint: contains a name, password or query"),
        (
            {"endpoint": "http://a", "model": "m-{stp}"},
            r"--model 'm-\{stp\}': \{stp\} is unknown; use \{step\}, \{label\}",
        ),
        ({"serve": "vllm serve --port {port}"}, r"must contain \{path\}"),
        ({"serve": "vllm serve {path}"}, r"must contain \{port\}"),
        ({"model": "m"}, "--model: no server is given; add --endpoint URL"),
        (
            {"endpoint": "http://a", "api_key_env": "sk-secret"},
            "--api-key-env: there is no environment variable of this name",
        ),
        ({"endpoint": "http://a", "endpoints": "a.toml"}, "--endpoint: --endpoints has the servers"),
        ({"endpoint": "http://a", "sampler": "vllm"}, "--sampler vllm: samples on this machine"),
        ({"sampler": "endpoint"}, "--sampler endpoint: no server is given"),
        ({"endpoint": "http://a", "ray": "auto"}, "--ray: the server samples"),
    ],
)
def test_wrong_flags_are_one_line(flags: dict[str, str], fault: str) -> None:
    from oversharp.diagnostics.audit.config import AuditConfig

    with pytest.raises(ConfigError, match=fault):
        AuditConfig(task="countdown", **flags)  # type: ignore[arg-type]
    with pytest.raises(ConfigError) as raised:
        AuditConfig(task="countdown", **flags)  # type: ignore[arg-type]
    assert "sk-secret" not in str(raised.value)


def test_a_server_changes_the_defaults_of_what_loads_the_model() -> None:
    from oversharp.diagnostics.audit.config import AuditConfig

    here, there = AuditConfig(task="countdown"), AuditConfig(task="countdown", endpoint="http://a")
    assert (here.used_sampler, here.used_panel, here.used_entropy_samples, here.used_kernel_problems) == (
        "auto",
        4,
        16,
        8,
    )
    assert (there.used_sampler, there.used_panel, there.used_entropy_samples, there.used_kernel_problems) == (
        "endpoint", 0, 0, 0,
    )  # fmt: skip
    assert AuditConfig(task="countdown", endpoint="http://a", panel=4).used_panel == 4
