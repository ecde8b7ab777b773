"""The live audit in verl (0.9.1, not 0.9.0): ``trainer.checkpoint_callback_class``, called after every checkpoint.

    python3 -m verl.trainer.main_ppo \\
        trainer.checkpoint_callback_class=oversharp.trainers.integrations.verl_live.OversharpCheckpointCallback \\
        +trainer.oversharp.problems=/data/held_out.jsonl +trainer.oversharp.python=/opt/oversharp/bin/python \\
        actor_rollout_ref.actor.checkpoint.save_contents=[model,optimizer,extra,hf_model] \\
        trainer.save_freq=20 ...

beside what the run says anyway. ``+trainer.oversharp.*`` are the settings of ``AuditConfig``, with the defaults of
``live_config``, and ``budget_s``, ``wait``, ``gpus`` and ``python`` of ``LiveAudit``. The base is by default
``actor_rollout_ref.model.path``, a directory or a cached model of the hub. ``hf_model`` makes verl write weights that
others read. Of a LoRA run with FSDP it does not, the adapters have to be merged out of the shards: such a run is warned
with the command, and can be audited afterwards.

The audit runs where verl's trainer process runs, to which Ray gives no GPU: name some by ``gpus``, which verl's workers
leave alone, or let it take the CPU. What it finds is in the next step's log as ``oversharp/…``, of the newest audited
checkpoint; ``oversharp/step`` says which. Steps of verl's loggers only go up, so nothing is logged under older ones.

verl's older trainer (``trainer.use_v1=false``) knows no such callback.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from oversharp.diagnostics.records.errors import ConfigError
from oversharp.diagnostics.series.layouts import recognised
from oversharp.trainers.integrations.live import LiveAudit
from oversharp.trainers.integrations.live_config import live_config
from oversharp.trainers.integrations.live_findings import LiveFindings

#: Where the settings are in verl's configuration.
SECTION = "trainer.oversharp"
_OF_LIVE_AUDIT = ("budget_s", "wait", "gpus", "python")
#: What verl's FSDP writes beside the shards of an adapted model.
_SAVE_MODEL = "actor_rollout_ref.actor.checkpoint.save_contents=[model,optimizer,extra,hf_model]"


class OversharpCheckpointCallback:
    """What verl makes of the class that ``trainer.checkpoint_callback_class`` names."""

    def __init__(self, config: Any) -> None:
        """``config`` is verl's whole configuration. ``OversharpError`` for settings that cannot work."""
        settings = _section(config)
        of_live = {name: settings.pop(name) for name in _OF_LIVE_AUDIT if name in settings}
        if isinstance(of_live.get("gpus"), int):
            of_live["gpus"] = str(of_live["gpus"])
        run_dir = Path(config.trainer.default_local_dir)
        chosen = live_config(run_dir, {"base": config.actor_rollout_ref.model.path, **settings})
        self.live = LiveAudit(run_dir, chosen, **of_live)
        self._found: Mapping[str, float] = {}
        self._followed: object = None
        self._refused = False

    def on_save(
        self, trainer: Any, global_step: int, checkpoint_dir: str, async_save: bool = False, **kwargs: Any
    ) -> None:
        """Tell of a checkpoint that verl wrote; after the last one, wait for its audit within the budget."""
        self._follow(trainer.logger)
        obstacle = _obstacle(Path(checkpoint_dir).absolute())
        if obstacle and not async_save:
            if not self._refused:
                self.live.warn(f"{checkpoint_dir}: {obstacle}. The training goes on without audits until then")
            self._refused = True
            return
        self._refused = False
        self._keep(self.live.saved(global_step))
        if trainer.global_steps >= trainer.total_training_steps:
            self._keep(self.live.finish())

    def _follow(self, tracking: Any) -> None:
        """Add to what verl logs next: its loggers take one log for a step."""
        if tracking is self._followed:
            return
        self._followed = tracking
        log: Callable[..., None] = tracking.log

        def log_with_findings(data: Mapping[str, Any], step: int, backend: Any = None) -> None:
            self._keep(self.live.poll())
            metrics, self._found = self._found, {}
            log(data={**data, **metrics}, step=step, backend=backend)

        tracking.log = log_with_findings

    def _keep(self, all_findings: list[LiveFindings]) -> None:
        if all_findings:
            self._found = all_findings[-1].values


def _obstacle(checkpoint: Path) -> str:
    """Why the weights in verl's folder of one step cannot be read, and the mend; empty where they can."""
    place = recognised(checkpoint)
    if place.obstacle and "LoRA" not in place.obstacle:  # with LoRA that setting would not help
        return f"{place.obstacle}, or train with {_SAVE_MODEL}"
    return place.obstacle


def _section(config: Any) -> dict[str, Any]:
    from omegaconf import OmegaConf

    section = OmegaConf.select(config, SECTION)
    if section is None:
        raise ConfigError(f"{SECTION}: missing; say at least +{SECTION}.problems=FILE.jsonl or +{SECTION}.task=NAME")
    return dict(OmegaConf.to_container(section, resolve=True))
