"""Stopping rule of an import: problems that were sampled further until enough samples were correct."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

import pandas as pd

from oversharp.diagnostics.ingest.config import ImportConfig
from oversharp.diagnostics.records.amounts import plural, rounds_text
from oversharp.diagnostics.records.errors import ConfigError
from oversharp.diagnostics.records.types import AuditKey
from oversharp.diagnostics.store import Store
from oversharp.diagnostics.store.load import stored_key


@dataclass(frozen=True, kw_only=True)
class ImportedRounds:
    """First round, number of correct samples at which a problem stops, and largest numbers of samples."""

    first: int
    enough: int
    n: int
    n_base: int

    @property
    def note(self) -> str:
        """The rule as a sentence."""
        of_base = "" if self.n_base == self.n else f", {self.n_base} of the base"
        return (
            f"each problem is sampled in {rounds_text(self.first, self.n)}{of_base}, until {self.enough} are correct; "
            "later samples are unused"
        )

    def limit_to(self, planned: pd.DataFrame, base_id: str) -> ImportedRounds:
        """Return the rule with the largest numbers of samples that no unsolved problem lacks.

        ``planned`` has the rows of ``Store.plan_rounds`` for this rule.
        """
        lacking = planned[planned["n_drawn"] < planned["n"]]
        is_base = lacking["checkpoint_id"] == base_id
        n, n_base = (int(lacking.loc[side, "n_drawn"].min()) if side.any() else None for side in (~is_base, is_base))
        return replace(self, n=self.n if n is None else n, n_base=self.n_base if n_base is None else n_base)


def continue_rule(store: Store | None, series: str, config: ImportConfig) -> ImportConfig:
    """Return ``config`` with the stopping rule of the series' audit in the store, if it names none itself.

    With ``until_solved`` alone, the first round has the n of that audit.
    """
    if store is None or config.until_solved == 0 or not has_audit(store, series):
        _require_rule(series, config)
        return config
    key = stored_key(store, series)
    enough = config.until_solved or key.enough
    if enough is None:
        _require_rule(series, config)
        return config
    return replace(config, until_solved=enough, first=config.first or key.first_round or key.n)


def _require_rule(series: str, config: ImportConfig) -> None:
    """Raise ``ConfigError`` if only one of ``until_solved`` and ``first`` is known."""
    if config.until_solved and config.first is None:
        raise ConfigError(
            f"--until-solved {config.until_solved}: series {series!r} has no earlier import to continue; pass its "
            "--name, or --first with the samples of each problem before the further ones"
        )
    if config.first is not None and not config.until_solved:
        raise ConfigError(
            f"--first {config.first}: there are no rounds without --until-solved; add it or remove --first"
        )


def keep_n(
    store: Store, series: str, config: ImportConfig, problem_ids: Collection[str], unequal: pd.DataFrame
) -> tuple[ImportConfig, str | None]:
    """Return ``config`` with the n of the series' last import, and a note, if only some problems got further samples.

    ``problem_ids`` and ``unequal`` are those of ``ImportSelection``. Further samples of unsolved problems alone would
    exclude the solved ones, or bias pass@k. If the user gave n or a rule, ``config`` is unchanged.
    """
    if config.n is not None or config.until_solved or not has_audit(store, series):
        return config, None
    key = stored_key(store, series)
    before = store.frame("SELECT problem_id FROM audit_problems WHERE audit_id = $audit_id", audit_id=key.audit_id)
    stops = store.frame("SELECT 1 FROM stops WHERE audit_id = $audit_id LIMIT 1", audit_id=key.audit_id)
    is_partial = key.enough is None and stops.empty and is_unequal_within(unequal, len(problem_ids))
    if set(before["problem_id"]) <= set(problem_ids) and not is_partial:
        return config, None
    n = key.first_round or key.n
    note = (
        f"n stays {n}, because only some problems have further samples; if these problems were rarely solved, pass "
        "--until-solved"
    )
    return replace(config, n=n), note


def is_unequal_within(unequal: pd.DataFrame, n_problems: int) -> bool:
    """Return whether the problems of some step have different numbers of samples."""
    by_step = unequal.groupby("step")["n"].agg(["size", "nunique"])
    return bool(((by_step["size"] < n_problems) | (by_step["nunique"] > 1)).any())


def has_audit(store: Store, series: str) -> bool:
    """Return whether an earlier import of ``series`` was audited."""
    return not store.frame("SELECT 1 FROM current_audits WHERE series = $series", series=series).empty


def resolve_rounds(n_PT: pd.DataFrame, base: int, config: ImportConfig) -> ImportedRounds | None:
    """Return the stopping rule of ``config`` with its numbers of samples; None without a rule.

    Without ``n`` they are the largest stored ones, which ``ImportedRounds.limit_to`` lowers.

    Args:
        n_PT: stored samples of each problem (rows) at each step (columns), more than 0.
        base: step of the base.

    Raises ``ConfigError`` if the numbers contradict each other.
    """
    if not config.until_solved or config.first is None:
        return None
    first = config.first
    if config.n is not None and config.n < first:
        raise ConfigError(f"--n {config.n}: must be at least the first round of {plural(first, 'sample')} (--first)")
    most = n_PT[n_PT.min(axis=1) >= first].max()
    if most.isna().any():
        raise ConfigError(f"--first {first}: no problem has more than {n_PT.min(axis=1).max()} samples at every step")
    n, n_base = config.n or int(most.drop(base).max()), config.n or int(most[base])
    if config.until_solved > min(n, n_base):
        raise ConfigError(
            f"--until-solved {config.until_solved}: no problem has more than {plural(min(n, n_base), 'sample')}"
        )
    return ImportedRounds(first=first, enough=config.until_solved, n=n, n_base=n_base)


def note_of_lacking(planned: pd.DataFrame, n: int) -> list[str]:
    """Return a note if samples of a rule with at most ``n`` are missing, from the rows of ``Store.plan_rounds``."""
    lacking = planned[planned["n_drawn"] < planned["n"]]
    if lacking.empty:
        return []
    n_missing = int((lacking["n"] - lacking["n_drawn"]).sum())
    return [
        f"{plural(n_missing, 'sample')} of {plural(lacking['problem_id'].nunique(), 'problem')} are missing at "
        f"{plural(lacking['checkpoint_id'].nunique(), 'step')}, which cannot be compared up to n = {n}; "
        "`oversharp plan STORE --top-up FILE` lists them, and a smaller --n needs fewer"
    ]


def note_of_unused(store: Store, key: AuditKey, *, is_given: bool) -> list[str]:
    """Return a note on samples of unsolved problems beyond the largest number, or none.

    ``is_given``: the user gave that number.
    """
    ((n_unused, n_problems),) = store.frame(
        """
        SELECT coalesce(sum(drawn.n - st.n), 0)::BIGINT AS n_unused, count(DISTINCT st.problem_id) AS n_problems
        FROM stops AS st
        JOIN series_checkpoints AS c USING (checkpoint_id)
        JOIN (
            SELECT checkpoint_id, problem_id, settings_id, count(*) AS n
            FROM samples
            WHERE NOT greedy
            GROUP BY ALL
        ) AS drawn USING (checkpoint_id, problem_id, settings_id)
        WHERE st.audit_id = $audit_id
          AND c.series = $series
          AND st.n = CASE WHEN c.is_base THEN $n_base ELSE $n END
          AND drawn.n > st.n
        """,
        audit_id=key.audit_id,
        series=key.series,
        n=key.n,
        n_base=key.n_base,
    ).itertuples(index=False)
    if not n_unused:
        return []
    of_base = "" if key.n == key.n_base else f" ({key.n_base} of the base)"
    unused = f"{plural(int(n_unused), 'sample')} of {plural(int(n_problems), 'problem')} beyond n = {key.n}{of_base}"
    if is_given:
        return [f"{unused} are unused (--n)"]
    return [
        f"{unused} are unused, because some unsolved problem has no more; a larger --n uses them, and leaves out the "
        "steps that lack samples"
    ]
