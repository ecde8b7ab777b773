"""Further samples of an import, for rarely solved problems: until they are solved or have a largest number."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from oversharp.diagnostics.audit.config import DEFAULT_ENOUGH
from oversharp.diagnostics.audit.cost.rounds import SampleForecast
from oversharp.diagnostics.audit.plan import read_pilot, resolve_k
from oversharp.diagnostics.records.amounts import plural
from oversharp.diagnostics.records.cells import short_repr
from oversharp.diagnostics.records.errors import ConfigError, StoreError
from oversharp.diagnostics.records.settings import require_at_least
from oversharp.diagnostics.records.types import AuditKey
from oversharp.diagnostics.store import Store
from oversharp.diagnostics.store.load import choose_series, has_texts, is_recorded, stored_key
from oversharp.diagnostics.store.plan.samples import rounds_of
from oversharp.diagnostics.verdict.audit_sizes import AuditSizes, PlannedAudit, audit_design
from oversharp.diagnostics.verdict.power import BaseRates

#: Fields of a line that only such a list has.
_LISTED = frozenset({"prompt", "n", "n_before", "n_correct"})
#: Default of the largest number of samples of a problem, in first rounds.
_TIMES_FIRST = 4

_CHECKPOINTS = "SELECT checkpoint_id, checkpoint, step, is_base FROM series_checkpoints WHERE series = $series"
_PROBLEMS = """
SELECT p.problem_id, p.source_id, p.task, p.prompt, p.gold
FROM audit_problems AS ap
JOIN problems AS p USING (problem_id)
WHERE ap.audit_id = $audit_id
ORDER BY ap.position
"""


@dataclass(frozen=True, kw_only=True)
class CheckpointTopUp:
    """Problems of one checkpoint that need further samples.

    ``samples`` is the number to draw now, up to the next round of each problem. ``expected`` and ``most`` count all
    further samples, up to the largest number of each problem.
    """

    step: int
    checkpoint: str
    problems: int
    samples: int
    expected: int
    most: int

    __repr__ = short_repr


@dataclass(frozen=True, kw_only=True)
class TopUp:
    """Further samples of an import, and what they would detect.

    A problem of a checkpoint is sampled in rounds of ``first``, 2 ``first``, … samples up to ``n``, or ``n_base`` of
    the base, until ``enough`` are correct. ``path`` is the file with the problems of the next round, None if there are
    none. ``uniform`` is the number of further samples without the rule. ``before`` and ``after`` are the audits without
    and with the further samples, with their power to detect a fall of pass@``k`` by ``drop``. They are None
    if no loss is that large.
    """

    series: str
    path: Path | None
    first: int
    enough: int
    n: int
    n_base: int
    n_problems: int
    checkpoints: tuple[CheckpointTopUp, ...]
    uniform: int
    k: int
    drop: float
    before: PlannedAudit | None
    after: PlannedAudit | None

    __repr__ = short_repr


def top_up(
    store_path: Path,
    path: Path,
    *,
    series: str | None = None,
    n: int | None = None,
    until_solved: int | None = None,
    drop_points: float = 5.0,
    k: int | None = None,
) -> TopUp:
    """Write to ``path`` the problems of an import that need further samples, and return how many.

    The file has a line for each problem and step with fewer than ``until_solved`` correct samples: the number of
    further samples up to the next round (``n``), and the problem's texts. After these samples are imported with
    ``--until-solved``, the next call writes the next round. ``n`` is the largest number of samples of a problem, by
    default four times the first round. The first round is the n of the import.

    Raises:
        ConfigError: a number is outside its range.
        StoreError: the series was sampled by oversharp, or has only counts or greedy responses.
    """
    require_at_least("--until-solved", until_solved, 1)
    require_at_least("--n", n, 1)
    _require_free(path, store_path)
    if not 0 < drop_points <= 100:
        raise ConfigError(f"--drop {drop_points:g}: must be above 0 and at most 100 points of pass@k")
    with Store.open(store_path, read_only=True) as store:
        name = choose_series(store, series)
        stored = _imported_key(store, name)
        key = _with_rule(stored, n, until_solved)
        planned = rounds_of(store, key)
        checkpoints = store.frame(_CHECKPOINTS, series=name).set_index("checkpoint_id").sort_values("step")
        problems = store.frame(_PROBLEMS, audit_id=key.audit_id).set_index("problem_id")
        pilot = read_pilot(store, name)
    lacking = planned[planned["n_drawn"] < planned["n"]]
    cap = planned["checkpoint_id"].eq(_base_id(checkpoints)).map({True: key.n_base, False: key.n})
    if ((planned["n_drawn"] == planned["n"]) & (planned["n"] < cap) & (planned["n_correct"] < key.enough)).any():
        raise StoreError(
            f"{store_path}: series {name!r} has further samples that are not graded; import a file of it again with "
            f"--until-solved {key.enough}"
        )
    rows = _count_further(key, planned, checkpoints)
    if len(lacking):
        _write(path, lacking, checkpoints, problems)
    else:
        path.unlink(missing_ok=True)  # the list of an earlier round, which would be sampled a second time
    used_k = resolve_k(k, pilot)
    rates = BaseRates.of(pilot.correct_P, pilot.n_P)
    losses = rates.losses(fall=drop_points / 100, k=used_k) if pilot.correct_P.any() else ()
    audits: list[PlannedAudit | None] = [None, None]
    if losses and pilot.n_checkpoints:
        sizes = AuditSizes(rates=rates, losses=losses, wanted=0.8, lengths=pilot.lengths, trained=pilot.trained)
        audits = [
            sizes.planned(
                audit_design(
                    rates.n_problems,
                    of.n,
                    pilot.n_checkpoints,
                    n_base=of.n_base,
                    first=of.first_round,
                    enough=of.enough,
                ),
                pilot.n_checkpoints,
            )
            for of in (stored, key)
        ]
    n_drawn = int(planned["n_drawn"].sum())
    return TopUp(
        series=name,
        path=path if len(lacking) else None,
        first=key.first_round or key.n,
        enough=key.enough or 0,
        n=key.n,
        n_base=key.n_base,
        n_problems=len(problems),
        checkpoints=rows,
        uniform=len(problems) * (key.n * (len(checkpoints) - 1) + key.n_base) - n_drawn,
        k=used_k,
        drop=drop_points / 100,
        before=audits[0],
        after=audits[1],
    )


def _require_free(path: Path, store_path: Path) -> None:
    """Raise ``ConfigError`` if ``path`` is an existing file that is not such a list."""
    if not path.exists():
        return
    try:
        with path.open(encoding="utf-8") as file:
            line = json.loads(file.readline())
    except (OSError, ValueError):
        line = None
    if not isinstance(line, dict) or not line.keys() >= _LISTED or path.resolve() == store_path.resolve():
        raise ConfigError(f"--top-up {path}: this file exists and is not an earlier list of problems; pass a new name")


def _imported_key(store: Store, series: str) -> AuditKey:
    """Return the identity of the audit of imported samples.

    Raises ``StoreError`` if the samples were not imported, or their order is unknown.
    """
    if not is_recorded(store, series):
        raise StoreError(
            f"{store.path}: series {series!r} was sampled by oversharp; `oversharp audit` with a larger --n draws its "
            "further samples"
        )
    if not has_texts(store, series):
        raise StoreError(
            f"{store.path}: series {series!r} has only counts, which do not show the samples of the first round; "
            "import samples with texts"
        )
    key = stored_key(store, series)
    if key.verifier is not None:
        raise StoreError(
            f"{store.path}: series {series!r} is a second grading; pass --series with the first one, import further "
            "samples there, and run `oversharp regrade` again"
        )
    if key.n < 2:
        raise StoreError(f"{store.path}: series {series!r} has one response to each problem; import several of each")
    return key


def _with_rule(stored: AuditKey, n: int | None, until_solved: int | None) -> AuditKey:
    """Return the audit with the rule of the further samples.

    Raises ``ConfigError`` if there is no round after the first.
    """
    first = stored.first_round or stored.n
    enough = until_solved or stored.enough or DEFAULT_ENOUGH
    n = n or max(stored.n, _TIMES_FIRST * first)
    if n <= first and stored.enough is None:
        raise ConfigError(
            f"--n {n}: every problem has {plural(first, 'sample')}; pass a larger number, such as {2 * first}"
        )
    if n < first:
        raise ConfigError(f"--n {n}: must be at least the first round of {plural(first, 'sample')}")
    if enough > n:
        raise ConfigError(f"--until-solved {enough}: a problem gets at most {plural(n, 'sample')}; pass a larger --n")
    n_base = max(stored.n_base, n)
    return replace(stored, first_round=first, enough=enough, n=n, n_base=n_base)


def _count_further(key: AuditKey, planned: pd.DataFrame, checkpoints: pd.DataFrame) -> tuple[CheckpointTopUp, ...]:
    forecast = SampleForecast(key, _base_id(checkpoints))
    forecast.update(planned)
    counted = []
    for checkpoint_id, rows in planned.groupby("checkpoint_id"):
        here = checkpoints.loc[str(checkpoint_id)]
        drawn = int(rows["n_drawn"].clip(upper=rows["n"]).sum())
        missing = rows[rows["n_drawn"] < rows["n"]]
        counted.append(
            CheckpointTopUp(
                step=int(here["step"]),
                checkpoint=str(here["checkpoint"]),
                problems=len(missing),
                samples=int((missing["n"] - missing["n_drawn"]).sum()),
                expected=forecast.expected[str(checkpoint_id)] - drawn,
                most=forecast.n_most(str(checkpoint_id)) - drawn,
            )
        )
    return tuple(sorted(counted, key=lambda row: row.step))


def _base_id(checkpoints: pd.DataFrame) -> str:
    return str(checkpoints.index[checkpoints["is_base"].astype(bool)][0])


def _write(path: Path, lacking: pd.DataFrame, checkpoints: pd.DataFrame, problems: pd.DataFrame) -> None:
    """Write the file atomically. Raises ``StoreError`` if it cannot be written."""
    unfinished = path.with_name(f"{path.name}.unfinished")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with unfinished.open("w", encoding="utf-8") as file:
            file.writelines(
                f"{json.dumps(row, ensure_ascii=False)}\n" for row in _lines(lacking, checkpoints, problems)
            )
        os.replace(unfinished, path)
    except OSError as error:
        raise StoreError(f"{path}: cannot be written: {error.strerror or error}") from error


def _lines(lacking: pd.DataFrame, checkpoints: pd.DataFrame, problems: pd.DataFrame) -> Iterator[dict[str, Any]]:
    steps = lacking["checkpoint_id"].map(checkpoints["step"])
    place = {problem_id: position for position, problem_id in enumerate(problems.index)}
    order = lacking.assign(step=steps, place=lacking["problem_id"].map(place)).sort_values(["step", "place"])
    for row in order.itertuples():
        problem = problems.loc[row.problem_id]
        has_id = isinstance(problem["source_id"], str)
        yield {
            "step": int(row.step),
            **({"problem": problem["source_id"]} if has_id else {}),
            "task": problem["task"],
            "prompt": problem["prompt"],
            "gold": problem["gold"],
            "n": int(row.n - row.n_drawn),
            "n_before": int(row.n_drawn),
            "n_correct": int(row.n_correct),
        }
