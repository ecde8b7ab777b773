"""Measures of Z′ for a batch of own samples, its lower bounds, and the gap Δ_π."""

from __future__ import annotations

import math
from collections.abc import Sequence

from oversharp.diagnostics.measures.contract import Plot, Result, Results
from oversharp.diagnostics.measures.declare import per_checkpoint
from oversharp.diagnostics.measures.kernel.gradients.batch import BETA
from oversharp.diagnostics.measures.kernel.gradients.coupling import average_over_problems
from oversharp.diagnostics.measures.kernel.sampling_bias.partitions import NONE_MIXED, PARTITIONS, ROUNDING, Partition

BETAS = (0.04, 1.0)
MIXED = "mixed"
OF_MIXED = (*(f"of mixed, beta {beta:g}" for beta in BETAS), "of mixed, first bound", "of mixed, second bound")


@per_checkpoint(
    input=PARTITIONS,
    scopes=(MIXED, *OF_MIXED),
    title="Mixed batches, and those of them with Z′ above 1",
    unit="share of problems",
    section="kernel",
    rank=180,
    folded=True,
    plot=Plot(x="step", group="scope", y_label="share of problems", y_range=(0.0, 1.0)),
)
def z_prime_share(partitions: Sequence[Partition]) -> Results:
    """Z′ above 1: how often training on the own samples suppresses unsampled responses.

    Meaning: a policy that is fitted to a batch divides the probability of every unsampled response, correct or wrong,
    by Z′ = Σ π_ref·exp(N·A/(βG)). The batch is a checkpoint's first ``--panel`` (default 4) own samples of a problem,
    and π_ref is their probability under the base. Only a mixed batch, with correct and wrong samples, has advantages.
    Any other batch has Z′ = 1. Scopes:
    - ``mixed``: the share of problems whose batch is mixed.
    - ``of mixed, beta 0.04`` and ``of mixed, beta 1``: the share of mixed batches with Z′ > 1, for two weights β of the
      KL term. The audit does not know the trainer's β.
    - ``of mixed, first bound`` and ``of mixed, second bound``: the share of mixed batches for which this lower bound of
      [A] proves Z′ > 1, for any β.
    Unit: share of problems. 95 % t interval over problems with a variance floor. n counts problems, and for the scopes
    ``of mixed`` only those with a mixed batch.
    Limits: this is the sampling bias of one small batch at the update's target, not of a training step. With more
    samples, more batches are mixed. As β falls, Z′ becomes greater than 1 for every mixed batch. Modes are distinct
    responses. For long responses π_ref is near 0, and so is Z′ − 1 unless β is small; differences below 1e-9 count as
    0. Advantages are computed from correctness, normalised within the batch.
    Source: [A] (arXiv 2601.15609), Theorems 2.2 and 2.3.

    >>> from math import log
    >>> from oversharp.diagnostics.measures.examples import tiny_evidence
    >>> columns = "checkpoint_id problem_id sample_index response_id correct base_logp_sum"
    >>> evidence = tiny_evidence("own_logps", columns, [
    ...     ("base", "q1", 0, "a", True, log(0.6)), ("base", "q1", 1, "b", False, log(0.2)),
    ...     ("base", "q2", 0, "c", True, log(0.1)), ("base", "q2", 1, "d", False, log(0.8))])
    >>> [(f.scope, f.value) for f in z_prime_share(evidence)][:3]
    [('mixed', 1.0), ('of mixed, beta 0.04', 1.0), ('of mixed, beta 1', 0.5)]
    """
    above = [_is_above_one(partition) for partition in partitions if partition.batch.is_informative]
    mixed = [float(partition.batch.is_informative) for partition in partitions]
    of_mixed = {scope: [float(flags[i]) for flags in above] for i, scope in enumerate(OF_MIXED)}
    return {
        scope: average_over_problems(values, why_none=NONE_MIXED, is_share=True)
        for scope, values in {MIXED: mixed, **of_mixed}.items()
    }


