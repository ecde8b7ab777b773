"""Recompute findings and verdict only if they are out of date.

They depend on:

- all rows of their series: samples with text, grades, scores, token log-probabilities, kernels, training responses, …,
- the settings of the audit and the reasons of left-out checkpoints,
- the source code of oversharp and the versions of the packages it computes with.

They are up to date if the hashes of these inputs, and of the findings themselves, equal the recorded hashes. They are
recomputed if there is no record, if the findings were changed manually, or if another package adds measures, because
its code is not hashed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple
from types import MappingProxyType

from oversharp.diagnostics.audit.counts.recorded import CODE
from oversharp.diagnostics.audit.judges.recorded import JUDGE_STAGE
from oversharp.diagnostics.records.progress import ProgressSink
from oversharp.diagnostics.records.types import AuditKey
from oversharp.diagnostics.samplers.endpoint.fingerprint import FINGERPRINT_STAGE
from oversharp.diagnostics.samplers.endpoint.usage import USAGE_STAGE
from oversharp.diagnostics.store import Store
from oversharp.diagnostics.store.derivations import (
    Derivation,
    digest,
    findings_of,
    record_derivation,
    recorded_derivations,
    relation_states,
)
from oversharp.diagnostics.verdict.record import Verdict

_RESULTS = ("findings", "verdicts", "verdict_looks")

_OF_SERIES = "series = $series"
_OF_AUDIT = "audit_id = $audit_id"
_OF_CHECKPOINTS = "checkpoint_id IN (SELECT checkpoint_id FROM series_checkpoints WHERE series = $series)"
_OF_PROBLEMS = "problem_id IN (SELECT problem_id FROM audit_problems WHERE audit_id = $audit_id)"
_OF_KERNELS = "kernel_id IN (SELECT kernel_id FROM audit_kernels WHERE audit_id = $audit_id)"
_OF_SETTINGS = """settings_id IN (
    SELECT unnest([settings_id, panel_settings_id]) FROM audits WHERE audit_id = $audit_id
    UNION ALL
    SELECT settings_id FROM audit_controls WHERE audit_id = $audit_id
)"""
_OF_VERIFIERS = """verifier IN (
    SELECT unnest([a.verifier, p.verifier])
    FROM audits AS a
    JOIN audit_problems AS ap USING (audit_id)
    JOIN problems AS p USING (problem_id)
    WHERE a.audit_id = $audit_id
    UNION ALL
    SELECT g.verifier
    FROM second_gradings AS g
    JOIN audits AS a USING (series)
    WHERE a.audit_id = $audit_id
)"""
#: Table → condition for the rows that findings and verdict may depend on. Hashing tables is faster than hashing the
#: views that join them.
EVIDENCE: Mapping[str, str] = MappingProxyType(
    {
        "series": _OF_SERIES,
        "series_checkpoints": _OF_SERIES,
        "checkpoints": _OF_CHECKPOINTS,
        "training_metrics": _OF_SERIES,
        "training_responses": _OF_SERIES,
        "imports": _OF_SERIES,
        "import_faults": _OF_SERIES,
        "audit_problems": _OF_AUDIT,
        "problems": _OF_PROBLEMS,
        "modes": _OF_PROBLEMS,
        "settings": _OF_SETTINGS,
        "stops": _OF_AUDIT,
        "audit_controls": _OF_AUDIT,
        "confirmations": _OF_AUDIT,
        "samples": f"{_OF_CHECKPOINTS} AND {_OF_PROBLEMS} AND {_OF_SETTINGS}",
        "grades": f"{_OF_PROBLEMS} AND {_OF_VERIFIERS}",
        "response_logps": f"{_OF_CHECKPOINTS} AND {_OF_SETTINGS}",
        "second_logps": f"{_OF_CHECKPOINTS} AND {_OF_SETTINGS}",
        "response_tokens": f"{_OF_CHECKPOINTS} AND {_OF_SETTINGS}",
        "audit_kernels": _OF_AUDIT,
        "kernels": _OF_KERNELS,
        "kernel_rows": _OF_KERNELS,
        "kernel_roles": _OF_KERNELS,
        "kernel_values": _OF_KERNELS,
        "events": f"""({_OF_AUDIT} AND stage = '{JUDGE_STAGE}')
            OR ({_OF_CHECKPOINTS} AND stage IN ('{FINGERPRINT_STAGE}', '{USAGE_STAGE}'))""",
    }
)
#: Tables that are not hashed: results, the audit's settings (which are in its key), and the index of
#: ``response_tokens``.
NO_EVIDENCE = (
    *("schema_version", "token_files", "audits", "audit_findings", "audit_verdicts", "verdict_looks"),
    "response_ways",  # computed from the samples together with the findings
    *("trajectories", "agent_settings"),  # identified by hashes in samples and settings
)
_CODE = CODE


def update_verdict(
    store: Store, key: AuditKey, failed: Mapping[str, str], skipped: Mapping[str, str], progress: ProgressSink
) -> Verdict:
    """Compute findings and verdict unless they are up to date.

    Arguments as for ``measure.conclude``.
    """
    name = findings_of(key.series)
    evidence = _hash_evidence(store, key, failed, skipped)
    if evidence is not None and recorded_derivations(store.path).get(name) == _derivation(store, key, evidence):
        verdict = store.verdict(key.series)
        if verdict is not None:
            progress.note(f"findings and verdict of {key.series} are up to date")
            return verdict

    from oversharp.diagnostics.audit.measure import conclude, measure  # loads scipy

    with store.kept.keep(key.series):
        measure(store, key, failed, progress)
        verdict = conclude(store, key, failed, skipped, progress)
    if evidence is not None:
        record_derivation(store.path, name, _derivation(store, key, evidence))
    return verdict


def _hash_evidence(store: Store, key: AuditKey, failed: Mapping[str, str], skipped: Mapping[str, str]) -> str | None:
    if _CODE is None:
        return None
    sources = [f"FROM {table} AS r WHERE {rows}" for table, rows in EVIDENCE.items()]
    states = relation_states(store, sources, series=key.series, audit_id=key.audit_id)
    return digest(_CODE, astuple(key), sorted(failed.items()), sorted(skipped.items()), states)


def _derivation(store: Store, key: AuditKey, evidence: str) -> Derivation:
    own = """(SELECT * REPLACE (json_merge_patch(document, '{"shipping": null}') AS document) FROM verdicts)"""
    # without the recommendation, which depends on other series too and is rewritten by their audits
    tables = [own if name == "verdicts" else f'"{name}"' for name in _RESULTS]
    sources = [f"FROM {table} AS r WHERE series = $series" for table in tables]
    return Derivation(made_from=evidence, made=digest(relation_states(store, sources, series=key.series)))
