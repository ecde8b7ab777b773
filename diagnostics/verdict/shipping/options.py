"""What there is to choose from: checkpoints, the base drawn colder and checkpoints drawn hotter, side by side."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Bool, Float, Int

from oversharp.diagnostics.statistics.band import Band, simultaneous_band
from oversharp.diagnostics.statistics.keys import PairedCounts, inference_ks
from oversharp.diagnostics.statistics.pass_at_k import pass_at_k_table
from oversharp.diagnostics.statistics.units import by_cluster, too_few_to_generalise
from oversharp.diagnostics.verdict.counts import CheckpointCounts, ControlCounts, SeriesCounts
from oversharp.diagnostics.verdict.explanations import Cause
from oversharp.diagnostics.verdict.recommendation import BandedChange
from oversharp.diagnostics.verdict.words.caveats import FEW_PROBLEMS


@dataclass(frozen=True, kw_only=True)
class JudgedSeries:
    """The counts of a series, its lost steps, and why none of its checkpoints can be recommended (None if one can).

    ``causes``: what else explains the loss of a step, where something does.
    """

    counts: SeriesCounts
    lost: Collection[int] = ()
    causes: Mapping[int, Cause] = field(default_factory=dict)
    why: str | None = None


@dataclass(frozen=True, kw_only=True)
class Option:
    """Something to ship besides the base as it is: a checkpoint, or what a control drew at another temperature.

    ``lost``: a verdict calls the checkpoint lost; ``cause``: what else explains that. Of controls no verdict speaks.
    """

    of: JudgedSeries
    drawn: CheckpointCounts | ControlCounts
    lost: bool = False
    cause: Cause | None = None

    @property
    def temperature(self) -> float | None:
        """At which it was drawn; None for the audit's own."""
        return self.drawn.temperature if isinstance(self.drawn, ControlCounts) else None

    @property
    def is_base(self) -> bool:
        """Whether it is the base, at another temperature."""
        return self.drawn.step == self.of.counts.base.step

    @property
    def reach_k(self) -> int:
        """The largest k that its own samples say something of.

        Of a checkpoint half of them, as in the verdict. A control is drawn less, and all of its samples are taken: the
        estimate is unbiased up to there, and the band counts its noise, over problems.
        """
        n = self.drawn.n if self.temperature is None else 2 * self.drawn.n
        return inference_ks(min(self.of.counts.base.n, n))[-1]

    def changes(self, ks: Sequence[int], part_P: Bool[np.ndarray, " problem"]) -> Float[np.ndarray, "problem k"]:
        """Change of pass@k since the base; beyond ``reach_k`` a lower bound, for pass@k does not fall as k grows."""
        base, late_ks = self.of.counts.base, [min(k, self.reach_k) for k in ks]
        late_PK = pass_at_k_table(self.drawn.n, late_ks)[self.drawn.correct_P[part_P]]
        return late_PK - pass_at_k_table(base.n, ks)[base.correct_P[part_P]]


@dataclass(frozen=True, kw_only=True)
class NoOption:
    """A checkpoint that is no option, and why."""

    of: JudgedSeries
    drawn: CheckpointCounts
    why: str


def options_of(series: Sequence[JudgedSeries]) -> tuple[list[Option], list[NoOption]]:
    """What there is to choose from, and which checkpoints are not: the same weights at one temperature count once.

    Controls of the base come first. A checkpoint that stands in two series stands in the first, and is lost if either's
    verdict says so.
    """
    options: dict[tuple[object, ...], Option] = {}
    left_out: list[NoOption] = []
    for of in series:
        for one in of.counts.controls if of.why is None else ():
            key = _identity(of, one, one.temperature)
            if one.step == of.counts.base.step and (key not in options or one.n > options[key].drawn.n):
                options[key] = Option(of=of, drawn=one)
    for of in series:
        for late in of.counts.trained:
            why = of.why or late.why
            key = _identity(of, late, None)
            if why is None and key in options:
                held = options[key]
                lost, cause = held.lost or late.step in of.lost, held.cause or of.causes.get(late.step)
                options[key] = Option(of=held.of, drawn=held.drawn, lost=lost, cause=cause)
                why = f"the same weights as {held.drawn.checkpoint} of {held.of.counts.series}, which stands for both"
            if why is not None:
                left_out.append(NoOption(of=of, drawn=late, why=why))
                continue
            options[key] = Option(of=of, drawn=late, lost=late.step in of.lost, cause=of.causes.get(late.step))
            for hot in of.counts.controls:
                if hot.step == late.step:
                    options.setdefault(_identity(of, hot, hot.temperature), Option(of=of, drawn=hot))
    return list(options.values()), left_out


