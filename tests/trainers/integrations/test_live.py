"""The live audit with the real ``oversharp`` process, on checkpoints of the tiny model."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from oversharp.diagnostics.records.errors import OversharpError
from oversharp.diagnostics.store import Store
from oversharp.diagnostics.verdict.record import Verdict
from oversharp.trainers.integrations.live import LiveAudit
from oversharp.trainers.integrations.live_config import arguments, live_config
from oversharp.trainers.worlds.base import build_model, build_tokenizer
from tests.trainers.runs import warned

pytestmark = pytest.mark.slow

SMALL = {"n": 4, "limit": 2, "panel": 0, "entropy_samples": 0, "max_tokens": 2, "sampler": "transformers"}


def write(folder: Path, sharpness: float) -> None:
    """Write the tiny model with its logits times ``sharpness``; a large one makes it deterministic."""
    model = build_model(seed=0)
    with torch.no_grad():
        model.model.norm.weight.mul_(sharpness)
    model.save_pretrained(folder)
    build_tokenizer().save_pretrained(folder)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run with its base saved."""
    write(tmp_path / "run" / "checkpoint-0", 1.0)
    return tmp_path / "run"


def live_audit(
    run: Path, easy_problems: Path, *, budget_s: float = 300.0, wait: bool = True, **settings: Any
) -> LiveAudit:
    config = live_config(run, {"problems": easy_problems, **SMALL, **settings})
    return LiveAudit(run, config, budget_s=budget_s, wait=wait)


