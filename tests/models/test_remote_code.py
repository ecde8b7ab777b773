"""Checkpoints whose model is Python code next to the weights."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from oversharp.diagnostics.audit.audit import audit
from oversharp.diagnostics.audit.config import AuditConfig
from oversharp.diagnostics.models.load import load_model
from oversharp.diagnostics.records.errors import CheckpointError
from tests.samplers.tiny_models import checkpoint_at, write_checkpoint
from tests.series.written_runs import change_json

CODE = """
from pathlib import Path

from transformers import Qwen3Config, Qwen3ForCausalLM

with Path({marker!r}).open("a") as ran:
    ran.write("x")


class OwnConfig(Qwen3Config):
    model_type = "own_qwen3"


class OwnForCausalLM(Qwen3ForCausalLM):
    config_class = OwnConfig
"""


@pytest.fixture
def ran(tmp_path: Path) -> Path:
    """Return a file that exists once the code ran."""
    return tmp_path / "ran"


@pytest.fixture
def series(tmp_path: Path, ran: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    for step in (0, 20):
        folder = write_checkpoint(tmp_path / "run" / f"checkpoint-{step}", seed=step)
        (folder / "modeling_own.py").write_text(CODE.format(marker=str(ran)), encoding="utf-8")
        own = {"AutoConfig": "modeling_own.OwnConfig", "AutoModelForCausalLM": "modeling_own.OwnForCausalLM"}
        architecture = {"model_type": "own_qwen3", "architectures": ["OwnForCausalLM"]}
        change_json(folder / "config.json", **architecture, auto_map=own)
    return tmp_path / "run"


def test_code_in_a_checkpoint_runs_only_on_request(series: Path, ran: Path) -> None:
    checkpoint = checkpoint_at(series / "checkpoint-0")
    with pytest.raises(CheckpointError, match=r"needs separate modelling code.*--trust-remote-code") as caught:
        load_model(checkpoint, device=torch.device("cpu"), dtype="float32")
    assert "\n" not in str(caught.value)
    assert not ran.exists()
    loaded = load_model(checkpoint, device=torch.device("cpu"), dtype="float32", trust_remote_code=True)
    assert type(loaded.model).__name__ == "OwnForCausalLM"
    assert ran.exists()


@pytest.mark.slow
@pytest.mark.usefixtures("few_measures")
def test_an_audit_runs_code_with_the_users_flag(series: Path, ran: Path, tmp_path: Path) -> None:
    def config(*, trust: bool) -> AuditConfig:
        small = {"n": 2, "max_tokens": 4, "panel": 1, "kernel_problems": 1, "kernel_responses": 2}
        sampler = {"sampler": "transformers", "trust_remote_code": trust}
        return AuditConfig(problems=problems, out=tmp_path / "audit", **small, **sampler)

    problems = tmp_path / "problems.jsonl"
    rows = [{"prompt": prompt, "answer": answer, "verifier": "exact"} for prompt, answer in (("a b", "c"), ("d", "e"))]
    problems.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    with pytest.raises(CheckpointError, match="--trust-remote-code"):
        audit([series], config(trust=False))
    assert not ran.exists()
    assert audit([series], config(trust=True)).store_path.is_file()
    assert ran.exists()


@pytest.mark.slow
def test_code_is_not_used_for_a_model_that_transformers_knows(series: Path, ran: Path) -> None:
    folder = series / "checkpoint-0"
    change_json(folder / "config.json", model_type="qwen3")
    for trust in (False, True):
        loaded = load_model(checkpoint_at(folder), device=torch.device("cpu"), dtype="float32", trust_remote_code=trust)
        assert type(loaded.model).__name__ == "Qwen3ForCausalLM"
    assert not ran.exists()
