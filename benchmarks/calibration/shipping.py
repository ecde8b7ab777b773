"""Measure how often the guarantee of ``oversharp ship`` is true, and the regret of its choice.

``python -m benchmarks.calibration.shipping`` (some five minutes of one core) samples series of 6 to 10 checkpoints and
100 problems from simulated training with known success rates, and calls ``recommend``.

*Guarantee*: pass@1 rose by at least x and pass@k fell at no k by more than y. It counts as true if both are true at the
chosen checkpoint at every k from 1 to n / 2, also at k that were not compared. The share is over series with a
guarantee.

*Regret*, in points, is the distance to the exact best: the highest true pass@1 among the base and the checkpoints with
no true pass@k more than 2 points below the base's. If the choice lost more than that, its regret is the excess.

Writes ``benchmarks/results/shipping.json`` and ``.md``. Exit code 1 if the guarantee is true in less than 95 %.

``--choices`` simulates the cells in which sampling noise makes a worse checkpoint look best, and cells with a true
gain. Writes ``shipping_choices.json`` and ``.md``.

``--controls`` adds the base at three lower temperatures and the last checkpoint at two higher ones to every audit, with
half the samples, as further options. Fewer series; writes ``shipping_controls.json`` and ``.md``.

``--until-solved ENOUGH`` draws the samples of a problem in rounds until ENOUGH are correct. The names of the result
files then end in ``_until_solved``.

``--series`` sets the number of series per cell, prints the result and writes nothing.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.special import expit, logit

from benchmarks.calibration.in_rounds import add_until_solved, in_rounds_lines, result_name, series_in_rounds
from benchmarks.speed.results import RESULTS, circumstances, write
from oversharp.diagnostics.statistics.keys import inference_ks
from oversharp.diagnostics.verdict.counts import CheckpointCounts, ControlCounts, SeriesCounts
from oversharp.diagnostics.verdict.recommendation import Recommendation, ShippingStep, TossUp
from oversharp.diagnostics.verdict.rule import KEY_LEVEL, MARGIN, STEP_LEVEL
from oversharp.diagnostics.verdict.seen import seen_counts
from oversharp.diagnostics.verdict.shipping.choice import NEEDED, certifying, recommend
from oversharp.diagnostics.verdict.shipping.options import JudgedSeries
from oversharp.diagnostics.verdict.steps import StepRuling, rule_steps

PROBLEMS, SEED = 100, 20_261_122
#: Number of problems for the true values.
POPULATION = 20_000
SAMPLES, CHECKPOINTS = (64, 256), (6, 10)
SERIES, CONTROLLED_SERIES, STOPPED_SERIES = 100, 50, 40
#: Temperature of each control → ``strength`` of ``_apart`` that simulates it, around ``CONTROL_PIVOT``. The base at 0.6
#: loses about 2 points of pass@128, so it may be the right choice.
COLDER: Mapping[float, float] = {0.6: 0.2, 0.3: 0.7, 0.15: 1.3}
HOTTER: Mapping[float, float] = {1.2: -0.2, 1.5: -0.4}
CONTROL_PIVOT = 0.04
BOUND = 0.95
#: Fewest guarantees for which a share is reported.
LEAST_GIVEN = 50

#: A trajectory: (base success rates, two uniform numbers per problem, progress ``s`` from 0 to 1) → success rates.
Course = Callable[[np.ndarray, np.ndarray, float], np.ndarray]


def _moved(success_P: np.ndarray, by_P: np.ndarray | float) -> np.ndarray:
    return np.where(success_P > 0, expit(logit(np.clip(success_P, 1e-12, 1 - 1e-12)) + by_P), 0.0)


def _apart(success_P: np.ndarray, strength: float, pivot: float) -> np.ndarray:
    """Raise problems above ``pivot`` and lower the others, in proportion to their distance from it in logits."""
    return _moved(success_P, strength * (logit(np.clip(success_P, 1e-12, 1 - 1e-12)) - logit(pivot)))


def _killed(success_P: np.ndarray, own_PU: np.ndarray, s: float, *, share: float, rise: float) -> np.ndarray:
    """Raise all problems, and lose a ``share`` of them completely, at random times."""
    dead_P = (own_PU[:, 0] < share) & (own_PU[:, 1] < s)
    return np.where(dead_P, 0.0, _moved(success_P, rise * s))


def _up_and_down(success_P: np.ndarray, own_PU: np.ndarray, s: float) -> np.ndarray:
    swing_P = np.sin(2 * np.pi * (own_PU[:, 0] + s * (0.5 + own_PU[:, 1])))
    return _moved(success_P, 1.0 * s * swing_P)


COURSES: Mapping[str, Course] = {
    "nothing changes": lambda p, _, __: p,
    "all problems rise": lambda p, _, s: _moved(p, 1.0 * s),
    "a rise that stops halfway": lambda p, _, s: _moved(p, 1.5 * min(s, 0.5)),
    "sharpened from the start (GRPO)": lambda p, _, s: _apart(p, 1.2 * s, 0.1),
    "a little sharpened": lambda p, _, s: _apart(p, 0.4 * s, 0.05),
    "a rise, then sharpened": lambda p, _, s: _apart(_moved(p, 1.2 * min(s, 0.5)), 2.4 * max(s - 0.5, 0.0), 0.2),
    "1 problem in 6 dies, the others rise": lambda p, u, s: _killed(p, u, s, share=1 / 6, rise=1.2),
    "1 problem in 15 dies, the others rise": lambda p, u, s: _killed(p, u, s, share=1 / 15, rise=0.4),
    "problems go up and down": _up_and_down,
    "a rise, then worse than the base": lambda p, _, s: _moved(p, 2.0 * s - 4.0 * max(s - 0.4, 0.0)),
}


#: Trajectories that test the choice itself, with the number of checkpoints. In the first all checkpoints lose pass@1.
#: In the second pass@1 rises and pass@k falls (by 4.6 points at k = 32). In the others pass@k rises everywhere, which
#: measures power.
CHOICES: Mapping[str, tuple[Course, int]] = {
    "40 checkpoints, each 0.8 points worse": (lambda p, _, s: p * (1 - 0.0438) if s else p, 40),
    "the tail is halved, the others rise": (lambda p, _, s: np.where(p < 0.05, p / 2, _moved(p, 0.4)) if s else p, 10),
    "each 3 points better": (lambda p, _, s: _moved(p, 0.356) if s else p, 10),
    "each 1.5 points better": (lambda p, _, s: _moved(p, 0.182) if s else p, 10),
}
CHOICES_SAMPLES, CHOICES_SERIES = 64, 150
#: Trajectories of the main table whose gains are hard to distinguish from noise, or that end in a loss.
PRICED = ("problems go up and down", "a little sharpened", "1 problem in 6 dies, the others rise")


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One trajectory with its numbers of samples and checkpoints.

    ``controls``: samples at other temperatures are options too. ``enough``: correct samples after which a problem
    stops; None if each has n samples.
    """

    course: str
    n: int
    checkpoints: int
    controls: bool = False
    enough: int | None = None

    def row(self, one: ShippingStep | TossUp) -> int:
        """Return the row of ``Truth`` of an option: the base, the checkpoints, then the controls."""
        if one.temperature is None:
            return one.step
        return self.checkpoints + 1 + [*COLDER, *HOTTER].index(one.temperature)


