"""Audits that a server samples: nothing lost, nothing twice, and wrong weights are noticed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from oversharp.diagnostics.audit.audit import audit, audit_shard
from oversharp.diagnostics.audit.measure import NEEDS_WEIGHTS
from oversharp.diagnostics.records.errors import ConfigError, SamplerError
from oversharp.diagnostics.records.shard import WHOLE
from oversharp.diagnostics.samplers.endpoint.sampler import EndpointSampler
from tests.audit.small_audits import Notes, config, frame
from tests.samplers.endpoint.serving import SERVERS, stub_server
from tests.samplers.endpoint.stub import tokens_of

ROOT = Path(__file__).resolve().parents[2]
VLLM = ["/pause", "/resume", "/collective_rpc", "/reset_prefix_cache"]
FAULTS = {"429": 0.06, "500": 0.03, "cut": 0.03, "drop": 0.03, "abort": 0.03, "few": 0.03}


def seeds_asked(calls: list[tuple[str, Any]]) -> set[int]:
    """Seed of each sampled response that was requested. Seeds of other problems and checkpoints differ."""
    bodies = [body for path, body in calls if path == "/v1/completions" and "seed" in body]
    return {body["seed"] + place for body in bodies for place in range(body.get("n", 1))}


@pytest.mark.slow
def test_an_audit_that_is_killed_has_each_sample_once_from_a_faulty_server(
    countdown_series: Path, tmp_path: Path
) -> None:
    flags = "--task countdown --limit 5 --n 96 --n-base 96 --until-solved 0 --no-controls --name run --shard 1/1"
    n_all, store = 3 * 5 * (96 + 1), tmp_path / "out" / "audit.duckdb"
    with stub_server(routes=VLLM, **FAULTS) as (url, stub):
        command = [sys.executable, "-m", "oversharp", "audit", str(countdown_series), *flags.split()]
        command += ["--endpoint", url, "--out", str(tmp_path / "out"), "--quiet"]
        killed = subprocess.Popen(command, cwd=ROOT)
        while killed.poll() is None and len(stub.calls) < 50:
            time.sleep(0.01)
        killed.send_signal(signal.SIGKILL)
        assert killed.wait() == -signal.SIGKILL
        n_before = len(frame(store, "FROM samples WHERE NOT greedy"))
        first_run = len(stub.calls)
        subprocess.run(command, cwd=ROOT, check=True)
    rows = frame(store, "SELECT checkpoint_id, problem_id, greedy, sample_index, token_ids FROM samples")
    assert len(rows) == len(rows.drop_duplicates(["checkpoint_id", "problem_id", "greedy", "sample_index"])) == n_all
    assert 0 < n_before < 3 * 5 * 96
    asked = seeds_asked(stub.calls[first_run:])
    assert len(asked) == 3 * 5 * 96 - n_before  # those that the store lacked, and no others
    paths = {body["kwargs"]["weights_path"] for path, body in stub.calls if "weights_path" in str(body)}
    bodies = [body for path, body in stub.calls if path == "/v1/completions"]
    possible = {
        tuple(tokens_of(path, body["prompt"], seed if seed is None else seed + place, body["max_tokens"]))
        for body in bodies
        for seed in [body.get("seed")]
        for path in paths
        for place in range(body.get("n", 1))
    }
    assert {tuple(ids) for ids in rows["token_ids"]} <= possible
    usage = frame(store, "SELECT note FROM events WHERE stage = 'endpoint usage'")["note"].map(json.loads)
    assert sum(each["completion_tokens"] for each in usage) >= 3 * len(asked)


@pytest.mark.slow
def test_a_server_that_ignores_the_reload_gets_a_warning_that_names_both_checkpoints(
    countdown_series: Path, tmp_path: Path
) -> None:
    for settings, alike in (({"stale": True}, 2), ({}, 0)):
        progress = Notes()
        with stub_server(routes=VLLM, **settings) as (url, _):
            small = config(
                tmp_path / str(alike), n=8, n_base=8, panel=None, entropy_samples=None, controls=False, endpoint=url
            )
            result = audit([countdown_series], small, progress=progress)
            again = audit([countdown_series], small)
        warnings = [note for note in progress.notes if "answers alike" in note]
        assert len(warnings) == len(result.confused) == alike
        assert not alike or "answers alike for checkpoint-0 and checkpoint-20" in warnings[0]
        # a caveat of the verdict, also when the audit draws nothing
        assert again.confused == result.confused
        assert set(result.confused) <= set(result.verdict.warnings)
        assert result.has_remarks or not alike
        assert any("--panel 4" in note for note in progress.notes)
    with pytest.raises(SamplerError, match="a server generated the samples in the store; add --endpoint URL"):
        audit_shard([countdown_series], config(tmp_path / "0", n=8, n_base=8, controls=False), WHOLE)


@pytest.mark.slow
def test_a_panel_is_scored_by_the_server_and_by_the_model_here_if_the_server_cannot(
    countdown_series: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small: dict[str, Any] = {"n": 4, "n_base": 4, "until_solved": 0, "entropy_samples": None, "controls": False}
    monkeypatch.setattr(EndpointSampler, "_compare_with_weights", lambda *_: None)  # the stub has no weights
    results, progress = {}, {}
    for owner, fault in (("server", None), ("here", "missing")):
        progress[owner] = Notes()
        with stub_server(routes=VLLM, prompt_fault=fault) as (url, stub):
            asked = config(tmp_path / owner, **small, kernel_problems=None, panel=2, endpoint=url)
            results[owner] = audit([countdown_series], asked, progress=progress[owner])
            n_calls = len(stub.calls)
            again = audit([countdown_series], asked)
            assert len(stub.calls) == n_calls  # everything is scored, also the second time
            assert again.samples_drawn == 0
    query = "SELECT count(*) AS n, count(entropy_sum) AS n_known FROM response_logps"
    scored = {owner: frame(result.store_path, query).iloc[0] for owner, result in results.items()}
    assert scored["server"].n > 3 * 5 * 2
    assert (scored["server"].n_known, scored["here"].n_known) == (0, scored["here"].n)
    assert any("scored by the server" in note for note in progress["server"].notes)
    assert any("scored here, because http" in note for note in progress["here"].notes)
    path = results["server"].store_path
    own = frame(path, "SELECT sampler_logp_sum - own_logp_sum AS gap FROM own_logps")["gap"]
    assert len(own) >= 3 * 5 * 2
    assert own.abs().max() < 1e-6  # the stub's distribution is the same for samples and scores
    twice = frame(path, "SELECT logp_sum - second_logp_sum AS gap FROM repeated_logps")["gap"]
    assert len(twice) > 0
    assert not twice.any()
    measures = frame(path, "SELECT measure, any_value(why) AS why FROM findings WHERE value IS NULL GROUP BY measure")
    why = measures.set_index("measure")["why"]
    for measure in ("token_entropy_by_position", "high_entropy_tokens"):
        assert "--entropy-samples above 0 if a server scores responses" in why[measure]
    known = frame(path, "SELECT DISTINCT measure FROM findings WHERE value IS NOT NULL")["measure"]
    assert {"perplexity_base_samples", "sampler_scorer_gap", "scoring_noise"} <= set(known)
    with pytest.raises(ConfigError, match=r"--entropy-samples 2: the server's scores in .* have no entropies"):
        audit([countdown_series], config(tmp_path / "server", **{**small, "entropy_samples": 2, "endpoint": url}))


@pytest.mark.slow
def test_checkpoints_that_exist_only_behind_a_server_are_audited_from_their_texts(tmp_path: Path) -> None:
    file = tmp_path / "servers.toml"
    with stub_server(owner="openai", models={"base": "b", "late": "l"}) as (url, stub):
        file.write_text(SERVERS.format(url=url))
        asked = config(
            tmp_path / "out", n=8, n_base=8, panel=None, entropy_samples=None, kernel_problems=None, controls=False,
            endpoints=file, name=None,
        )  # fmt: skip
        progress = Notes()
        result = audit([], asked, progress=progress)
        n_calls = len(stub.calls)
        again = audit([], asked)
        assert len(stub.calls) == n_calls
    assert (result.samples_drawn, again.samples_drawn) == (2 * 5 * 9, 0)
    assert {path for path, _ in stub.calls} == {"/v1/chat/completions"}
    assert any("/v1/chat/completions; --no-chat" in note for note in progress.notes)
    samples = frame(result.store_path, "SELECT token_ids, n_tokens, logp_sum_raw FROM samples")
    assert samples.isna().all(axis=None)
    why = frame(result.store_path, "SELECT measure, why FROM findings WHERE why IS NOT NULL").set_index("measure")[
        "why"
    ]
    assert set(why[["kernel_ratio", "delta_pi"]]) == {NEEDS_WEIGHTS}
    series = frame(result.store_path, "SELECT series, layout FROM series").to_dict("records")
    assert series == [{"series": "servers", "layout": "served"}]


def test_a_served_series_with_a_fault_is_one_line(tmp_path: Path) -> None:
    file = tmp_path / "servers.toml"
    text = SERVERS.format(url="http://127.0.0.1:9")
    for given, fault in (
        (text.replace('"late"', '"base"'), "steps 0 and 50 have the same url and model"),
        (text.partition("[[checkpoint]]\nstep = 50")[0], "has only one checkpoint"),
        (
            text + 'url = "http://127.0.0.1:10"\nhow = "reload"\n',
            "needs the checkpoint's files; pass the run's directory",
        ),
    ):
        file.write_text(given)
        with pytest.raises(ConfigError, match=fault):
            audit([], config(tmp_path / "out", panel=None, entropy_samples=None, endpoints=file))
    with pytest.raises(ConfigError, match="no checkpoints are given; pass the directory of a run, or --endpoints FILE"):
        audit([], config(tmp_path / "out"))
    file.write_text(text)
    with pytest.raises(ConfigError, match=r"--panel, .*: need the weights"):
        audit([], config(tmp_path / "out", panel=4, endpoints=file))
