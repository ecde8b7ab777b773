"""The callback in a real ``transformers.Trainer``: logged findings and rejected settings."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import (
    PreTrainedTokenizerFast,
    Qwen3ForCausalLM,
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)

from oversharp.diagnostics.audit.config import AuditConfig
from oversharp.diagnostics.records.errors import ConfigError
from oversharp.diagnostics.series.training_log import read_training_log
from oversharp.diagnostics.store import Store
from oversharp.trainers.integrations.callback import OversharpCallback
from oversharp.trainers.worlds.base import build_model
from tests.trainers.runs import warned

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.slow]

SMALL: dict[str, Any] = {
    "task": "countdown", "n": 4, "limit": 2, "panel": 0, "entropy_samples": 0, "max_tokens": 3,
    "sampler": "transformers",
}  # fmt: skip


def make_trainer(model: Any, out: Path, tokenizer: Path | None = None, **settings: Any) -> Trainer:
    """Return a trainer of four steps on one line of text, with a checkpoint every two."""
    args = TrainingArguments(
        output_dir=str(out), max_steps=4, save_steps=2, logging_steps=1, per_device_train_batch_size=2,
        learning_rate=1e-2, report_to=[], use_cpu=True, disable_tqdm=True, **settings,
    )  # fmt: skip
    rows = [{"input_ids": torch.tensor([3, 4, 5, 6]), "labels": torch.tensor([3, 4, 5, 6])} for _ in range(8)]
    processing = None if tokenizer is None else PreTrainedTokenizerFast.from_pretrained(tokenizer)
    return Trainer(model=model, args=args, train_dataset=rows, processing_class=processing)


class StopAtVerdict(TrainerCallback):
    """A user's callback that reads every log."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, str]] = []

    def on_log(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, logs: Any = None, **_: Any
    ) -> None:
        if "oversharp/verdict" in logs:
            self.seen.append((state.global_step, logs["oversharp/verdict"]))
            control.should_training_stop = True


def logged(trainer: Trainer) -> dict[int, dict[str, Any]]:
    return {entry["step"]: entry for entry in trainer.state.log_history if "oversharp/pass@1" in entry}


@pytest.mark.usefixtures("_forked_audits")
def test_findings_are_logged_under_the_step_of_their_checkpoint(
    model_path: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from transformers.integrations import TensorBoardCallback

    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", str(tmp_path / "board"))
    trainer = make_trainer(Qwen3ForCausalLM.from_pretrained(model_path), tmp_path / "run", model_path)
    trainer.add_callback(TensorBoardCallback())
    callback = OversharpCallback(trainer, budget_s=300, wait=False, **SMALL)
    trainer.add_callback(callback)
    trainer.train()

    assert callback.live.config.base == model_path
    assert callback.live.process_id is None
    assert warned(caplog) == []
    entries = logged(trainer)
    assert set(entries) == {2, 4}
    assert "oversharp/verdict" in entries[4]
    assert entries[4]["oversharp/loss_found"] in (0, 1)
    with Store.open(tmp_path / "run/oversharp/audit.duckdb", read_only=True) as store:
        frame = store.frame("SELECT step, value FROM findings WHERE measure = 'pass_at_k' AND k = 1 AND scope = 'all'")
    stored = dict(zip(frame["step"].tolist(), frame["value"].tolist(), strict=True))
    assert set(stored) == {0, 2, 4}
    assert {step: entry["oversharp/pass@1"] for step, entry in entries.items()} == {2: stored[2], 4: stored[4]}
    # the trainer's logs are complete
    assert [entry["step"] for entry in trainer.state.log_history if "loss" in entry] == [1, 2, 3, 4]

    # the next audit does not treat its findings as metrics of the training
    last = tmp_path / "run/checkpoint-4"
    trainer.state.save_to_json(str(last / "trainer_state.json"))
    metrics, faults = read_training_log(tmp_path / "run", [last])
    assert faults == ()
    assert {"loss", "grad_norm"} <= {metric.name for metric in metrics}
    assert not [metric for metric in metrics if metric.name.startswith("oversharp/")]

    board = EventAccumulator(str(tmp_path / "board")).Reload()
    scalars = {metric.step: metric.value for metric in board.Scalars("train/oversharp/pass@1")}
    assert scalars == pytest.approx({2: stored[2], 4: stored[4]})
    assert "train/oversharp/verdict/text_summary" in board.Tags()["tensors"]


@pytest.mark.usefixtures("_forked_audits")
def test_a_callback_of_the_user_can_stop_the_training_by_the_verdict(model_path: Path, tmp_path: Path) -> None:
    trainer = make_trainer(Qwen3ForCausalLM.from_pretrained(model_path), tmp_path / "run", model_path)
    trainer.add_callback(OversharpCallback(trainer, budget_s=300, wait=True, **SMALL))
    stop = StopAtVerdict()
    trainer.add_callback(stop)
    trainer.train()
    assert [step for step, _ in stop.seen] == [2]
    assert trainer.state.global_step == 2
    # the regular log of this step is not lost
    assert [entry["step"] for entry in trainer.state.log_history if "loss" in entry] == [1, 2]


@pytest.mark.usefixtures("_forked_audits")
def test_the_training_continues_if_the_audit_fails(
    model_path: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # without a tokenizer in its checkpoints
    trainer = make_trainer(Qwen3ForCausalLM.from_pretrained(model_path), tmp_path / "run")
    trainer.add_callback(OversharpCallback(trainer, budget_s=300, wait=True, **SMALL))
    trainer.train()
    assert trainer.state.global_step == 4
    assert logged(trainer) == {}
    assert "tokenizer.json missing" in warned(caplog)[0]


def test_a_missing_base_is_an_error(tmp_path: Path) -> None:
    trainer = make_trainer(build_model(seed=0), tmp_path / "run")
    with pytest.raises(
        ConfigError, match=r"base: the trainer's model was .*; save it to a directory and pass base=DIR"
    ):
        OversharpCallback(trainer, **SMALL)


def test_a_checkpoint_of_the_run_is_rejected_as_base(
    make_checkpoint: Callable[[Path, int], Path], tmp_path: Path
) -> None:
    model = Qwen3ForCausalLM.from_pretrained(make_checkpoint(tmp_path / "run/checkpoint-2", 0))
    with pytest.raises(ConfigError, match="checkpoint-2, a checkpoint of the same run; pass base=DIR"):
        OversharpCallback(make_trainer(model, tmp_path / "run"), **SMALL)


def test_invalid_settings_are_rejected_before_the_training(model_path: Path, tmp_path: Path) -> None:
    trainer = make_trainer(Qwen3ForCausalLM.from_pretrained(model_path), tmp_path / "run", model_path)
    with pytest.raises(ConfigError, match="samples: no such setting of an audit"):
        OversharpCallback(trainer, task="countdown", samples=3)
    with pytest.raises(ConfigError, match="n: pass an AuditConfig or settings by name, not both"):
        OversharpCallback(trainer, AuditConfig(task="countdown"), n=3)
    several = SimpleNamespace(
        args=SimpleNamespace(output_dir=str(tmp_path / "run"), world_size=8, ddp_timeout=600), model=trainer.model
    )
    with pytest.raises(ConfigError, match=r"budget_s 600: the other processes stop waiting .* ddp_timeout=600"):
        OversharpCallback(several, **SMALL)
