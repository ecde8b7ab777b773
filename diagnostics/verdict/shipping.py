"""Which checkpoint to ship: from counts to a recommendation. Nothing is read here and nothing written.

One band around the change of pass@k since the base holds at all checkpoints of all series and all k at once, so what it
says of the checkpoint that was chosen by looking at all of them is as sure as if that had been chosen beforehand.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256

import numpy as np
from jaxtyping import Bool, Float, Int

from diagnostics.records.amounts import plural
from diagnostics.statistics.band import Band, simultaneous_band
from diagnostics.statistics.clusters import by_cluster
from diagnostics.statistics.keys import PairedCounts, inference_ks
from diagnostics.statistics.units import too_few_to_generalise
from diagnostics.verdict.caveats import FEW_PROBLEMS
from diagnostics.verdict.counts import CheckpointCounts, SeriesCounts
from diagnostics.verdict.recommendation import BandedChange, Guarantee, Recommendation, Role, ShippingStep
from diagnostics.verdict.rule import KEY_LEVEL, MARGIN, STEP_LEVEL
from diagnostics.verdict.sentence import estimated_text, fell_text, shipping_sentence
from diagnostics.verdict.steps import rule_steps

#: Where all randomness of a recommendation starts.
SEED = 20_261_122


@dataclass(frozen=True, kw_only=True)
class JudgedSeries:
    """The counts of a series, the steps that its verdict calls lost, and why it came to no verdict, None if it did."""

    counts: SeriesCounts
    lost: Collection[int] = ()
    why: str | None = None


@dataclass(frozen=True, kw_only=True)
class _Stack:
    """The checkpoints of all series that can be compared, as arrays over some of the problems."""

    judged: Sequence[tuple[JudgedSeries, CheckpointCounts]]
    ks: tuple[int, ...]
    chosen_P: Bool[np.ndarray, " problem"]
    cluster_P: Int[np.ndarray, " problem"] | None

    @property
    def pairs(self) -> list[PairedCounts]:
        return [
            PairedCounts(
                base_P=of.counts.base.correct_P[self.chosen_P],
                late_P=one.correct_P[self.chosen_P],
                n_base=of.counts.base.n,
                n_late=one.n,
            )
            for of, one in self.judged
        ]

    def changes(self) -> Float[np.ndarray, "step unit k"]:
        """Changes since the base, of every unit: a problem, or a cluster of them."""
        return np.stack([by_cluster(pair.changes(self.ks), self.cluster_P) for pair in self.pairs])

    def pass_at_1(self, one: CheckpointCounts) -> Float[np.ndarray, " problem"]:
        return one.correct_P[self.chosen_P] / one.n

    def mean_pass_at_1(self, one: CheckpointCounts) -> float:
        return float(self.pass_at_1(one).mean())

    @property
    def few(self) -> str | None:
        """Why nothing is said of problems like these; None where there are enough of them."""
        if max(int((pair.base_P > 0).sum()) for pair in self.pairs) < FEW_PROBLEMS:
            return f"the base solved fewer than {FEW_PROBLEMS} of the problems"
        why = too_few_to_generalise(self.cluster_P)
        return None if why is None else f"there are {why}"


def certifying(names: Sequence[str]) -> Bool[np.ndarray, " problem"]:
    """Which problems certify, where the others choose: a bit of the hash of each name (its cluster, or its id).

    The same problem is on the same side in every set of problems.

    >>> certifying(["a", "b", "e", "a"]).tolist()
    [False, False, True, False]
    """
    return np.array([sha256(name.encode()).digest()[0] % 2 == 1 for name in names], dtype=bool)


def recommend(
    series: Sequence[JudgedSeries],
    *,
    allowed_loss: float = 0.0,
    certifying_P: Bool[np.ndarray, " problem"] | None = None,
) -> Recommendation:
    """Which checkpoint to ship, of one or several series that share the base and, in one order, the problems.

    Out is a checkpoint of which some pass@k surely fell by more than ``allowed_loss`` (probability), at 0 also one that
    its verdict calls lost, and one of which some pass@k is estimated to have fallen by more than ``MARGIN``, or by more
    than ``allowed_loss`` where that is larger: few data show nothing surely, and what is surely lost is half lost
    before. Of the others, and the base, the one with the highest pass@1. With ``certifying_P`` these problems have no
    part in the choice: they alone say what is sure of it, and veto it where some pass@k surely fell on them.

    Raises ``ValueError`` without a series.
    """
    first = next((one for one in series if one.why is None), series[0]).counts
    said = Recommendation(
        series=tuple(one.counts.series for one in series),
        allowed_loss=allowed_loss,
        held_out=certifying_P is not None,
        n_problems=len(first.base.correct_P),
    )
    choosing_P = np.ones(said.n_problems, dtype=bool) if certifying_P is None else ~certifying_P
    said = replace(said, n_choosing=int(choosing_P.sum()))
    why = _why_none(series, first, choosing_P, certifying_P)
    if why is not None:
        return _nothing(said, series, first, why)
    stack = _stacked(series, choosing_P)
    choose_rng, best_rng, certify_rng, lost_rng = np.random.default_rng(SEED).spawn(4)
    band = simultaneous_band(stack.changes(), rng=choose_rng)
    lost = [one.step in of.lost for of, one in stack.judged] if certifying_P is None else _lost(stack, lost_rng)
    steps = _ruled(stack, band, lost, allowed_loss)
    chosen = _highest(steps)
    said = replace(said, ks=stack.ks)
    if chosen is None:
        said = replace(said, why=_why_base(steps, allowed_loss))
    elif certifying_P is None:
        over = f"{plural(len(steps), 'checkpoint')} and all k"
        said = _with_guarantee(said, stack, band, row=chosen, chosen=chosen, over=over)
    else:
        said = _certified(said, _stacked(series, certifying_P), chosen, certify_rng)
        if said.why is not None:
            steps[chosen], chosen = replace(steps[chosen], role="out", why=said.why), None
    base, *told = _with_best(stack, [_base_step(first, "candidate", None, stack), *steps], best_rng)
    if chosen is None:
        recommended = base = replace(base, role="recommended")
    else:
        recommended = told[chosen] = replace(told[chosen], role="recommended")
    told += [_unknown(of, one, why) for of, one in _trained(series) if (why := of.why or one.why) is not None]
    told.sort(key=lambda one: (said.series.index(one.series), one.step))
    return _told(replace(said, recommended=recommended, steps=(base, *told)))


def _why_none(
    series: Sequence[JudgedSeries],
    first: SeriesCounts,
    choosing_P: Bool[np.ndarray, " problem"],
    certifying_P: Bool[np.ndarray, " problem"] | None,
) -> str | None:
    """Why nothing can be recommended; None where something can."""
    if all(one.why is not None for one in series):
        return series[0].why
    where = "" if certifying_P is None else " on one side of the split"
    for part_P in (choosing_P,) if certifying_P is None else (choosing_P, certifying_P):
        if len(_units(first, part_P)) < 2:
            return f"fewer than two {'problems' if first.cluster_P is None else 'clusters of problems'}{where}"
        if not first.base.correct_P[part_P].any():
            return f"the base solved nothing{where}, and what is out of reach cannot be lost"
    return None


def _nothing(said: Recommendation, series: Sequence[JudgedSeries], first: SeriesCounts, why: str) -> Recommendation:
    """Without a recommendation, and all checkpoints with the reason."""
    others = [_unknown(of, one, of.why or one.why or why) for of, one in _trained(series)]
    return _told(replace(said, why=why, steps=(_base_step(first, None, why), *others)))


def _units(counts: SeriesCounts, part_P: Bool[np.ndarray, " problem"]) -> np.ndarray:
    return np.flatnonzero(part_P) if counts.cluster_P is None else np.unique(counts.cluster_P[part_P])


def _trained(series: Sequence[JudgedSeries]) -> Iterator[tuple[JudgedSeries, CheckpointCounts]]:
    return ((of, one) for of in series for one in of.counts.trained)


def _stacked(series: Sequence[JudgedSeries], part_P: Bool[np.ndarray, " problem"]) -> _Stack:
    judged = [(of, one) for of, one in _trained(series) if of.why is None and one.why is None]
    cluster_P = series[0].counts.cluster_P
    return _Stack(
        judged=judged,
        ks=inference_ks(min(min(of.counts.base.n, one.n) for of, one in judged)),
        chosen_P=part_P,
        cluster_P=None if cluster_P is None else cluster_P[part_P],
    )


def _lost(stack: _Stack, rng: np.random.Generator) -> list[bool]:
    """Which checkpoints surely lost something, by the verdict's rule on these problems alone."""
    if stack.few is not None:
        return [False] * len(stack.judged)
    rulings = rule_steps(
        stack.pairs,
        ks=stack.ks,
        level=STEP_LEVEL,
        exact_level=KEY_LEVEL,
        margin=MARGIN,
        rng=rng,
        cluster_P=stack.cluster_P,
    )
    return [one.lost for one in rulings]


