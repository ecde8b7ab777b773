"""TRL trains the tiny model: full with our trainer, LoRA with its own; the callback audits its checkpoints."""

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
    pytest.mark.filterwarnings("ignore"),  # TRL's, of versions and of its own future
    pytest.mark.skipif(
        find_spec("trl") is None and not os.environ.get("REQUIRE_ORACLES"),
        reason="trl 1.16 is not installed: make oracles",
    ),
]


def reward(completions: list[str], **_: Any) -> list[float]:
    return [float(len(set(text.split())) > 3) for text in completions]


@pytest.mark.parametrize("lora", [False, True], ids=["full", "lora"])
def test_a_run_of_trl_is_told_of_its_checkpoints_while_it_trains_and_is_found_as_a_series(
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
    found = {entry["step"]: entry for entry in history if "oversharp/mass_lost" in entry}
    assert {step: entry["oversharp/mass_lost"] for step, entry in found.items()} == dict(
        zip(values["step"].tolist(), values["value"].tolist(), strict=True)
    )
    assert found[4]["oversharp/verdict"] in ("inconclusive", "no_loss", "no_verdict")
    # TRL's own metrics of every step are where they were, once each
    assert [entry["step"] for entry in history if "reward" in entry] == [1, 2, 3, 4]
    assert len(list((run / "completions").glob("*.parquet"))) == 4

    trainer.save_model()
    kind = "lora" if lora else "full"
    series = find_series([run], base=model_path)
    assert [(one.step, one.kind) for one in series.checkpoints] == [(0, "full"), (2, kind), (4, kind)]
    assert [one.path for one in series.checkpoints[1:]] == [run / "checkpoint-2", run / "checkpoint-4"]
    assert (series.layout, series.skipped) == ("trl", ())
    assert {one.step for one in series.metrics if one.name == "reward"} == {1, 2, 3, 4}
