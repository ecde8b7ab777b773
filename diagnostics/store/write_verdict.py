"""Writes verdicts, and counts looks: how often that of a series was read while it grew. ``load.py`` reads them back."""

from __future__ import annotations

from collections.abc import Sequence

from diagnostics.records.types import VerdictTerms, content_hash
from diagnostics.store.database import Database
from diagnostics.verdict.record import Verdict

#: The base and the checkpoints of ``$steps``, with their samples per problem and problems. A step that was trained anew
#: is another checkpoint.
COMPARED = """
SELECT checkpoint_id, min(n_planned) AS n, count(*) AS n_problems
FROM planned_samples
WHERE series = $series AND (is_base OR list_contains($steps::INTEGER[], step))
GROUP BY checkpoint_id, is_base, step
ORDER BY is_base DESC, step
"""


def look_ids(compared: Sequence[tuple[str, int, int]]) -> tuple[str, str]:
    """What a look is known by: the base and the checkpoints that it compares, samples and problems, as ``COMPARED``.

    The second is what it was known by before these counted: stores of then hold it.
    """
    return content_hash(*(" ".join(map(str, one)) for one in compared)), content_hash(*(one[0] for one in compared))


def record_verdict(database: Database, audit_id: str, verdict: Verdict) -> bool:
    """See ``Store.replace_verdict``."""
    document = verdict.to_json()
    held = database.rows("SELECT document::VARCHAR FROM audit_verdicts WHERE audit_id = ?", [audit_id])
    if held == [(document,)]:
        return False
    with database.transaction():
        database.rows(
            "INSERT OR REPLACE INTO audit_verdicts VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            [
                *(audit_id, verdict.label, verdict.sentence),
                *(verdict.p_exact, verdict.p_population, verdict.p_minority, verdict.k_most, document),
            ],
        )
    return True


def record_look(database: Database, series: str, steps: Sequence[int], terms: VerdictTerms) -> int:
    """See ``Store.add_look``."""
    ids = look_ids(database.rows(COMPARED, {"series": series, "steps": list(steps)}))
    held = database.rows("SELECT look_id, number, runs FROM verdict_looks WHERE series = ?", [series])
    look, number, runs = next((row for row in held if row[0] in ids), (ids[0], len(held) + 1, 0))
    if terms.runs > runs:
        with database.transaction():
            database.rows(
                "INSERT OR REPLACE INTO verdict_looks VALUES (?, ?, ?, ?, ?, ?)",
                [series, look, number, list(steps), terms.looks, terms.runs],
            )
    return int(number)
