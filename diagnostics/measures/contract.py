"""What a measure is: one file, one docstring, one computation, one plot described as data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any, Literal, TypeVar, cast, get_args

import numpy as np
import pandas as pd
from jaxtyping import Int

from oversharp.diagnostics.records.types import Finding

T = TypeVar("T")
View = Literal[
    "problem_counts",
    "sampled_counts",
    "read_counts",
    "second_counts",
    "greedy_grades",
    "answer_counts",
    "strategy_counts",
    "way_counts",
    "second_way_counts",
    "control_counts",
    "base_responses",
    "mode_logps",
    "sample_entropies",
    "graded_samples",
    "regraded_samples",
    "panel_logps",
    "own_logps",
    "repeated_logps",
    "panel_tokens",
    "own_tokens",
    "training_tokens",
    "kernel_runs",
    "kernel_members",
    "kernel_pairs",
]
Section = Literal[
    "coverage",
    "problems",
    "modes",
    "interference",
    "kernel",
    "perplexity",
    "trust_region",
    "dynamics",
    "entropy",
    "health",
]


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What a computed measure sees: one series of one audit, nothing else.

    ``checkpoints`` has one row per checkpoint in step order: ``checkpoint_id, checkpoint, step, is_base``.
    ``frames`` holds the views that the measure asked for (columns: see ``docs/views.md``), this series only.
    ``n`` is the number of samples per problem and checkpoint (an adaptive audit draws fewer of some problems, and the
    base has more: column ``n_planned``), ``ks`` the values of k the user asked for. ``cluster_of`` numbers the
    cluster of every problem of the audit; empty where each stands for itself. ``guess_rate`` is the share of wrong
    responses that the graders are reckoned to accept.
    """

    checkpoints: pd.DataFrame
    frames: Mapping[str, pd.DataFrame]
    n: int
    ks: tuple[int, ...]
    cluster_of: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    guess_rate: float = 0.0
    _made: dict[Callable[[Evidence], Any], Any] = field(init=False, default_factory=dict, repr=False, compare=False)

    def once(self, make: Callable[[Evidence], T]) -> T:
        """``make(self)``, computed for the first measure that asks; the others get the same and must not change it."""
        if make not in self._made:
            self._made[make] = make(self)
        return cast(T, self._made[make])

    def clusters(self, problem_ids: Iterable[str]) -> Int[np.ndarray, " problem"] | None:
        """The cluster of each of these problems, for an interval over them; None where none are named."""
        if not self.cluster_of:
            return None
        return np.array([self.cluster_of[problem_id] for problem_id in problem_ids], dtype=np.int64)

    @cached_property
    def base_id(self) -> str:
        """``checkpoint_id`` of the base. ``IndexError`` where no checkpoint is one, as in an empty series."""
        return str(self.checkpoints.loc[self.checkpoints["is_base"], "checkpoint_id"].iloc[0])


@dataclass(frozen=True, kw_only=True)
class Plot:
    """How the report draws the findings of a measure. ``group`` names the column that becomes the line."""

    x: Literal["step", "k"] = "step"
    group: Literal["checkpoint", "scope", "k", "none"] = "none"
    y_label: str = ""
    log_x: bool = False
    y_range: tuple[float, float] | None = None


@dataclass(frozen=True, kw_only=True)
class Measure:
    """One measure of the audit.

    Exactly one of ``compute`` (pure function of the evidence) and ``sql`` is given. ``sql`` runs on the public
    views with the bound parameters ``$series``, ``$ks`` and ``$strategy_regex`` and returns the columns
    ``checkpoint_id, scope, k, value, low, high, n`` in a stated order.
    ``needs`` are the views it reads; when one of them is empty the findings are NULL with ``missing`` as reason.
    ``also`` are views that it reads where they hold anything.
    ``columns`` names those of a large view that ``compute`` reads, all of them by default: others may be left out.
    ``signed`` values are changes and may be below 0. Without ``of_base`` it compares a checkpoint with the base or the
    one before, so the base has no finding. A measure of the series as a whole stands at the last checkpoint.
    """

    name: str
    title: str
    unit: str
    section: Section
    needs: tuple[View, ...]
    missing: str
    plot: Plot
    compute: Callable[[Evidence], Sequence[Finding]] | None = None
    sql: str | None = None
    also: tuple[View, ...] = ()
    signed: bool = False
    of_base: bool = True
    columns: Mapping[View, tuple[str, ...]] = field(default_factory=dict)
    doc: str = ""

    def __post_init__(self) -> None:
        if (self.compute is None) == (self.sql is None):
            raise ValueError(f"measure {self.name}: give compute or sql, not both or neither")
        if self.section not in get_args(Section):
            raise ValueError(f"measure {self.name}: no section {self.section!r}; choose from {get_args(Section)}")