def is_gone(process_id: int) -> bool:
    """Return whether the process has ended, even if it was not waited for."""
    try:
        return Path(f"/proc/{process_id}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True


def gone_within(process_id: int, timeout_s: float) -> bool:
    end = time.monotonic() + timeout_s
    while not is_gone(process_id) and time.monotonic() < end:
        time.sleep(0.05)
    return is_gone(process_id)


def sampled(store_path: Path) -> dict[str, int]:
    """Return the number of samples per checkpoint, without greedy ones."""
    with Store.open(store_path, read_only=True) as store:
        frame = store.frame(
            """
            SELECT checkpoint, count(*) AS n
            FROM samples
            JOIN series_checkpoints USING (checkpoint_id)
            WHERE NOT greedy
            GROUP BY ALL
            """
        )
    return dict(zip(frame["checkpoint"], frame["n"].tolist(), strict=True))


@pytest.mark.usefixtures("_forked_audits")
def test_a_new_loss_verdict_is_logged_with_its_sentence(
    run: Path, easy_problems: Path, caplog: pytest.LogCaptureFixture
) -> None:
    live = live_audit(run, easy_problems, n=32, limit=5, max_tokens=1)
    write(run / "checkpoint-20", 1.001)
    [first] = live.audit_step(20)
    assert isinstance(first.verdict, Verdict)
    assert not first.verdict.positive
    assert first.log_entries["oversharp/verdict"] == first.verdict.label
    assert warned(caplog) == []

    write(run / "checkpoint-40", 100.0)
    [second] = live.audit_step(40)
    assert isinstance(second.verdict, Verdict)
    assert second.verdict.positive
    assert warned(caplog) == [f"live audit: {second.verdict.sentence}"]
    assert live.process_id is None

    # loggers get the values of the store
    with Store.open(live.store_path, read_only=True) as store:
        frame = store.frame("SELECT measure, k, value FROM findings WHERE step = 40 AND scope = 'all'")
    of = {(row.measure, row.k): row.value for row in frame.itertuples()}
    values = second.values
    assert values["oversharp/pass@16"] == of["pass_at_k", 16]
    assert values["oversharp/pass@16_change"] == of["pass_at_k_delta", 16] < -0.2
    assert values["oversharp/pass@1"] == of["pass_at_k", 1]
    assert {"oversharp/problems_over_sharpened", "oversharp/mass_lost"} <= set(values)
    assert "oversharp/effective_modes" in first.values  # unknown if no problem is solved
    assert (values["oversharp/step"], values["oversharp/loss_found"]) == (40, 1)
    assert all(isinstance(value, float) for value in values.values())
    # no sample was drawn twice
    assert sampled(live.store_path) == {"checkpoint-0": 5 * 64, "checkpoint-20": 5 * 32, "checkpoint-40": 5 * 32}


@pytest.mark.usefixtures("_forked_audits")
def test_one_audit_runs_at_a_time_and_the_next_covers_all_waiting_checkpoints(run: Path, easy_problems: Path) -> None:
    live = live_audit(run, easy_problems, wait=False)
    write(run / "checkpoint-10", 1.1)
    assert live.audit_step(10) == []
    first = live.process_id
    assert first is not None
    os.killpg(first, signal.SIGSTOP)  # it runs until the training has saved more checkpoints
    for step in (20, 30):
        write(run / f"checkpoint-{step}", 1 + step / 100)
        live.audit_step(step)
    os.killpg(first, signal.SIGCONT)
    all_findings = live.finish()
    assert [findings.step for findings in all_findings] == [10, 20, 30]
    assert [findings.verdict is not None for findings in all_findings[1:]] == [False, True]
    assert live.log_path.read_text().count("# up to step") == 2
    assert live.process_id is None
    assert is_gone(first)


def test_an_audit_beyond_its_budget_is_killed_and_the_next_continues(
    run: Path, easy_problems: Path, caplog: pytest.LogCaptureFixture
) -> None:
    live = live_audit(run, easy_problems, budget_s=0.5, wait=False)
    write(run / "checkpoint-20", 1.2)
    live.audit_step(20)
    process_id = live.process_id
    assert process_id is not None
    assert gone_within(process_id, 30)  # without a call of the training
    while live.process_id is not None:  # its last threads may still be ending
        assert live.poll() == []
        time.sleep(0.02)
    [warning] = warned(caplog)
    assert "up to step 20 did not finish: the budget of 0.5 s is spent; raise budget_s" in warning

    live.budget_s = 300.0
    [findings] = live.finish()
    assert findings.step == 20
    assert len(warned(caplog)) == 1
    assert live.store_path.with_name("report.html").is_file()


@pytest.mark.usefixtures("_forked_audits")
def test_a_hanging_audit_is_killed_when_the_training_ends(
    run: Path, easy_problems: Path, caplog: pytest.LogCaptureFixture
) -> None:
    live = live_audit(run, easy_problems, wait=False)
    write(run / "checkpoint-20", 1.2)
    live.audit_step(20)
    process_id = live.process_id
    assert process_id is not None
    while "sample checkpoint-0" not in live.log_path.read_text():
        assert not is_gone(process_id)
        time.sleep(0.02)
    os.killpg(process_id, signal.SIGSTOP)  # so it does not end
    live.budget_s = 0.1
    assert live.finish() == []
    assert is_gone(process_id)
    assert sampled(live.store_path)["checkpoint-0"] == 2 * 8  # computed results are kept
    ended, left = warned(caplog)
    assert "training ended and the wait of 0.1 s" in ended
    assert f"no findings on step 20; continue with: oversharp audit {run} --" in left
    assert " --problems=" in left


@pytest.mark.usefixtures("_forked_audits")
def test_a_locked_store_causes_one_warning(run: Path, easy_problems: Path, caplog: pytest.LogCaptureFixture) -> None:
    live = live_audit(run, easy_problems)
    write(run / "checkpoint-20", 1.2)
    with Store.open(live.store_path):
        assert live.audit_step(20) == []
    [warning] = warned(caplog)
    assert "audit.duckdb: " in warning
    assert "The training continues" in warning
    assert "\n" not in warning


def test_an_audit_ends_when_the_training_is_killed(run: Path, easy_problems: Path) -> None:
    write(run / "checkpoint-20", 1.2)
    training = f"""
import os
from oversharp.trainers.integrations.live import LiveAudit
from oversharp.trainers.integrations.live_config import live_config
live = LiveAudit({str(run)!r}, live_config({str(run)!r}, {{"task": "countdown", "n": 256}}), wait=False)
live.audit_step(20)
print(live.process_id, flush=True)
os._exit(1)
"""
    root = str(Path(__file__).parents[3])
    done = subprocess.run(
        [sys.executable, "-c", training],
        capture_output=True, text=True, cwd=root, env={**os.environ, "PYTHONPATH": root}, check=False,
    )  # fmt: skip
    assert gone_within(int(done.stdout), 10)


def test_the_audit_gets_no_launcher_variables(run: Path, easy_problems: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RANK": "3", "WORLD_SIZE": "8", "TORCHELASTIC_RUN_ID": "x", "SLURM_PROCID": "3"}.items():
        monkeypatch.setenv(name, value)
    live = LiveAudit(run, live_config(run, {"problems": easy_problems}), gpus="7")
    assert live.wait is False
    write(run / "checkpoint-20", 1.2)
    live.audit_step(20)
    environment = Path(f"/proc/{live.process_id}/environ")
    for _ in range(1000):  # empty until the process has started its program
        if inherited := environment.read_bytes().split(b"\0")[:-1]:
            break
        time.sleep(0.01)
    live.budget_s = 0.01
    live.finish()
    names = {entry.partition(b"=")[0].decode() for entry in inherited}
    assert not names & {"RANK", "WORLD_SIZE", "TORCHELASTIC_RUN_ID", "SLURM_PROCID"}
    assert b"CUDA_VISIBLE_DEVICES=7" in inherited


def test_the_command_line_parses_to_the_configuration(run: Path) -> None:
    from oversharp.diagnostics.app.cli import app

    settings = {
        "task": "countdown", "k": [1, 8], "prompt_template": "--Solve:\n{prompt} = ?", "chat": True, "panel": 0,
        "system_prompt": "-x", "temperature": 0.7, "dtype": "bfloat16", "device": "cpu",
    }  # fmt: skip
    config = live_config(run, settings)
    _, bound, _ = app.parse_args(arguments(run, config), exit_on_error=False, print_error=False)
    assert bound.arguments["config"] == config
    assert (config.n, config.limit, config.kernel_problems) == (64, 64, 0)
    assert bound.arguments["series"] == (str(run),)


@pytest.mark.parametrize(
    ("settings", "live", "error"),
    [
        ({"task": "countdown", "sample": 8}, {}, "sample: no such setting of an audit"),
        ({"task": "countdown", "n": 0}, {}, "--n 0: must be at least 1"),
        ({"task": "countdown", "top_up": 8, "n": 256}, {}, "--top-up: every live audit"),
        ({"task": "countdown", "base": "nowhere/model"}, {}, "--base nowhere/model: neither a directory nor"),
        ({}, {}, "pass either --problems"),
        ({"task": "countdown"}, {"budget_s": 0}, "budget_s 0: must be"),
        ({"problems": Path("none.jsonl")}, {}, r"none\.jsonl"),
        ({"task": "countdown"}, {"python": "/nowhere/python"}, "python /nowhere/python: no such interpreter"),
    ],
)
def test_an_invalid_setting_is_rejected_before_the_training(
    tmp_path: Path, settings: dict[str, Any], live: dict[str, Any], error: str
) -> None:
    with pytest.raises(OversharpError, match=error):
        LiveAudit(tmp_path, live_config(tmp_path, settings), **live)
