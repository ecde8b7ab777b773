"""Records of a measure: its input (evidence), declaration, plot and results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, wraps
from types import MappingProxyType
from typing import Any, Literal, TypeVar, cast, get_args

import numpy as np
import pandas as pd
from jaxtyping import Int

from oversharp.diagnostics.records.types import Finding
from oversharp.diagnostics.statistics.stopping import StoppingRule
from oversharp.diagnostics.statistics.units import Interval

T = TypeVar("T")
#: Sections of the report.
Section = Literal[
    "coverage",
    "problems",
    "modes",
    "strategy",
    "tools",
    "interference",
    "kernel",
    "perplexity",
    "trust_region",
    "dynamics",
    "entropy",
    "health",
]
#: Rank of a measure without a declared rank. It comes after all others of its section, in order of names.
LAST = 1000


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """Input of a computed measure: the data of one series of one audit.

    Attributes:
        checkpoints: one row per checkpoint in step order, with columns ``checkpoint_id, checkpoint, step, is_base``.
        frames: rows of this series in the views that the measure declared (columns: ``docs/views.md``).
        n: number of samples per problem and checkpoint; the base may have more. With a stopping rule it is the cap.
        ks: values of k that the user set.
        first_round: samples of every problem in the first round of the stopping rule, None without a rule.
        enough: correct samples at which the rule stops a problem, None without a rule.
        cluster_of: cluster index of each problem, empty if problems are independent.
        guess_rate: assumed share of wrong responses that graders accept.
    """

    checkpoints: pd.DataFrame
    frames: Mapping[str, pd.DataFrame]
    n: int
    ks: tuple[int, ...]
    first_round: int | None = None
    enough: int | None = None
    cluster_of: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    guess_rate: float = 0.0
    _cache: dict[Callable[[Evidence], Any], Any] = field(init=False, default_factory=dict, repr=False, compare=False)

    @property
    def n_first_round(self) -> int:
        """Number of samples that every problem has: ``n``, or those of the first round."""
        return self.n if self.first_round is None else min(self.first_round, self.n)

    @property
    def is_stopped(self) -> bool:
        """Whether a stopping rule determined the number of samples of each problem."""
        return self.first_round is not None

    def stopping_rule(self, cap: int) -> StoppingRule | None:
        """Return the rule that draws at most ``cap`` samples of a problem, None if the audit has no rule."""
        if self.first_round is None or self.enough is None:
            return None
        return StoppingRule.doubling(first=self.first_round, cap=cap, enough=self.enough)

    def once(self, make: Callable[[Evidence], T]) -> T:
        """Return ``make(self)``. It is computed once and shared, so callers must not change it."""
        if make not in self._cache:
            self._cache[make] = make(self)
        return cast(T, self._cache[make])

    def clusters(self, problem_ids: Iterable[str]) -> Int[np.ndarray, " problem"] | None:
        """Return the cluster of each of these problems, None if the audit has no clusters."""
        if not self.cluster_of:
            return None
        return np.array([self.cluster_of[problem_id] for problem_id in problem_ids], dtype=np.int64)

    @property
    def checkpoint_ids(self) -> list[str]:
        """All checkpoints in step order."""
        return [str(checkpoint_id) for checkpoint_id in self.checkpoints["checkpoint_id"]]

    @cached_property
    def base_id(self) -> str:
        """``checkpoint_id`` of the base. Raises ``IndexError`` in a series without a base."""
        return str(self.checkpoints.loc[self.checkpoints["is_base"], "checkpoint_id"].iloc[0])


def cached_per_evidence(load: Callable[[Evidence], T]) -> Callable[[Evidence], T]:
    """Compute ``load`` once per evidence. The result is shared, so callers must not change it."""

    @wraps(load)
    def cached(evidence: Evidence) -> T:
        return evidence.once(load)

    return cached


@dataclass(frozen=True, kw_only=True)
class Plot:
    """Figure of a measure in the report. Each value of the column ``group`` is a separate line."""

    x: Literal["step", "k"] = "step"
    group: Literal["checkpoint", "scope", "k", "none"] = "none"
    y_label: str = ""
    log_x: bool = False
    log_y: bool = False
    y_range: tuple[float, float] | None = None


@dataclass(frozen=True, kw_only=True)
class Unknown:
    """A result without a value.

    ``why`` is the reason. The bounds ``low`` and ``high`` may be known.
    """

    why: str
    n: int | None = None
    low: float | None = None
    high: float | None = None
    over: Literal["problems", "clusters"] = "problems"
    why_no_interval: str | None = None


#: A value with its interval, an unknown value, or a text with the reason why there is no value.
Result = Interval | Unknown | str
#: Results at one checkpoint: a single result (scope ``all``), or several results by scope, by k, or by both.
Results = (
    Result
    | Mapping[str, Result]
    | Mapping[int, Result]
    | Mapping[tuple[str, int], Result]
    | Mapping[tuple[str, int | None], Result]
)


@dataclass(frozen=True, kw_only=True)
class Measure:
    """One measure of the audit.

    Exactly one of ``compute`` and ``sql`` must be given. A measure of the whole series has its finding at the last
    checkpoint.

    Attributes:
        compute: pure function of the evidence.
        sql: query on the public views, with the bound parameters ``$series``, ``$ks`` and ``$strategy_regex``. It must
            return the columns ``checkpoint_id, scope, k, value, low, high, n``, with rows in a fixed order.
        needs: required views. If one of them is empty, the findings are NULL with ``missing`` as the reason.
        also: optional views.
        columns: columns that ``compute`` uses of a large view; default: all.
        signed: whether values are changes, which may be negative.
        of_base: whether the base has a finding. False for measures that compare a checkpoint with the base or with the
            previous checkpoint.
        section: section of the report.
        rank: position in the section, in ascending order.
        folded: whether the report hides the measure by default.
        first_round: whether it uses only the samples of the first round if the audit has a stopping rule.
    """

    name: str
    title: str
    unit: str
    section: Section
    needs: tuple[str, ...]
    missing: str
    plot: Plot
    compute: Callable[[Evidence], Sequence[Finding]] | None = None
    sql: str | None = None
    also: tuple[str, ...] = ()
    signed: bool = False
    of_base: bool = True
    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    doc: str = ""
    rank: int = LAST
    folded: bool = False
    first_round: bool = False

    def __post_init__(self) -> None:
        if (self.compute is None) == (self.sql is None):
            raise ValueError(f"measure {self.name}: give exactly one of compute and sql")
        if self.section not in get_args(Section):
            raise ValueError(f"measure {self.name}: unknown section {self.section!r}; choose from {get_args(Section)}")

    def __call__(self, evidence: Evidence) -> Sequence[Finding]:
        """Return the findings of the measure.

        If a view of ``needs`` is empty, they are unknown with the reason ``missing``.

        Raises ``TypeError`` for a measure in SQL, because it must run on a database.
        """
        if self.compute is None:
            raise TypeError(f"measure {self.name} is SQL: run {self.name}.sql on a store")
        if any(evidence.frames[view].empty for view in self.needs if view in evidence.frames):
            return self.unknown(self.expected(evidence), self.missing)
        return self.compute(evidence)

    def expected(self, evidence: Evidence) -> list[str]:
        """Return the checkpoints that must have a finding: all, or all except the base."""
        return [i for i in evidence.checkpoint_ids if self.of_base or i != evidence.base_id]

    def unknown(self, checkpoint_ids: Iterable[str], why: str) -> list[Finding]:
        """Return a finding without a value for each of these checkpoints."""
        return [Finding(checkpoint_id=i, measure=self.name, unit=self.unit, why=why) for i in checkpoint_ids]
