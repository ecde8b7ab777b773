"""Log what a server answered and used, and find checkpoints that the server may have confused."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations

from oversharp.diagnostics.records.amounts import plural
from oversharp.diagnostics.records.types import AuditKey, Checkpoint
from oversharp.diagnostics.samplers.contract import SamplerReport
from oversharp.diagnostics.samplers.endpoint.fingerprint import (
    FINGERPRINT_STAGE,
    ROUNDING_NATS,
    AnswerFingerprint,
    are_alike,
    difference_nats,
)
from oversharp.diagnostics.samplers.endpoint.usage import USAGE_STAGE
from oversharp.diagnostics.store import Store


def log_reports(
    store: Store, key: AuditKey, checkpoint: Checkpoint, reports: Sequence[SamplerReport], note: Callable[[str], None]
) -> None:
    """Log the reports of a sampler as events of the audit.

    Prints a warning if another checkpoint of the series has the same fingerprint, or if this one had another before.
    """
    for report in reports:
        before = set(_find_confused(store, key)) if report.stage == FINGERPRINT_STAGE else set()
        store.log_event(
            key, report.stage, wall_s=report.wall_s, rows=0, checkpoint_id=checkpoint.checkpoint_id, note=report.note
        )
        if report.stage == FINGERPRINT_STAGE:
            for first, second in _find_confused(store, key):
                if (first, second) not in before:
                    note(f"warning: {_describe(first, second)}")


def confused_checkpoints(store: Store, key: AuditKey) -> tuple[str, ...]:
    """Return a sentence for each pair of checkpoints for which a server gave equal greedy responses.

    Also for each checkpoint whose responses differ between two runs, or name another model than the requested one.
    Checkpoints with equal weights, and the samples of an engine in this process, have no such sentence.
    """
    alike = [f"{_describe(first, second)}." for first, second in _find_confused(store, key)]
    sentences = [f"T{text[1:]}" if text.startswith("the server") else text for text in alike]
    return (*sentences, *_find_other_models(store, key))


def _find_confused(store: Store, key: AuditKey) -> Iterator[tuple[str, str]]:
    """Yield the labels of two checkpoints with different weights and the same fingerprint, in the order of steps.

    A checkpoint is compared with those before it, and named with the first that is alike. The first fingerprint of a
    checkpoint counts. Without log-probabilities, similar checkpoints may give equal responses, so such pairs are only
    yielded if every checkpoint is in one. If two fingerprints of a checkpoint are of different weights, both labels are
    those of this checkpoint.
    """
    rows = store.frame(
        """
        SELECT c.checkpoint_id, any_value(c.checkpoint) AS label, list(e.note ORDER BY e.logged_at) AS notes
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
    before: list[tuple[str, str, AnswerFingerprint]] = []
    weak: list[tuple[str, str]] = []
    for row in rows.itertuples():
        # steps with equal weights have the same hash, followed by a hyphen and the step
        weights, own = str(row.checkpoint_id).split("-")[0], [AnswerFingerprint.from_json(note) for note in row.notes]
        fingerprint = own[0]
        alike = [label for label, other, theirs in before if other != weights and are_alike(fingerprint, theirs)]
        if alike and all(answer.logps is not None for answer in fingerprint.answers):
            yield alike[0], str(row.label)
        elif alike:
            weak.append((alike[0], str(row.label)))
        before.append((str(row.label), weights, fingerprint))
        if any((difference_nats(*pair) or 0.0) > ROUNDING_NATS for pair in combinations(own, 2)):
            yield str(row.label), str(row.label)
    if weak and len(weak) == len(before) - 1:
        yield from weak


def _find_other_models(store: Store, key: AuditKey) -> Iterator[str]:
    """Yield a sentence about checkpoints whose responses name another model than the requested one."""
    rows = store.frame(
        """
        SELECT c.step, any_value(c.checkpoint) AS label, any_value(e.note->>'model') AS model,
            any_value(e.note->>'$.answered_as[0]') AS other
        FROM events AS e
        SEMI JOIN (FROM audits WHERE series = $series AND settings_id = $settings_id) USING (audit_id)
        JOIN series_checkpoints AS c ON c.checkpoint_id = e.checkpoint_id AND c.series = $series
        WHERE e.stage = $stage AND json_array_length(e.note->'answered_as') > 0
        GROUP BY c.step
        ORDER BY c.step
        """,
        series=key.series,
        settings_id=key.settings_id,
        stage=USAGE_STAGE,
    )
    if len(rows):
        first = rows.iloc[0]
        more = f" (so at {plural(len(rows), 'checkpoint')})" if len(rows) > 1 else ""
        yield (
            f"The server was asked for the model {first['model']!r} for {first['label']}, and its responses name the "
            f"model {first['other']!r}{more}. Check which model it serves."
        )


def _describe(first: str, second: str) -> str:
    if first == second:
        return (
            f"{first}: the server's greedy responses differ from those of an earlier run of this audit, so its samples "
            "may be of two models. Drop them (`oversharp drop`), and run the audit again"
        )
    return (
        f"the server answers alike for {first} and {second}: it may serve one model for both. Check its models, drop "
        "the samples (`oversharp drop`), and run the audit again"
    )
