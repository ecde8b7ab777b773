"""Options to ship: checkpoints, and samples of base or checkpoints at other temperatures (controls)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Bool, Float, Int

from oversharp.diagnostics.statistics.band import Band, simultaneous_band
from oversharp.diagnostics.statistics.keys import PairedCounts, inference_ks
from oversharp.diagnostics.statistics.pass_at_k import pass_at_k_table
from oversharp.diagnostics.statistics.stopping import most_samples
from oversharp.diagnostics.statistics.units import by_cluster, too_few_to_generalise
from oversharp.diagnostics.verdict.causes.explanations import Cause
from oversharp.diagnostics.verdict.counts import CheckpointCounts, ControlCounts, SeriesCounts
from oversharp.diagnostics.verdict.recommendation import BandedChange
from oversharp.diagnostics.verdict.shipping.posterior import (
    change_posterior,
    expected_worst_losses,
    sampling_floor,
    trajectory_correlations,
)
from oversharp.diagnostics.verdict.words.caveats import FEW_PROBLEMS


@dataclass(frozen=True, kw_only=True)
class JudgedSeries:
    """Counts of a series with its verdict.

    Attributes:
        counts: Counts of the base, the checkpoints and the controls.
        lost: Steps with a loss in the population by the verdict.
        causes: Other possible causes of the loss, by step.
        why: Why no checkpoint of the series can be recommended; None if one can.
    """

    counts: SeriesCounts
    lost: Collection[int] = ()
    causes: Mapping[int, Cause] = field(default_factory=dict)
    why: str | None = None


@dataclass(frozen=True, kw_only=True)
class Option:
    """Alternative to the base: a checkpoint, or samples of a checkpoint or of the base at another temperature.

    Attributes:
        of: Series of the option.
        drawn: Counts of the option.
        lost: Whether the verdict found a loss in the population. Always False for controls, which are not tested.
        cause: Another possible cause of the loss.
    """

    of: JudgedSeries
    drawn: CheckpointCounts | ControlCounts
    lost: bool = False
    cause: Cause | None = None

    @property
    def temperature(self) -> float | None:
        """Temperature of a control; None for the audit's."""
        return self.drawn.temperature if isinstance(self.drawn, ControlCounts) else None

    @property
    def is_base(self) -> bool:
        """Whether it is the base at another temperature."""
        return self.drawn.step == self.of.counts.base.step

    @property
    def progress(self) -> float:
        """Steps since the base, divided by those from the base to the last checkpoint of the series."""
        counts = self.of.counts
        last = max(late.step for late in counts.trained)
        return (self.drawn.step - counts.base.step) / (last - counts.base.step) if last > counts.base.step else 1.0

    @property
    def reach_k(self) -> int:
        """Largest k that the number of samples allows.

        For checkpoints, k is at most half of the samples, as in the verdict. Controls have fewer samples, so k may
        equal their number: the estimate is unbiased up to n, and the band includes its variance over problems.
        """
        n = self.drawn.n if self.temperature is None else 2 * self.drawn.n
        return inference_ks(min(self.of.counts.base.n, n))[-1]

    def count_ks(self, ks: Sequence[int]) -> int:
        """Return the number of ``ks`` up to ``reach_k``."""
        return sum(k <= self.reach_k for k in ks)

    def changes(self, ks: Sequence[int], part_P: Bool[np.ndarray, " problem"]) -> Float[np.ndarray, "problem k"]:
        """Return the change of pass@k since the base.

        For k above ``reach_k`` it is a lower bound: pass@``reach_k`` minus pass@k of the base.
        """
        base, late_ks = self.of.counts.base, [min(k, self.reach_k) for k in ks]
        late_PK = pass_at_k_table(self.drawn.samples, late_ks)[self.drawn.correct_P[part_P]]
        return late_PK - pass_at_k_table(base.samples, ks)[base.correct_P[part_P]]


