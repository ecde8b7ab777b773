"""The live audit in ``transformers.Trainer`` (5), TRL's ``GRPOTrainer`` (1.16) and our ``CalibratedGRPOTrainer``.

    from oversharp.trainers.integrations.callback import OversharpCallback

    trainer.add_callback(OversharpCallback(trainer, problems="held_out.jsonl"))
    trainer.train()

Every checkpoint that the trainer saves is audited while the run goes on; see ``oversharp.trainers.integrations.live``.
Findings reach the trainer's own loggers, and ``trainer.state.log_history``, under the step of their checkpoint, as
``oversharp/pass@1`` and so on (``train/oversharp/…`` where transformers puts its prefix).

Reporting callbacks stand before those of the user and do not see what these add to a log, and ``trainer.log`` of TRL
averages and forgets its own metrics: so the findings are handed to the callbacks as a log of their own.
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from oversharp.diagnostics.audit.config import AuditConfig
from oversharp.diagnostics.records.errors import ConfigError
from oversharp.diagnostics.series.folders import locate_model
from oversharp.trainers.integrations.live import DEFAULT_BUDGET_S, LiveAudit
from oversharp.trainers.integrations.live_config import live_config
from oversharp.trainers.integrations.live_findings import LiveFindings


class OversharpCallback(TrainerCallback):
    """Audits the checkpoints of ``trainer``, in its main process alone."""

    def __init__(
        self,
        trainer: Any,
        config: AuditConfig | None = None,
        *,
        budget_s: float = DEFAULT_BUDGET_S,
        wait: bool | None = None,
        gpus: str | None = None,
        python: Path | str | None = None,
        **settings: Any,
    ) -> None:
        """``settings`` are those of ``AuditConfig`` by name, with the defaults of ``live_config``; or give ``config``.

        ``base``, the model before training, is by default the directory or the cached model of the hub that the
        trainer's model was loaded from, and with LoRA the model under the adapters. The other settings are those of
        ``LiveAudit``.

        Raises:
            OversharpError: a setting that cannot work, before the training has started.
        """
        if config is not None and settings:
            raise ConfigError(f"{sorted(settings)[0]}: give an AuditConfig or settings by name, not both")
        run_dir = Path(trainer.args.output_dir)
        chosen = live_config(run_dir, settings if config is None else config)
        if chosen.base is None:
            chosen = live_config(run_dir, _with_base(chosen, trainer.model, run_dir))
        timeout_s = trainer.args.ddp_timeout
        if trainer.args.world_size > 1 and budget_s >= timeout_s:
            raise ConfigError(
                f"budget_s {budget_s:g}: the other processes give up waiting for this one after ddp_timeout={timeout_s}"
                " s; lower budget_s or raise ddp_timeout"
            )
        self.live = LiveAudit(run_dir, chosen, budget_s=budget_s, wait=wait, gpus=gpus, python=python)
        self._trainer = trainer

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Take the first place: the last findings come at the end of training, where loggers close what they write."""
        callbacks = self._trainer.callback_handler.callbacks
        callbacks.remove(self)
        callbacks.insert(0, self)

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Tell of the checkpoint."""
        if state.is_world_process_zero:
            if self.live.wait:
                _release_gpu_memory()
            self._log(self.live.saved(state.global_step))

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Log what was found meanwhile."""
        if state.is_world_process_zero:
            self._log(self.live.poll())

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Wait for the last audit, within the budget."""
        if state.is_world_process_zero:
            self._log(self.live.finish())

    def _log(self, all_findings: list[LiveFindings]) -> None:
        trainer = self._trainer
        for findings in all_findings:
            state = copy(trainer.state)  # whose log_history is the trainer's own
            state.global_step = findings.step
            state.log_history.append({**findings.labelled, "step": findings.step})
            due = trainer.control.should_log
            trainer.control = trainer.callback_handler.on_log(trainer.args, state, trainer.control, findings.labelled)
            trainer.control.should_log = due  # the handler takes this log for the one that is due


def _with_base(config: AuditConfig, model: Any, run_dir: Path) -> AuditConfig:
    """With the model that the trainer started from, if it lies on this machine; adapters name theirs themselves."""
    adapters = getattr(model, "peft_config", None)
    if adapters:
        name = next(iter(adapters.values())).base_model_name_or_path
    else:
        name = getattr(getattr(model, "config", None), "_name_or_path", "")
    located = locate_model(name) if name else None
    if located is None:
        raise ConfigError(
            f"base: the trainer's model was loaded from {name or 'no directory'}, where nothing lies on this machine; "
            "pass base=DIR, or save the model there first"
        )
    if located.absolute().is_relative_to(run_dir.absolute()):
        raise ConfigError(f"base: the trainer's model is {located}, a checkpoint of this very run; pass base=DIR")
    return replace(config, base=located)


def _release_gpu_memory() -> None:
    """Give what the allocator keeps for later to the audit, which runs on the same GPU."""
    from torch import cuda

    if cuda.is_initialized():
        cuda.empty_cache()
