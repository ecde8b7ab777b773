"""Load records of an audited series from a store."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from pandas import isna
from pandas.api.types import is_list_like

from oversharp.diagnostics.records.amounts import plural
from oversharp.diagnostics.records.errors import ConfigError, StoreError
from oversharp.diagnostics.records.pace import LEAST_BYTES, SampleCost
from oversharp.diagnostics.records.types import COUNTS_ALONE, AuditKey, Problem, SamplingSettings, VerdictTerms
from oversharp.diagnostics.store.write_audit import COMPARED, look_id
from oversharp.diagnostics.verdict.claims import FELL_HERE
from oversharp.diagnostics.verdict.results import Estimate
from oversharp.diagnostics.verdict.words.made_of import PARTS_IN_WORDS, is_fall_shown, made_of_text
from oversharp.diagnostics.verdict.words.numbers import ranges_text

if TYPE_CHECKING:
    import pandas as pd

    from oversharp.diagnostics.store import Store
    from oversharp.diagnostics.verdict.record import Verdict


class Frames(Protocol):
    """Anything with a ``frame`` method for queries: a store, or an object that replaces it."""

    def frame(self, sql: str, **params: Any) -> pd.DataFrame:
        """Return the rows of ``sql`` with bound ``params``."""


@dataclass(frozen=True, kw_only=True)
class StoredProblem(Problem):
    """A problem loaded from a store.

    ``problem_id`` is the stored id, not a new hash: the hash depends on the order of the modes, which the store loses.
    """

    stored_id: str

    @property
    def problem_id(self) -> str:
        """Id of the problem in the store."""
        return self.stored_id


@dataclass(frozen=True, kw_only=True)
class DeclaredLooks:
    """Declaration of the first look: its ``steps`` and the planned ``looks`` (None: any number).

    ``runs`` is the largest number of runs declared at any look.
    """

    looks: int | None
    runs: int
    steps: tuple[int, ...]


def choose_series(store: Store, name: str | None) -> str:
    """Return the name of the audited series to use: ``name``, or the only one in the store.

    Raises ``StoreError`` if the store has no such audit, ``ConfigError`` if there are several and ``name`` is None.
    """
    audited = [str(series) for series in store.frame("SELECT series FROM current_audits ORDER BY series")["series"]]
    if not audited:
        raise StoreError(f"{store.path}: {why_no_audit(store)}")
    if name is None and len(audited) > 1:
        raise ConfigError(f"{store.path} has several series; pass --series with one of: {', '.join(audited)}")
    if name is not None and name not in audited:
        raise StoreError(
            f"--series {name}: {store.path} has no audit of this series; audited series: {', '.join(audited)}"
        )
    return audited[0] if name is None else name


def why_no_audit(store: Frames) -> str:
    """Return why a store has no audit, with the command that creates one."""
    steps = store.frame(
        "SELECT series, list(DISTINCT step ORDER BY step) AS steps FROM series_checkpoints "
        "WHERE series IN (SELECT series FROM imports) GROUP BY series ORDER BY series"
    )
    if steps.empty:
        return "no audit in this store; run `oversharp audit` first"
    series, listed = str(steps["series"].iloc[0]), ", ".join(map(str, steps["steps"].iloc[0]))
    return (
        f"the samples of series {series!r} were imported but not audited, steps: {listed}; run "
        "`oversharp import` with samples of the base and of a later step, on the same problems"
    )


def why_untested(verdict: Verdict | None) -> str | None:
    """Return why single problems cannot be tested, or None.

    The reason is that their samples are not independent. The verdict then computes the claim about these problems
    only, but does not make it.
    """
    claims = () if verdict is None else verdict.claims
    return next((claim.why for claim in claims if claim.name == FELL_HERE and claim.p is not None and claim.why), None)


#: Layout of a series whose checkpoints exist only behind servers.
SERVED_LAYOUT = "served"


def is_recorded(store: Store, series: str) -> bool:
    """Return whether the checkpoints of ``series`` have no weights.

    Its samples were imported, or its checkpoints exist only behind a server.
    """
    kinds = store.frame(
        """
        SELECT coalesce(bool_and(kind = 'recorded'), false) AS recorded
        FROM checkpoints
        JOIN series_checkpoints USING (checkpoint_id)
        WHERE series = $series
        """,
        series=series,
    )["recorded"]
    return bool(kinds.iloc[0])


def has_texts(store: Store, series: str) -> bool:
    """Return whether the current audit of ``series`` has response texts.

    Imported counts have none.
    """
    counted = store.frame(
        "SELECT 1 FROM current_audits JOIN settings USING (settings_id) WHERE series = $series AND sampler = $counts",
        series=series,
        counts=COUNTS_ALONE,
    )
    return counted.empty


def series_layout(store: Store, series: str) -> str | None:
    """Return the folder layout of ``series``, which identifies the trainer.

    None if the series does not exist.
    """
    layouts = store.frame("SELECT layout FROM series WHERE series = $series", series=series)["layout"]
    return None if layouts.empty else str(layouts.iloc[0])


def stored_key(store: Store, series: str) -> AuditKey:
    """Return the identity of the current audit of ``series``.

    Raises ``StoreError`` for a damaged store, whose audit has no checkpoints or no base.
    """
    is_base = store.frame("SELECT is_base FROM series_checkpoints WHERE series = $series", series=series)["is_base"]
    if not is_base.any():
        fault = "no base among its checkpoints" if len(is_base) else "no checkpoints"
        raise StoreError(
            f"{store.path}: the audit of series {series!r} has {fault}, so the store is damaged; restore a backup of "
            "the file, or audit the run again with `oversharp audit RUN_DIR`"
        )
    row = store.frame("SELECT * FROM current_audits WHERE series = $series", series=series).iloc[0]
    return AuditKey(
        audit_id=str(row["audit_id"]),
        series=series,
        settings_id=str(row["settings_id"]),
        n=int(row["n"]),
        n_base=int(row["n_base"]),
        first_round=None if isna(row["first_round"]) else int(row["first_round"]),
        enough=None if isna(row["enough"]) else int(row["enough"]),
        entropy_samples=int(row["entropy_samples"]),
        panel=int(row["panel"]),
        panel_settings_id="" if isna(row["panel_settings_id"]) else str(row["panel_settings_id"]),
        kernel_problems=int(row["kernel_problems"]),
        kernel_responses=int(row["kernel_responses"]),
        ks=tuple(int(k) for k in row["ks"]),
        strategy_regex=str(row["strategy_regex"]),
        verifier=None if isna(row["verifier"]) else str(row["verifier"]),
        terms=VerdictTerms(
            guess_rate=None if isna(row["guess_rate"]) else float(row["guess_rate"]),
            looks=None if isna(row["looks"]) else int(row["looks"]),
            runs=int(row["runs"]),
            selected_by=None if isna(row["selected_by"]) else str(row["selected_by"]),
        ),
    )


def left_out_checkpoints(store: Store, series: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return the checkpoints that the current audit of ``series`` left out, with reasons.

    Both results are empty until the audit has ended. The first has the checkpoints in the series, by id. The second has
    the checkpoints that could not be added to the series, by label.
    """
    rows = store.frame(
        """
        SELECT o.key AS label, o.value ->> '$' AS why, c.checkpoint_id
        FROM current_audits AS a, json_each(a.provenance, '$.left_out') AS o
        LEFT JOIN series_checkpoints AS c
            ON c.series = a.series
            AND c.checkpoint = o.key
        WHERE a.series = $series
        ORDER BY label
        """,
        series=series,
    )
    known = rows[rows["checkpoint_id"].notna()]
    never = rows[rows["checkpoint_id"].isna()]
    return dict(zip(known["checkpoint_id"], known["why"], strict=True)), dict(
        zip(never["label"], never["why"], strict=True)
    )