@dataclass(frozen=True, kw_only=True)
class Truth:
    """Exact pass@k at the base (row 0), each checkpoint and each control, for every k from 1 to n / 2."""

    pass_at_TK: Float[np.ndarray, "step k"]

    @property
    def fall(self) -> np.ndarray:
        """Largest fall of pass@k below the base, by row."""
        return (self.pass_at_TK[0] - self.pass_at_TK).max(axis=1)

    def regret(self, chosen: int) -> float:
        """Return the regret of a choice (see the module)."""
        excess_T = self.fall - MARGIN
        if excess_T[chosen] > 0:
            return float(excess_T[chosen])
        return float(self.pass_at_TK[excess_T <= 0, 0].max() - self.pass_at_TK[chosen, 0])

    def is_wrong(self, chosen: int) -> bool:
        """Return whether pass@1 is below the base's, or some pass@k by more than 2 points."""
        return bool(self.pass_at_TK[chosen, 0] < self.pass_at_TK[0, 0] - 1e-9 or self.fall[chosen] > MARGIN)

    def holds(self, said: Recommendation, chosen: int) -> bool:
        """Return whether the guarantee is true."""
        sure = said.guarantee
        assert sure is not None
        gained = self.pass_at_TK[chosen, 0] - self.pass_at_TK[0, 0]
        return bool(gained >= sure.gain - 1e-9 and self.fall[chosen] <= sure.loss + 1e-9)