def _identity(
    of: JudgedSeries, drawn: CheckpointCounts | ControlCounts, temperature: float | None
) -> tuple[object, ...]:
    return (drawn.weights or (of.counts.series, drawn.step), temperature)


@dataclass(frozen=True, kw_only=True)
class Stack:
    """All options as arrays over some of the problems.

    ``ks`` are those of the checkpoints. ``base`` is the base as it is.
    """

    base: CheckpointCounts
    options: Sequence[Option]
    ks: tuple[int, ...]
    part_P: Bool[np.ndarray, " problem"]
    cluster_P: Int[np.ndarray, " problem"] | None

    @property
    def pairs(self) -> list[PairedCounts]:
        """The checkpoints, each beside its base: what a verdict's rule asks for."""
        return [
            PairedCounts(
                base_P=one.of.counts.base.correct_P[self.part_P],
                late_P=one.drawn.correct_P[self.part_P],
                n_base=one.of.counts.base.n,
                n_late=one.drawn.n,
            )
            for one in self.options
            if one.temperature is None
        ]

    def band(self, rng: np.random.Generator, options: Sequence[Option] | None = None) -> Band:
        """One band over all options and k, or over some options alone."""
        changes = [one.changes(self.ks, self.part_P) for one in options or self.options]
        return simultaneous_band(np.stack([by_cluster(one, self.cluster_P) for one in changes]), rng=rng)

    def pass_at_1(self, drawn: CheckpointCounts | ControlCounts) -> Float[np.ndarray, " problem"]:
        """Of every problem."""
        return drawn.correct_P[self.part_P] / drawn.n

    def mean_pass_at_1(self, drawn: CheckpointCounts | ControlCounts) -> float:
        """Over the problems."""
        return float(self.pass_at_1(drawn).mean())

    @property
    def n_units(self) -> int:
        """Problems, or clusters of them."""
        return int(self.part_P.sum()) if self.cluster_P is None else len(np.unique(self.cluster_P))

    @property
    def few(self) -> str | None:
        """Why nothing is said of problems like these; None where there are enough of them."""
        if max(int((pair.base_P > 0).sum()) for pair in self.pairs) < FEW_PROBLEMS:
            return f"the base solved fewer than {FEW_PROBLEMS} of the problems"
        why = too_few_to_generalise(self.cluster_P)
        return None if why is None else f"there are {why}"


def stacked(series: Sequence[JudgedSeries], options: Sequence[Option], part_P: Bool[np.ndarray, " problem"]) -> Stack:
    """The options side by side on the problems of ``part_P``; k up to half of what every checkpoint was drawn."""
    first = next(one for one in series if one.why is None).counts
    trained = [one for one in options if one.temperature is None]
    return Stack(
        base=first.base,
        options=options,
        ks=inference_ks(min(min(one.of.counts.base.n, one.drawn.n) for one in trained)),
        part_P=part_P,
        cluster_P=None if first.cluster_P is None else first.cluster_P[part_P],
    )


def change_at(band: Band, option: int, j: int, ks: Sequence[int]) -> BandedChange:
    """The change of ``option`` at the ``j``-th k, with the band."""
    mean, low, high = (float(of[option, j]) for of in (band.mean_TK, band.low_TK, band.high_TK))
    return BandedChange(k=ks[j], change=mean, low=low, high=high)


def loss_at_most(band: Band, option: int) -> float:
    """By so much pass@k fell at most, at every k of the band."""
    return max(0.0, -float(band.low_TK[option].min()))
