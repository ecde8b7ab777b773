"""TRL trains the tiny model, full with our trainer and LoRA with TRL's; the callback audits the checkpoints."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from oversharp.diagnostics.series import find_series
from oversharp.diagnostics.store import Store
from oversharp.trainers.integrations.callback import OversharpCallback
from tests.oracles.trl_runs import grpo_trainer
from tests.oracles.verl_checkpoints import adapters
from tests.trainers.runs import warned

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # warnings of TRL about versions and deprecations
    pytest.mark.skipif(
        find_spec("trl") is None and not os.environ.get("REQUIRE_ORACLES"),
        reason="trl 1.16 is not installed: make oracles",
    ),
]


def reward(completions: list[str], **_: Any) -> list[float]:
    return [float(len(set(text.split())) > 3) for text in completions]


@pytest.mark.parametrize("lora", [False, True], ids=["full", "lora"])
def test_checkpoints_of_a_trl_run_are_audited_during_training_as_a_series(
    lora: bool, model_path: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = tmp_path / "run"
    own = {"peft_config": adapters()} if lora else {"calibration": "iac"}
    saving = {"save_strategy": "steps", "save_steps": 2, "log_completions": True}
    trainer = grpo_trainer(model_path, run, [reward], max_steps=4, learning_rate=1e-2, **saving, **own)
    callback = OversharpCallback(
        trainer, task="countdown", n=4, limit=2, panel=1, max_tokens=3, budget_s=300, wait=not lora
    )
    trainer.add_callback(callback)
    trainer.train()

    assert callback.live.process_id is None
    assert warned(caplog) == []
    with Store.open(callback.live.store_path, read_only=True) as store:
        values = store.frame(
            "SELECT step, value FROM findings WHERE measure = 'mass_lost' AND scope = 'all' ORDER BY step"
        )
    history = trainer.state.log_history
    findings = {entry["step"]: entry for entry in history if "oversharp/mass_lost" in entry}
    assert {step: entry["oversharp/mass_lost"] for step, entry in findings.items()} == dict(
        zip(values["step"].tolist(), values["value"].tolist(), strict=True)
    )
    assert findings[4]["oversharp/verdict"] in ("inconclusive", "no_loss", "no_verdict")
    # TRL's metrics of every step are logged once
    assert [entry["step"] for entry in history if "reward" in entry] == [1, 2, 3, 4]
    assert len(list((run / "completions").glob("*.parquet"))) == 4

    trainer.save_model()
    kind = "lora" if lora else "full"
    series = find_series([run], base=model_path)
    assert [(checkpoint.step, checkpoint.kind) for checkpoint in series.checkpoints] == [
        (0, "full"),
        (2, kind),
        (4, kind),
    ]
    assert [checkpoint.path for checkpoint in series.checkpoints[1:]] == [run / "checkpoint-2", run / "checkpoint-4"]
    assert (series.layout, series.skipped) == ("trl", ())
    assert {point.step for point in series.metrics if point.name == "reward"} == {1, 2, 3, 4}