def _ruled(stack: _Stack, band: Band, lost: Sequence[bool], allowed_loss: float) -> list[ShippingStep]:
    """Every checkpoint that can be compared, as a candidate or out."""
    steps = []
    for t, (of, one) in enumerate(stack.judged):
        why = _why_out(band, t, stack.ks, lost[t], allowed_loss)
        step = ShippingStep(
            series=of.counts.series,
            step=one.step,
            checkpoint=one.checkpoint,
            is_base=False,
            role="candidate" if why is None else "out",
            pass_at_1=stack.mean_pass_at_1(one),
            first=_at(band, t, 0, stack.ks),
            worst=_at(band, t, int(band.mean_TK[t].argmin()), stack.ks),
            loss_at_most=_loss(band, t),
            why=why,
        )
        steps.append(step)
    return steps


def _why_out(band: Band, step: int, ks: Sequence[int], lost: bool, allowed_loss: float) -> str | None:
    """Why a checkpoint is not to be shipped; None where it may be."""
    surely = _surely_fell(band, step, ks, allowed_loss)
    if surely is not None:
        return surely
    if lost and allowed_loss == 0.0:
        return "the verdict says that it lost something"
    lowest = int(band.mean_TK[step].argmin())
    most = max(MARGIN, allowed_loss)
    if band.mean_TK[step, lowest] < -most:
        return estimated_text(_at(band, step, lowest, ks), most)
    return None


