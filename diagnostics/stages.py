"""Two stages that an audit and a confirmation share: draw what the store lacks, and grade what is new."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import pandas as pd

from diagnostics.engine import Engine
from diagnostics.pending import missing_samples
from diagnostics.progress import ProgressSink
from diagnostics.store import Store
from diagnostics.types import AuditKey, Checkpoint, Problem, SamplingSettings
from diagnostics.verifiers import Verifiers

GRADES_PER_COMMIT = 4096


def draw(
    store: Store,
    engine: Engine,
    checkpoint: Checkpoint,
    problems: Sequence[Problem],
    settings: SamplingSettings,
    planned: Mapping[str, int],
    *,
    greedy: bool,
    key: AuditKey,
    what: str,
    say: ProgressSink,
) -> int:
    """Draw the samples of one checkpoint that the store lacks; returns how many were drawn.

    ``planned``: problem id → samples wanted. ``what`` names the stage to the user and in the events of audit ``key``.
    """
    missing = missing_samples(store, settings.settings_id, checkpoint.checkpoint_id, planned, greedy=greedy)
    total = sum(len(indices) + lacks_greedy for indices, lacks_greedy in missing.values())
    if not total:
        return 0
    start = time.perf_counter()
    with say.stage(f"{what} {checkpoint.label}", total) as advance:
        for batch in engine.sample(checkpoint, problems, missing, settings):
            store.add_samples(settings.settings_id, checkpoint.checkpoint_id, batch)
            advance(len(batch))
    wall_s = time.perf_counter() - start
    store.log_event(key, what, wall_s=wall_s, rows=total, checkpoint_id=checkpoint.checkpoint_id)
    return total


def grade(
    store: Store, problems: Sequence[Problem], pending: pd.DataFrame, *, key: AuditKey, say: ProgressSink
) -> None:
    """Grade distinct responses (``problem_id, response_id, verifier, text``) and commit them in batches."""
    if pending.empty:
        return
    by_id = {problem.problem_id: problem for problem in problems}
    start = time.perf_counter()
    with say.stage("verify", len(pending)) as advance, Verifiers() as verifiers:
        for first in range(0, len(pending), GRADES_PER_COMMIT):
            rows = pending.iloc[first : first + GRADES_PER_COMMIT]
            items = [(by_id[row.problem_id], row.text) for row in rows.itertuples()]
            grades = verifiers.grade(items)
            store.add_grades(zip(rows["problem_id"], rows["response_id"], rows["verifier"], grades, strict=True))
            advance(len(rows))
    store.log_event(key, "verify", wall_s=time.perf_counter() - start, rows=len(pending))
