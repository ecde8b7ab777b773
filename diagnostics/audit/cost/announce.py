"""The lines on an audit's cost before it samples, and the pace that later lines are computed from."""

from __future__ import annotations

import shutil
import time

from oversharp.diagnostics.audit.cost.estimate import estimate_sampling
from oversharp.diagnostics.audit.prepare import PreparedAudit
from oversharp.diagnostics.audit.settings import CHARACTERS_PER_TOKEN
from oversharp.diagnostics.records.pace import Pace
from oversharp.diagnostics.store.load import cost_before
from oversharp.diagnostics.store.missing import OtherDraw, samples_to_draw


def open_pace(prepared: PreparedAudit) -> Pace:
    """Return the pace of all that the store lacks: own samples and greedy responses, the panel, controls."""
    settings = prepared.settings
    controls = settings.controls
    base, last = prepared.series.base, prepared.series.checkpoints[-1]
    others = []
    if settings.panel:
        others.append(OtherDraw(base.checkpoint_id, settings.panel_sampling.settings_id, settings.panel))
    if controls is not None:
        others += [OtherDraw(base.checkpoint_id, one.settings_id, controls.n) for one in controls.colder]
        if last is not base:
            others += [OtherDraw(last.checkpoint_id, one.settings_id, controls.n_hot) for one in controls.hotter]
    lacking = samples_to_draw(prepared.store, prepared.key, others)
    perhaps = 0
    if controls is not None and len(prepared.series.checkpoints) > 2:  # the one to ship may be none of these two
        perhaps = controls.n_hot * len(controls.hotter) * len(prepared.problems)
    return Pace(lacking, began=time.monotonic(), perhaps=perhaps, fewer=settings.is_adaptive)


def announce_cost(prepared: PreparedAudit, pace: Pace) -> None:
    """Print how much there is to sample, and its cost: by what the store's samples took, else a rough estimate."""
    store, key, note = prepared.store, prepared.key, prepared.progress.note
    note(pace.start_line(max_tokens=prepared.settings.sampling.max_tokens))
    cost = cost_before(store, key)
    estimate = _estimate(prepared, pace) if cost.n == 0 else ""
    note(estimate or pace.cost_line(cost, free_bytes=shutil.disk_usage(store.path.parent).free))


def _estimate(prepared: PreparedAudit, pace: Pace) -> str:
    """Return a line on how long sampling the base's model may take here; empty for workers elsewhere."""
    if prepared.settings.uses_ray:
        return ""
    prompts = [len(problem.prompt) for problem in prepared.problems]
    return estimate_sampling(
        str(prepared.series.base.path),
        n_samples=pace.total,
        max_tokens=prepared.settings.sampling.max_tokens,
        prompt_tokens=sum(prompts) / len(prompts) / CHARACTERS_PER_TOKEN,
        device=prepared.settings.engine.config.device,
    )
