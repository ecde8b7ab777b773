"""What a batch of own samples says of the rest: Z′, its lower bounds, and the gap Δ_π that one of them rests on."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from oversharp.diagnostics.measures._batch import BETA
from oversharp.diagnostics.measures._findings import findings_at, places
from oversharp.diagnostics.measures._kernel_findings import over_problems
from oversharp.diagnostics.measures._own import NO_OWN_LOGPS
from oversharp.diagnostics.measures._z_prime import NONE_MIXED, ROUNDING, Partition, own_partitions
from oversharp.diagnostics.measures.contract import Evidence, Measure, Plot
from oversharp.diagnostics.records.types import Finding

BETAS = (0.04, 1.0)
MIXED = "mixed"
OF_MIXED = (*(f"of mixed, beta {beta:g}" for beta in BETAS), "of mixed, first bound", "of mixed, second bound")


def _of_partitions(
    name: str,
    title: str,
    *,
    unit: str,
    scopes: Sequence[str],
    of: Callable[[Sequence[Partition]], Mapping[str, Sequence[float]]],
    plot: Plot,
    doc: str,
    share: bool = False,
) -> Measure:
    """The mean over problems in each of ``scopes``; unknown where no batch has both correct and wrong samples."""

    def compute(evidence: Evidence) -> list[Finding]:
        complete, why = own_partitions(evidence)

        def at(checkpoint_id: str) -> list[Finding]:
            values = of(complete[checkpoint_id])
            return [
                over_problems(measure, checkpoint_id, values[scope], scope=scope, why=NONE_MIXED, share=share)
                for scope in scopes
            ]

        return findings_at(measure, places(evidence, why), at, scopes=scopes)

    measure = Measure(
        name=name,
        title=title,
        unit=unit,
        section="kernel",
        needs=("own_logps",),
        missing=NO_OWN_LOGPS,
        plot=plot,
        compute=compute,
        signed=not share,
        doc=doc,
    )
    return measure


def _shares(found: Sequence[Partition]) -> dict[str, list[float]]:
    above = [_above_one(one) for one in found if one.batch.is_informative]
    mixed = {MIXED: [float(one.batch.is_informative) for one in found]}
    return mixed | {scope: [of_one[i] for of_one in above] for i, scope in enumerate(OF_MIXED)}


def _above_one(partition: Partition) -> tuple[float, ...]:
    """1 where Z′ of a mixed batch, and each of its lower bounds, is above 1, in the order of ``OF_MIXED``."""
    above = [*(partition.is_above_one(beta) for beta in BETAS), *(b > 1.0 + ROUNDING for b in _lower(partition))]
    return tuple(map(float, above))


def _lower(partition: Partition) -> tuple[float, float]:
    """The two lower bounds of a mixed batch."""
    bounds = partition.bounds()
    assert bounds.from_gap.value is not None  # it has both correct and wrong samples
    return bounds.from_counts, bounds.from_gap.value


def _beyond_one(found: Sequence[Partition]) -> dict[str, list[float]]:
    mixed = [one for one in found if one.batch.is_informative]
    lower = [_lower(one) for one in mixed]
    return {
        "exact": [math.expm1(one.log_z(BETA)) for one in mixed],
        "first bound": [first - 1.0 for first, _ in lower],
        "second bound": [second - 1.0 for _, second in lower],
    }


def _gaps(found: Sequence[Partition]) -> dict[str, list[float]]:
    gaps = [one.bounds().gap.value for one in found]
    return {"all": [gap for gap in gaps if gap is not None]}


MEASURES = (
    _of_partitions(
        "z_prime_share",
        "Mixed batches, and those of them with Z′ above 1",
        unit="share of problems",
        scopes=(MIXED, *OF_MIXED),
        of=_shares,
        share=True,
        plot=Plot(x="step", group="scope", y_label="share of problems", y_range=(0.0, 1.0)),
        doc="""
Z′ above 1: how often learning the own samples takes probability from all that was not sampled.

Meaning: a policy fitted to a batch divides the probability of every unsampled response, right or wrong, by
Z′ = Σ π_ref·exp(N·A/(βG)). The batch is a checkpoint's first ``--panel`` (default 4) own samples of a problem, π_ref
what the base gives them. Only a mixed batch, part correct and part wrong, has an advantage; any other has Z′ = 1.
Scope ``mixed``: the share of problems whose batch is mixed. Of the mixed batches, the share with Z′ > 1: ``of mixed,
beta 0.04`` and ``of mixed, beta 1`` for the weight β of the KL term, which the audit does not know; ``of mixed, first
bound`` and ``of mixed, second bound``: where that lower bound alone, at any β, proves it.
Unit: share of problems. 95 % t interval over problems with a variance floor; n counts problems, for ``of mixed`` those
whose batch is mixed.
Limits: the sampling bias of one batch of few samples at the target of the update, not of a training step. More samples
make more batches mixed, and as β falls every mixed batch gets Z′ > 1. Modes are distinct responses; where responses
are long, π_ref is near 0 and so is Z′ − 1 unless β is small: differences below 1e-9 count as none. Advantages are of
correctness, normalised in the batch.
Source: [A] (arXiv 2601.15609), Theorems 2.2 and 2.3.

