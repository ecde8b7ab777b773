"""Record on which data a recommendation was computed, so that ``ship`` counts samples only if the data changed.

Verdicts contain the recommendation over their comparable series. The record next to the store has two hashes: one of
everything that the recommendation depends on, and one of the verdicts that contain it. The recommendation is up to date
while both match. They cover the rows of the counts, so any change of the store makes the record invalid.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, replace

from oversharp.diagnostics.audit.judges.recorded import JUDGE_STAGE
from oversharp.diagnostics.records.types import AuditKey
from oversharp.diagnostics.samplers.endpoint.fingerprint import FINGERPRINT_STAGE
from oversharp.diagnostics.samplers.endpoint.usage import USAGE_STAGE
from oversharp.diagnostics.series.layouts import REPAIRED
from oversharp.diagnostics.store import Store
from oversharp.diagnostics.store.derivations import (
    Derivation,
    code_hash,
    digest,
    record_derivation,
    recorded_derivations,
    relation_states,
)
from oversharp.diagnostics.store.load import left_out_checkpoints, series_layout, stored_key
from oversharp.diagnostics.verdict.recommendation import Recommendation

#: Hash of the source at import time. After hours of work, the files may differ from the code that ran.
CODE = code_hash("oversharp.diagnostics")

_OF_SERIES = "WHERE series = $series"
_OF_AUDIT = "WHERE audit_id = $audit_id"
_OF_CHECKPOINTS = "WHERE checkpoint_id IN (SELECT checkpoint_id FROM series_checkpoints WHERE series = $series)"
_OF_PROBLEMS = "WHERE problem_id IN (SELECT problem_id FROM audit_problems WHERE audit_id = $audit_id)"
#: Rows that the counts depend on. Texts are not among them: samples and grades have their hashes.
_SMALL = (
    f"FROM (SELECT series, layout FROM series {_OF_SERIES}) AS r",
    f"FROM (SELECT * EXCLUDE (path) FROM series_checkpoints {_OF_SERIES}) AS r",
    f"FROM (FROM checkpoints {_OF_CHECKPOINTS}) AS r",
    f"FROM (FROM import_faults {_OF_SERIES}) AS r",
    f"FROM (FROM audit_problems {_OF_AUDIT}) AS r",
    f"FROM (FROM problems {_OF_PROBLEMS}) AS r",
    f"FROM (FROM modes {_OF_PROBLEMS}) AS r",
    "FROM settings AS r",
    f"FROM (FROM stops {_OF_AUDIT}) AS r",
    f"FROM (FROM audit_controls {_OF_AUDIT}) AS r",
    f"FROM (FROM events {_OF_CHECKPOINTS} AND stage IN ('{FINGERPRINT_STAGE}', '{USAGE_STAGE}')) AS r",
    f"FROM (FROM events {_OF_AUDIT} AND stage = '{JUDGE_STAGE}') AS r",
)
# Also samples of other problems: a caveat counts those that are not compared. The hash of a hash depends on all columns
# nonlinearly, so that changes in several rows cannot cancel out.
_SAMPLES = """
FROM (
    SELECT hash(
        checkpoint_id, problem_id, settings_id, greedy, sample_index, response_id, n_tokens, finish_reason, logp_sum_raw
    ) AS h
    FROM samples {rows}
) AS r
"""
_GRADES = "FROM (SELECT hash(g) AS h FROM grades AS g {rows}) AS r"
#: Whether a store has only the checkpoints, and only the problems, of an audit.
_IS_WHOLE = f"""
SELECT
    NOT EXISTS (SELECT 1 FROM checkpoints ANTI JOIN (FROM series_checkpoints {_OF_SERIES}) USING (checkpoint_id))
        AS checkpoints,
    NOT EXISTS (SELECT 1 FROM problems ANTI JOIN (FROM audit_problems {_OF_AUDIT}) USING (problem_id)) AS problems
"""
_VERDICTS = "FROM (SELECT series, document::VARCHAR AS document FROM verdicts WHERE list_contains($names, series)) AS r"


def series_state(store: Store, key: AuditKey, failed: Mapping[str, str], skipped: Mapping[str, str]) -> str | None:
    """Return a hash of everything that the counts of a series depend on.

    Arguments as for ``read_counts``. None if the code cannot be hashed, because another package adds measures.
    """
    if CODE is None:
        return None
    bound = {"series": key.series, "audit_id": key.audit_id}
    whole = store.frame(_IS_WHOLE, **bound).iloc[0]
    # the filters take longer than the hashes
    samples = _SAMPLES.format(rows="" if whole["checkpoints"] else _OF_CHECKPOINTS)
    grades = _GRADES.format(rows="" if whole["problems"] else _OF_PROBLEMS)
    states = relation_states(store, (*_SMALL, samples, grades), **bound)
    return digest(CODE, astuple(key), sorted(failed.items()), sorted(skipped.items()), states)


def record_recommendation(store: Store, series: Sequence[str], states: Mapping[str, str | None]) -> None:
    """Record that the verdicts of ``series`` contain the recommendation over all of them.

    ``states`` has the states of the counts from which it was computed.
    """
    known = [(name, state) for name in series if (state := states.get(name)) is not None]
    if len(known) == len(series):
        derivation = Derivation(made_from=digest(known), made=_hash_verdicts(store, series))
        record_derivation(store.path, _name(series), derivation)


def recorded_recommendations(store: Store, series: Sequence[str]) -> tuple[Recommendation, ...] | None:
    """Return the recommendations in the verdicts of ``series``, one per group of comparable series.

    They have the order of ``ship``. Returns None if any is missing or out of date, or if it also covers other series.
    """
    parts: dict[tuple[str, ...], dict[str, Recommendation]] = {}
    for name in series:
        verdict = store.verdict(name)
        if verdict is None or verdict.shipping is None or name not in verdict.shipping.series:
            return None
        parts.setdefault(verdict.shipping.series, {})[name] = verdict.shipping
    if sorted(name for names in parts for name in names) != sorted(series):
        return None
    records = recorded_derivations(store.path)
    for names in parts:
        recorded = records.get(_name(names))
        if recorded is None or recorded.made != _hash_verdicts(store, names):
            return None
        states = [(name, stored_state(store, name)) for name in names]
        if recorded.made_from != digest(states):
            return None
    groups = sorted(parts, key=lambda names: (series_layout(store, names[0]) == REPAIRED, names[0]))
    return tuple(_join(parts[names]) for names in groups)


def stored_state(store: Store, series: str) -> str | None:
    """Return the ``series_state`` of the current audit of a series."""
    return series_state(store, stored_key(store, series), *left_out_checkpoints(store, series))


def _join(parts: Mapping[str, Recommendation]) -> Recommendation:
    """Return the whole recommendation. The part of a series has the steps of the base and of the series."""
    first = next(iter(parts.values()))
    base = [step for step in first.steps if step.is_base]
    trained = [step for name in first.series for step in parts[name].steps if step.series == name and not step.is_base]
    return replace(first, steps=(*base, *trained))


def _hash_verdicts(store: Store, series: Sequence[str]) -> str:
    rows = store.frame(f"SELECT * {_VERDICTS}", names=list(series))
    return digest(sorted(zip(rows["series"], rows["document"], strict=True)))


def _name(series: Sequence[str]) -> str:
    return f"recommendation of {', '.join(series)}"
