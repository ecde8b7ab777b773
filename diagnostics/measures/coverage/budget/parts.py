"""Decomposition of a change of pass@k, problem by problem, with intervals of its parts. Pure.

Causes that may be present or absent: truncation, parse failures, the first grader, a sharpened base, and the rest,
which is split by groups of problems. A part is the Shapley value of its cause: the effect of its presence, averaged
over the orders in which causes can be added. Causes that remove samples apply to any distribution: without the rest,
the base's samples are truncated, unparsed and graded like the checkpoint's.
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
from scipy.stats import norm
from scipy.stats import t as student_t

from oversharp.diagnostics.measures.coverage.budget.distributions import (
    Fate,
    Gradings,
    PerProblem,
    Said,
    Undoable,
    drawn_of,
    graded_as,
    lent_fate,
    missed,
    own_fate,
    said_by_both,
)
from oversharp.diagnostics.measures.coverage.budget.groups import (
    GROUPS,
    Counted,
    Grouped,
    Ways,
    by_split,
    grouped,
    whole,
)
from oversharp.diagnostics.statistics.clusters import by_cluster
from oversharp.diagnostics.statistics.frontier import colder_weights
from oversharp.diagnostics.statistics.intervals import resampled_means
from oversharp.diagnostics.statistics.units import Interval, effective_clusters, few_clusters, named_clusters

SHARPENING, REST = "sharpening", "rest"
#: Groups of problems that are excluded when the sharpness of a checkpoint is matched.
_TAKEN = ("lost", "ways")
#: Guesses are attributed to the base: another false accept has no effect if its grader accepts a wrong answer.
_GUESSES = GROUPS.index("guesses")
_DRAWS, _CONFIDENCE = 999, 0.95
#: Beyond it rarely solved problems carry the change, and they have too few correct samples to show a lost way.
MOST_K_OF_WAYS = 1
_IS_KEPT_G = np.array([group not in _TAKEN for group in GROUPS])

T = TypeVar("T", bound=str)
K = TypeVar("K")
#: Of groups of problems, and last what the base's own samples lose, beside each point of the colder base.
Values = Float[np.ndarray, "row point problem"]


@dataclass(frozen=True, kw_only=True)
class Piece:
    """Parts of the budget of one checkpoint and one k, of every problem or of every bootstrap draw.

    ``parts``: each part if the sharpened base is that of a point. ``late`` and ``base``: pass@k of the checkpoint, and
    of the base at every point with the same truncation and parse failures, on problems without a loss of the problem
    or of a way. The first point is the base; the others are present if they are known at this k.
    """

    parts: Mapping[str, Float[np.ndarray, "point problem"]]
    late: PerProblem
    base: Float[np.ndarray, "point problem"]

    @property
    def is_beside_sharper(self) -> bool:
        """Whether the sharper base is known at this k."""
        return len(self.base) > 1


def shapley(change: Callable[[frozenset[T]], np.ndarray], causes: Sequence[T]) -> dict[T, np.ndarray]:
    """Return the Shapley value of each cause over ``change``, a function of the set of present causes.

    They add up to the change with all of them less that with none, element by element.
    Source: Shapley 1953, A value for n-person games.

    >>> seen = {0: -4.0, 1: -6.0, 2: -5.0, 3: -9.0}  # with neither, the one, the other, both
    >>> change = lambda present: np.array([seen[("cut_off" in present) + 2 * ("unread" in present)]])
    >>> shapley(change, ["cut_off", "unread"])
    {'cut_off': array([-3.]), 'unread': array([-2.])}
    """
    seen = {present: change(present) for present in _subsets(causes)}
    n = len(causes)
    parts: dict[T, np.ndarray] = {}
    for cause in causes:
        others = [one for one in seen if cause not in one]
        weights = [factorial(len(one)) * factorial(n - len(one) - 1) / factorial(n) for one in others]
        gained = [seen[one | {cause}] - seen[one] for one in others]
        parts[cause] = np.asarray(sum(weight * gain for weight, gain in zip(weights, gained, strict=True)))
    return parts


def _subsets(causes: Sequence[T]) -> Iterator[frozenset[T]]:
    for size in range(len(causes) + 1):
        yield from map(frozenset, combinations(causes, size))


@dataclass(frozen=True, kw_only=True)
class _Worlds:
    """pass@k of one pair of checkpoints with causes present and absent."""

    base: Said
    late: Said
    k: int
    causes: Sequence[Undoable]
    groups: Grouped
    sharper_SPJ: Float[np.ndarray, "point problem count"]
    rng: np.random.Generator

    def values(self, present: frozenset[str]) -> Values:
        """What is accepted of the checkpoint, by group of problems, and last, less, of the base."""
        taken = frozenset(one for one in self.causes if one in present)
        late_GP, lent_GSP, base_P, seen_P = self._taken[taken]
        value_GSP = np.broadcast_to(lent_GSP if SHARPENING in present else lent_GSP[:, :1], lent_GSP.shape).copy()
        rest_GSP = late_GP[:, None] - lent_GSP  # without the colder base it is what it is beside it
        if REST in present:
            value_GSP += rest_GSP
        else:
            value_GSP[_GUESSES] += (1.0 - seen_P) * rest_GSP[_GUESSES]
        return np.concatenate([value_GSP, np.broadcast_to(-base_P, (1, *lent_GSP.shape[1:]))])

    def matched(self, present: frozenset[Undoable]) -> tuple[np.ndarray, Float[np.ndarray, "group point problem"]]:
        """By group of problems what is accepted of the checkpoint, and of the base in its place at every point."""
        return self._taken[present][0], self._taken[present][1]

    @cached_property
    def _taken(self) -> dict[frozenset[Undoable], tuple[np.ndarray, np.ndarray, np.ndarray, PerProblem | float]]:
        """Of each set of what takes samples: the checkpoint, the points of the base in its place, the base."""
        sets = list(_subsets(self.causes))
        k_P = {one: self._drawn(one) for one in sets}
        own_late, lent_late, own_base = (
            [fate(side, one, k_P[one], self.k) for one in sets]
            for fate, side in ((own_fate, self.late), (lent_fate, self.late), (own_fate, self.base))
        )
        late_of = self._own(self.groups.late, own_late, sets)
        base_of = by_split(self.groups.base.n_P, self.groups.base.correct_RP, lent_late, self.k)
        missed_base_PJ = missed(self.base.read_P, self.base.correct_P, self.k)
        found = {}
        for place, one in enumerate(sets):
            late_P, base_P = (
                whole(side, fates[place], self.k, accepted="grader" in one)
                for side, fates in ((self.late, own_late), (self.base, own_base))
            )
            as_it_is_P = lent_late[place].pass_at_k(missed_base_PJ)
            lent_GSP = self._lent(lent_late[place], base_of[place], as_it_is_P)
            if "grader" in one:
                lent_GSP += self._unbiased(own_late[place], lent_late[place]) - lent_GSP[:, :1]
            late_GP = _closed(self.groups.meaned(late_of[place]), late_P)
            seen_P = lent_fate(self.base, one, k_P[one], self.k).none_accepted_P
            found[one] = (late_GP, lent_GSP, base_P, seen_P)
        return found

    def _own(self, counted: Counted, fates: list[Fate], sets: list[frozenset[Undoable]]) -> list[np.ndarray]:
        """pass@k in every split as the first grader says where it is present, else as the second does."""
        by_grader = [by_split(counted.n_P, hits_RP, fates, self.k)
                     for hits_RP in (counted.correct_RP, counted.accepted_RP)]  # fmt: skip
        return [by_grader["grader" in one][place] for place, one in enumerate(sets)]

    def _unbiased(self, own: Fate, lent: Fate) -> Float[np.ndarray, "group one problem"]:
        """The base as the checkpoint is graded, by grades of the checkpoint's correct samples without replacement.

        A share of accepted samples put to the power of k would be biased; for the colder base it is near enough, once
        it is moved by what it is off for the base itself.
        """
        fate = Fate(read_PJ=own.read_PJ, none_accepted_P=lent.none_accepted_P)
        n_splits = len(self.groups.group_RP)
        counted_RP = graded_as(self.late, self.groups.base.correct_RP, self.rng)
        all_RP = graded_as(self.late, np.tile(self.base.correct_P, (n_splits, 1)), self.rng)
        [of_counted_RP] = by_split(self.groups.base.n_P, counted_RP, [fate], self.k)
        [of_all_RP] = by_split(self.base.read_P, all_RP, [fate], self.k)
        return _closed(self.groups.meaned(of_counted_RP), of_all_RP.mean(axis=0))[:, None]

    def _lent(self, fate: Fate, base_RP: np.ndarray, base_P: PerProblem) -> Float[np.ndarray, "group point problem"]:
        sharper_SP = np.array([fate.pass_at_k(one_PJ) for one_PJ in self.sharper_SPJ]).reshape(-1, len(base_P))
        as_it_is_GP = _closed(self.groups.meaned(base_RP), base_P)
        return np.concatenate([as_it_is_GP[:, None], self.groups.share[:, None] * sharper_SP], axis=1)

    def _drawn(self, present: frozenset[Undoable]) -> Int[np.ndarray, " problem"]:
        """k, or as many samples of a problem as those that count stand for on both sides."""
        k_P = np.full(len(self.base.n_P), self.k)
        for one, counted in ((self.base, self.groups.base), (self.late, self.groups.late)):
            drawn_P, left_P = drawn_of(one, present)
            k_P = np.minimum(k_P, np.minimum(drawn_P, drawn_P * counted.n_P // np.maximum(left_P, 1)))
        return k_P


def _closed(by_group_GP: Float[np.ndarray, "group problem"], whole_P: PerProblem) -> np.ndarray:
    """The last group has what is left of the whole, so that they add up to it."""
    by_group_GP[-1] = whole_P - by_group_GP[:-1].sum(axis=0)
    return by_group_GP


def piece_of(
    base: Gradings,
    late: Gradings,
    k: int,
    *,
    causes: Sequence[Undoable],
    guess_rate: float,
    sharper_SPJ: Float[np.ndarray, "point problem count"],
    ways: Ways | None,
    rng: np.random.Generator,
) -> Piece:
    """The parts of one checkpoint at one k, problem by problem.

    ``sharper_SPJ``: the chance that j samples of the base drawn sharper are all wrong, j = 0 … k. Without ``ways``, and
    at a k beyond ``MOST_K_OF_WAYS``, problems of which a way is gone are unexplained.
    """
    was, now = said_by_both(base, late, causes)
    groups = grouped(was, now, k, guess_rate=guess_rate, ways=ways, rng=rng)
    worlds = _Worlds(base=was, late=now, k=k, causes=causes, groups=groups, sharper_SPJ=sharper_SPJ, rng=rng)
    players = [*causes, *([SHARPENING] if len(sharper_SPJ) else []), REST]
    found = shapley(worlds.values, players)
    rest_GSP = found.pop(REST)
    present = frozenset(causes)
    late_GP, base_GSP = worlds.matched(present)
    carried = {group: rest_GSP[place] for place, group in enumerate(GROUPS)}
    if ways is None or k > MOST_K_OF_WAYS:
        carried["unexplained"] = carried["unexplained"] + carried.pop("ways")
    return Piece(
        parts={name: part_GSP.sum(axis=0) for name, part_GSP in found.items()} | carried,
        late=late_GP[_IS_KEPT_G].sum(axis=0),
        base=base_GSP[_IS_KEPT_G].sum(axis=0),
    )


def budgets(
    pieces: Sequence[Piece],
    *,
    sharpness_S: Float[np.ndarray, " point"],
    rng: np.random.Generator,
    cluster_P: Int[np.ndarray, " problem"] | None,
) -> list[dict[str, Interval]]:
    """Of each piece the whole change (``all``) and its parts, means over problems, which add up to it.

    The first piece is of pass@1. One bootstrap over problems, or their clusters, draws all of them together; the
    intervals of all pieces hold together with 95 %: the largest deviation of any part over its standard error. A
    variance floor as of ``intervals.share_interval``, and Student's t for the normal.
    """
    columns_PX = np.concatenate([_columns(one) for one in pieces]).T
    unit_UX = by_cluster(columns_PX, named_clusters(cluster_P))
    mean_DX = np.vstack([unit_UX.mean(axis=0)[None], resampled_means(unit_UX, rng=rng, draws=_DRAWS)])
    ends = np.cumsum([len(_columns(one)) for one in pieces])[:-1]
    means = [_means(one, own_DX) for one, own_DX in zip(pieces, np.split(mean_DX, ends, axis=1), strict=True)]
    drawn: dict[tuple[int, str], np.ndarray] = {}
    for place, (one, weight_SD) in enumerate(zip(means, _weights(means, sharpness_S), strict=True)):
        parts = {name: (weight_SD * part_SD).sum(axis=0) for name, part_SD in one.parts.items()}
        whole_D = np.asarray(sum(parts.values()))
        drawn |= {(place, name): one_D for name, one_D in {"all": whole_D, **parts}.items()}
    found = _together(drawn, len(columns_PX), len(unit_UX), cluster_P)
    return [{name: own for (at, name), own in found.items() if at == place} for place in range(len(pieces))]


def _columns(piece: Piece) -> Float[np.ndarray, "column problem"]:
    return np.vstack([*piece.parts.values(), piece.late, piece.base])


def _means(piece: Piece, mean_DX: Float[np.ndarray, "draw column"]) -> Piece:
    """The same of every draw of the problems."""
    n_points = len(piece.base)
    *parts_SD, late_1D, base_SD = np.split(mean_DX.T, np.cumsum([*(n_points for _ in piece.parts), 1]).tolist())
    return Piece(parts=dict(zip(piece.parts, parts_SD, strict=True)), late=late_1D[0], base=base_SD)


def _weights(means: Sequence[Piece], sharpness_S: Float[np.ndarray, " point"]) -> list[Float[np.ndarray, "point draw"]]:
    """Shares of the sharper points in each piece: where they are known, by pass@1 and by pass@k at the other k.

    A checkpoint is matched on problems that it has not lost, nor a way of solving them: these say nothing of how sharp
    it is elsewhere, and a base as sharp as it has its rates on any problems that are chosen by other samples. Its
    samples are matched as they were graded, those of the base with as much taken from them.
    """
    beside = [one for one in means if one.is_beside_sharper]
    as_it_is = [np.ones((1, len(one.late))) for one in means]
    if len(beside) != 2:
        return as_it_is
    x, y = beside
    found = iter(colder_weights(sharpness_S, x.base.T, y.base.T, x.late, y.late))
    return [next(found).T if one.is_beside_sharper else own for one, own in zip(means, as_it_is, strict=True)]


def _together(
    drawn: Mapping[K, Float[np.ndarray, " draw"]],
    n_problems: int,
    n_units: int,
    cluster_P: Int[np.ndarray, " problem"] | None,
) -> dict[K, Interval]:
    """Intervals that hold together, by the same keys; the first draw is what was observed."""
    named_P = named_clusters(cluster_P)
    if n_units < 2 or few_clusters(cluster_P) is not None:
        why = few_clusters(cluster_P)
        return {
            name: Interval(mean=float(one_D[0]), low=None, high=None, n=n_problems, why=why)
            for name, one_D in drawn.items()
        }
    freedom = (n_units if named_P is None else effective_clusters(named_P)) - 1.0
    tail = 0.5 + _CONFIDENCE / 2.0
    deviation_XD = np.stack([one_D[1:] - one_D[0] for one_D in drawn.values()])
    scale_X = np.sqrt(deviation_XD.var(axis=1) * n_units / (n_units - 1) + 1.0 / n_units**2)
    largest_D = (np.abs(deviation_XD) / scale_X[:, None]).max(axis=0)
    reach = max(float(np.quantile(largest_D, _CONFIDENCE)), float(norm.ppf(tail)))
    half_X = reach * float(student_t.ppf(tail, freedom) / norm.ppf(tail)) * scale_X
    return {
        name: Interval(
            mean=(mean := float(one_D[0])),
            low=max(min(-1.0, mean), mean - half),
            high=min(max(1.0, mean), mean + half),
            n=n_problems,
            over="problems" if named_P is None else "clusters",
        )
        for (name, one_D), half in zip(drawn.items(), half_X.tolist(), strict=True)
    }
