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
_TAKEN = frozenset({"lost", "ways"})
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
    """What a budget of one checkpoint and one k is made of, of every problem or of every draw of them.

    ``late`` and ``base`` are by group of problems; ``base`` has a row for the base as it is, and one for every sharper
    point where these are known at this k.
    """

    undone: Mapping[str, PerProblem]
    late: Mapping[str, PerProblem]
    base: Mapping[str, Float[np.ndarray, "point problem"]]

    @property
    def kept(self) -> tuple[PerProblem, Float[np.ndarray, "point problem"]]:
        """Late values and those of the base, where problems were not lost, nor a way of solving them."""
        groups = [group for group in self.late if group not in _TAKEN]
        return np.asarray(sum(self.late[one] for one in groups)), np.asarray(sum(self.base[one] for one in groups))

    @property
    def is_beside_sharper(self) -> bool:
        """Whether the sharper base is known at this k."""
        return len(self.base["unexplained"]) > 1


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
    sharper_SP: Float[np.ndarray, "point problem"],
    ways: WaysGone | None,
) -> Piece:
    """The parts of one checkpoint at one k, problem by problem. ``sharper_SP``: pass@k of the base drawn sharper."""
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
    return Piece(
        undone=undone,
        late=late_of,
        base={group: np.vstack([base_of[group], shares[group] * sharper_SP]) for group in late_of},
    )


def _of_ways(ways: WaysGone, k: int) -> tuple[PerProblem, PerProblem]:
    """pass@k where a way is gone, late and of the base; of as many samples as both have where these are fewer."""
    k_P = _shared(ways.base[0], ways.late[0], k)
    late_P, base_P = (pass_at_k_each(n_P, hit_P, np.minimum(k_P, n_P)) for n_P, hit_P in (ways.late, ways.base))
    return ways.gone_P * late_P, ways.gone_P * base_P


def budgets(
    pieces: Sequence[Piece],
    *,
    sharpness_S: Float[np.ndarray, " point"],
    rng: np.random.Generator,
    cluster_P: Int[np.ndarray, " problem"] | None,
) -> list[dict[str, Interval]]:
    """Of each piece the whole change (``all``) and its parts, means over problems, which add up to it.

    The first piece is of pass@1. One bootstrap over problems, or their clusters, draws all of them together; the
    intervals of a piece hold together with 95 %: the largest deviation of any part over its standard error. A variance
    floor as of ``intervals.share_interval``, and Student's t for the normal.
    """
    columns_PX = np.concatenate([_columns(one) for one in pieces]).T
    unit_UX = by_cluster(columns_PX, named_clusters(cluster_P))
    mean_DX = np.vstack([unit_UX.mean(axis=0)[None], resampled_means(unit_UX, rng=rng, draws=_DRAWS)])
    ends = np.cumsum([len(_columns(one)) for one in pieces])[:-1]
    means = [_means(one, own_DX) for one, own_DX in zip(pieces, np.split(mean_DX, ends, axis=1), strict=True)]
    made = []
    for one, weight_SD in zip(means, _weights(means, sharpness_S), strict=True):
        parts = _parts(one, weight_SD)
        drawn = {"all": np.asarray(sum(parts.values())), **parts}
        made.append(_together(drawn, len(columns_PX), len(unit_UX), cluster_P))
    return made


def _columns(piece: Piece) -> Float[np.ndarray, "column problem"]:
    return np.vstack([*piece.undone.values(), *piece.late.values(), *piece.base.values()])


def _means(piece: Piece, mean_DX: Float[np.ndarray, "draw column"]) -> Piece:
    """The same of every draw of the problems."""
    n_points = len(piece.base["unexplained"])
    sizes = [len(piece.undone), len(piece.late), *(n_points for _ in piece.base)]
    undone_XD, late_XD, *base_SD = np.split(mean_DX.T, np.cumsum(sizes)[:-1])
    return Piece(
        undone=dict(zip(piece.undone, undone_XD, strict=True)),
        late=dict(zip(piece.late, late_XD, strict=True)),
        base=dict(zip(piece.base, base_SD, strict=True)),
    )


def _weights(means: Sequence[Piece], sharpness_S: Float[np.ndarray, " point"]) -> list[Float[np.ndarray, "point draw"]]:
    """Shares of the sharper points in each piece: where they are known, by pass@1 and by pass@k at the other k.

    A checkpoint is matched on problems that it has not lost, nor a way of solving them: these say nothing of how sharp
    it is elsewhere, and a base as sharp as it has its rates on any problems that are chosen by other samples.
    """
    beside = [one for one in means if one.is_beside_sharper]
    as_it_is = [np.ones((1, len(one.late["unexplained"]))) for one in means]
    if len(beside) != 2:
        return as_it_is
    (x_D, x_SD), (y_D, y_SD) = (one.kept for one in beside)
    found = iter(colder_weights(sharpness_S, x_SD.T, y_SD.T, x_D, y_D))
    return [next(found).T if one.is_beside_sharper else own for one, own in zip(means, as_it_is, strict=True)]


def _parts(piece: Piece, weight_SD: Float[np.ndarray, "point draw"]) -> dict[str, Float[np.ndarray, " draw"]]:
    sharpened = {group: (weight_SD * one_SD).sum(axis=0) for group, one_SD in piece.base.items()}
    parts = dict(piece.undone)
    if piece.is_beside_sharper:
        parts["sharpening"] = np.asarray(sum(sharpened[group] - one_SD[0] for group, one_SD in piece.base.items()))
    return parts | {group: late_D - sharpened[group] for group, late_D in piece.late.items()}


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
