"""Live audit in verl (0.9.1, not 0.9.0): a ``trainer.checkpoint_callback_class``, called after every checkpoint.

    python3 -m verl.trainer.main_ppo \\
        trainer.checkpoint_callback_class=oversharp.trainers.integrations.verl_live.OversharpCheckpointCallback \\
        +trainer.oversharp.problems=/data/held_out.jsonl +trainer.oversharp.python=/opt/oversharp/bin/python \\
        actor_rollout_ref.actor.checkpoint.save_contents=[model,optimizer,extra,hf_model] \\
        trainer.save_freq=20 ...

together with the other arguments of the run. ``+trainer.oversharp.*`` are the settings of ``AuditConfig``, with the
defaults of ``live_config``, and ``budget_s``, ``wait``, ``gpus`` and ``python`` of ``LiveAudit``. The base defaults to
``actor_rollout_ref.model.path``, a directory or a cached hub model. ``hf_model`` makes verl write weights in the format
of transformers. This does not work in LoRA runs with FSDP, whose adapters must be merged from the shards: a warning
prints the command, and the run can be audited later.

The audit runs on the machine of verl's trainer process, which gets no GPU from Ray. Set ``gpus`` to GPUs that verl's
workers do not use. Otherwise the audit uses the CPU. verl's loggers accept no earlier steps, so the findings of the
newest audited checkpoint are in the log of the next step as ``oversharp/…``, with the checkpoint's step as
``oversharp/step``.

verl's older trainer (``trainer.use_v1=false``) does not support this callback.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from oversharp.diagnostics.records.errors import ConfigError
from oversharp.diagnostics.series.layouts import find_place
from oversharp.trainers.integrations.live import LiveAudit
from oversharp.trainers.integrations.live_config import live_config
from oversharp.trainers.integrations.live_findings import LiveFindings

#: Section of verl's configuration that has the settings of the audit.
SECTION = "trainer.oversharp"
_LIVE_AUDIT_SETTINGS = ("budget_s", "wait", "gpus", "python")
#: Setting of dynamic sampling, which drops groups of rollouts that are all correct or all wrong.
FILTERS = "algorithm.filter_groups"
_NOT_FILTERED = (
    "drops training groups that are all correct or all wrong. The audit samples its own problems, so this does not "
    "affect it, unless rollouts of the base selected these problems (--selected-by base) or you import the dumps of "
    "the training rollouts"
)
#: Setting that makes verl write weights in the format of transformers.
_SAVE_MODEL = "actor_rollout_ref.actor.checkpoint.save_contents=[model,optimizer,extra,hf_model]"


class OversharpCheckpointCallback:
    """Callback that audits the checkpoints of a run of verl."""

    def __init__(self, config: Any) -> None:
        """Read the settings from verl's complete configuration. Raise ``OversharpError`` if a setting is invalid."""
        settings = _section(config)
        live_settings = {name: settings.pop(name) for name in _LIVE_AUDIT_SETTINGS if name in settings}
        if isinstance(live_settings.get("gpus"), int):
            live_settings["gpus"] = str(live_settings["gpus"])
        run_dir = Path(config.trainer.default_local_dir)
        chosen = live_config(run_dir, {"base": config.actor_rollout_ref.model.path, **settings})
        self.live = LiveAudit(run_dir, chosen, **live_settings)
        filters = config.algorithm.get("filter_groups")
        if filters and filters.get("enable"):
            self.live.warn(f"{FILTERS}: {_NOT_FILTERED}")
        self._findings: Mapping[str, float] = {}
        self._tracking: object = None
        self._is_blocked = False

    def on_save(
        self, trainer: Any, global_step: int, checkpoint_dir: str, async_save: bool = False, **kwargs: Any
    ) -> None:
        """Audit a checkpoint. After the last checkpoint, wait for its audit, at most the budget."""
        self._extend_logs(trainer.logger)
        obstacle = _obstacle(Path(checkpoint_dir).absolute())
        if obstacle and not async_save:
            if not self._is_blocked:
                self.live.warn(f"{checkpoint_dir}: {obstacle}. The training continues without audits until then")
            self._is_blocked = True
            return
        self._is_blocked = False
        self._store_findings(self.live.audit_step(global_step))
        if trainer.global_steps >= trainer.total_training_steps:
            self._store_findings(self.live.finish())

    def _extend_logs(self, tracking: Any) -> None:
        """Add findings to verl's next log, because its loggers accept one log per step."""
        if tracking is self._tracking:
            return
        self._tracking = tracking
        log: Callable[..., None] = tracking.log

        def log_with_findings(data: Mapping[str, Any], step: int, backend: Any = None) -> None:
            self._store_findings(self.live.poll())
            metrics, self._findings = self._findings, {}
            log(data={**data, **metrics}, step=step, backend=backend)

        tracking.log = log_with_findings

    def _store_findings(self, all_findings: list[LiveFindings]) -> None:
        if all_findings:
            self._findings = all_findings[-1].values


def _obstacle(checkpoint: Path) -> str:
    """Return why the weights of a step cannot be read, with a fix; "" if they can be read."""
    place = find_place(checkpoint)
    if place.obstacle and "LoRA" not in place.obstacle:  # with LoRA, the setting does not help
        return f"{place.obstacle}, or train with {_SAVE_MODEL}"
    return place.obstacle


def _section(config: Any) -> dict[str, Any]:
    from omegaconf import OmegaConf

    section = OmegaConf.select(config, SECTION)
    if section is None:
        raise ConfigError(f"{SECTION}: missing; pass at least +{SECTION}.problems=FILE.jsonl or +{SECTION}.task=NAME")
    return dict(OmegaConf.to_container(section, resolve=True))