def _surely_fell(band: Band, step: int, ks: Sequence[int], allowed_loss: float) -> str | None:
    worst = int(band.high_TK[step].argmin())
    return fell_text(_at(band, step, worst, ks)) if band.high_TK[step, worst] < -allowed_loss else None


def _at(band: Band, step: int, j: int, ks: Sequence[int]) -> BandedChange:
    mean, low, high = (float(of[step, j]) for of in (band.mean_TK, band.low_TK, band.high_TK))
    return BandedChange(k=ks[j], change=mean, low=low, high=high)


def _loss(band: Band, t: int) -> float:
    return max(0.0, -float(band.low_TK[t].min()))


def _base_step(counts: SeriesCounts, role: Role | None, why: str | None, stack: _Stack | None = None) -> ShippingStep:
    base = counts.base
    return ShippingStep(
        series=counts.series,
        step=base.step,
        checkpoint=base.checkpoint,
        is_base=True,
        role=role,
        pass_at_1=None if stack is None else stack.mean_pass_at_1(base),
        why=why,
    )


def _unknown(of: JudgedSeries, one: CheckpointCounts, why: str) -> ShippingStep:
    return ShippingStep(
        series=of.counts.series, step=one.step, checkpoint=one.checkpoint, is_base=False, role=None, why=why
    )


