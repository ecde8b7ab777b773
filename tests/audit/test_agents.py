"""Audits of agents: a server generates the turns, and the audit runs the tools."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from oversharp.diagnostics.audit.audit import audit
from oversharp.diagnostics.audit.confirm import confirm
from oversharp.diagnostics.audit.confirm_config import ConfirmConfig
from oversharp.diagnostics.audit.measure import NEEDS_TOKENS
from oversharp.diagnostics.records.errors import ConfigError, StoreError
from oversharp.diagnostics.store.merge import merge
from tests.audit.small_audits import Notes, config, frame
from tests.samplers.agents.agent_stub import AgentStub
from tests.samplers.endpoint.serving import SERVERS, stub_server
from tests.samplers.tiny_models import build_model, build_tokenizer

ROOT = Path(__file__).resolve().parents[2]
CALCULATOR = ROOT / "tests" / "samplers" / "agents" / "calculator.py"
VLLM = ["/pause", "/resume", "/collective_rpc", "/reset_prefix_cache"]
MODELS = {"base": "b", "late": "l"}


def agent_config(tmp_path: Path, url: str, out: str = "out", **changes: Any) -> Any:
    """Settings of an audit of two served checkpoints with four sums."""
    servers, problems = tmp_path / "servers.toml", tmp_path / "problems.jsonl"
    servers.write_text(SERVERS.format(url=url))
    rows = [f'{{"prompt": "{a} + 2", "answer": "{a + 2}", "verifier": "math"}}\n' for a in range(4)]
    problems.write_text("".join(rows))
    given = {
        "n": 8, "n_base": 8, "panel": None, "entropy_samples": None, "kernel_problems": None, "controls": False,
        "task": None, "limit": None, "problems": problems, "endpoints": servers, "name": None, "max_tokens": 64,
        "environment": f"{CALCULATOR}:Calculator",
    }  # fmt: skip
    return config(tmp_path / out, **given | changes)


@pytest.mark.slow
def test_an_audit_runs_the_tools_and_stores_trajectories_with_their_rewards(tmp_path: Path) -> None:
    with stub_server(AgentStub, owner="openai", models=MODELS, **{"500": 0.05, "empty": 0.05}) as (url, stub):
        given = agent_config(tmp_path, url)
        progress = Notes()
        result = audit([], given, progress=progress)
        n_calls = len(stub.calls)
        assert audit([], given).samples_drawn == 0
        assert len(stub.calls) == n_calls
        other = audit([], agent_config(tmp_path, url, max_turns=2))
    assert result.samples_drawn == other.samples_drawn == 2 * 4 * 9  # samples of other limits are others
    assert any(line.startswith("unknown for trajectories, which have no token ids") for line in progress.notes)
    store = result.store_path
    samples = frame(store, "FROM samples JOIN trajectories USING (response_id)")
    assert len(samples) == 2 * 2 * 4 * 9
    assert set(samples["n_tokens"]) == {3, 6}
    grades = frame(store, "SELECT DISTINCT verifier, state FROM grades")
    [verifier] = set(grades["verifier"])
    assert verifier.startswith("calculator.py:Calculator@")
    assert set(grades["state"]) == {"ok"}
    rates = frame(store, "SELECT text LIKE '%add({_a_: _, _b_: 2})%' AS has_sum, correct FROM audit_samples")
    assert (rates["has_sum"] == rates["correct"]).all()
    assert 0 < rates["correct"].sum() < len(rates)
    settings = frame(store, "FROM agent_settings ORDER BY max_turns")
    assert settings["max_turns"].tolist() == [2, 2, 8, 8]  # of the samples, and of a panel that is not drawn
    assert set(settings["environment"]) == {verifier}
    findings = frame(store, "SELECT DISTINCT measure FROM findings WHERE value IS NOT NULL")["measure"]
    assert {"pass_at_k_turns", "calls_per_sample", "tool_use", "invalid_calls"} <= set(findings)


@pytest.mark.slow
def test_checkpoints_with_files_are_audited_and_their_measures_of_tokens_have_a_reason(tmp_path: Path) -> None:
    for seed, step in enumerate((0, 20)):
        path = tmp_path / "run" / f"checkpoint-{step}"
        build_model(seed, vocab_size=16).save_pretrained(path)
        template = "{% for message in messages %}{{ message['content'] }} {% endfor %}"
        words = ("<pad>", "<eos>", *"abcdefg?", "0", "1", "2", "3", "+")
        build_tokenizer(words, chat_template=template).save_pretrained(path)
    with stub_server(AgentStub, routes=VLLM) as (url, stub):
        given = agent_config(tmp_path, url, n=4, n_base=4, max_tokens=40, endpoints=None, endpoint=url)
        progress = Notes()
        result = audit([tmp_path / "run"], given, progress=progress)
        reloads = [body for path, body in stub.calls if path == "/collective_rpc"]
    assert result.samples_drawn == 2 * 4 * 5
    assert len({body["kwargs"].get("weights_path") for body in reloads} - {None}) == 2
    assert any("the chat template of the checkpoints does not contain tools" in line for line in progress.notes)
    why = frame(result.store_path, "SELECT measure, why FROM findings WHERE why IS NOT NULL").set_index("measure")
    assert set(why["why"][["kernel_ratio", "delta_pi"]]) == {NEEDS_TOKENS}
    with pytest.raises(ConfigError, match="its samples are trajectories, which confirm cannot sample"):
        confirm(result.store_path, ConfirmConfig())


@pytest.mark.slow
def test_a_verifier_grades_the_text_if_it_is_given_or_the_class_has_no_reward(tmp_path: Path) -> None:
    plain = tmp_path / "plain.py"
    source = CALCULATOR.read_text(encoding="utf-8").partition("    def get_reward")[0]
    plain.write_text(source)
    with stub_server(AgentStub, owner="openai", models=MODELS) as (url, _):
        given = [
            agent_config(tmp_path, url, "plain", n=4, n_base=4, environment=f"{plain}:Calculator"),
            agent_config(tmp_path, url, "given", n=4, n_base=4, verifier="math"),
        ]
        stores = [audit([], one).store_path for one in given]
    with pytest.raises(StoreError, match=r"was audited with --environment calculator.py:.* with plain.py:"):
        merge(stores, tmp_path / "merged")
    for store in stores:
        rows = frame(store, "SELECT verifier, answer, text FROM grades JOIN samples USING (problem_id, response_id)")
        assert set(rows["verifier"]) == {"math"}
        assert (rows["text"].str.contains("add") | (rows["answer"] == "7") | rows["text"].str.contains("sub")).all()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"environment": "missing.py:E"}, "missing.py cannot be read"),
        ({"chat": False}, "trajectories need the chat template"),
        ({"panel": 2}, "--panel, .*: need"),
    ],
)
def test_an_audit_that_cannot_run_ends_before_a_request_for_samples(
    tmp_path: Path, changes: dict[str, Any], fault: str
) -> None:
    with stub_server(AgentStub, models=MODELS) as (url, stub):
        with pytest.raises(ConfigError, match=fault):
            audit([], agent_config(tmp_path, url, **changes))
        assert not stub.calls


@pytest.mark.slow
def test_a_killed_audit_has_each_trajectory_once(tmp_path: Path) -> None:
    with stub_server(AgentStub, owner="openai", models=MODELS, **{"500": 0.03}) as (url, stub):
        agent_config(tmp_path, url)
        flags = "--n 64 --n-base 64 --until-solved 0 --no-controls --max-tokens 64 --shard 1/1 --quiet"
        command = [sys.executable, "-m", "oversharp", "audit", "--endpoints", str(tmp_path / "servers.toml")]
        command += ["--problems", str(tmp_path / "problems.jsonl"), "--environment", f"{CALCULATOR}:Calculator"]
        command += ["--out", str(tmp_path / "out"), *flags.split()]
        for n_calls in (60, 60):
            before = len(stub.calls)
            killed = subprocess.Popen(command, cwd=ROOT)
            while killed.poll() is None and len(stub.calls) < before + n_calls:
                time.sleep(0.01)
            killed.send_signal(signal.SIGKILL)
            assert killed.wait() == -signal.SIGKILL
        subprocess.run(command, cwd=ROOT, check=True)
    rows = frame(tmp_path / "out" / "audit.duckdb", "FROM samples JOIN grades USING (problem_id, response_id)")
    identity = ["checkpoint_id", "problem_id", "greedy", "sample_index"]
    assert len(rows) == len(rows.drop_duplicates(identity)) == 2 * 4 * 65
    assert (rows["text"].str.contains(r"add\(\{.a.: \d, .b.: 2\}\)") == rows["correct"]).all()
