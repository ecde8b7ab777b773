"""Stopping rule of an import: problems that were sampled further until enough samples were correct."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

import pandas as pd

from oversharp.diagnostics.ingest.config import ImportConfig
from oversharp.diagnostics.records.amounts import plural
from oversharp.diagnostics.records.errors import ConfigError
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
            f"samples in rounds of {self.first}, {2 * self.first}, … up to {self.n}{of_base}; later samples of a "
            f"problem with {self.enough} correct ones are unused"
        )


def continue_rule(store: Store, series: str, config: ImportConfig) -> ImportConfig:
    """Return ``config`` with the stopping rule of the series' audit in the store, if it names none itself.

    With ``until_solved`` alone, the first round has the n of that audit.
    """
    if config.until_solved == 0 or not has_audit(store, series):
        return config
    key = stored_key(store, series)
    enough = config.until_solved or key.enough
    if enough is None:
        return config
    return replace(config, until_solved=enough, first=config.first or key.first_round or key.n)


def keep_n(
    store: Store, series: str, config: ImportConfig, problem_ids: Collection[str]
) -> tuple[ImportConfig, str | None]:
    """Return ``config`` with the n of the series' last import, and a note, if a larger n would exclude its problems.

    ``problem_ids`` are the problems with the larger n. Further samples of unsolved problems alone would otherwise
    exclude the solved ones. Without such a problem, and if the user gave n or a rule, ``config`` is unchanged.
    """
    if config.n is not None or config.until_solved or not has_audit(store, series):
        return config, None
    key = stored_key(store, series)
    before = store.frame("SELECT problem_id FROM audit_problems WHERE audit_id = $audit_id", audit_id=key.audit_id)
    n_lost = len(set(before["problem_id"]) - set(problem_ids))
    if not n_lost:
        return config, None
    n = key.first_round or key.n
    note = (
        f"n stays {n}, because {plural(n_lost, 'problem')} of the last import would be left out; if only unsolved "
        "problems were sampled further, pass --until-solved"
    )
    return replace(config, n=n), note


def has_audit(store: Store, series: str) -> bool:
    """Return whether an earlier import of ``series`` was audited."""
    return not store.frame("SELECT 1 FROM current_audits WHERE series = $series", series=series).empty


def resolve_rounds(n_PT: pd.DataFrame, base: int, config: ImportConfig) -> ImportedRounds | None:
    """Return the stopping rule of ``config`` with its numbers of samples; None without a rule.

    Without ``first`` the first round has the smallest number of samples. Without ``n`` the cap is the last full round
    of the problem with most samples.

    Args:
        n_PT: stored samples of each problem (rows) at each step (columns), more than 0.
        base: step of the base.

    Raises ``ConfigError`` if the numbers contradict each other.
    """
    if not config.until_solved:
        return None
    first = config.first or int(n_PT.to_numpy().min())
    if config.n is not None and config.n < first:
        raise ConfigError(f"--n {config.n}: must be at least the first round of {plural(first, 'sample')} (--first)")
    most = n_PT[n_PT.min(axis=1) >= first].max()
    if most.isna().any():
        raise ConfigError(f"--first {first}: no problem has more than {n_PT.min(axis=1).max()} samples at every step")
    n = config.n or _last_round(first, int(most.drop(base).max()))
    n_base = config.n or _last_round(first, int(most[base]))
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


def _last_round(first: int, n: int) -> int:
    """Return the largest of first, 2 first, 4 first, … that is at most n.

    >>> _last_round(64, 64), _last_round(64, 300)
    (64, 256)
    """
    return first << ((n // first).bit_length() - 1)