def stored_clusters(store: Store, audit_id: str) -> dict[str, str]:
    """Return the clusters of an audit's problems by problem id.

    Problems without a cluster are absent.
    """
    rows = store.frame(
        "SELECT problem_id, cluster FROM audit_problems WHERE audit_id = $audit_id AND cluster IS NOT NULL",
        audit_id=audit_id,
    )
    return dict(zip(rows["problem_id"], rows["cluster"], strict=True))


def declared_looks(store: Store, series: str) -> DeclaredLooks | None:
    """Return the declaration of the first look at ``series``; None before the first verdict."""
    rows = store.frame(
        """
        SELECT first(declared ORDER BY number) AS looks, max(runs) AS runs, first(steps ORDER BY number) AS steps
        FROM verdict_looks
        WHERE series = $series
        HAVING count(*) > 0
        """,
        series=series,
    )
    if rows.empty:
        return None
    row = rows.iloc[0]
    return DeclaredLooks(
        looks=None if isna(row["looks"]) else int(row["looks"]),
        runs=int(row["runs"]),
        steps=tuple(int(step) for step in row["steps"]),
    )


def look_number(store: Store, series: str, steps: Sequence[int]) -> int:
    """Return the number of the interim look that covers the checkpoints of ``steps``, from 1.

    A look with other checkpoints, samples or problems than all earlier ones gets the next number.
    """
    looks = store.frame("SELECT look_id, number FROM verdict_looks WHERE series = $series", series=series)
    compared = store.frame(COMPARED, series=series, steps=list(steps))
    look = look_id([(str(row.checkpoint_id), str(row.n), int(row.n_problems)) for row in compared.itertuples()])
    numbers = looks.loc[looks["look_id"] == look, "number"]
    return len(looks) + 1 if numbers.empty else int(numbers.iloc[0])


