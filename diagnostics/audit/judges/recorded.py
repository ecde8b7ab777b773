"""Caveats of a verdict whose grades are a judge's: the measured errors of the judge, or that there are none."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from oversharp.diagnostics.records.types import AuditKey
from oversharp.diagnostics.store import Store
from oversharp.diagnostics.verifiers.names import grader_name, is_judge

#: Stage of the event that ``oversharp judge`` logs. Its note is JSON with ``verifier``, ``sentences`` and the numbers.
JUDGE_STAGE = "judge"
_LAST = """
SELECT note
FROM events
WHERE audit_id = $audit_id AND stage = $stage AND note ->> '$.verifier' = $verifier
ORDER BY logged_at DESC, note
LIMIT 1
"""


def judge_caveats(store: Store, key: AuditKey, verifiers: Iterable[str]) -> Iterator[str]:
    """Yield a sentence for each measured fault of each judge, or that the judge is unverified."""
    for verifier in sorted(filter(is_judge, set(verifiers))):
        rows = store.frame(_LAST, audit_id=key.audit_id, stage=JUDGE_STAGE, verifier=verifier)["note"]
        if len(rows):
            yield from map(str, json.loads(str(rows.iloc[0]))["sentences"])
        else:
            yield unverified_caveat(verifier)


def unverified_caveat(verifier: str) -> str:
    """Return the caveat of a judge without gold labels.

    >>> unverified_caveat("judge:rubric.toml@3f2a00112233")[:62]
    'The judge judge:rubric.toml@3f2a00112233 is unverified: it has'
    """
    return (
        f"The judge {grader_name(verifier)} is unverified: it has no gold labels, so its errors and their change are "
        "unknown. `oversharp judge STORE --verifier judge:FILE.toml --draw-labels 100` writes responses to label."
    )