def _highest(steps: Sequence[ShippingStep]) -> int | None:
    """The candidate with the highest pass@1, the earliest of equals; None where none lies above the base."""
    better = {
        t: one.pass_at_1
        for t, one in enumerate(steps)
        if one.role == "candidate" and one.pass_at_1 is not None and one.first is not None and one.first.change > 0
    }
    return min(better, key=lambda t: (-better[t], steps[t].step), default=None)


def _why_base(steps: Sequence[ShippingStep], allowed_loss: float) -> str:
    if all(one.role == "out" for one in steps):
        how = "surely" if allowed_loss == 0.0 else f"surely by more than {100 * allowed_loss:g} points"
        most = 100 * max(MARGIN, allowed_loss)
        each = "the only checkpoint" if len(steps) == 1 else "each checkpoint"
        return f"at {each} some pass@k fell, {how} or by more than {most:g} points in the estimate"
    return "no checkpoint that is not out has a higher pass@1"


def _certified(said: Recommendation, stack: _Stack, chosen: int, rng: np.random.Generator) -> Recommendation:
    """With what the held-out problems say of the chosen checkpoint alone, or why they veto it."""
    stack = replace(stack, ks=said.ks)
    band = simultaneous_band(stack.changes()[chosen : chosen + 1], rng=rng)
    why = _surely_fell(band, 0, stack.ks, said.allowed_loss)
    if why is not None:
        of, one = stack.judged[chosen]
        return replace(said, why=f"the held-out problems veto {one.checkpoint} of {of.counts.series}, {why}")
    return _with_guarantee(
        said, stack, band, row=0, chosen=chosen, over="all k, on problems that had no part in the choice"
    )


def _with_guarantee(
    said: Recommendation, stack: _Stack, band: Band, *, row: int, chosen: int, over: str
) -> Recommendation:
    """With what ``row`` of the band says of the chosen checkpoint."""
    if stack.few is not None:
        return replace(said, why_no_guarantee=f"{stack.few}, which say nothing of others like them")
    of, one = stack.judged[chosen]
    sure = Guarantee(
        gain=float(band.low_TK[row, 0]),
        loss=_loss(band, row),
        k=stack.ks[int(band.low_TK[row].argmin())],
        base_pass_at_1=stack.mean_pass_at_1(of.counts.base),
        pass_at_1=stack.mean_pass_at_1(one),
        over=over,
        n_units=int(stack.chosen_P.sum()) if stack.cluster_P is None else len(np.unique(stack.cluster_P)),
        units="problems" if stack.cluster_P is None else "clusters",
    )
    return replace(said, guarantee=sure)


def _with_best(stack: _Stack, steps: Sequence[ShippingStep], rng: np.random.Generator) -> list[ShippingStep]:
    """The base and the checkpoints of the stack, those marked of which no other surely has a higher pass@1.

    Each that may be shipped is held against all others at once, paired over problems. For the truly best to be passed
    over, one of its own differences must be misjudged, so nothing is to be paid for how many are held against others.
    Source: Hsu 1984 (Ann. Stat. 12:1136), multiple comparisons with the best.
    """
    base = stack.judged[0][0].counts.base
    value_SP = np.stack([stack.pass_at_1(one) for one in (base, *(one for _, one in stack.judged))])
    contenders = [s for s, one in enumerate(steps) if one.role == "candidate"]
    marked = list(steps)
    for s in contenders:
        others = [other for other in contenders if other != s]
        ahead_SUK = [by_cluster((value_SP[s] - value_SP[other])[:, None], stack.cluster_P) for other in others]
        best = not others or simultaneous_band(np.stack(ahead_SUK), rng=rng).alarm is None
        marked[s] = replace(steps[s], may_be_best=best)
    return marked


def _told(said: Recommendation) -> Recommendation:
    return replace(said, sentence=shipping_sentence(said))
