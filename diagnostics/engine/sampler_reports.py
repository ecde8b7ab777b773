"""Log what a server answered and used, and find checkpoints that a server may have confused."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from oversharp.diagnostics.records.types import AuditKey, Checkpoint
from oversharp.diagnostics.samplers import SamplerReport
from oversharp.diagnostics.samplers.endpoint.fingerprint import FINGERPRINT_STAGE, AnswerFingerprint, are_alike
from oversharp.diagnostics.store import Store


def log_reports(
    store: Store, key: AuditKey, checkpoint: Checkpoint, reports: Sequence[SamplerReport], note: Callable[[str], None]
) -> None:
    """Log the reports of a sampler as events of the audit.

    Prints a warning if another checkpoint of the series has the same fingerprint. It is printed once per checkpoint:
    later fingerprints of the same checkpoint are not compared again.
    """
    for report in reports:
        if report.stage == FINGERPRINT_STAGE:
            before = _fingerprints(store, key)
            if checkpoint.checkpoint_id not in before:
                _warn_if_alike(checkpoint, AnswerFingerprint.from_json(report.note), before, note)
        store.log_event(
            key, report.stage, wall_s=report.wall_s, rows=0, checkpoint_id=checkpoint.checkpoint_id, note=report.note
        )


def _fingerprints(store: Store, key: AuditKey) -> dict[str, tuple[str, AnswerFingerprint]]:
    """Return the first fingerprint of each checkpoint of the series: checkpoint id → (label, fingerprint)."""
    rows = store.frame(
        """
        SELECT c.checkpoint_id, any_value(c.checkpoint) AS label, arg_min(e.note, e.logged_at) AS note
        FROM events AS e
        SEMI JOIN (FROM audits WHERE series = $series AND settings_id = $settings_id) USING (audit_id)
        JOIN series_checkpoints AS c ON c.checkpoint_id = e.checkpoint_id AND c.series = $series
        WHERE e.stage = $stage
        GROUP BY c.checkpoint_id
        ORDER BY min(c.step)
        """,
        series=key.series,
        settings_id=key.settings_id,
        stage=FINGERPRINT_STAGE,
    )
    return {
        str(row.checkpoint_id): (str(row.label), AnswerFingerprint.from_json(str(row.note)))
        for row in rows.itertuples()
    }


def _warn_if_alike(
    checkpoint: Checkpoint,
    fingerprint: AnswerFingerprint,
    others: dict[str, tuple[str, AnswerFingerprint]],
    note: Callable[[str], None],
) -> None:
    for checkpoint_id, (label, other) in others.items():
        has_same_weights = checkpoint_id.split("-")[0] == checkpoint.weights_hash
        if not has_same_weights and are_alike(fingerprint, other):
            note(
                f"warning: {checkpoint.label} and {label} have different weights, but the server answers alike for "
                "both: it may serve one model for both; check its models, drop the samples with `oversharp drop`, and "
                "run the audit again"
            )