@per_checkpoint(
    input=PARTITIONS,
    scopes=("exact", "first bound", "second bound"),
    title="Z′ and its lower bounds at β = 1",
    unit="Z′ − 1",
    section="kernel",
    rank=190,
    folded=True,
    plot=Plot(x="step", group="scope", y_label="Z′ − 1, mean over problems"),
    signed=True,
)
def z_prime_bounds(partitions: Sequence[Partition]) -> Results:
    """Z′ and its two lower bounds: how strongly a batch suppresses unsampled responses.

    Meaning: the mean of Z′ − 1 at β = 1, over problems whose own samples include correct and wrong ones, and the two
    lower bounds of [A] for it. ``exact`` is Z′ − 1. ``first bound`` is computed from counts and probabilities, ``second
    bound`` from Δ_π (see ``delta_pi``). Both bounds minus 1 are proportional to 1/β. Z′ − 1 grows faster as β falls.
    Unit: Z′ − 1, signed, without dimension. 95 % t interval over problems. n counts problems.
    Limits: as for ``z_prime_share``. The theorem guarantees that the bounds are below the exact value. A second bound
    below 0 proves nothing.
    Source: [A] (arXiv 2601.15609), Theorem 2.3.

    >>> from math import log
    >>> from oversharp.diagnostics.measures.examples import tiny_evidence
    >>> columns = "checkpoint_id problem_id sample_index response_id correct base_logp_sum"
    >>> evidence = tiny_evidence("own_logps", columns, [
    ...     ("base", "q1", 0, "a", True, log(0.6)), ("base", "q1", 1, "b", False, log(0.2))])
    >>> findings = z_prime_bounds(evidence)  # 0.6·(√e − 1) + 0.2·(1/√e − 1), then ½·(0.6 − 0.2)
    >>> [(f.scope, round(f.value, 4)) for f in findings]
    [('exact', 0.3105), ('first bound', 0.2), ('second bound', 0.2)]
    """
    mixed = [partition for partition in partitions if partition.batch.is_informative]
    lower = [_lower_bounds(partition) for partition in mixed]
    values = {
        "exact": [math.expm1(partition.log_z(BETA)) for partition in mixed],
        "first bound": [first - 1.0 for first, _ in lower],
        "second bound": [second - 1.0 for _, second in lower],
    }
    return {scope: average_over_problems(own, why_none=NONE_MIXED) for scope, own in values.items()}


@per_checkpoint(
    input=PARTITIONS,
    title="Probability gap Δ_π",
    unit="difference of probabilities",
    section="kernel",
    rank=200,
    folded=True,
    plot=Plot(x="step", y_label="π⁺_min − π⁻_max under the base"),
    signed=True,
)
def delta_pi(partitions: Sequence[Partition]) -> Result:
    """Δ_π: the gap in probability between sampled correct and sampled wrong responses.

    Meaning: π⁺_min is the smallest probability under the base of a correct own sample of a problem, and π⁻_max the
    largest of a wrong one. Δ_π = π⁺_min − π⁻_max, averaged over problems with both kinds. If it is above 0, the base
    preferred every correct sample to every wrong one. Then every batch takes probability from all unsampled responses
    (``z_prime_share``). If it is below 0, nothing follows.
    Unit: difference of probabilities, −1 to 1. 95 % t interval over problems. n counts problems.
    Limits: these are probabilities of whole responses, which are near 0 for long responses. The more samples, the lower
    the minimum and the higher the maximum, so compare only checkpoints of the same audit.
    Source: [A] (arXiv 2601.15609), Theorem 2.3. Δ_π > 0 is sufficient for Z′ > 1, not necessary.

    >>> from math import log
    >>> from oversharp.diagnostics.measures.examples import tiny_evidence
    >>> columns = "checkpoint_id problem_id sample_index response_id correct base_logp_sum"
    >>> evidence = tiny_evidence("own_logps", columns, [
    ...     ("base", "q1", 0, "a", True, log(0.6)), ("base", "q1", 1, "b", False, log(0.2)),
    ...     ("base", "q2", 0, "c", True, log(0.1)), ("base", "q2", 1, "d", True, log(0.8))])
    >>> [(round(f.value, 4), f.n) for f in delta_pi(evidence)]
    [(0.4, 1)]
    """
    gaps = [partition.bounds().gap.value for partition in partitions]
    return average_over_problems([gap for gap in gaps if gap is not None], why_none=NONE_MIXED)


def _is_above_one(partition: Partition) -> tuple[bool, ...]:
    """Return whether Z′ of a mixed batch and its bounds are above 1, in order of ``OF_MIXED``."""
    return (
        *(partition.is_above_one(beta) for beta in BETAS),
        *(bound > 1.0 + ROUNDING for bound in _lower_bounds(partition)),
    )


def _lower_bounds(partition: Partition) -> tuple[float, float]:
    bounds = partition.bounds()
    assert bounds.from_gap.value is not None  # a mixed batch has both correct and wrong samples
    return bounds.from_counts, bounds.from_gap.value
