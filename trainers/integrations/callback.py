"""Live audit in ``transformers.Trainer`` (5), TRL's ``GRPOTrainer`` (1.16) and our ``CalibratedGRPOTrainer``.

    from oversharp.trainers.integrations.callback import OversharpCallback

    trainer.add_callback(OversharpCallback(trainer, problems="held_out.jsonl"))
    trainer.train()

Every saved checkpoint is audited during training; see ``oversharp.trainers.integrations.live``. Findings are logged by
the trainer's loggers and in ``trainer.state.log_history``, at the step of their checkpoint, as ``oversharp/pass@1`` and
so on (``train/oversharp/…`` if transformers adds its prefix).

Findings are a separate log for the callbacks, for two reasons. Reporting callbacks run before the user's callbacks, so
they would miss entries that this callback adds to a log. And ``trainer.log`` of TRL averages and resets TRL's metrics.
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
    """Audit the checkpoints of ``trainer``, in its main process only."""

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
        """Check the settings before training.

        Args:
            trainer: Trainer whose checkpoints are audited.
            config: Complete audit settings, instead of ``settings``.
            budget_s: See ``LiveAudit``, also for ``wait``, ``gpus`` and ``python``.
            settings: Settings of ``AuditConfig`` by name, with the defaults of ``live_config``. ``base``, the model
                before training, defaults to the directory or cached hub model that the trainer's model was loaded
                from. With LoRA, this is the model under the adapters.

        Raises:
            OversharpError: a setting is invalid.
        """
        if config is not None and settings:
            raise ConfigError(f"{sorted(settings)[0]}: pass an AuditConfig or settings by name, not both")
        run_dir = Path(trainer.args.output_dir)
        chosen = live_config(run_dir, settings if config is None else config)
        if chosen.base is None:
            chosen = live_config(run_dir, _with_base(chosen, trainer.model, run_dir))
        timeout_s = trainer.args.ddp_timeout
        if trainer.args.world_size > 1 and budget_s >= timeout_s:
            raise ConfigError(
                f"budget_s {budget_s:g}: the other processes stop waiting for this one after ddp_timeout={timeout_s} "
                "s; lower budget_s or raise ddp_timeout"
            )
        self.live = LiveAudit(run_dir, chosen, budget_s=budget_s, wait=wait, gpus=gpus, python=python)
        self._trainer = trainer

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Move this callback to the first position, so that it logs the last findings before the loggers close."""
        callbacks = self._trainer.callback_handler.callbacks
        callbacks.remove(self)
        callbacks.insert(0, self)

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Audit the saved checkpoint, and log new findings."""
        if state.is_world_process_zero:
            if self.live.wait:
                _release_gpu_memory()
            self._log(self.live.audit_step(state.global_step))

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Log new findings if an audit has finished."""
        if state.is_world_process_zero:
            self._log(self.live.poll())

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Wait for the last audit, at most the budget, and log its findings."""
        if state.is_world_process_zero:
            self._log(self.live.finish())

    def _log(self, all_findings: list[LiveFindings]) -> None:
        trainer = self._trainer
        for findings in all_findings:
            state = copy(trainer.state)  # a shallow copy: log_history is that of the trainer's state
            state.global_step = findings.step
            state.log_history.append({**findings.log_entries, "step": findings.step})
            should_log = trainer.control.should_log
            trainer.control = trainer.callback_handler.on_log(
                trainer.args, state, trainer.control, findings.log_entries
            )
            trainer.control.should_log = should_log  # on_log resets it, but the trainer's own log is not written yet


def _with_base(config: AuditConfig, model: Any, run_dir: Path) -> AuditConfig:
    """Return the settings with ``base`` set to the model that the trainer started from.

    Raises ``ConfigError`` if that model is not on this machine.
    """
    adapters = getattr(model, "peft_config", None)
    if adapters:
        name = next(iter(adapters.values())).base_model_name_or_path
    else:
        name = getattr(getattr(model, "config", None), "_name_or_path", "")
    located = locate_model(name) if name else None
    if located is None:
        origin = f"loaded from {name}, which does not exist here" if name else "not loaded from a directory"
        raise ConfigError(f"base: the trainer's model was {origin}; save it to a directory and pass base=DIR")
    if located.absolute().is_relative_to(run_dir.absolute()):
        raise ConfigError(f"base: the trainer's model is {located}, a checkpoint of the same run; pass base=DIR")
    return replace(config, base=located)


def _release_gpu_memory() -> None:
    """Free the GPU memory that torch caches, because the audit may run on the same GPU."""
    from torch import cuda

    if cuda.is_initialized():
        cuda.empty_cache()