def stored_settings(store: Store, settings_id: str) -> SamplingSettings:
    """Return the sampling settings with this id. Raises ``StoreError`` if they are missing."""
    query = "FROM settings LEFT JOIN agent_settings USING (settings_id) WHERE settings_id = $id"
    rows = store.frame(query, id=settings_id)
    if rows.empty:
        raise StoreError(f"{store.path}: sampling settings {settings_id} are missing; run the audit again")
    row = rows.iloc[0]
    return SamplingSettings(
        sampler=str(row["sampler"]),
        temperature=float(row["temperature"]),
        top_p=float(row["top_p"]),
        top_k=int(row["top_k"]),
        max_tokens=int(row["max_tokens"]),
        prompt_template=str(row["prompt_template"]),
        system_prompt=str(row["system_prompt"]),
        chat=bool(row["chat"]),
        seed=int(row["seed"]),
        dtype=str(row["dtype"]),
        chat_args=None if isna(row["chat_args"]) else str(row["chat_args"]),
        environment=None if isna(row["environment"]) else str(row["environment"]),
        max_turns=None if isna(row["max_turns"]) else int(row["max_turns"]),
    )


def stored_problems(store: Store, problem_ids: Sequence[str]) -> list[Problem]:
    """Return the problems with these ids, in order. Raises ``StoreError`` for an unknown one."""
    rows = store.frame(
        """
        WITH accepted AS (
            SELECT problem_id, list(mode ORDER BY mode) AS modes FROM modes GROUP BY problem_id
        )
        SELECT p.*, a.modes
        FROM problems AS p
        LEFT JOIN accepted AS a USING (problem_id)
        WHERE list_contains($ids::VARCHAR[], p.problem_id)
        """,
        ids=list(problem_ids),
    )
    by_id = {
        str(row["problem_id"]): StoredProblem(
            stored_id=row["problem_id"],
            task=row["task"],
            prompt=row["prompt"],
            gold=row["gold"],
            verifier=row["verifier"],
            modes=tuple(row["modes"]) if is_list_like(row["modes"]) else (),
            source_id=None if isna(row["source_id"]) else row["source_id"],
            difficulty=None if isna(row["difficulty"]) else float(row["difficulty"]),
            meta=json.loads(row["meta"]),
        )
        for row in rows.to_dict("records")
    }
    unknown = [problem_id for problem_id in problem_ids if problem_id not in by_id]
    if unknown:
        raise StoreError(f"{store.path}: problem {unknown[0]} is not in the store; run the audit again")
    return [by_id[problem_id] for problem_id in problem_ids]


class FinishedSamples(NamedTuple):
    """Numbers of samples of a completed audit, and its stopping rule, as in ``AuditKey``."""

    n: int
    n_base: int
    first_round: int | None
    enough: int | None


