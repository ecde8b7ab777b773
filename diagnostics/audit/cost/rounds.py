"""Stopping rules of planned audits, and expected numbers of samples from the samples so far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Float

from oversharp.diagnostics.audit.config import AuditConfig
from oversharp.diagnostics.audit.settings import first_round
from oversharp.diagnostics.records.errors import ConfigError
from oversharp.diagnostics.records.settings import require_at_least
from oversharp.diagnostics.records.types import AuditKey, Problem
from oversharp.diagnostics.statistics.stopping import StoppingRule


@dataclass(frozen=True, kw_only=True)
class PlannedStopping:
    """The stopping rule of audits that are planned.

    ``enough`` is the number of correct samples after which a problem stops, 0 without a rule. ``first`` is the number
    of samples in the first round. By default they are those of ``oversharp audit`` of ``problems``.

    Raises ``ConfigError`` for a number outside its range, and for ``first`` without a rule.
    """

    enough: int | None = None
    first: int | None = None
    problems: Sequence[Problem] = ()

    def __post_init__(self) -> None:
        require_at_least("--until-solved", self.enough, 0)
        require_at_least("--first", self.first, 1)
        if self.enough == 0 and self.first is not None:
            raise ConfigError(f"--first {self.first}: there are no rounds with --until-solved 0; remove one of the two")

    def for_n(self, n: int) -> dict[str, int]:
        """Return ``first`` and ``enough`` of audits with at most ``n`` samples; empty if all problems have n.

        >>> [PlannedStopping().for_n(n) for n in (32, 64, 256)]
        [{}, {'first': 16, 'enough': 4}, {'first': 32, 'enough': 4}]
        """
        enough = self._config(n).used_until_solved if self.enough is None else self.enough
        first = self.first_for(n)
        return {"first": first, "enough": enough} if 0 < enough <= n and first < n else {}

    def first_for(self, n: int) -> int:
        """Return the number of samples of the first round with at most ``n`` samples."""
        return first_round(self._config(n), self.problems) if self.first is None else self.first

    @staticmethod
    def _config(n: int) -> AuditConfig:
        return AuditConfig(task="any", n=n)


class SampleForecast:
    """Number of samples at which each checkpoint will end: expected, and at most.

    A problem's success rate is estimated from its samples at this checkpoint, else from those of the base:
    (correct + 1/2) / (n + 1). Without either, the expected number is the largest possible one.
    """

    def __init__(self, key: AuditKey, base_id: str) -> None:
        if key.first_round is None or key.enough is None:
            raise ValueError(f"audit {key.audit_id} has no stopping rule")
        self._base_id = base_id
        self._of_base, self._of_others = (
            StoppingRule.doubling(first=key.first_round, cap=cap, enough=key.enough) for cap in (key.n_base, key.n)
        )
        self._plans: dict[str, pd.DataFrame] = {}
        #: Checkpoint id → expected number of samples.
        self.expected: dict[str, int] = {}

    def update(self, planned: pd.DataFrame) -> dict[str, int]:
        """Replace the plans of the checkpoints in ``planned``, the rows of ``Store.plan_rounds``.

        Returns checkpoint id → change of its expected number of samples.
        """
        plans = {
            str(checkpoint_id): rows.set_index("problem_id") for checkpoint_id, rows in planned.groupby("checkpoint_id")
        }
        self._plans |= plans
        affected = self._plans if self._base_id in plans else plans
        changes = {}
        for checkpoint_id in affected:
            n = self._expect(checkpoint_id)
            changes[checkpoint_id] = n - self.expected.get(checkpoint_id, 0)
            self.expected[checkpoint_id] = n
        return changes

    @property
    def is_bound(self) -> bool:
        """Whether nothing is known about the success rates, so that expected numbers are upper bounds."""
        return not (self._plans[self._base_id]["n_drawn"] > 0).any()

    def n_planned(self, checkpoint_id: str) -> int:
        """Number of samples up to the planned round of each problem."""
        return int(self._plans[checkpoint_id]["n"].sum())

    def n_most(self, checkpoint_id: str) -> int:
        """Largest possible number of samples."""
        rows = self._plans[checkpoint_id]
        return int(np.where(_is_open(rows), self._rule(checkpoint_id).cap, rows["n"]).sum())

    def _expect(self, checkpoint_id: str) -> int:
        rows, rule = self._plans[checkpoint_id], self._rule(checkpoint_id)
        open_rows = rows[_is_open(rows)]
        total = float(rows["n"].sum() - open_rows["n"].sum())
        before = pd.cut(open_rows["n"], [0, *rule.rounds], labels=[0, *rule.rounds[:-1]]).astype(int)  # last full round
        rate = self._rates(open_rows, before)
        n_correct = open_rows["n_correct"].where(before > 0, 0)
        for (done, correct), same in rate.groupby([before, n_correct]):
            total += float(_expected_end(rule, int(done), int(correct), same.to_numpy()).sum())
        return round(total)

    def _rates(self, rows: pd.DataFrame, before: pd.Series) -> pd.Series:
        own = (rows["n_correct"] + 0.5) / (rows["n_drawn"] + 1)
        base = self._plans[self._base_id].reindex(rows.index)
        of_base = ((base["n_correct"] + 0.5) / (base["n_drawn"] + 1)).where(base["n_drawn"] > 0, 0.0)
        return own.where(before > 0, of_base)

    def _rule(self, checkpoint_id: str) -> StoppingRule:
        return self._of_base if checkpoint_id == self._base_id else self._of_others


def _is_open(rows: pd.DataFrame) -> pd.Series:
    """Return for each problem whether samples of its planned round are missing."""
    return rows["n_drawn"] < rows["n"]


def _expected_end(
    rule: StoppingRule, done: int, correct: int, rate_P: Float[np.ndarray, " problem"]
) -> Float[np.ndarray, " problem"]:
    """Return the expected numbers of samples at the end of problems with ``correct`` of ``done`` samples.

    >>> rule = StoppingRule(rounds=(2, 4, 8), enough=2)
    >>> _expected_end(rule, 2, 1, np.array([0.0, 1.0])).tolist()
    [8.0, 4.0]
    """
    rounds = tuple(n - done for n in rule.rounds if n > done)
    left = StoppingRule(rounds=rounds, enough=min(max(1, rule.enough - correct), rounds[-1]))
    return done + left.expected_samples(rate_P)
