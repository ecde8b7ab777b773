"""Power and cost of audits of several sizes, and the cheapest audit that finds a loss. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from oversharp.diagnostics.records.cells import short_repr
from oversharp.diagnostics.statistics.keys import inference_ks
from oversharp.diagnostics.statistics.stopping import StoppingRule
from oversharp.diagnostics.verdict.counts import window_size
from oversharp.diagnostics.verdict.losses import Law, Loss
from oversharp.diagnostics.verdict.power import BaseRates, Design, Power, power
from oversharp.diagnostics.verdict.results import Remedy

#: Sizes of problem sets as multiples of the current number of problems, up to ``MOST_PROBLEMS`` problems.
PROBLEM_MULTIPLES, MOST_PROBLEMS = (1, 2, 4, 8), 20_000
#: Multiples in ``settle``. They are larger, because inference from a dozen problems needs many times as many.
SETTLING_MULTIPLES = (1, 2, 4, 8, 16, 32)
#: Samples per problem and checkpoint, or at most with a stopping rule; the base has twice as many.
SAMPLES = (64, 256, 1024)
#: Simulated audits per design of ``settle``, where a rough power is enough.
COARSE_RUNS = 100
#: Largest number of simulated audits per design and loss. It gives a power of 80 % a standard error of 2 points. Fewer
#: are simulated if the power is significantly above or below the wanted one and its 95 % interval is within
#: ``KNOWN_TO``.
RUNS, KNOWN_TO = 400, 0.1
_SEED = 20_260_101


@dataclass(frozen=True, kw_only=True)
class LawPower:
    """Power for one kind of loss, with its 95 % interval.

    ``runs`` is 0 where the power was not simulated, because a smaller audit already found the loss every time.
    """

    law: Law
    power: float
    low: float
    high: float
    runs: int


@dataclass(frozen=True, kw_only=True)
class PlannedAudit:
    """One size of an audit: its power, and the number of its samples and tokens.

    ``power`` is the smallest of those in ``by_law``, one per planted loss. pass@k is compared at k up to ``k_most``.
    ``first`` and ``enough`` are as in ``Design``; with them, ``samples`` and ``tokens`` are expected numbers.
    """

    n_problems: int
    n: int
    n_base: int
    k_most: int
    samples: int
    tokens: float | None
    power: float
    by_law: tuple[LawPower, ...]
    first: int | None = None
    enough: int | None = None

    __repr__ = short_repr

    @property
    def cost(self) -> float:
        """Number of tokens, or of samples if the length of samples is unknown."""
        return self.samples if self.tokens is None else self.tokens


@dataclass(frozen=True, kw_only=True)
class SampleLengths:
    """Mean number of tokens of a sample: ``mean`` over all samples of a uniform audit, ``mean_P`` of each problem.

    ``mean_P`` is None if only the mean is known.
    """

    mean: float
    mean_P: Float[np.ndarray, " problem"] | None = None

    @classmethod
    def from_totals(
        cls, tokens_P: Int[np.ndarray, " problem"], n_P: Int[np.ndarray, " problem"], *, is_stopped: bool
    ) -> SampleLengths | None:
        """Return the mean lengths of ``n_P`` samples with ``tokens_P`` tokens together; None without any sample.

        ``is_stopped``: a stopping rule determined the numbers of samples. Then hard problems have more samples, so each
        problem has an equal weight. A problem without samples gets the mean.

        >>> tokens_P, n_P = np.array([3200, 0, 3200]), np.array([16, 0, 64])
        >>> [SampleLengths.from_totals(tokens_P, n_P, is_stopped=is_stopped).mean for is_stopped in (False, True)]
        [80.0, 125.0]
        """
        if not n_P.any():
            return None
        mean_P = tokens_P / np.maximum(n_P, 1)
        mean = float(mean_P[n_P > 0].mean()) if is_stopped else int(tokens_P.sum()) / int(n_P.sum())
        return cls(mean=mean, mean_P=np.where(n_P > 0, mean_P, mean))


@dataclass(frozen=True, kw_only=True)
class AuditSizes:
    """Power of audits of several sizes against ``losses``, and their cost.

    ``lengths`` is None if unknown. ``trained`` is as in ``audit_cost``.
    """

    rates: BaseRates
    losses: Sequence[Loss]
    wanted: float
    lengths: SampleLengths | None
    trained: Sequence[BaseRates] = ()

    def grid(
        self, n: int, n_checkpoints: int, rule_of: Callable[[int], Mapping[str, int]] = lambda _: {}
    ) -> list[PlannedAudit]:
        """Return audits with ``n`` and ``SAMPLES`` samples, for multiples of the number of problems.

        They are sorted by n, then by problems. ``rule_of`` returns ``first`` and ``enough`` of an n; nothing without a
        stopping rule. With a rule, simulations take longer. So a loss that an audit found every time is not simulated
        again for as many problems and a larger n.
        """
        audits: list[PlannedAudit] = []
        certain_from: dict[Law, tuple[int, Power]] = {}  # smallest number of problems that found the loss every time
        for used_n in sorted({*SAMPLES, n}):
            rule = rule_of(used_n)
            if not rule:
                certain_from = {}
            for n_problems in problem_numbers(self.rates.n_problems):
                certain = {kind: found for kind, (least, found) in certain_from.items() if n_problems >= least}
                design = audit_design(n_problems, used_n, n_checkpoints, **rule)
                audits.append(self.planned(design, n_checkpoints, certain))
                for kind, found in certain.items():
                    if kind not in certain_from or n_problems < certain_from[kind][0]:
                        certain_from[kind] = (n_problems, found)
        return audits

    def planned(
        self,
        design: Design,
        n_checkpoints: int,
        certain: dict[Law, Power] | None = None,
        *,
        known_to: float = KNOWN_TO,
    ) -> PlannedAudit:
        """Return the power and cost of one size.

        ``known_to`` is as in ``power``. ``certain`` contains the kinds of loss that a smaller audit found every time.
        Kinds that this audit finds every time are added to it.
        """
        used = {} if certain is None else certain
        by_law = tuple(self._by_law(loss, design, used, known_to) for loss in self.losses)
        samples, tokens = audit_cost(self.rates, design, n_checkpoints, self.lengths, self.trained)
        return PlannedAudit(
            n_problems=design.n_problems,
            n=design.n,
            n_base=design.n_base,
            k_most=inference_ks(min(design.n, design.n_base))[-1],
            samples=samples,
            tokens=tokens,
            power=min(row.power for row in by_law),
            by_law=by_law,
            first=design.first,
            enough=design.enough,
        )

    def _by_law(self, loss: Loss, design: Design, certain: dict[Law, Power], known_to: float) -> LawPower:
        known = certain.get(loss.law)
        # one generator per number of problems: results do not depend on other requests, nor the problems on n
        rng = np.random.default_rng([_SEED, design.n_problems])
        estimate = known or power(
            self.rates,
            loss,
            design,
            wanted=self.wanted,
            runs=RUNS,
            known_to=known_to,
            rng=rng,
        )
        if estimate.found == estimate.runs:
            certain[loss.law] = estimate
        low, high = estimate.interval()
        return LawPower(
            law=loss.law,
            power=estimate.share,
            low=low,
            high=high,
            runs=0 if known else estimate.runs,
        )


def settle(
    base_correct_P: Int[np.ndarray, " problem"],
    n_base: int,
    *,
    n: int,
    drop: float,
    lengths: SampleLengths | None,
    n_checkpoints: int,
    rng: np.random.Generator,
    k: int | None = None,
    drawn_P: Int[np.ndarray, " problem"] | None = None,
    first: int | None = None,
    enough: int | None = None,
    wanted: float = 0.8,
) -> Remedy | None:
    """Return the cheapest audit that finds a fall of pass@``k`` by ``drop`` with the power ``wanted``.

    It has this power for a diffuse and for a concentrated loss, unless such a loss cannot take that much. It is at
    least as large as the given audit. If it is the given audit, that audit would probably have found such a fall.

    The search is coarser and faster than ``plan``: at most ``COARSE_RUNS`` simulated audits per size, and none after
    the first size that is enough. None if no size of the grid is enough, these problems cannot lose that much, or there
    is no problem or no checkpoint.

    Args:
        base_correct_P: Correct samples of the base.
        n_base: Samples per problem of the base in the given audit.
        n: Samples per problem of one checkpoint in the given audit.
        drop: Fall of pass@``k``, a probability.
        lengths: Mean lengths of samples; None if unknown.
        n_checkpoints: Number of trained checkpoints.
        rng: Source of randomness.
        k: Half of the smaller of ``n`` and ``n_base`` by default.
        drawn_P: Samples of the base of every problem, if a stopping rule with the cap ``n_base`` determined them.
        first: First round of that rule, which all audits of the search use. None without a rule.
        enough: Correct samples after which it stops.
        wanted: Required power.
    """
    if not len(base_correct_P) or n_checkpoints < 1:
        return None
    rates = BaseRates.of(base_correct_P, np.full(len(base_correct_P), n_base) if drawn_P is None else drawn_P)
    losses = rates.losses(fall=drop, k=k or max(1, min(n, n_base) // 2))
    if not losses:
        return None
    samples = [(n, n_base), *((more, max(2 * more, n_base)) for more in SAMPLES if more > n)]
    designs = [
        audit_design(n_problems, used_n, n_checkpoints, n_base=used_n_base, first=first, enough=enough)
        for n_problems in problem_numbers(len(base_correct_P), SETTLING_MULTIPLES)
        for used_n, used_n_base in samples
    ]
    costs = {design: audit_cost(rates, design, n_checkpoints, lengths) for design in designs}
    for design in sorted(designs, key=lambda design: costs[design][0]):
        powers = (power(rates, loss, design, wanted=wanted, runs=COARSE_RUNS, rng=rng) for loss in losses)
        if all(estimate.share >= wanted for estimate in powers):
            n_samples, tokens = costs[design]
            return Remedy(
                drop=drop,
                n_problems=design.n_problems,
                n=design.n,
                n_base=design.n_base,
                tokens=tokens,
                first=first,
                enough=enough,
                samples=n_samples,
            )
    return None


def problem_numbers(own: int, multiples: Sequence[int] | None = None) -> list[int]:
    """Return the sizes of problem sets to simulate, ascending: multiples of ``own`` problems.

    The multiples are ``PROBLEM_MULTIPLES`` by default.

    >>> problem_numbers(3_000)
    [3000, 6000, 12000]
    """
    return [times * own for times in multiples or PROBLEM_MULTIPLES if times == 1 or times * own <= MOST_PROBLEMS]


def audit_design(
    n_problems: int,
    n: int,
    n_checkpoints: int,
    *,
    n_base: int | None = None,
    first: int | None = None,
    enough: int | None = None,
) -> Design:
    """Return an audit of ``n_checkpoints`` trained checkpoints. The base has twice the samples by default."""
    return Design(
        n_problems=n_problems,
        n=n,
        n_base=2 * n if n_base is None else n_base,
        n_late=window_size(n_checkpoints) * n,
        first=first,
        enough=enough,
    )


def audit_cost(
    rates: BaseRates,
    design: Design,
    n_checkpoints: int,
    lengths: SampleLengths | None,
    trained: Sequence[BaseRates] = (),
) -> tuple[int, float | None]:
    """Return the numbers of samples and of tokens of an audit; None for tokens if lengths are unknown.

    With a stopping rule they are expected numbers. A checkpoint is assumed to need as many samples as those in
    ``trained`` on average, whose problems are those of ``rates``. Without any, it is assumed to have the success rates
    of the base. A checkpoint that lost problems needs more samples than the base.

    A problem that needs more samples is a hard problem, whose samples are often longer than the mean. So each problem
    counts with its own mean length. The sum is linear in these lengths, so their sampling errors average out, and they
    are not shrunk towards a common mean.

    >>> rates = BaseRates.of(np.array([0, 64]), np.full(2, 64))
    >>> uniform, stopped = (
    ...     audit_design(2, 64, 1, first=first, enough=enough) for first, enough in ((None, None), (16, 4))
    ... )
    >>> lengths = SampleLengths(mean=200.0, mean_P=np.array([300.0, 100.0]))
    >>> audit_cost(rates, uniform, 1, lengths)  # 2 problems, 64 + 128 samples
    (384, 76800.0)
    >>> samples, tokens = audit_cost(rates, stopped, 1, lengths)  # all 192 of the first problem, 32 of the second
    >>> samples, round(tokens)
    (224, 60800)
    """
    per_problem_P = samples_per_problem(rates, design, n_checkpoints, trained)
    if per_problem_P is None:
        samples = design.n_problems * (design.n * n_checkpoints + design.n_base)
        return samples, None if lengths is None else lengths.mean * samples
    samples = round(design.n_problems * float(per_problem_P.mean()))
    if lengths is None:
        return samples, None
    mean_P = np.full(len(per_problem_P), lengths.mean) if lengths.mean_P is None else lengths.mean_P
    return samples, design.n_problems * float((per_problem_P * mean_P).mean())


def samples_per_problem(
    rates: BaseRates, design: Design, n_checkpoints: int, trained: Sequence[BaseRates] = ()
) -> Float[np.ndarray, " problem"] | None:
    """Return the expected number of samples of each problem at all checkpoints; None without a stopping rule."""
    base, checkpoint = design.of_base, design.of_checkpoint
    if not (isinstance(base, StoppingRule) and isinstance(checkpoint, StoppingRule)):
        return None
    late_P = np.mean([each.expected_samples(checkpoint) for each in trained or (rates,)], axis=0)
    return np.asarray(rates.expected_samples(base) + n_checkpoints * late_P)