def finished_samples(store: Store, series: str, settings_id: str, problem_ids: Sequence[str]) -> FinishedSamples | None:
    """Return the numbers of samples of the last completed audit of these problems, or None.

    Only audits of ``series`` with the same settings are considered.
    """
    rows = store.frame(
        """
        WITH same AS (
            SELECT audit_id
            FROM audit_problems
            GROUP BY audit_id
            HAVING list_sort(list(problem_id)) = list_sort($problem_ids::VARCHAR[])
        )
        SELECT a.n, a.n_base, a.first_round, a.enough
        FROM audits AS a
        SEMI JOIN same USING (audit_id)
        WHERE a.series = $series AND a.settings_id = $settings_id AND a.provenance <> '{}'
        ORDER BY a.updated_at DESC, a.n DESC
        LIMIT 1
        """,
        series=series,
        settings_id=settings_id,
        problem_ids=list(problem_ids),
    )
    if rows.empty:
        return None
    row = rows.iloc[0]
    return FinishedSamples(
        n=int(row["n"]),
        n_base=int(row["n_base"]),
        first_round=None if isna(row["first_round"]) else int(row["first_round"]),
        enough=None if isna(row["enough"]) else int(row["enough"]),
    )


def cost_before(store: Store, key: AuditKey) -> SampleCost:
    """Return the mean cost of the existing samples of this series under this audit's settings."""
    drawn = store.frame(
        """
        SELECT count(*) AS n, avg(n_tokens) AS tokens
        FROM samples
        SEMI JOIN (FROM series_checkpoints WHERE series = $series) USING (checkpoint_id)
        WHERE settings_id = $settings_id AND NOT greedy
        """,
        series=key.series,
        settings_id=key.settings_id,
    ).iloc[0]
    if not drawn["n"]:
        return SampleCost()
    took = store.frame(
        """
        SELECT
            sum(rows_written) FILTER (stage <> 'teacher-force') AS n,
            sum(wall_s) AS wall_s
        FROM events
        SEMI JOIN (FROM audits WHERE series = $series AND settings_id = $settings_id) USING (audit_id)
        WHERE stage IN ('sample', 'panel', 'teacher-force') OR starts_with(stage, 'control ')
        """,
        series=key.series,
        settings_id=key.settings_id,
    ).iloc[0]
    n_bytes = store_bytes(store.path)
    n_all = store.frame("SELECT count(*) AS n FROM samples")["n"].iloc[0]
    return SampleCost(
        n=int(drawn["n"]),
        tokens=None if isna(drawn["tokens"]) else float(drawn["tokens"]),
        seconds=float(took["wall_s"] / took["n"]) if took["n"] and took["n"] > 0 else None,
        bytes=n_bytes / n_all if n_bytes >= LEAST_BYTES else None,
    )


def store_bytes(path: Path) -> int:
    """Return the total size in bytes of a store: the database, its log, and the token files."""
    files = [path, path.with_name(f"{path.name}.wal"), *path.resolve().with_suffix(".tokens").glob("*")]
    return sum(file.stat().st_size for file in files if file.is_file())


def made_of(store: Store, series: str) -> str | None:
    """Return one sentence with the causes of the change of pass@k since the base.

    It is about the last compared checkpoint, and uses the measure ``change_budget`` at its largest k, as in the report.
    Returns None if no part differs significantly from 0. Raises ``StoreError`` for a series that was not audited.
    """
    verdict = store.verdict(series)
    rows = store.frame(
        """
        SELECT scope, k, step, value, low, high
        FROM findings
        WHERE series = $series AND measure = 'change_budget' AND k IS NOT NULL AND step <= $last
        QUALIFY step = max(step) OVER () AND k = max(k) OVER (PARTITION BY step)
        ORDER BY scope
        """,
        series=series,
        # the verdict's steps, without later checkpoints
        last=verdict.window[-1] if verdict is not None and verdict.window else 2**62,
    )
    known = {
        row.scope: Estimate(value=float(row.value), low=_bound(row.low), high=_bound(row.high))
        for row in rows.dropna(subset="value").itertuples()
    }
    if "all" not in known:
        return None
    step = int(rows["step"].iloc[0])
    place = ranges_text([(step, step)], repaired=verdict is not None and verdict.repaired)
    first = store.frame("SELECT first_round FROM current_audits WHERE series = $series", series=series)["first_round"]
    if first.notna().all():
        place = f"{place} (first {plural(int(first.iloc[0]), 'sample')} of each problem)"
    parts = {name: known[name] for name in PARTS_IN_WORDS if name in known}
    shown = is_fall_shown(verdict)
    return made_of_text(known["all"], parts, k=int(rows["k"].iloc[0]), place=place, fall_is_shown=shown) or None


def _bound(value: float) -> float | None:
    return None if isna(value) else float(value)
