"""The parts that a change of pass@k is made of, problem by problem, and their intervals; nothing is read here.

First, what is no ability: samples that were cut off, that gave no answer, that another grader grades otherwise. Each
is undone on paper, alone and with the others, and the parts are their Shapley values: what undoing one takes away,
averaged over the orders in which they can be undone. Then, of what remains between base and checkpoint, what the base
does that is drawn as cold as the checkpoint's pass@1 and pass@k allow. Last, which problems carry the rest.

Problems are told apart by samples that do not count in what is measured on them, averaged over all ways to split a
problem's samples in two: of two draws of one law every part has mean 0, however few the samples are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import factorial
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.stats import binom, hypergeom, norm
from scipy.stats import t as student_t

from diagnostics.statistics.clusters import by_cluster
from diagnostics.statistics.frontier import colder_weights
from diagnostics.statistics.intervals import resampled_means
from diagnostics.statistics.pass_at_k import pass_at_k_each
from diagnostics.statistics.units import Interval, effective_clusters, few_clusters, named_clusters

#: What can be undone in the counts.
Undoable = Literal["cut_off", "unread", "grader"]
#: Problems that carry the rest, by how often they were solved before and are now; ``ways`` are taken out of the last.
GROUPS = ("guesses", "lost", "gained", "ways", "unexplained")
#: Guesses alone give more correct samples than a problem may have to count as guessed in one of a hundred problems.
_GUESSED = 0.99
_DRAWS, _CONFIDENCE = 999, 0.95

PerProblem = Float[np.ndarray, " problem"]


@dataclass(frozen=True, kw_only=True)
class Graded:
    """Samples of every problem by one grader. What was cut off, and what else is ``unread``, is not correct."""

    n_P: Int[np.ndarray, " problem"]
    correct_P: Int[np.ndarray, " problem"]
    cut_P: Int[np.ndarray, " problem"]
    unread_P: Int[np.ndarray, " problem"]


@dataclass(frozen=True, kw_only=True)
class Gradings:
    """What one checkpoint said, as it was graded, and by a second grader where there is one."""

    own: Graded
    second: Graded | None = None

    def counts(self, undone: frozenset[Undoable]) -> tuple[np.ndarray, np.ndarray]:
        """Samples and correct ones of every problem, with these undone: unread samples are as good as the read ones."""
        graded = self.second if "grader" in undone and self.second is not None else self.own
        n_P = graded.n_P - graded.cut_P * ("cut_off" in undone) - graded.unread_P * ("unread" in undone)
        return n_P, graded.correct_P

    def pass_at_k(self, undone: frozenset[Undoable], k: int) -> PerProblem:
        """Unbiased, but of problems of which fewer than k samples are left: that of so many; 0 of one without any."""
        n_P, correct_P = self.counts(undone)
        return pass_at_k_each(n_P, correct_P, np.minimum(k, n_P))


def change_with(base: Gradings, late: Gradings, undone: frozenset[Undoable], k: int) -> PerProblem:
    """Change of pass@k with these undone; where fewer than k samples of a problem are left, of as many as both have."""
    (n_base_P, base_P), (n_late_P, late_P) = base.counts(undone), late.counts(undone)
    k_P = _shared(n_base_P, n_late_P, k)
    late_P = pass_at_k_each(n_late_P, late_P, np.minimum(k_P, n_late_P))
    return late_P - pass_at_k_each(n_base_P, base_P, np.minimum(k_P, n_base_P))


def _shared(n_base_P: np.ndarray, n_late_P: np.ndarray, k: int) -> Int[np.ndarray, " problem"]:
    """k, or as many samples as both sides have; a side without any has no say, and the problem counts as unsolved."""
    least_P = np.minimum(n_base_P, n_late_P)
    return np.minimum(k, np.where(least_P > 0, least_P, np.maximum(n_base_P, n_late_P)))


@dataclass(frozen=True, kw_only=True)
class Colder:
    """pass@1 and pass@k of the base as it is and at every sharper point, and of the checkpoint.

    ``at_one``: whether the budget is of pass@1, or of that pass@k.
    """

    sharpness_S: Float[np.ndarray, " point"]
    x_SP: Float[np.ndarray, "point problem"]
    y_SP: Float[np.ndarray, "point problem"]
    x_P: PerProblem
    y_P: PerProblem
    at_one: bool


@dataclass(frozen=True, kw_only=True)
class WaysGone:
    """Problems of which a way that the base went is gone, and of all problems the samples that did not tell so.

    ``base`` and ``late``: how many samples, and how many correct ones.
    """

    gone_P: Bool[np.ndarray, " problem"]
    base: tuple[np.ndarray, np.ndarray]
    late: tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True, kw_only=True)
class Split:
    """pass@k of every problem, and what of it stands where other samples show no more than guesses would.

    ``at_P``: the share of the splits in which they do; ``value_at_P``: pass@k of the others, in these.
    """

    value_P: PerProblem
    at_P: PerProblem
    value_at_P: PerProblem


@dataclass(frozen=True, kw_only=True)
class Piece:
    """What a budget of one checkpoint and one k is made of; ``base`` has a row for every sharper point."""

    undone: Mapping[str, PerProblem]
    late: Mapping[str, PerProblem]
    base: Mapping[str, Float[np.ndarray, "point problem"]]
    colder: Colder | None


def shapley(change: Callable[[frozenset[Undoable]], PerProblem], causes: Sequence[Undoable]) -> dict[str, PerProblem]:
    """What each cause adds to a change: its Shapley value over ``change`` with a set of causes undone.

    They add up to the change less that with all of them undone, problem by problem.
    Source: Shapley 1953, A value for n-person games.

    >>> seen = {0: -9.0, 1: -5.0, 2: -6.0, 3: -4.0}  # as it is, without the one, without the other, without both
    >>> change = lambda undone: np.array([seen[("cut_off" in undone) + 2 * ("unread" in undone)]])
    >>> shapley(change, ["cut_off", "unread"])
    {'cut_off': array([-3.]), 'unread': array([-2.])}
    """
    seen = {undone: change(undone) for undone in _subsets(causes)}
    n = len(causes)
    parts: dict[str, PerProblem] = {}
    for cause in causes:
        others = [one for one in seen if cause not in one]
        weights = [factorial(len(one)) * factorial(n - len(one) - 1) / factorial(n) for one in others]
        gained = [seen[one] - seen[one | {cause}] for one in others]
        parts[cause] = np.asarray(sum(weight * gain for weight, gain in zip(weights, gained, strict=True)))
    return parts


def _subsets(causes: Sequence[Undoable]) -> Iterator[frozenset[Undoable]]:
    for size in range(len(causes) + 1):
        yield from map(frozenset, combinations(causes, size))


def split_at_guesses(
    n_P: Int[np.ndarray, " problem"],
    correct_P: Int[np.ndarray, " problem"],
    most_k_P: Int[np.ndarray, " problem"],
    guess_rate: float,
) -> Split:
    """Each problem's samples split in two, averaged over all splits: the first part tells, pass@k is of the second.

    It tells whether the problem is solved more often than guesses that are accepted at ``guess_rate`` would be. The
    second part has k samples, or seven eighths of all where that is less. Mean, over draws of one problem's samples, of
    ``value_at_P``: the mean of ``at_P`` times pass@k.

    >>> found = split_at_guesses(np.array([8, 8]), np.array([0, 4]), np.array([4, 4]), 0.0)
    >>> found.at_P.round(3).tolist(), found.value_at_P.round(3).tolist()  # no correct one among 4: 1 in C(8, 4)
    ([1.0, 0.014], [0.0, 0.014])
    """
    told_P = _telling(n_P, most_k_P)
    counted_P = n_P - told_P
    k_P = np.minimum(most_k_P, counted_P)
    most_P = guessed_at_most(told_P, guess_rate)
    at_P, value_at_P = np.zeros(len(n_P)), np.zeros(len(n_P))
    for hits in range(int(most_P.max(initial=-1)) + 1):
        chance_P = np.where((hits <= most_P) & (told_P > 0), hypergeom.pmf(hits, n_P, correct_P, told_P), 0.0)
        left_P = np.clip(correct_P - hits, 0, counted_P)
        at_P += chance_P
        value_at_P += chance_P * pass_at_k_each(counted_P, left_P, k_P)
    return Split(
        value_P=pass_at_k_each(n_P, correct_P, k_P),
        at_P=at_P,
        value_at_P=value_at_P,
    )


def guessed_at_most(n_P: Int[np.ndarray, " problem"], guess_rate: float) -> Int[np.ndarray, " problem"]:
    """Correct samples among n that guesses alone exceed in one of a hundred problems.

    >>> guessed_at_most(np.array([32, 128]), 0.005).tolist()
    [2, 3]
    """
    return np.asarray(binom.ppf(_GUESSED, n_P, guess_rate), dtype=np.int64) if guess_rate > 0 else np.zeros_like(n_P)


def _telling(n_P: np.ndarray, k_P: np.ndarray) -> Int[np.ndarray, " problem"]:
    """Of each problem's samples so many tell its group: as many as leave k, at most half, at least an eighth."""
    return np.clip(n_P - k_P, n_P // 8, n_P // 2)


def piece_of(
    base: Gradings,
    late: Gradings,
    k: int,
    *,
    causes: Sequence[Undoable],
    guess_rate: float,
    colder: Colder | None,
    ways: WaysGone | None,
) -> Piece:
    """The parts of one checkpoint at one k, problem by problem."""
    all_undone = frozenset(causes)
    undone = shapley(lambda those: change_with(base, late, those, k), causes)
    (n_base_P, _), (n_late_P, _) = base.counts(all_undone), late.counts(all_undone)
    k_P = _shared(n_base_P, n_late_P, k)
    k_P = np.minimum(k_P, np.minimum(*(np.where(n_P > 0, n_P - n_P // 8, k) for n_P in (n_base_P, n_late_P))))
    was, now = (split_at_guesses(*one.counts(all_undone), k_P, guess_rate) for one in (base, late))
    late_of = {
        "guesses": was.at_P * now.value_at_P,
        "lost": (1.0 - was.at_P) * now.value_at_P,
        "gained": was.at_P * (now.value_P - now.value_at_P),
    }
    base_of = {
        "guesses": was.value_at_P * now.at_P,
        "lost": (was.value_P - was.value_at_P) * now.at_P,
        "gained": was.value_at_P * (1.0 - now.at_P),
    }
    shares = {
        "guesses": was.at_P * now.at_P,
        "lost": (1.0 - was.at_P) * now.at_P,
        "gained": was.at_P * (1.0 - now.at_P),
    }
    if ways is not None:
        late_of["ways"], base_of["ways"] = _of_ways(ways, k)
        shares["ways"] = ways.gone_P.astype(np.float64)
    base_of["unexplained"] = base.pass_at_k(all_undone, k) - sum(base_of.values())
    change_P = change_with(base, late, all_undone, k)
    late_of["unexplained"] = base.pass_at_k(all_undone, k) + change_P - sum(late_of.values())
    shares["unexplained"] = 1.0 - sum(shares.values())
    sharper_SP = np.empty((0, len(k_P))) if colder is None else (colder.x_SP if colder.at_one else colder.y_SP)[1:]
    return Piece(
        undone=undone,
        late=late_of,
        base={group: np.vstack([base_of[group], shares[group] * sharper_SP]) for group in late_of},
        colder=colder,
    )


def _of_ways(ways: WaysGone, k: int) -> tuple[PerProblem, PerProblem]:
    """pass@k where a way is gone, late and of the base; of as many samples as both have where these are fewer."""
    k_P = _shared(ways.base[0], ways.late[0], k)
    late_P, base_P = (pass_at_k_each(n_P, hit_P, np.minimum(k_P, n_P)) for n_P, hit_P in (ways.late, ways.base))
    return ways.gone_P * late_P, ways.gone_P * base_P


def budgets(
    pieces: Sequence[Piece], *, rng: np.random.Generator, cluster_P: Int[np.ndarray, " problem"] | None
) -> list[dict[str, Interval]]:
    """Of each piece the whole change (``all``) and its parts, means over problems, which add up to it.

    One bootstrap over problems, or their clusters, draws all of them together; the intervals of a piece hold together
    with 95 %: the largest deviation of any part over its standard error. A variance floor as of
    ``intervals.share_interval``, and Student's t for the normal.
    """
    columns_PX = np.concatenate([_columns(one) for one in pieces]).T
    unit_UX = by_cluster(columns_PX, named_clusters(cluster_P))
    mean_DX = np.vstack([unit_UX.mean(axis=0)[None], resampled_means(unit_UX, rng=rng, draws=_DRAWS)])
    ends = np.cumsum([len(_columns(one)) for one in pieces])[:-1]
    made = []
    for one, own_DX in zip(pieces, np.split(mean_DX, ends, axis=1), strict=True):
        drawn = _parts(one, own_DX)
        drawn = {"all": np.asarray(sum(drawn.values())), **drawn}
        made.append(_together(drawn, len(columns_PX), len(unit_UX), cluster_P))
    return made


def _columns(piece: Piece) -> Float[np.ndarray, "column problem"]:
    rows = [*piece.undone.values(), *piece.late.values(), *piece.base.values()]
    if piece.colder is not None:
        rows += [piece.colder.x_SP, piece.colder.y_SP, piece.colder.x_P, piece.colder.y_P]
    return np.vstack(rows)


def _parts(piece: Piece, mean_DX: Float[np.ndarray, "draw column"]) -> dict[str, Float[np.ndarray, " draw"]]:
    n_undone, n_groups = len(piece.undone), len(piece.late)
    n_points = len(next(iter(piece.base.values())))
    sizes = [n_undone, n_groups, *(n_points for _ in piece.base)]
    undone_DX, late_DX, *base_DS, match_DX = np.split(mean_DX, np.cumsum(sizes), axis=1)
    weight_DS = _weights(piece.colder, match_DX, n_points)
    sharpened = [(weight_DS * one_DS).sum(axis=1) for one_DS in base_DS]
    parts = dict(zip(piece.undone, undone_DX.T, strict=True))
    if piece.colder is not None:
        parts["sharpening"] = np.asarray(
            sum(cold_D - one_DS[:, 0] for cold_D, one_DS in zip(sharpened, base_DS, strict=True))
        )
    return parts | {
        group: late_D - cold_D for group, late_D, cold_D in zip(piece.late, late_DX.T, sharpened, strict=True)
    }


def _weights(colder: Colder | None, match_DX: np.ndarray, n_points: int) -> Float[np.ndarray, "draw point"]:
    if colder is None:
        return np.ones((len(match_DX), 1))
    x_DS, y_DS, place_D2 = np.split(match_DX, [n_points, 2 * n_points], axis=1)
    of_one, of_k = colder_weights(colder.sharpness_S, x_DS, y_DS, place_D2[:, 0], place_D2[:, 1])
    return of_one if colder.at_one else of_k


def _together(
    drawn: Mapping[str, Float[np.ndarray, " draw"]],
    n_problems: int,
    n_units: int,
    cluster_P: Int[np.ndarray, " problem"] | None,
) -> dict[str, Interval]:
    """The first draw is what was observed."""
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
