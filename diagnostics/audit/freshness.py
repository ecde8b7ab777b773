"""Whether findings, verdict and report still stand, so that an audit that changes nothing computes nothing again.

Beside the store lies ``audit.made.json``. It says of the findings of every series, and of the report, from what they
were made and what was made, as hashes. They stand while both are what they were:

- findings and verdict are made from every row of the public relations of their series (samples with their text, grades,
  scores, token log-probabilities, kernels, training responses, …), the settings of the audit, what was left out and
  why, the source of oversharp and the versions of the packages it computes with;
- the report is made from every row of every table of the store, where the store lies, and the same code.

Anything else, and anything that cannot be told, is computed anew: a missing or damaged file, findings or a report that
somebody changed, measures of other packages, whose code is not known here. The file may be removed at any time.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import astuple, dataclass
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, entry_points, version
from importlib.util import find_spec
from pathlib import Path
from platform import python_version

from diagnostics.measures import ENTRY_POINT_GROUP
from diagnostics.records.progress import ProgressSink
from diagnostics.records.types import AuditKey
from diagnostics.store import Store
from diagnostics.verdict.record import Verdict

#: What a finding, a verdict or a picture may depend on beside our own source.
_PACKAGES = ("numpy", "pandas", "scipy", "pyarrow", "duckdb", "matplotlib", "seaborn", "jinja2", "markupsafe")
_RESULTS = ("findings", "verdicts")
#: Relations that say nothing more: counts of ``graded_samples``, and the audit's settings, which its key has.
_NO_EVIDENCE = (
    "answer_counts",
    "grade_disagreements",
    "problem_counts",
    "sampled_counts",
    "audits",
    "current_audits",
    *_RESULTS,
)
_REPORT = "report"


@dataclass(frozen=True, kw_only=True)
class Made:
    """Hashes of what something was made from and of the thing itself."""

    made_from: str
    made: str


def findings_and_verdict(
    store: Store, key: AuditKey, failed: Mapping[str, str], skipped: Mapping[str, str], say: ProgressSink
) -> Verdict:
    """Measure and judge, or keep what stands; the arguments are those of ``measuring.conclude``."""
    what = f"findings of {key.series}"
    evidence = _evidence(store, key, failed, skipped)
    if evidence is not None and _recorded(store.path).get(what) == _results(store, key, evidence):
        verdict = store.verdict(key.series)
        if verdict is not None:
            say.note(f"findings and verdict of {key.series} stand: nothing that they rest on has changed")
            return verdict

    from diagnostics.audit.measure import conclude, measure  # they bring scipy

    measure(store, key, failed, say)
    verdict = conclude(store, key, failed, skipped, say)
    if evidence is not None:
        _record(store.path, what, _results(store, key, evidence))
    return verdict


def report(store_path: Path, report_path: Path) -> None:
    """Write the report on all series of the store, or keep the one that stands. Raises ``StoreError``."""
    with Store.open(store_path, read_only=True) as store:
        tables = store.frame("SELECT table_name FROM duckdb_tables() WHERE NOT internal ORDER BY table_name")
        states = _states(store, [f'FROM "{name}" AS r' for name in tables["table_name"]])
    link = os.path.relpath(store_path.resolve(), report_path.resolve().parent)
    made_from = None if _CODE is None else _hash(_CODE, states, link)
    held = _recorded(store_path).get(_REPORT)
    if held is not None and made_from is not None and held == _file(report_path, made_from):
        return

    from reports import build_report

    build_report(store_path, report_path)
    if made_from is not None and (made := _file(report_path, made_from)) is not None:
        _record(store_path, _REPORT, made)


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
    states = _states(
        store,
        [
            *(f'FROM "{name}" AS r WHERE series = $series' for name in names),
            "FROM (FROM audit_problems JOIN problems USING (problem_id) WHERE audit_id = $audit_id) AS r",
        ],
        series=key.series,
        audit_id=key.audit_id,
    )
    return _hash(_CODE, astuple(key), sorted(failed.items()), sorted(skipped.items()), names, states)


def _results(store: Store, key: AuditKey, evidence: str) -> Made:
    held = _states(store, [f'FROM "{name}" AS r WHERE series = $series' for name in _RESULTS], series=key.series)
    return Made(made_from=evidence, made=_hash(held))


def _states(store: Store, sources: list[str], **parameters: str) -> list[tuple[str, str]]:
    """Of each source ``FROM … AS r``: how many rows, and the sum of their hashes, so that their order has no say."""
    parts = [
        f"SELECT {i} AS i, count(*)::VARCHAR AS n, sum(hash(r))::VARCHAR AS state {s}" for i, s in enumerate(sources)
    ]
    frame = store.frame(" UNION ALL ".join(parts) + " ORDER BY i", **parameters)
    return [(str(row.n), str(row.state)) for row in frame.itertuples()]


def _code() -> str | None:
    """The source of the audit and the report and the versions beneath it; None where other packages add measures."""
    if entry_points(group=ENTRY_POINT_GROUP):
        return None
    specs = [find_spec(package) for package in ("diagnostics", "reports")]
    folders = [Path(folder) for spec in specs if spec for folder in spec.submodule_search_locations or ()]
    return _hash(python_version(), [_version(package) for package in _PACKAGES], [tree_hash(one) for one in folders])


def tree_hash(folder: Path) -> str:
    """One hash of every file below ``folder``, its place and its bytes; what Python compiled from them has no say."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc")
    return _hash([(path.relative_to(folder).as_posix(), sha256(path.read_bytes()).hexdigest()) for path in files])


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"


def _file(path: Path, made_from: str) -> Made | None:
    try:
        return Made(made_from=made_from, made=sha256(path.read_bytes()).hexdigest())
    except OSError:
        return None


def _hash(*parts: object) -> str:
    return sha256(repr(parts).encode()).hexdigest()


def _record_path(store_path: Path) -> Path:
    return store_path.with_suffix(".made.json")


def _recorded(store_path: Path) -> dict[str, Made]:
    """What is on record; nothing where the file is missing or is no record."""
    try:
        records = json.loads(_record_path(store_path).read_text(encoding="utf-8"))
        return {str(what): Made(made_from=one["made_from"], made=one["made"]) for what, one in records.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def _record(store_path: Path, what: str, made: Made) -> None:
    records = {**_recorded(store_path), what: made}
    text = json.dumps({name: vars(one) for name, one in sorted(records.items())}, indent=1)
    with suppress(OSError):  # without a record, or with half of one, the next audit computes anew; no more is lost
        _record_path(store_path).write_text(f"{text}\n", encoding="utf-8")


#: Taken as the code is loaded, not when it has run for hours: what somebody edits meanwhile is not what ran.
_CODE = _code()
