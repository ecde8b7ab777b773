"""Computes findings and verdict, only where they are not up to date.

They are made from every row of the public relations of their series (samples with their text, grades, scores, token
log-probabilities, kernels, training responses, …), the settings of the audit, what was left out and why, the source of
oversharp and the versions of the packages it computes with. They are up to date while all of that, and they themselves,
are what is on record. Whatever cannot be told is computed anew: without a record, with findings that somebody changed,
or with measures of other packages, whose code is not known here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple

from diagnostics.records.progress import ProgressSink
from diagnostics.records.types import AuditKey
from diagnostics.store import Store
from diagnostics.store.derivations import (
    Derivation,
    code_hash,
    digest,
    findings_of,
    record_derivation,
    recorded_derivations,
    relation_states,
)
from diagnostics.verdict.record import Verdict

_RESULTS = ("findings", "verdicts", "verdict_looks")
#: Relations that say nothing more: counts of ``graded_samples``, parts of the verdict, and the audit's settings, which
#: its key has, what the verdict is told of it too.
_NO_EVIDENCE = (
    "answer_counts",
    "audit_samples",
    "base_responses",
    "grade_disagreements",
    "greedy_grades",
    "own_samples",
    "problem_counts",
    "sampled_counts",
    "verdict_claims",
    "audits",
    "checkpoint_verdicts",
    "current_audits",
    "shipping",
    *_RESULTS,
)
#: Taken as the code is loaded, not when it has run for hours: what somebody edits meanwhile is not what ran.
_CODE = code_hash("diagnostics")


def findings_and_verdict(
    store: Store, key: AuditKey, failed: Mapping[str, str], skipped: Mapping[str, str], progress: ProgressSink
) -> Verdict:
    """Measure and judge, or keep what is up to date; the arguments are those of ``measure.conclude``."""
    what = findings_of(key.series)
    evidence = _evidence(store, key, failed, skipped)
    if evidence is not None and recorded_derivations(store.path).get(what) == _results(store, key, evidence):
        verdict = store.verdict(key.series)
        if verdict is not None:
            progress.note(f"findings and verdict of {key.series} stand: nothing that they rest on has changed")
            return verdict

    from diagnostics.audit.measure import conclude, measure  # they bring scipy

    measure(store, key, failed, progress)
    verdict = conclude(store, key, failed, skipped, progress)
    if evidence is not None:
        record_derivation(store.path, what, _results(store, key, evidence))
    return verdict


def _evidence(store: Store, key: AuditKey, failed: Mapping[str, str], skipped: Mapping[str, str]) -> str | None:
    if _CODE is None:
        return None
    relations = store.frame(
        """
        SELECT DISTINCT table_name
        FROM duckdb_columns()
        WHERE NOT internal AND column_name = 'series'
        ORDER BY table_name
        """
    )
    names = [name for name in relations["table_name"] if name not in _NO_EVIDENCE]
    states = relation_states(
        store,
        [
            *(f'FROM "{name}" AS r WHERE series = $series' for name in names),
            "FROM (FROM audit_problems JOIN problems USING (problem_id) WHERE audit_id = $audit_id) AS r",
        ],
        series=key.series,
        audit_id=key.audit_id,
    )
    return digest(_CODE, astuple(key), sorted(failed.items()), sorted(skipped.items()), names, states)


def _results(store: Store, key: AuditKey, evidence: str) -> Derivation:
    own = """(SELECT * REPLACE (json_merge_patch(document, '{"shipping": null}') AS document) FROM verdicts)"""
    # which checkpoint to ship depends on other series too, and whatever audit concludes on those writes it
    tables = [own if name == "verdicts" else f'"{name}"' for name in _RESULTS]
    sources = [f"FROM {table} AS r WHERE series = $series" for table in tables]
    return Derivation(made_from=evidence, made=digest(relation_states(store, sources, series=key.series)))