@dataclass(frozen=True, kw_only=True)
class NoOption:
    """Checkpoint that is not an option, with the reason."""

    of: JudgedSeries
    drawn: CheckpointCounts
    why: str


def list_options(series: Sequence[JudgedSeries]) -> tuple[list[Option], list[NoOption]]:
    """Return the options, and the checkpoints that are not options.

    Equal weights at equal temperature are one option. Controls of the base are first. A checkpoint of two series is
    assigned to the first, and is lost if either verdict found a loss.
    """
    options: dict[tuple[object, ...], Option] = {}
    left_out: list[NoOption] = []
    for of in series:
        for control in of.counts.controls if of.why is None else ():
            key = _identity(of, control, control.temperature)
            if control.step == of.counts.base.step and (key not in options or control.n > options[key].drawn.n):
                options[key] = Option(of=of, drawn=control)
    for of in series:
        for late in of.counts.trained:
            why = of.why or late.why
            key = _identity(of, late, None)
            if why is None and key in options:
                same = options[key]
                lost, cause = same.lost or late.step in of.lost, same.cause or of.causes.get(late.step)
                options[key] = Option(of=same.of, drawn=same.drawn, lost=lost, cause=cause)
                why = f"the same weights as {same.drawn.checkpoint} of {same.of.counts.series}, compared once"
            if why is not None:
                left_out.append(NoOption(of=of, drawn=late, why=why))
                continue
            options[key] = Option(of=of, drawn=late, lost=late.step in of.lost, cause=of.causes.get(late.step))
            for control in of.counts.controls:
                if control.step == late.step:
                    options.setdefault(_identity(of, control, control.temperature), Option(of=of, drawn=control))
    return list(options.values()), left_out


def _identity(
    of: JudgedSeries, drawn: CheckpointCounts | ControlCounts, temperature: float | None
) -> tuple[object, ...]:
    return (drawn.weights or (of.counts.series, drawn.step), temperature)


@dataclass(frozen=True, kw_only=True)
class Stack:
    """All options as arrays over a part of the problems.

    Attributes:
        base: Counts of the base at the audit's temperature.
        options: The options, in the order of the arrays' first axis.
        ks: Compared k of the checkpoints.
        part_P: The problems.
        cluster_P: Clusters of the problems; None without clusters.
    """

    base: CheckpointCounts
    options: Sequence[Option]
    ks: tuple[int, ...]
    part_P: Bool[np.ndarray, " problem"]
    cluster_P: Int[np.ndarray, " problem"] | None

    @property
    def pairs(self) -> list[PairedCounts]:
        """Counts of the checkpoints, each paired with its base, for the verdict's tests."""
        return [
            PairedCounts(
                base_P=option.of.counts.base.correct_P[self.part_P],
                late_P=option.drawn.correct_P[self.part_P],
                n_base=option.of.counts.base.samples,
                n_late=option.drawn.samples,
            )
            for option in self.options
            if option.temperature is None
        ]

    def changes(self, option: Option) -> Float[np.ndarray, "unit k"]:
        """Return the change of pass@k since the base per problem, or per cluster."""
        return by_cluster(option.changes(self.ks, self.part_P), self.cluster_P)

    def band(self, rng: np.random.Generator, options: Sequence[Option] | None = None) -> Band:
        """Return the simultaneous band over all k and ``options`` (by default all)."""
        return simultaneous_band(np.stack([self.changes(option) for option in options or self.options]), rng=rng)

    def pass_at_1(self, drawn: CheckpointCounts | ControlCounts) -> Float[np.ndarray, " problem"]:
        """Return the pass@1 of every problem."""
        return drawn.pass_at_1[self.part_P]

    def mean_pass_at_1(self, drawn: CheckpointCounts | ControlCounts) -> float:
        """Return the pass@1 averaged over the problems."""
        return float(self.pass_at_1(drawn).mean())

    @property
    def n_units(self) -> int:
        """Number of problems, or of clusters."""
        return int(self.part_P.sum()) if self.cluster_P is None else len(np.unique(self.cluster_P))

    @property
    def few(self) -> str | None:
        """Why there is no guarantee for the population of the problems; None if there are enough problems."""
        if max(int((pair.base_P > 0).sum()) for pair in self.pairs) < FEW_PROBLEMS:
            return f"the base solved fewer than {FEW_PROBLEMS} of the problems"
        why = too_few_to_generalise(self.cluster_P)
        return None if why is None else f"there are {why}"


