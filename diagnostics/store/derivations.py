"""Records beside the store what findings and reports were derived from, so that what is up to date is kept.

The file is ``audit.made.json``: for each result a hash of what it was made from and one of the result itself. It is up
to date while both are what they were. The file may be removed at any time; then everything is computed anew.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, entry_points, version
from importlib.util import find_spec
from pathlib import Path
from platform import python_version

from oversharp.diagnostics.measures import ENTRY_POINT_GROUP
from oversharp.diagnostics.store.store import Store
from oversharp.diagnostics.ways import ENTRY_POINT_GROUP as WAYS_GROUP

#: What a finding, a verdict or a picture may depend on beside our own source.
_PACKAGES = (
    "numpy",
    "pandas",
    "scipy",
    "scikit-learn",
    "pyarrow",
    "duckdb",
    "matplotlib",
    "seaborn",
    "jinja2",
    "markupsafe",
)


@dataclass(frozen=True, kw_only=True)
class Derivation:
    """Hashes of what a result was made from and of the result itself."""

    made_from: str
    made: str


def findings_of(series: str) -> str:
    """What findings and verdict of a series are called on record."""
    return f"findings of {series}"


def recorded_derivations(store_path: Path) -> dict[str, Derivation]:
    """What is on record, by result; nothing where the file is missing or is no record."""
    try:
        records = json.loads(_record_path(store_path).read_text(encoding="utf-8"))
        return {str(what): Derivation(made_from=one["made_from"], made=one["made"]) for what, one in records.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def record_derivation(store_path: Path, what: str, derivation: Derivation) -> None:
    """Put ``derivation`` on record as that of the result ``what``."""
    records = {**recorded_derivations(store_path), what: derivation}
    text = json.dumps({name: vars(one) for name, one in sorted(records.items())}, indent=1)
    with suppress(OSError):  # without a record, or with half of one, the next audit computes anew; no more is lost
        _record_path(store_path).write_text(f"{text}\n", encoding="utf-8")


def relation_states(store: Store, sources: Sequence[str], **parameters: str) -> list[tuple[str, str]]:
    """Of each source ``FROM … AS r``: how many rows, and the sum of their hashes, so that their order has no say.

    One after the other: what a query holds in memory is that of one source. Of ``parameters`` each gets what it names.
    """
    states = []
    for source in sources:
        bound = {name: value for name, value in parameters.items() if f"${name}" in source}
        row = store.frame(f"SELECT count(*)::VARCHAR AS n, sum(hash(r))::VARCHAR AS state {source}", **bound).iloc[0]
        states.append((str(row["n"]), str(row["state"])))
    return states


def code_hash(*packages: str) -> str | None:
    """The source of our ``packages`` and the versions beneath it; None where other packages add to measures or ways."""
    if entry_points(group=ENTRY_POINT_GROUP) or entry_points(group=WAYS_GROUP):
        return None
    specs = [find_spec(package) for package in packages]
    folders = [Path(folder) for spec in specs if spec for folder in spec.submodule_search_locations or ()]
    return digest(python_version(), [_version(package) for package in _PACKAGES], [tree_hash(one) for one in folders])


def tree_hash(folder: Path) -> str:
    """One hash of every file below ``folder``, its place and its bytes; what Python compiled from them has no say."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc")
    return digest([(path.relative_to(folder).as_posix(), sha256(path.read_bytes()).hexdigest()) for path in files])


def digest(*parts: object) -> str:
    """One hash of the ``repr`` of all parts."""
    return sha256(repr(parts).encode()).hexdigest()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"


def _record_path(store_path: Path) -> Path:
    return store_path.with_suffix(".made.json")
