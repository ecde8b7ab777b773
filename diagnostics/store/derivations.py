"""Record the inputs of findings, recommendations and reports, so that only outdated results are recomputed.

For each result, the file ``audit.made.json`` next to the store has a hash of its inputs and a hash of the result
itself. A result is up to date while both hashes match. Without the file, everything is recomputed.
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

#: Packages other than ours whose versions affect findings, verdicts and pictures.
_PACKAGES = (
    "numpy", "pandas", "scipy", "scikit-learn", "pyarrow", "duckdb", "matplotlib", "seaborn", "jinja2", "markupsafe",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Derivation:
    """Hashes of the inputs of a result and of the result itself."""

    made_from: str
    made: str


def findings_of(series: str) -> str:
    """Return the key under which the findings and the verdict of a series are recorded."""
    return f"findings of {series}"


def recorded_derivations(store_path: Path) -> dict[str, Derivation]:
    """Return the recorded derivations by result; empty if the file is missing or invalid."""
    try:
        records = json.loads(_record_path(store_path).read_text(encoding="utf-8"))
        return {str(what): Derivation(made_from=item["made_from"], made=item["made"]) for what, item in records.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def record_derivation(store_path: Path, what: str, derivation: Derivation) -> None:
    """Record ``derivation`` for the result ``what``."""
    records = {**recorded_derivations(store_path), what: derivation}
    text = json.dumps({name: vars(item) for name, item in sorted(records.items())}, indent=1)
    with suppress(OSError):  # without the record, the next audit recomputes this result
        _record_path(store_path).write_text(f"{text}\n", encoding="utf-8")


def relation_states(store: Store, sources: Sequence[str], **parameters: str) -> list[tuple[str, str]]:
    """Return the number of rows of each source, and a hash that does not depend on their order.

    A source has the form ``FROM … AS r``. Sources are queried one at a time to limit memory. Each query gets only the
    ``parameters`` that it contains.
    """
    states = []
    for source in sources:
        bound = {name: value for name, value in parameters.items() if f"${name}" in source}
        row = store.frame(f"SELECT count(*)::VARCHAR AS n, sum(hash(r))::VARCHAR AS state {source}", **bound).iloc[0]
        states.append((str(row["n"]), str(row["state"])))
    return states


def code_hash(*packages: str) -> str | None:
    """Return a hash of our ``packages`` and of library versions.

    None if plugins add measures or ways.
    """
    if entry_points(group=ENTRY_POINT_GROUP) or entry_points(group=WAYS_GROUP):
        return None
    specs = [find_spec(package) for package in packages]
    folders = [Path(folder) for spec in specs if spec for folder in spec.submodule_search_locations or ()]
    return digest(python_version(), [_version(package) for package in _PACKAGES], [tree_hash(item) for item in folders])


def tree_hash(folder: Path) -> str:
    """Return a hash of paths and bytes of all files below ``folder``, except compiled Python."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc")
    return digest([(path.relative_to(folder).as_posix(), sha256(path.read_bytes()).hexdigest()) for path in files])


def digest(*parts: object) -> str:
    """Return a hash of the ``repr`` of all parts."""
    return sha256(repr(parts).encode()).hexdigest()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"


def _record_path(store_path: Path) -> Path:
    return store_path.with_suffix(".made.json")