def stack_options(
    series: Sequence[JudgedSeries], options: Sequence[Option], part_P: Bool[np.ndarray, " problem"]
) -> Stack:
    """Return the options on the problems of ``part_P``. k is at most half of the samples of every checkpoint."""
    first = next(judged for judged in series if judged.why is None).counts
    trained = [option for option in options if option.temperature is None]
    return Stack(
        base=first.base,
        options=options,
        ks=inference_ks(min(min(option.of.counts.base.n, option.drawn.n) for option in trained)),
        part_P=part_P,
        cluster_P=None if first.cluster_P is None else first.cluster_P[part_P],
    )


@dataclass(frozen=True, kw_only=True)
class Prospect:
    """Posterior of one option, in probability.

    Attributes:
        gain: Expected change of pass@1 since the base.
        better: Probability that pass@1 is above the base's.
        loss: Expected largest fall of pass@k over all k that its samples allow; below 0 if a rise at all k is expected.
    """

    gain: float
    better: float
    loss: float


def estimate_prospects(stack: Stack, is_lost: Sequence[bool], rng: np.random.Generator) -> list[Prospect]:
    """Return the posterior of every option.

    Checkpoints are shrunk together, but lost ones separately. Their large falls would widen the prior of the others,
    and the highest estimates of these would then be shrunk too little. Controls are not shrunk: the change of a control
    depends mostly on its temperature, so other options are no evidence about it.
    """
    trained = [t for t, option in enumerate(stack.options) if option.temperature is None]
    kept, lost = ([t for t in trained if is_lost[t] is side] for side in (False, True))
    controls = [[t] for t, option in enumerate(stack.options) if option.temperature is not None]
    prospects: dict[int, Prospect] = {}
    for places in filter(None, (kept, lost, *controls)):
        options = [stack.options[t] for t in places]
        change_TUK = np.stack([stack.changes(option) for option in options])
        floor_K = sampling_floor(
            stack.ks, stack.base.samples, min((option.drawn.samples for option in options), key=most_samples)
        )
        n_ks = [option.count_ks(stack.ks) for option in options]
        correlation_CTT = trajectory_correlations(
            [option.of.counts.series for option in options], [option.progress for option in options]
        )
        gains = change_posterior(change_TUK[:, :, 0], floor=float(floor_K[0]), correlation_CTT=correlation_CTT)
        losses_T = expected_worst_losses(
            change_TUK, floor_K=floor_K, n_ks=n_ks, rng=rng, correlation_CTT=correlation_CTT
        )
        for place, gain, better, loss in zip(places, gains.means, gains.better, losses_T, strict=True):
            prospects[place] = Prospect(gain=float(gain), better=float(better), loss=float(loss))
    return [prospects[t] for t in range(len(stack.options))]


def banded_change(band: Band, option: int, j: int, ks: Sequence[int]) -> BandedChange:
    """Return the change of ``option`` at the ``j``-th k, with its bounds by the band."""
    mean, low, high = (float(values_TK[option, j]) for values_TK in (band.mean_TK, band.low_TK, band.high_TK))
    return BandedChange(k=ks[j], change=mean, low=low, high=high)


def largest_loss(band: Band, option: int) -> float:
    """Return the upper bound of the fall of pass@k over all k of the band, in probability."""
    return max(0.0, -float(band.low_TK[option].min()))