def problems(n_problems: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Draw success rates of the base (see ``planted.py``) and the random numbers of the problems."""
    success_P = expit(rng.normal(-2.6, 2.6, n_problems))
    success_P[rng.random(n_problems) < 0.1] = 0.0
    return success_P, rng.random((n_problems, 2))


def courses(cell: Cell, success_P: np.ndarray, own_PU: np.ndarray) -> np.ndarray:
    """Return the success rates at the base and every checkpoint, then of every control."""
    course = CHOICES[cell.course][0] if cell.course in CHOICES else COURSES[cell.course]
    own = [course(success_P, own_PU, t / cell.checkpoints) for t in range(cell.checkpoints + 1)]
    if cell.controls:
        own += [_apart(own[0], strength, CONTROL_PIVOT) for strength in COLDER.values()]
        own += [_apart(own[cell.checkpoints], strength, CONTROL_PIVOT) for strength in HOTTER.values()]
    return np.stack(own)


def truth_of(cell: Cell) -> Truth:
    """Compute the truth over enough problems to know it to a fraction of a point."""
    rate_TP = courses(cell, *problems(POPULATION, np.random.default_rng(SEED)))
    miss_TP, power_TP, found = 1 - rate_TP, np.ones_like(rate_TP), []
    for _ in range(cell.n // 2):
        power_TP *= miss_TP
        found.append(1 - power_TP.mean(axis=1))
    return Truth(pass_at_TK=np.stack(found, axis=1))


def draw(cell: Cell, rng: np.random.Generator) -> JudgedSeries:
    """Draw the counts of an audit of new problems, and the checkpoints that its verdict calls lost."""
    rate_TP = courses(cell, *problems(PROBLEMS, rng))
    if cell.enough is not None:
        n_T = [cell.n] * (cell.checkpoints + 1)
        return JudgedSeries(counts=series_in_rounds(n_T, cell.enough, rate_TP[: cell.checkpoints + 1], rng))
    correct_TP = rng.binomial(cell.n, rate_TP[: cell.checkpoints + 1])
    drawn_TP = rng.binomial(cell.n // 2, rate_TP[cell.checkpoints + 1 :])
    controls = [
        ControlCounts(
            step=step, checkpoint=f"checkpoint-{step}", temperature=temperature, n=cell.n // 2, correct_P=correct_P
        )
        for (temperature, step), correct_P in zip(
            [*((t, 0) for t in COLDER), *((t, cell.checkpoints) for t in HOTTER)], drawn_TP, strict=False
        )
    ]
    base, *trained = [
        CheckpointCounts(
            step=step, checkpoint=f"checkpoint-{step}", n=cell.n, correct_P=correct_P,
            minority_P=np.zeros_like(correct_P), rates=None,
        )
        for step, correct_P in enumerate(correct_TP)
    ]  # fmt: skip
    counts = SeriesCounts(
        series="run", base=base, trained=tuple(trained), shows_modes_P=np.zeros(PROBLEMS, dtype=bool),
        tasks=("planted",), graders=("exact",), tokens_per_sample=None, controls=tuple(controls),
    )  # fmt: skip
    return JudgedSeries(counts=counts)


def ruled(series: JudgedSeries, rng: np.random.Generator) -> Sequence[StepRuling]:
    """Return the verdict on every checkpoint."""
    ks, pairs = inference_ks(series.counts.base.n), seen_counts(series.counts).steps
    return rule_steps(pairs, ks=ks, level=STEP_LEVEL, exact_level=KEY_LEVEL, margin=MARGIN, rng=rng)


@dataclass(frozen=True, kw_only=True)
class Asked:
    """Inputs of a rule: recommendations with and without ``--held-out``, and the verdict on each checkpoint."""

    cell: Cell
    said: Recommendation
    held_out: Recommendation
    rulings: Sequence[StepRuling]


def _best(asked: Asked, may: Callable[[ShippingStep], bool]) -> int:
    """Return the step with the highest pass@1 among the base and the allowed checkpoints."""
    steps = [one for one in asked.said.steps if one.temperature is None and (one.is_base or may(one))]
    return max(steps, key=lambda one: one.pass_at_1 or 0.0).step


def _surely_out(one: ShippingStep) -> bool:
    return one.out_by in ("band", "verdict")


def _within(asked: Asked, most: float) -> int:
    """Choose the best, excluding checkpoints whose estimated fall at the worst k is above ``most``."""
    return _best(asked, lambda one: not _surely_out(one) and one.worst is not None and one.worst.change >= -most)


def _chosen(cell: Cell, said: Recommendation) -> int:
    assert said.recommended is not None
    return cell.row(said.recommended)


#: Rules with a guarantee.
CERTIFIED = ("ship", "ship --held-out")
#: The shipped rule first.
RULES: Mapping[str, Callable[[Asked], int]] = {
    "ship": lambda asked: _chosen(asked.cell, asked.said),
    "ship --held-out": lambda asked: _chosen(asked.cell, asked.held_out),
    "out only what surely fell": partial(_within, most=1.0),
    "out by 1 point in the estimate": partial(_within, most=0.01),
    "out by 3 points in the estimate": partial(_within, most=0.03),
    "kept by the verdict": lambda asked: _best(asked, lambda one: asked.rulings[one.step - 1].kept),
    "the best pass@1": lambda asked: _best(asked, lambda _: True),
    "the last": lambda asked: asked.cell.checkpoints,
    "the base": lambda _: 0,
}
#: The rule before toss-ups and expected losses; and the rule that recommends the checkpoint of a toss-up.
BEFORE, BY_EXPECTATION = "ship, before", "ship, also in a toss-up"


def _by_expectation(asked: Asked) -> int:
    toss_up = asked.said.toss_up
    if toss_up is None or toss_up.expected_gain <= 0:
        return _chosen(asked.cell, asked.said)
    return asked.cell.row(toss_up)


_ALL_RULES = {**RULES, BEFORE: partial(_within, most=MARGIN), BY_EXPECTATION: _by_expectation}


@dataclass(frozen=True, kw_only=True)
class Row:
    """One cell: share of guarantees and of true ones, mean x and y, and the regret of every rule, in points.

    Attributes:
        other_temperature: How many of the guarantees are for a control.
        wrong: Choices of a checkpoint whose true pass@1 is below the base's, or whose true pass@k fell by more than 2
            points.
        trained: Choices of a checkpoint.
        toss_ups: Toss-ups of `ship`.
    """

    cell: Cell
    series: int
    given: Mapping[str, int]
    true: Mapping[str, int]
    other_temperature: Mapping[str, int]
    gain: Mapping[str, float | None]
    loss: Mapping[str, float | None]
    mean_regret: Mapping[str, float]
    largest_regret: Mapping[str, float]
    wrong: Mapping[str, int]
    trained: Mapping[str, int]
    toss_ups: int


def simulate(cell: Cell, *, series: int, seed: Sequence[int]) -> Row:
    """Apply all rules to ``series`` simulated series."""
    truth, rng = truth_of(cell), np.random.default_rng(seed)
    choices: dict[str, list[int]] = {name: [] for name in _ALL_RULES}
    held: dict[str, list[bool]] = {name: [] for name in CERTIFIED}
    gain: dict[str, list[float]] = {name: [] for name in CERTIFIED}
    loss: dict[str, list[float]] = {name: [] for name in CERTIFIED}
    other, toss_ups = dict.fromkeys(CERTIFIED, 0), 0
    for _ in range(series):
        drawn = draw(cell, rng)
        rulings = ruled(drawn, rng)
        judged = replace(drawn, lost=[step + 1 for step, one in enumerate(rulings) if one.lost])
        split_P = certifying([str(name) for name in rng.integers(0, 1 << 40, PROBLEMS)])
        asked = Asked(
            cell=cell,
            said=recommend([judged]),
            held_out=recommend([judged], certifying_P=split_P),
            rulings=rulings,
        )
        toss_ups += asked.said.toss_up is not None
        for name, rule in _ALL_RULES.items():
            choices[name].append(rule(asked))
        for name, said in zip(CERTIFIED, (asked.said, asked.held_out), strict=True):
            if said.guarantee is not None:
                held[name].append(truth.holds(said, _chosen(cell, said)))
                other[name] += said.recommended is not None and said.recommended.temperature is not None
                gain[name].append(100 * said.guarantee.gain)
                loss[name].append(100 * said.guarantee.loss)
    regrets = {name: [100 * truth.regret(chosen) for chosen in own] for name, own in choices.items()}
    return Row(
        cell=cell,
        series=series,
        given={name: len(one) for name, one in held.items()},
        true={name: sum(one) for name, one in held.items()},
        other_temperature=other,
        gain={name: round(float(np.mean(one)), 2) if one else None for name, one in gain.items()},
        loss={name: round(float(np.mean(one)), 2) if one else None for name, one in loss.items()},
        mean_regret={name: round(float(np.mean(one)), 3) for name, one in regrets.items()},
        largest_regret={name: round(float(np.max(one)), 2) for name, one in regrets.items()},
        wrong={name: sum(truth.is_wrong(chosen) for chosen in own) for name, own in choices.items()},
        trained={name: sum(chosen > 0 for chosen in own) for name, own in choices.items()},
        toss_ups=toss_ups,
    )


def cells(*, controls: bool = False) -> Iterator[Cell]:
    """Yield every trajectory with every number of samples and checkpoints.

    With controls only the smaller number of checkpoints.
    """
    for course, n, checkpoints in product(COURSES, SAMPLES, CHECKPOINTS[:1] if controls else CHECKPOINTS):
        yield Cell(course=course, n=n, checkpoints=checkpoints, controls=controls)


#: Number of checkpoints when several runs and their repaired weights are compared, and number of series.
MANY, MANY_SERIES = 60, 30


def many_cells() -> Iterator[Cell]:
    """Yield cells with as many checkpoints as several runs and their repaired weights have."""
    for course in ("a little sharpened", "problems go up and down"):
        yield Cell(course=course, n=64, checkpoints=MANY)


def choice_cells() -> Iterator[Cell]:
    """Yield the cells that test the choice itself."""
    for course, (_, checkpoints) in CHOICES.items():
        yield Cell(course=course, n=CHOICES_SAMPLES, checkpoints=checkpoints)
    for course in PRICED:
        yield Cell(course=course, n=CHOICES_SAMPLES, checkpoints=CHECKPOINTS[-1])


def _stopped(cells: Iterable[Cell], enough: int | None) -> Iterator[Cell]:
    return (replace(cell, enough=enough) for cell in cells)


def summary(rows: Sequence[Row]) -> dict[str, dict[str, float]]:
    """Return the regret of every rule in points: worst cell, mean over cells, and maximum over series."""
    return {
        name: {
            "worst": round(max(row.mean_regret[name] for row in rows), 2),
            "mean": round(float(np.mean([row.mean_regret[name] for row in rows])), 2),
            "largest": round(max(row.largest_regret[name] for row in rows), 1),
        }
        for name in RULES
    }


def guarantees(rows: Sequence[Row]) -> dict[str, dict[str, Any]]:
    """Return how often a guarantee is given and is true: over all series, and in the worst cell.

    The share in the worst cell is None if no cell has ``LEAST_GIVEN`` guarantees.
    """
    found: dict[str, dict[str, Any]] = {}
    for name in CERTIFIED:
        given, true = sum(row.given[name] for row in rows), sum(row.true[name] for row in rows)
        shares = [row.true[name] / row.given[name] for row in rows if row.given[name] >= LEAST_GIVEN]
        least = round(min(shares), 3) if shares else None
        found[name] = {"given": given, "true": true, "share": round(true / given, 4), "least": least}
    return found


def text(rows: Sequence[Row], many: Sequence[Row]) -> str:
    """Return the results as a page."""
    n_series = sum(row.series for row in rows)
    told, cost = guarantees(rows), summary(rows)
    courses_told = {course: [row for row in rows if row.cell.course == course] for course in COURSES}
    lines = [
        "# Which checkpoint to ship: is it true, and what does it cost?",
        "",
        f"{n_series:,} simulated series of {' or '.join(map(str, CHECKPOINTS))} checkpoints, {PROBLEMS} problems, n = "
        f"{' or '.join(map(str, SAMPLES))}, {rows[0].series} for each course of",
        "training, n and number of checkpoints. The truth is that over all problems of the kind. Written by",
        "`python -m benchmarks.calibration.shipping`.",
        "",
        *in_rounds_lines(rows[0].cell.enough),
        "## What is sure",
        "",
        "*pass@1 rose by at least x, and pass@k fell at no k from 1 to n / 2 by more than y*: 95 % of what is said.",
        "",
        "| | said | true | share | least in a cell |",
        "|---|---|---|---|---|",
        *(
            f"| `{name}` | {one['given']:.0f} | {one['true']:.0f} | {one['share']:.2%} | {_share(one['least'])} |"
            for name, one in told.items()
        ),
        "",
        "## What the choice costs",
        "",
        "Regret in points against the exact best: the highest true pass@1 of the base and the checkpoints of which no",
        "true pass@k lies more than 2 points below the base's. A choice that lost more has the excess as its regret.",
        "",
        "| rule | worst course | mean | largest in any series |",
        "|---|---|---|---|",
        *(f"| {name} | {one['worst']:.2f} | {one['mean']:.2f} | {one['largest']:.1f} |" for name, one in cost.items()),
        "",
        "*out only what surely fell* ships losses that few data cannot show. *kept by the verdict* asks for a proof",
        "that nothing was lost, which few data cannot give, and ships the base. The 2 points of the rule are those of",
        "the regret: who calls other losses too large names them with `--allow-loss`.",
        "",
        "Mean regret by course of training, and the means of x and y in points:",
        "",
        "| course | x | y | " + " | ".join(RULES) + " |",
        "|---|---|---|" + "---|" * len(RULES),
        *(
            f"| {course} | {_mean(row.gain['ship'] for row in own)} | {_mean(row.loss['ship'] for row in own)} | "
            + " | ".join(_mean((row.mean_regret[name] for row in own), 2) for name in RULES)
            + " |"
            for course, own in courses_told.items()
        ),
        "",
        "## What held-out problems are worth",
        "",
        f"Means of x, y and regret in points, n = 64; {MANY} checkpoints: {many[0].series} series a row.",
        "",
        "| course | checkpoints | x | y | regret | x, held out | y, held out | regret, held out |",
        "|---|---|---|---|---|---|---|---|",
        *(
            f"| {course} | {checkpoints} | "
            + " | ".join(
                f"{_mean(row.gain[name] for row in own)} | {_mean(row.loss[name] for row in own)} | "
                f"{_mean((row.mean_regret[name] for row in own), 2)}"
                for name in CERTIFIED
            )
            + " |"
            for course, checkpoints, own in _by_number(rows, many)
        ),
    ]
    return "\n".join(lines) + "\n"


def _by_number(rows: Sequence[Row], many: Sequence[Row]) -> Iterator[tuple[str, int, list[Row]]]:
    """Return the lines of the trajectories of ``many``, at n = 64, with few and with many checkpoints."""
    for last in many:
        alike = [row for row in rows if (row.cell.course, row.cell.n) == (last.cell.course, last.cell.n)]
        for row in (*alike, last):
            yield row.cell.course, row.cell.checkpoints, [row]


def _share(least: float | None) -> str:
    return "–" if least is None else f"{least:.1%}"


def _mean(numbers: Iterable[float | None], places: int = 1) -> str:
    known = [one for one in numbers if one is not None]
    return f"{np.mean(known) + 0.0:.{places}f}" if known else "–"


def controlled_text(rows: Sequence[Row]) -> str:
    """Return the page on controls."""
    told = guarantees(rows)
    lines = [
        "# Which checkpoint to ship, where controls were drawn: is it true?",
        "",
        f"{sum(row.series for row in rows):,} simulated series of {CHECKPOINTS[0]} checkpoints, {PROBLEMS} problems, "
        f"n = {' or '.join(map(str, SAMPLES))}; the base drawn at T = {', '.join(map(str, COLDER))} and the last",
        f"checkpoint at T = {', '.join(map(str, HOTTER))} too, n / 2 samples of each. Written by "
        "`python -m benchmarks.calibration.shipping --controls`.",
        "",
        "| | said | of another temperature | true | share |",
        "|---|---|---|---|---|",
        *(
            f"| `{name}` | {one['given']:.0f} | {sum(row.other_temperature[name] for row in rows)} | "
            f"{one['true']:.0f} | {one['share']:.2%} |"
            for name, one in told.items()
        ),
        "",
        "Mean regret in points against the exact best, the controls among it; how many of the choices of `ship` are of",
        "another temperature than the audit's:",
        "",
        "| course | of another temperature | ship | ship --held-out | the best pass@1 | the base |",
        "|---|---|---|---|---|---|",
        *(_controlled_row(course, [row for row in rows if row.cell.course == course]) for course in COURSES),
    ]
    return "\n".join(lines) + "\n"


def _controlled_row(course: str, rows: Sequence[Row]) -> str:
    other = sum(row.other_temperature[CERTIFIED[0]] for row in rows)
    given = sum(row.given[CERTIFIED[0]] for row in rows)
    regrets = (
        _mean((row.mean_regret[name] for row in rows), 2) for name in (*CERTIFIED, "the best pass@1", "the base")
    )
    return f"| {course} | {other} of {given} | {' | '.join(regrets)} |"


def choices_text(rows: Sequence[Row]) -> str:
    """Return the page of the cells that test the choice, before and after toss-ups and expected losses."""
    lines = [
        "# Which checkpoint to ship: is the choice right?",
        "",
        f"{rows[0].series} simulated series a row, {PROBLEMS} problems, n = {CHOICES_SAMPLES}. *Before*: the highest "
        "measured pass@1 of the checkpoints",
        f"with no fall of pass@k above {100 * MARGIN:g} points in the estimate. *Now*: the highest expected pass@1 "
        "of the checkpoints whose",
        f"expected fall of pass@k at the worst k is at most {100 * MARGIN:g} points; the base in a *toss-up*, if the "
        "posterior probability",
        f"of a higher pass@1 is below {NEEDED:g}. *By expectation*: the checkpoint also in a toss-up, if its expected "
        "gain is positive.",
        "*Wrong*: the recommended checkpoint has a true pass@1 below the base's, or a true pass@k more than",
        f"{100 * MARGIN:g} points below. Regret in points, as in [shipping](shipping.md): it counts missed gains in "
        "full, and losses only beyond",
        f"{100 * MARGIN:g} points. It is that of the recommended checkpoint, so a toss-up costs the gain of the best "
        "one. The last",
        f"{len(PRICED)} rows are the price of the rule. Written by",
        "`python -m benchmarks.calibration.shipping --choices`.",
        "",
        *in_rounds_lines(rows[0].cell.enough),
        "| course | checkpoints | toss-ups | a checkpoint, before | now | by expectation | wrong, before | now | "
        "by expectation | regret, before | now | by expectation |",
        "|---" * 12 + "|",
    ]
    rules = (BEFORE, "ship", BY_EXPECTATION)
    for row in rows:
        cells_of_row = [
            *(f"{count / row.series:.1%}" for count in (row.toss_ups, *(row.trained[rule] for rule in rules))),
            *(f"{row.wrong[rule] / row.series:.1%}" for rule in rules),
            *(f"{row.mean_regret[rule]:.2f}" for rule in rules),
        ]
        lines.append(f"| {row.cell.course} | {row.cell.checkpoints} | {' | '.join(cells_of_row)} |")
    return "\n".join(lines) + "\n"


def _published(name: str, what: str, rows: Sequence[Row], start: float, **more: object) -> dict[str, object]:
    return {
        "benchmark": name,
        "what": what,
        "problems": PROBLEMS,
        "series": sum(row.series for row in rows),
        "bound": BOUND,
        "guarantee": guarantees(rows),
        "regret": summary(rows),
        "rows": [asdict(row) for row in rows],
        **more,
        "cpu_s": round(time.process_time() - start),
        **circumstances(["numpy", "scipy"]),
    }


WHAT = "how often what `oversharp ship` says is sure is true, and the regret of its choice in points"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--controls", action="store_true", help="draw at other temperatures too")
    parser.add_argument("--choices", action="store_true", help="only the cells that test the choice itself")
    parser.add_argument("--series", type=int, help="series a cell; print the result and write nothing")
    add_until_solved(parser)
    asked = parser.parse_args(arguments)
    if asked.controls and asked.until_solved is not None:
        parser.error("--until-solved is not simulated with --controls")
    enough, stopped = asked.until_solved, None if asked.until_solved is None else STOPPED_SERIES
    start, by_cell = time.process_time(), enumerate(_stopped(cells(controls=asked.controls), enough))
    if asked.choices:
        each, by_cell = asked.series or stopped or CHOICES_SERIES, enumerate(_stopped(choice_cells(), enough))
        rows = [simulate(cell, series=each, seed=[SEED, 3000 + number]) for number, cell in by_cell]
        name, page, more = "shipping_choices", choices_text(rows), {}
    elif asked.controls:
        each = asked.series or CONTROLLED_SERIES
        rows = [simulate(cell, series=each, seed=[SEED, 2000 + number]) for number, cell in by_cell]
        name, page, more = "shipping_controls", controlled_text(rows), {}
    else:
        each = asked.series or stopped or SERIES
        rows = [simulate(cell, series=each, seed=[SEED, number]) for number, cell in by_cell]
        each, by_cell = asked.series or MANY_SERIES, enumerate(_stopped(many_cells(), enough))
        many = [simulate(cell, series=each, seed=[SEED, 1000 + number]) for number, cell in by_cell]
        name, page, more = "shipping", text(rows, many), {"many_checkpoints": [asdict(row) for row in many]}
    name = result_name(name, enough)
    if asked.series is None:
        write(name, _published(name, WHAT, rows, start, **more))
        (RESULTS / f"{name}.md").write_text(page, encoding="utf-8")
    else:
        print(page)
    return 0 if all(one["share"] >= BOUND for one in guarantees(rows).values()) else 1


if __name__ == "__main__":
    sys.exit(main())