>>> from math import log
>>> from oversharp.diagnostics.measures._example import tiny_evidence
>>> columns = "checkpoint_id problem_id sample_index response_id correct base_logp_sum"
>>> evidence = tiny_evidence("own_logps", columns, [
...     ("base", "q1", 0, "a", True, log(0.6)), ("base", "q1", 1, "b", False, log(0.2)),
...     ("base", "q2", 0, "c", True, log(0.1)), ("base", "q2", 1, "d", False, log(0.8))])
>>> [(f.scope, f.value) for f in compute(evidence)][:3]
[('mixed', 1.0), ('of mixed, beta 0.04', 1.0), ('of mixed, beta 1', 0.5)]
""",
    ),
    _of_partitions(
        "z_prime_bounds",
        "Z′ and its lower bounds at β = 1",
        unit="Z′ − 1",
        scopes=("exact", "first bound", "second bound"),
        of=_beyond_one,
        plot=Plot(x="step", group="scope", y_label="Z′ − 1, mean over problems"),
        doc="""
Z′ and its two lower bounds: how strongly a batch suppresses what it did not sample, and how much the theory sees.

Meaning: the mean of Z′ − 1 at β = 1 over problems whose own samples are part correct, part wrong, beside what [A]'s two
lower bounds give for it: scopes ``exact``, ``first bound`` (from counts and probabilities) and ``second bound`` (from
Δ_π alone). Both bounds minus 1 are proportional to 1/β; Z′ − 1 grows faster as β falls.
Unit: Z′ − 1, signed, a number without dimension. 95 % t interval over problems; n counts problems.
Limits: as ``z_prime_share``. The bounds lie below the exact value by the theorem; a second bound below 0 proves
nothing, and says nothing against Z′ > 1.
Source: [A] (arXiv 2601.15609), Theorem 2.3.

>>> from math import log
>>> from oversharp.diagnostics.measures._example import tiny_evidence
>>> columns = "checkpoint_id problem_id sample_index response_id correct base_logp_sum"
>>> evidence = tiny_evidence("own_logps", columns, [
...     ("base", "q1", 0, "a", True, log(0.6)), ("base", "q1", 1, "b", False, log(0.2))])
>>> [(f.scope, round(f.value, 4)) for f in compute(evidence)]  # 0.6·(√e − 1) + 0.2·(1/√e − 1), then ½·(0.6 − 0.2)
[('exact', 0.3105), ('first bound', 0.2), ('second bound', 0.2)]
""",
    ),
    _of_partitions(
        "delta_pi",
        "Probability gap Δ_π",
        unit="difference of probabilities",
        scopes=("all",),
        of=_gaps,
        plot=Plot(x="step", y_label="π⁺_min − π⁻_max under the base"),
        doc="""
Δ_π: by how much the least likely sampled correct response is likelier than the most likely sampled wrong one.

Meaning: π⁺_min − π⁻_max, under the base, over a checkpoint's own samples of a problem; the mean over problems with
both kinds. Above 0 the base was already sure of what is right there, and then a batch is sure to take probability from
all that it did not sample (``z_prime_share``). Below 0 nothing follows.
Unit: difference of probabilities, −1 to 1. 95 % t interval over problems; n counts problems.
Limits: probabilities of whole responses: near 0 where responses are long. The least and the most of few samples grow
apart with more of them, so compare checkpoints of one audit.
Source: [A] (arXiv 2601.15609), Theorem 2.3. Δ_π > 0 is sufficient for Z′ > 1, not necessary.

>>> from math import log
>>> from oversharp.diagnostics.measures._example import tiny_evidence
>>> columns = "checkpoint_id problem_id sample_index response_id correct base_logp_sum"
>>> evidence = tiny_evidence("own_logps", columns, [
...     ("base", "q1", 0, "a", True, log(0.6)), ("base", "q1", 1, "b", False, log(0.2)),
...     ("base", "q2", 0, "c", True, log(0.1)), ("base", "q2", 1, "d", True, log(0.8))])
>>> [(round(f.value, 4), f.n) for f in compute(evidence)]
[(0.4, 1)]
""",
    ),
)
