"""Decompose a change of pass@k by problem, with intervals of the parts. Pure functions.

The causes are truncation, parse failures, the first grader, a sharpened base, and the rest, which is split by groups of
problems. Each cause can be present or absent. A part is the Shapley value of its cause: the effect of adding the cause,
averaged over the orders in which causes can be added. A cause that removes samples applies to any distribution. So if
the rest is absent, the base's samples are truncated, unparsed and graded like the checkpoint's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from math import factorial
from typing import TypeVar

import numpy as np
from jaxtyping import Float, Int
from scipy.special import ndtri, stdtrit

from oversharp.diagnostics.measures.coverage.budget.distributions import (
    Effect,
    Gradings,
    PerProblem,
    SampleCounts,
    Undoable,
    all_wrong,
    applied_effect,
    count_drawn_and_kept,
    count_samples_of_both,
    own_effect,
    resample_accepted,
)
from oversharp.diagnostics.measures.coverage.budget.groups import (
    GROUPS,
    MeasuredPart,
    ProblemGroups,
    Ways,
    group_problems,
    pass_at_k_by_split,
    pass_at_k_of_all,
)
from oversharp.diagnostics.statistics.frontier import colder_weights
from oversharp.diagnostics.statistics.intervals import resampled_means
from oversharp.diagnostics.statistics.units import (
    Interval,
    by_cluster,
    effective_clusters,
    few_clusters,
    named_clusters,
)

SHARPENING, REST = "sharpening", "rest"
#: Groups of problems that are excluded when the base is sharpened to match a checkpoint.
_EXCLUDED_GROUPS = ("lost", "ways")
#: Index of the group of guesses. If the rest is absent, a part of their change remains: where the base already has a
#: false accept, another false accept has no effect.
_GUESSES = GROUPS.index("guesses")
_DRAWS, _CONFIDENCE = 999, 0.95
#: Largest k with a part for lost ways. At larger k, rarely solved problems dominate, and these have too few correct
#: samples.
MOST_K_OF_WAYS = 1
_IS_KEPT_G = np.array([group not in _EXCLUDED_GROUPS for group in GROUPS])

T = TypeVar("T", bound=str)
K = TypeVar("K")
#: Values by group of problems, for each point of the sharpened base. The last row is minus the base's own value.
Values = Float[np.ndarray, "row point problem"]


@dataclass(frozen=True, kw_only=True)
class PartsAtK:
    """Parts of the change at one checkpoint and one k, by problem or by bootstrap draw.

    Attributes:
        parts: each part, for each point of the sharpened base.
        late: pass@k of the checkpoint.
        base: pass@k of the base at each point, with the checkpoint's truncation and parse failures applied.

    ``late`` and ``base`` cover only problems that are not lost and have not lost a way. The first point is the base
    itself. The other points are the sharpened base, if it is known at this k.
    """

    parts: Mapping[str, Float[np.ndarray, "point problem"]]
    late: PerProblem
    base: Float[np.ndarray, "point problem"]

    @property
    def has_sharper_base(self) -> bool:
        """Whether the sharpened base is known at this k."""
        return len(self.base) > 1


def shapley(change: Callable[[frozenset[T]], np.ndarray], causes: Sequence[T]) -> dict[T, np.ndarray]:
    """Return the Shapley value of each cause for ``change``, a function of a set of causes.

    The values sum to the change with all causes minus the change without any cause. Source: Shapley 1953, A value for
    n-person games.

    >>> seen = {0: -4.0, 1: -6.0, 2: -5.0, 3: -9.0}  # neither, the first, the second, both
    >>> change = lambda present: np.array([seen[("cut_off" in present) + 2 * ("unread" in present)]])
    >>> shapley(change, ["cut_off", "unread"])
    {'cut_off': array([-3.]), 'unread': array([-2.])}
    """
    seen = {present: change(present) for present in _subsets(causes)}
    n = len(causes)
    parts: dict[T, np.ndarray] = {}
    for cause in causes:
        others = [present for present in seen if cause not in present]
        weights = [factorial(len(present)) * factorial(n - len(present) - 1) / factorial(n) for present in others]
        gains = [seen[present | {cause}] - seen[present] for present in others]
        parts[cause] = np.asarray(sum(weight * gain for weight, gain in zip(weights, gains, strict=True)))
    return parts


def _subsets(causes: Sequence[T]) -> Iterator[frozenset[T]]:
    for size in range(len(causes) + 1):
        yield from map(frozenset, combinations(causes, size))


@dataclass(frozen=True, kw_only=True)
class _Counterfactuals:
    """pass@k of the base and one checkpoint, with each cause present or absent."""

    base: SampleCounts
    late: SampleCounts
    k: int
    causes: Sequence[Undoable]
    groups: ProblemGroups
    sharper_SPJ: Float[np.ndarray, "point problem count"]
    rng: np.random.Generator

    def value(self, present: frozenset[str]) -> Values:
        """Return pass@k of the checkpoint by group of problems, and minus pass@k of the base last."""
        removed = frozenset(cause for cause in self.causes if cause in present)
        late_GP, applied_GSP, base_P, no_false_accept_P = self._by_causes[removed]
        value_GSP = np.broadcast_to(
            applied_GSP if SHARPENING in present else applied_GSP[:, :1], applied_GSP.shape
        ).copy()
        rest_GSP = late_GP[:, None] - applied_GSP  # does not depend on whether sharpening is present
        if REST in present:
            value_GSP += rest_GSP
        else:
            value_GSP[_GUESSES] += (1.0 - no_false_accept_P) * rest_GSP[_GUESSES]
        return np.concatenate([value_GSP, np.broadcast_to(-base_P, (1, *applied_GSP.shape[1:]))])

    def matched_values(
        self, present: frozenset[Undoable]
    ) -> tuple[np.ndarray, Float[np.ndarray, "group point problem"]]:
        """Return pass@k by group, of the checkpoint and of the base at each point."""
        return self._by_causes[present][0], self._by_causes[present][1]

    @cached_property
    def _by_causes(self) -> dict[frozenset[Undoable], tuple[np.ndarray, np.ndarray, np.ndarray, PerProblem | float]]:
        """Values by set of causes.

        Each value has pass@k of the checkpoint, of the base in the checkpoint's place, and of the base, and the
        probability of no false accept.
        """
        sets = list(_subsets(self.causes))
        k_P = {causes: self._usable_k(causes) for causes in sets}
        late_effects = [own_effect(self.late, causes, k_P[causes], self.k) for causes in sets]
        applied_effects = [applied_effect(self.late, causes, k_P[causes], self.k) for causes in sets]
        base_effects = [own_effect(self.base, causes, k_P[causes], self.k) for causes in sets]
        late_RP = self._by_own_grades(self.groups.late, late_effects, sets)
        base_RP = pass_at_k_by_split(self.groups.base.n_P, self.groups.base.correct_RP, applied_effects, self.k)
        base_all_wrong_PJ = all_wrong(self.base.parsed_P, self.base.correct_P, self.k)
        values = {}
        for place, causes in enumerate(sets):
            has_grader = "grader" in causes
            late_P = pass_at_k_of_all(self.late, late_effects[place], self.k, accepted=has_grader)
            base_P = pass_at_k_of_all(self.base, base_effects[place], self.k, accepted=has_grader)
            applied_P = applied_effects[place].pass_at_k(base_all_wrong_PJ)
            applied_GSP = self._apply_to_points(applied_effects[place], base_RP[place], applied_P)
            if has_grader:
                applied_GSP += self._grade_base(late_effects[place], applied_effects[place]) - applied_GSP[:, :1]
            late_GP = _close_sum(self.groups.group_means(late_RP[place]), late_P)
            no_false_accept_P = applied_effect(self.base, causes, k_P[causes], self.k).no_false_accept_P
            values[causes] = (late_GP, applied_GSP, base_P, no_false_accept_P)
        return values

    def _by_own_grades(
        self, part: MeasuredPart, effects: list[Effect], sets: list[frozenset[Undoable]]
    ) -> list[np.ndarray]:
        """Return pass@k in every split; the first grader's grades are used if ``grader`` is a cause."""
        by_grader = [
            pass_at_k_by_split(part.n_P, hits_RP, effects, self.k) for hits_RP in (part.correct_RP, part.accepted_RP)
        ]
        return [by_grader["grader" in causes][place] for place, causes in enumerate(sets)]

    def _grade_base(self, own: Effect, applied: Effect) -> Float[np.ndarray, "group one problem"]:
        """Return pass@k of the base, with its correct samples graded like the checkpoint's.

        The k-th power of an estimated share of accepted samples is biased, so the base's samples are resampled instead.
        The sharpened base uses that power, shifted by its bias at the base.
        """
        effect = Effect(parsed_PJ=own.parsed_PJ, no_false_accept_P=applied.no_false_accept_P)
        n_splits = len(self.groups.group_RP)
        part_RP = resample_accepted(self.late, self.groups.base.correct_RP, self.rng)
        all_RP = resample_accepted(self.late, np.tile(self.base.correct_P, (n_splits, 1)), self.rng)
        [part_value_RP] = pass_at_k_by_split(self.groups.base.n_P, part_RP, [effect], self.k)
        [all_value_RP] = pass_at_k_by_split(self.base.parsed_P, all_RP, [effect], self.k)
        return _close_sum(self.groups.group_means(part_value_RP), all_value_RP.mean(axis=0))[:, None]

    def _apply_to_points(
        self, effect: Effect, base_RP: np.ndarray, base_P: PerProblem
    ) -> Float[np.ndarray, "group point problem"]:
        """Return pass@k of the base at each point under ``effect``, by group of problems."""
        sharper_SP = np.array([effect.pass_at_k(all_wrong_PJ) for all_wrong_PJ in self.sharper_SPJ])
        base_GP = _close_sum(self.groups.group_means(base_RP), base_P)
        sharper_GSP = self.groups.share[:, None] * sharper_SP.reshape(-1, len(base_P))
        return np.concatenate([base_GP[:, None], sharper_GSP], axis=1)

    def _usable_k(self, present: frozenset[Undoable]) -> Int[np.ndarray, " problem"]:
        """Return k, or the number of samples that the second parts represent if that is smaller."""
        k_P = np.full(len(self.base.n_P), self.k)
        for counts, part in ((self.base, self.groups.base), (self.late, self.groups.late)):
            drawn_P, left_P = count_drawn_and_kept(counts, present)
            k_P = np.minimum(k_P, np.minimum(drawn_P, drawn_P * part.n_P // np.maximum(left_P, 1)))
        return k_P


def _close_sum(by_group_GP: Float[np.ndarray, "group problem"], total_P: PerProblem) -> np.ndarray:
    """Assign the remainder to the last group, so that the groups sum to the total."""
    by_group_GP[-1] = total_P - by_group_GP[:-1].sum(axis=0)
    return by_group_GP


def decompose_at_k(
    base: Gradings,
    late: Gradings,
    k: int,
    *,
    causes: Sequence[Undoable],
    guess_rate: float,
    sharper_SPJ: Float[np.ndarray, "point problem count"],
    ways: Ways | None,
    rng: np.random.Generator,
) -> PartsAtK:
    """Return the parts of one checkpoint at one k, problem by problem.

    ``sharper_SPJ`` is the probability that j samples of the sharpened base are all wrong, for j = 0 … k. Without
    ``ways``, and for k above ``MOST_K_OF_WAYS``, problems that lost a way are in the group ``unexplained``.
    """
    base_counts, late_counts = count_samples_of_both(base, late, causes)
    groups = group_problems(base_counts, late_counts, k, guess_rate=guess_rate, ways=ways, rng=rng)
    counterfactuals = _Counterfactuals(
        base=base_counts, late=late_counts, k=k, causes=causes, groups=groups, sharper_SPJ=sharper_SPJ, rng=rng
    )
    players = [*causes, *([SHARPENING] if len(sharper_SPJ) else []), REST]
    parts_GSP = shapley(counterfactuals.value, players)
    rest_GSP = parts_GSP.pop(REST)
    late_GP, base_GSP = counterfactuals.matched_values(frozenset(causes))
    by_group = {group: rest_GSP[place] for place, group in enumerate(GROUPS)}
    if ways is None or k > MOST_K_OF_WAYS:
        by_group["unexplained"] = by_group["unexplained"] + by_group.pop("ways")
    return PartsAtK(
        parts={name: part_GSP.sum(axis=0) for name, part_GSP in parts_GSP.items()} | by_group,
        late=late_GP[_IS_KEPT_G].sum(axis=0),
        base=base_GSP[_IS_KEPT_G].sum(axis=0),
    )


def estimate_parts(
    decompositions: Sequence[PartsAtK],
    *,
    sharpness_S: Float[np.ndarray, " point"],
    rng: np.random.Generator,
    cluster_P: Int[np.ndarray, " problem"] | None,
) -> list[dict[str, Interval]]:
    """Return the whole change (``all``) and its parts at each k, with intervals.

    The first decomposition is that of pass@1. Values are means over problems. One bootstrap over problems, or over
    clusters of problems, resamples all of them together. The 95 % intervals are simultaneous over all parts and k:
    their width is set by the largest standardised deviation of any part. The variance has the same floor as in
    ``intervals.share_interval``, and quantiles of Student's t replace those of the normal distribution.
    """
    columns_PX = np.concatenate([_stack_columns(parts) for parts in decompositions]).T
    unit_UX = by_cluster(columns_PX, named_clusters(cluster_P))
    mean_DX = np.vstack([unit_UX.mean(axis=0)[None], resampled_means(unit_UX, rng=rng, draws=_DRAWS)])
    ends = np.cumsum([len(_stack_columns(parts)) for parts in decompositions])[:-1]
    by_draw = [
        _split_draws(parts, own_DX)
        for parts, own_DX in zip(decompositions, np.split(mean_DX, ends, axis=1), strict=True)
    ]
    value_D: dict[tuple[int, str], np.ndarray] = {}
    for place, (draws, weight_SD) in enumerate(zip(by_draw, _point_weights(by_draw, sharpness_S), strict=True)):
        parts_D = {name: (weight_SD * part_SD).sum(axis=0) for name, part_SD in draws.parts.items()}
        value_D |= {(place, name): part_D for name, part_D in parts_D.items()}
        value_D[place, "all"] = np.asarray(sum(parts_D.values()))
    intervals = _simultaneous_intervals(value_D, len(columns_PX), len(unit_UX), cluster_P)
    return [
        {name: interval for (index, name), interval in intervals.items() if index == place}
        for place in range(len(decompositions))
    ]


def _stack_columns(parts: PartsAtK) -> Float[np.ndarray, "column problem"]:
    return np.vstack([*parts.parts.values(), parts.late, parts.base])


def _split_draws(parts: PartsAtK, mean_DX: Float[np.ndarray, "draw column"]) -> PartsAtK:
    """Return the means of every bootstrap draw, in the structure of ``parts``."""
    n_points = len(parts.base)
    *parts_SD, late_1D, base_SD = np.split(mean_DX.T, np.cumsum([*(n_points for _ in parts.parts), 1]).tolist())
    return PartsAtK(parts=dict(zip(parts.parts, parts_SD, strict=True)), late=late_1D[0], base=base_SD)


def _point_weights(
    by_draw: Sequence[PartsAtK], sharpness_S: Float[np.ndarray, " point"]
) -> list[Float[np.ndarray, "point draw"]]:
    """Return the weights of the points of the sharpened base that match the checkpoint.

    Only problems that are not lost and have not lost a way are matched, because lost problems do not show how sharp a
    checkpoint is elsewhere. These problems are selected by separate samples, so an equally sharp base has the same
    expected rates on them. The checkpoint's samples are used as they were graded, and the base's with the same causes
    applied.
    """
    weights = [np.ones((1, len(draws.late))) for draws in by_draw]
    known = [place for place, draws in enumerate(by_draw) if draws.has_sharper_base]
    if len(known) == 2:
        x, y = (by_draw[place] for place in known)
        matched = colder_weights(sharpness_S, x.base.T, y.base.T, x.late, y.late)
        for place, weight_DS in zip(known, matched, strict=True):
            weights[place] = weight_DS.T
    return weights


def _simultaneous_intervals(
    value_D: Mapping[K, Float[np.ndarray, " draw"]],
    n_problems: int,
    n_units: int,
    cluster_P: Int[np.ndarray, " problem"] | None,
) -> dict[K, Interval]:
    """Return simultaneous intervals by the same keys. The first draw is the observed value."""
    units_P = named_clusters(cluster_P)
    if n_units < 2 or few_clusters(cluster_P) is not None:
        why = few_clusters(cluster_P)
        return {
            name: Interval(mean=float(own_D[0]), low=None, high=None, n=n_problems, why=why)
            for name, own_D in value_D.items()
        }
    freedom = (n_units if units_P is None else effective_clusters(units_P)) - 1.0
    tail = 0.5 + _CONFIDENCE / 2.0
    deviation_XD = np.stack([own_D[1:] - own_D[0] for own_D in value_D.values()])
    scale_X = np.sqrt(deviation_XD.var(axis=1) * n_units / (n_units - 1) + 1.0 / n_units**2)
    largest_D = (np.abs(deviation_XD) / scale_X[:, None]).max(axis=0)
    reach = max(float(np.quantile(largest_D, _CONFIDENCE)), float(ndtri(tail)))
    half_X = reach * float(stdtrit(freedom, tail) / ndtri(tail)) * scale_X
    return {
        name: Interval(
            mean=(mean := float(own_D[0])),
            low=max(min(-1.0, mean), mean - half),
            high=min(max(1.0, mean), mean + half),
            n=n_problems,
            over="problems" if units_P is None else "clusters",
        )
        for (name, own_D), half in zip(value_D.items(), half_X.tolist(), strict=True)
    }
