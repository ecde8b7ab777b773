"""Merge stores: the shards of one audit, or audits from several machines.

Each store is merged in one transaction, and existing rows are skipped. So a killed command can be run again. At the end
the rounds of the merged audits are planned again from all grades.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oversharp.diagnostics.records.amounts import plural
from oversharp.diagnostics.records.cells import short_repr
from oversharp.diagnostics.records.errors import ConfigError, StoreError
from oversharp.diagnostics.records.progress import ProgressSink, SilentProgress
from oversharp.diagnostics.store.database import Database
from oversharp.diagnostics.store.plan.rounds import plan_rounds
from oversharp.diagnostics.store.token_files import OWN_TOKEN_FILE

#: Tables with a primary key. Referenced tables come first.
_KEYED = (
    "checkpoints", "series", "series_checkpoints", "training_metrics", "problems", "modes", "settings",
    "agent_settings", "response_logps", "second_logps", "audit_problems", "stops", "audit_controls",
    "training_responses", "kernels", "kernel_rows", "kernel_roles", "kernel_values", "audit_kernels",
    "audit_verdicts", "verdict_looks", "confirmations", "imports", "import_faults",
)  # fmt: skip
#: Tables without a primary key → columns that identify an existing row. Findings and events are identified by their
#: audit: a store has all of an audit's or none.
_UNKEYED = {
    "samples": ("checkpoint_id", "problem_id", "settings_id", "greedy", "sample_index"),
    "grades": ("problem_id", "response_id", "verifier"),
    "response_ways": ("problem_id", "response_id"),
    "trajectories": ("response_id",),
    "audit_findings": ("audit_id",),
    "events": ("audit_id",),
}
#: Tables with the identity and the settings of audits.
_DESCRIBING = ("audits", "series_checkpoints", "settings", "agent_settings")
#: Columns of ``audits`` that must be equal in all shards.
_COMMON = (
    "n", "n_base", "enough", "first_round", "ks", "panel", "entropy_samples", "kernel_problems", "kernel_responses",
    "strategy_regex",
)  # fmt: skip
#: Setting → its flag, where the names differ.
_FLAGS = {"ks": "--k", "enough": "--until-solved", "first_round": "--first"}


@dataclass(frozen=True, kw_only=True)
class MergeResult:
    """The merged store, its series, and the number of new samples.

    ``to_conclude`` are the series audited in shards: run their audit on the merged store. ``left_out`` maps each
    checkpoint that a shard left out to the reason.
    """

    store_path: Path
    series: tuple[str, ...]
    to_conclude: tuple[str, ...]
    samples_added: int
    left_out: dict[str, str]

    __repr__ = short_repr


@dataclass(frozen=True, kw_only=True)
class _Shard:
    index: int
    of: int
    whole: str


@dataclass(frozen=True, kw_only=True)
class _StoredAudit:
    """Current audit of one series in one store.

    ``steps`` maps a step to checkpoint id and label. ``settings`` and ``common`` (columns ``_COMMON``) are keyed by
    command-line flag. ``shard`` is None for an audit of all problems.
    """

    path: Path
    series: str
    base_id: str
    steps: dict[int, tuple[str, str]]
    settings: dict[str, Any]
    common: dict[str, Any]
    shard: _Shard | None
    left_out: dict[str, str]


def merge(stores: Sequence[Path], out: Path, *, progress: ProgressSink | None = None) -> MergeResult:
    """Merge the stores at ``stores`` into ``out``/audit.duckdb.

    The result may already contain some of the stores. All shards of an audit are required. A series that is in several
    stores must have the same checkpoints and settings in each. The given stores are not changed.

    Raises:
        ConfigError: no store is given, or one of them is the store in ``out``.
        StoreError: a store is missing, locked, of a newer oversharp, unfinished, or does not match the others; or a
        shard
            is missing. Then nothing was written.
    """
    progress = progress or SilentProgress()
    target = out / "audit.duckdb"
    if not stores:
        raise ConfigError("give the stores to merge: oversharp merge shard-*/audit.duckdb --out DIR")
    for path in stores:
        if path.resolve() == target.resolve():
            raise ConfigError(f"--out {out}: {path} is one of the stores to merge; pass another --out")
    audits, shards = _load_audits(stores, target)
    _require_match(audits)
    _require_shards(audits, shards)

    added = 0
    with (
        closing(Database(target, read_only=False, others=stores)) as database,
        progress.stage("merge", len(stores)) as advance,
    ):
        database.rows("UPDATE schema_version SET views_hash = ''")  # the views of an untrusted store may access files
        database.refresh_views()
        for path in stores:
            n_before = added
            added += _merge_store(database, path)
            if n_taken := _count_taken(database, path):
                progress.note(
                    f"{path}: {plural(n_taken, 'imported sample')} not added: {target} has other responses under their "
                    f"numbers; import the files of both stores into one instead ({plural(added - n_before, 'sample')} "
                    "added)"
                )
            advance(1)
        with database.transaction():
            for (audit_id,) in database.rows("SELECT audit_id FROM current_audits WHERE enough IS NOT NULL"):
                plan_rounds(database, audit_id)
    return MergeResult(
        store_path=target,
        series=tuple(sorted({audit.series for audit in audits})),
        to_conclude=tuple(sorted({audit.series for audit in audits if audit.shard is not None})),
        samples_added=added,
        left_out={label: why for audit in audits for label, why in audit.left_out.items()},
    )


# ---------------------------------------------------------------- contents of the stores


def _load_audits(stores: Sequence[Path], target: Path) -> tuple[list[_StoredAudit], set[_Shard]]:
    """Return the current audits of all stores, ``target`` first, and all of their shards."""
    audits: list[_StoredAudit] = []
    shards: set[_Shard] = set()
    for path in (target, *stores) if target.is_file() else stores:
        with closing(Database(Path(":memory:"), read_only=False, others=[path])) as database:
            with database.attach(path):
                for table in _DESCRIBING:
                    database.rows(f"INSERT INTO {table} BY NAME FROM other.{table}")
            audits += _current_audits(database, path, must_end=path != target)
            shards |= {shard for shard in map(_shard, _provenances(database)) if shard is not None}
    return audits, shards


def _current_audits(database: Database, path: Path, *, must_end: bool) -> list[_StoredAudit]:
    audits = []
    for (text,) in database.rows("SELECT to_json(a)::VARCHAR FROM current_audits AS a ORDER BY series"):
        row = json.loads(text)
        name, origin = row["series"], row["provenance"]
        if must_end and not origin:
            raise StoreError(f"{path}: the audit of series {name!r} did not end; run its command again first")
        checkpoints = database.rows(
            "SELECT step, checkpoint_id, checkpoint, is_base FROM series_checkpoints WHERE series = ? ORDER BY step",
            [name],
        )
        if not any(is_base for *_, is_base in checkpoints):
            fault = "no base among its checkpoints" if checkpoints else "no checkpoints"
            raise StoreError(f"{path}: the audit of series {name!r} has {fault}, so the store is damaged; restore it")
        panel_temperature = _settings(database, row["panel_settings_id"]).get("temperature")
        audits.append(
            _StoredAudit(
                path=path,
                series=name,
                base_id=next((identity for _, identity, _, is_base in checkpoints if is_base), ""),
                steps={step: (identity, label) for step, identity, label, _ in checkpoints},
                settings=_settings(database, row["settings_id"]),
                common={**{name: row[name] for name in _COMMON}, "panel_temperature": panel_temperature},
                shard=_shard(origin),
                left_out=origin.get("left_out", {}),
            )
        )
    return audits


def _provenances(database: Database) -> list[dict[str, Any]]:
    return [json.loads(row[0]) for row in database.rows("SELECT provenance::VARCHAR FROM audits ORDER BY ALL")]


def _shard(origin: dict[str, Any]) -> _Shard | None:
    return _Shard(**origin["shard"]) if "shard" in origin else None


def _settings(database: Database, settings_id: object) -> dict[str, Any]:
    rows = database.rows(
        """
        SELECT to_json(s)::VARCHAR
        FROM (FROM settings LEFT JOIN agent_settings USING (settings_id)) AS s
        WHERE s.settings_id = ?
        """,
        [settings_id],
    )
    settings: dict[str, Any] = json.loads(rows[0][0]) if rows else {}
    settings.pop("settings_id", None)
    return settings


# ---------------------------------------------------------------- whether they match


def _require_match(audits: Sequence[_StoredAudit]) -> None:
    first_audits: dict[str, _StoredAudit] = {}
    for audit in audits:
        first = first_audits.setdefault(audit.series, audit)
        _require_same_checkpoints(first, audit)
        _require_same_settings(first, audit)


def _require_same_checkpoints(first: _StoredAudit, other: _StoredAudit) -> None:
    where = f"{other.path}: series {other.series!r}"
    hint = "only audits of the same checkpoints are merged; give the other series a separate --name"
    if other.base_id != first.base_id:
        raise StoreError(f"{where} has another base ({other.base_id}) than in {first.path} ({first.base_id}); {hint}")
    for step in sorted(first.steps.keys() | other.steps.keys()):
        if step not in other.steps or step not in first.steps:
            has, lacks = (first, other) if step in first.steps else (other, first)
            raise StoreError(
                f"{has.path}: {has.steps[step][1]} of series {other.series!r} is not in {lacks.path}; {hint}"
            )
        if other.steps[step][0] != first.steps[step][0]:
            raise StoreError(f"{where}: {other.steps[step][1]} has other weights than in {first.path}; {hint}")


def _require_same_settings(first: _StoredAudit, other: _StoredAudit) -> None:
    where = f"{other.path}: series {other.series!r} was audited"
    pairs = [(other.settings, first.settings)]
    if other.shard is not None and first.shard is not None:
        pairs.append((other.common, first.common))
    for ours, theirs in pairs:
        for name in theirs:
            if ours.get(name) != theirs[name]:
                flag = _FLAGS.get(name, f"--{name.replace('_', '-')}")
                our, their = (
                    0 if name == "enough" and value is None else value for value in (ours.get(name), theirs[name])
                )
                raise StoreError(
                    f"{where} with {flag} {our}, in {first.path} with {their}; use the same, or a separate --name"
                )
    if other.shard is not None and first.shard is not None and other.shard.of != first.shard.of:
        raise StoreError(f"{where} as one of {other.shard.of} shards, in {first.path} as one of {first.shard.of}")
    if other.shard is not None and first.shard is not None and other.shard.whole != first.shard.whole:
        raise StoreError(f"{where} on other problems than in {first.path}; use the same for both")


def _require_shards(audits: Sequence[_StoredAudit], shards: set[_Shard]) -> None:
    for audit in audits:
        if audit.shard is None:
            continue
        present = {shard.index for shard in shards if shard.whole == audit.shard.whole}
        missing = [f"{index}/{audit.shard.of}" for index in range(1, audit.shard.of + 1) if index not in present]
        if missing:
            raise StoreError(
                f"series {audit.series!r}: shard {', '.join(missing)} is missing; pass the stores of all shards"
            )


# ---------------------------------------------------------------- merging one store


def _merge_store(database: Database, path: Path) -> int:
    """Add the rows of the store at ``path`` that ``database`` lacks.

    Returns the number of new samples.
    """
    with database.attach(path), database.transaction():
        for table in _KEYED:
            database.rows(f"INSERT OR IGNORE INTO {table} BY NAME SELECT * FROM other.{table}")
        added = {table: _add_unkeyed(database, table, keys) for table, keys in _UNKEYED.items()}
        # otherwise the audit of a machine with a fast clock would remain the current audit
        database.rows(
            """
            INSERT OR IGNORE INTO audits BY NAME
            SELECT * REPLACE (least(updated_at, current_timestamp::TIMESTAMP) AS updated_at) FROM other.audits
            """
        )
        rows = database.rows("SELECT file FROM other.token_files ORDER BY file")
        names = [str(row[0]) for row in rows if OWN_TOKEN_FILE.fullmatch(str(row[0]))]  # a store may be untrusted
        database.import_tokens(path.resolve().with_suffix(".tokens"), names)
    return added["samples"]


def _count_taken(database: Database, path: Path) -> int:
    """Return the number of imported samples at ``path`` whose number has another response in ``database``."""
    same = " AND ".join(f"own.{key} = incoming.{key}" for key in _UNKEYED["samples"])
    with database.attach(path):
        ((n,),) = database.rows(
            f"""
            SELECT count(*)
            FROM other.samples AS incoming
            JOIN checkpoints AS c USING (checkpoint_id)
            JOIN samples AS own ON {same}
            WHERE c.kind = 'recorded' AND own.response_id <> incoming.response_id
            """
        )
    return int(n)


def _add_unkeyed(database: Database, table: str, keys: Sequence[str]) -> int:
    same = " AND ".join(f"own.{key} = incoming.{key}" for key in keys)
    rows = database.rows(
        f"""
        INSERT INTO {table} BY NAME
        SELECT * FROM other.{table} AS incoming
        WHERE NOT EXISTS (FROM {table} AS own WHERE {same})
        """
    )
    return int(rows[0][0])
