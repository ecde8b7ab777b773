"""Cases of the simulation of real runs: series, counted label, and whether it is wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from inspect import signature

import numpy as np

from benchmarks.calibration.real_life_dumps import (
    copied,
    in_luck,
    in_order,
    long_responses,
    no_draws_of_their_own,
    right_or_wrong,
    short_answers,
    shuffled,
    solved_by_none,
    without_logp,
)
from benchmarks.calibration.real_life_plans import promised_and_found
from benchmarks.calibration.real_life_series import (
    LAWS,
    Outcome,
    cut_off,
    easy,
    grown,
    guessed,
    killed,
    log_uniform,
    looked_at,
    nearly_impossible,
    permuted,
    read_while_it_sharpens,
    related,
    unchanged,
)
from benchmarks.calibration.series import BAR
from oversharp.diagnostics.verdict.record import POSITIVE


@dataclass(frozen=True, kw_only=True)
class Case:
    """One case: what is simulated, which label is counted, and whether it is wrong (``null``) or right.

    ``most`` is the largest allowed share of wrong labels.
    """

    name: str
    what: str
    counted: str
    null: bool
    draw: Callable[..., Outcome] = field(repr=False)
    counts: Callable[[Outcome], bool] = field(repr=False)
    most: float = BAR
    part: float | None = None

    @property
    def share_drawn(self) -> float:
        """Return the share of the requested series: all for a null, a tenth otherwise, or ``part``."""
        return self.part or (1.0 if self.null else 0.1)

    @property
    def is_in_rounds(self) -> bool:
        """Return whether its samples can be drawn in rounds."""
        return "enough" in signature(self.draw).parameters


def called(*labels: str) -> Callable[[Outcome], bool]:
    return lambda one: one.label in labels


a_loss = called(*POSITIVE)


def lost_exactly(*at: int) -> Callable[[Outcome], bool]:
    return lambda one: one.lost == at


def lost_wrongly(*at: int) -> Callable[[Outcome], bool]:
    return lambda one: bool(set(one.lost) - set(at))


def _other_than(*labels: str) -> Callable[[Outcome], bool]:
    return lambda one: one.label not in labels


BARE = called("over_sharpened", "over_sharpened_here", "degraded", "mode_collapse", "lost_at_steps")
_ANY = "called a loss"


def _cases() -> list[Case]:
    nulls = [
        Case(name=f"guesses {accepted}, n={n}", null=True, counts=BARE, counted="a bare loss",
             what=f"the base's grader accepts {100 * accepted:g} % of wrong answers, later none; 100 problems, n = {n}",
             draw=guessed(accepted, 100, n))
        for accepted, n in ((0.001, 1024), (0.001, 256), (0.0003, 1024), (0.005, 256), (0.005, 1024))
    ]  # fmt: skip
    nulls += [
        Case(name=f"guesses 0.005, {n_problems} nearly impossible, n={n}", null=True, counts=BARE,
             counted="a bare loss", draw=guessed(0.005, n_problems, n, nearly_impossible),
             what=f"the base's grader accepts 0.5 % of wrong answers, later none; {n_problems} problems, "
             f"95 % impossible, n = {n}")
        for n_problems, n in ((100, 64), (300, 128))
    ]  # fmt: skip
    nulls += [
        Case(name=f"permuted {law}{' at each checkpoint' if drifting else ''} {n_problems}/{n}", null=True,
             counts=a_loss, counted=_ANY, what=f"rates swapped among {n_problems} {law} problems"
             f"{' anew at each checkpoint' if drifting else ''}, n = {n}: pass@k unchanged",
             draw=permuted(LAWS[law], n_problems, n, drifting=drifting))
        for law, n_problems, n, drifting in (
            ("easy", 40, 256, False), ("easy", 100, 1024, False), ("easy", 40, 256, True),
            ("bimodal", 40, 256, False), ("bimodal", 100, 1024, False), ("logit-normal", 100, 1024, False),
        )
    ]  # fmt: skip
    nulls += [
        Case(name=f"related {size} of {n_problems}", null=True, counts=called("over_sharpened"),
             counted="Over-sharpened",
             what=f"{n_problems} problems in clusters of {size} that drift together, by nothing on average, n = 256",
             draw=related(n_problems, size, 0.5, named=True))
        for n_problems, size in ((100, 5), (100, 10), (300, 10))
    ]  # fmt: skip
    nulls += [
        Case(name=f"related, one of {first} of {n_problems}", null=True, counts=called("over_sharpened"),
             counted="Over-sharpened", draw=related(n_problems, 4, 0.5, named=True, first=first),
             what=f"{n_problems} problems in clusters of 4, but for one of {first}, that drift together, n = 256")
        for n_problems, first in ((96, 24), (96, 40), (180, 32))
    ]  # fmt: skip
    nulls += [
        Case(name="cut off", null=True, counts=BARE, counted="a bare loss", draw=cut_off(0.2, known=True),
             what="a fifth of the late samples cannot be read; 100 problems, n = 256"),
        Case(name="cut off, rarely solved", null=True, counts=BARE, counted="a bare loss",
             draw=cut_off(0.25, known=True, n_problems=300, n=64, law=log_uniform),
             what="a quarter of the late samples cannot be read; 300 problems, most of them solved rarely, n = 64"),
        Case(name="cut off, a little", null=True, counts=BARE, counted="a bare loss",
             draw=cut_off(0.02, known=True, n_problems=500),
             what="one late sample in fifty cannot be read; 500 problems, n = 256"),
        Case(name="cut off, hardly any", null=True, counts=BARE, counted="a bare loss",
             draw=cut_off(0.009, known=True, n_problems=300, n=128, law=easy),
             what="nine late samples in a thousand cannot be read; 300 easy problems, n = 128"),
        Case(name="cut off, correct ones alone", null=True, counted="Over-sharpened, or lost modes or steps",
             counts=called("over_sharpened", "over_sharpened_here", "mode_collapse", "lost_at_steps"),
             draw=cut_off(0.2, known=True, of_wrong=0.0),
             what="a fifth of the late samples that would be correct cannot be read, and none of the others; 100 "
             "problems, n = 256"),
        Case(name="cut off, last alone", null=True, counts=BARE, counted="a bare loss",
             draw=cut_off(0.3, known=True, n_problems=300, at=(8,), risen=0.6),
             what="three of ten samples of the last of 9 checkpoints cannot be read, the others got better; 300 "
             "problems, n = 256"),
        Case(name="guesses, last alone", null=True, counts=BARE, counted="a bare loss",
             draw=guessed(0.005, 300, 256, risen=0.6),
             what="the base's grader accepts 0.5 % of wrong answers, later none; all checkpoints but the last got "
             "better; 300 problems, n = 256"),
        Case(name="looks, more samples", null=True, counts=a_loss, counted=_ANY,
             draw=grown((64, 64, 128, 256, 512), declared=None),
             what="no change, 64, 128, 256, 512 and 1,024 samples of the same three checkpoints, until a loss shows; "
             "100 problems"),
        Case(name="looks, any number", null=True, counts=a_loss, counted=_ANY, draw=looked_at(10, declared=None),
             what="no change, read after each of ten checkpoints, their number not declared; 60 problems, n = 64"),
        Case(name="looks, ten", null=True, counts=a_loss, counted=_ANY, draw=looked_at(10, declared=10),
             what="no change, read after each of ten declared checkpoints; 60 problems, n = 64"),
        Case(name="runs, eight", null=True, counts=a_loss, counted=_ANY, draw=looked_at(9, declared=1, n_runs=8),
             what="no change, any of eight declared runs; 60 problems, n = 64"),
    ]  # fmt: skip
    nulls += [
        Case(name=f"no change {law} {n_problems}/{n}/{checkpoints}", null=True, counts=a_loss, counted=_ANY,
             what=f"no change; {n_problems} problems, {law}, n = {n}, checkpoints: {checkpoints}",
             draw=unchanged(LAWS[law], n_problems, n, checkpoints))
        for law, n_problems, n, checkpoints in (
            ("bimodal", 100, 256, 9), ("70 % unsolvable", 100, 256, 9), ("easy", 100, 256, 9), ("hard", 100, 256, 9),
            ("70 % unsolvable", 30, 32, 2), ("easy", 5, 64, 9), ("logit-normal", 100, 256, 40),
            ("logit-normal", 1000, 32, 2),
        )
    ]  # fmt: skip
    at_the_end = (8,)
    found = [
        Case(name="related, not named", null=False, counts=called("over_sharpened"), counted="Over-sharpened",
             what="100 problems in clusters of 10 that drift together, no cluster named: what is to be expected",
             draw=related(100, 10, 0.5, named=False)),
        Case(name="cut off, unknown", null=False, counts=called("degraded"), counted="Degraded",
             what="a fifth of the late samples cannot be read, and nobody knows which", draw=cut_off(0.2, known=False)),
        Case(name="guesses, uneven", null=False, counts=BARE, counted="a bare loss",
             draw=guessed(0.025, 100, 256, among=0.1),
             what="the base's grader accepts 2.5 % of wrong answers at a tenth of the problems, where 0.5 % everywhere "
             "is reckoned with; 100 problems, n = 256: what is to be expected"),
        Case(name="cut off and killed", null=False, counts=BARE, counted="a bare loss",
             draw=cut_off(0.2, known=True, at=(6, 7, 8), killed_points=5),
             what="5 points of 100 problems are lost in the last third, and a fifth of its samples cannot be read"),
        Case(name="cut off as before and killed", null=False, counts=BARE, counted="a bare loss",
             draw=cut_off(0.05, known=True, of_base=0.05, n_problems=500, killed_points=2),
             what="2 points of 500 problems are lost in the last third; of base and checkpoints one sample in twenty "
             "cannot be read"),
        Case(name="last alone", null=False, counts=lost_exactly(8), counted="the last checkpoint, and no other",
             what="5 points of 500 problems are lost at the last of 9 checkpoints, n = 256",
             draw=killed(500, 256, 5, at_the_end)),
        Case(name="transient", null=False, counts=lost_exactly(2, 3, 4, 5), counted="steps 3 to 6, and no other",
             what="5 points of 500 problems are lost at steps 3 to 6 of 9 and come back, n = 256",
             draw=killed(500, 256, 5, (2, 3, 4, 5))),
        Case(name="transient, wrong", null=True, counts=lost_wrongly(2, 3, 4, 5), counted="another step called lost",
             what="5 points of 500 problems are lost at steps 3 to 6 of 9 and come back, n = 256",
             draw=killed(500, 256, 5, (2, 3, 4, 5))),
        Case(name="killed 2/500", null=False, counts=a_loss, counted=_ANY,
             what="2 points of 500 problems are lost in the last third, n = 256",
             draw=killed(500, 256, 2, (6, 7, 8), sizes=True)),
        Case(name="killed 2/100", null=False, counts=a_loss, counted=_ANY,
             what="2 points of 100 problems are lost in the last third, n = 256",
             draw=killed(100, 256, 2, (6, 7, 8), sizes=True)),
        Case(name="killed 5/100", null=False, counts=a_loss, counted=_ANY,
             what="5 points of 100 problems are lost in the last third, n = 256",
             draw=killed(100, 256, 5, (6, 7, 8), sizes=True)),
        Case(name="sharpening, one look", null=False, counts=a_loss, counted=_ANY,
             what="severe over-sharpening of 200 problems, n = 256, read once",
             draw=read_while_it_sharpens(1, declared=1)),
        Case(name="sharpening, any look", null=False, counts=a_loss, counted=_ANY,
             what="severe over-sharpening of 200 problems, n = 256, read after each checkpoint, their number not "
             "declared",
             draw=read_while_it_sharpens(9, declared=None)),
    ]  # fmt: skip
    return [*nulls, *found, *_base_distributions(), *_dumps(), *_plans()]


def _dumps() -> list[Case]:
    """Return the cases of samples in dumps.

    Detection is not a claim, so a null counts only losses.
    """
    unsolved = [
        Case(name=name, null=True, counts=counts, counted=counted, most=most, part=part, what=what, draw=draw)
        for name, counts, counted, most, part, what, draw in (
            ("nothing solved", _other_than("no_verdict"), "anything but no verdict", 0.0, 1.0,
             "64 wrong samples of each of 100 problems, of base and checkpoint", solved_by_none(100, 64, np.zeros(0))),
            ("nearly nothing solved", _other_than("no_verdict"), "anything but no verdict", 0.0, 1.0,
             "no change; 4 of 100 problems are solved at all, n = 64", solved_by_none(100, 64, np.full(4, 0.3))),
            ("rarely solved", called("no_loss", *POSITIVE), "no loss, or a loss", BAR, 1.0,
             "no change; one sample in 2,000 is right, 3 of 100 problems solved on average, n = 64",
             solved_by_none(100, 64, np.full(100, 0.0005))),
        )
    ]  # fmt: skip
    copies = [
        Case(name=f"copies {times}, {order}, {known}", null=True, counts=a_loss, counted=_ANY,
             what=f"no change, every sample {times} times, {order}; {known}; 100 problems, n = 64",
             draw=no_draws_of_their_own(arranged(copied(times, drawing))))
        for known, drawing in (
            ("short answers are known", short_answers), ("right and wrong alone are known", right_or_wrong),
            ("responses with log-probabilities", long_responses),
        )
        for times in (2, 8)
        for order, arranged in (("in blocks", in_order), ("shuffled", shuffled))
    ]  # fmt: skip
    others = [
        Case(name="copies in part, log-probabilities", null=True, counts=a_loss, counted=_ANY,
             what="no change, half of the samples twice, shuffled among the others; responses with log-probabilities; "
             "100 problems, n = 64",
             draw=no_draws_of_their_own(shuffled(copied(2, long_responses, part=0.5)))),
        Case(name="copies in part", null=False, counts=a_loss, counted=_ANY, part=0.1,
             what="no change, half of the samples twice, shuffled among the others; responses without "
             "log-probabilities; 100 problems, n = 64: what is to be expected",
             draw=no_draws_of_their_own(shuffled(copied(2, without_logp(long_responses), part=0.5)))),
        Case(name="copies of few problems", null=False, counts=a_loss, counted=_ANY, part=0.1,
             what="no change, every sample 2 times, shuffled; right and wrong alone are known; 10 problems, n = 64: "
             "what is to be expected",
             draw=no_draws_of_their_own(shuffled(copied(2, right_or_wrong)), n_problems=10)),
        Case(name="batches, in order", null=True, counts=a_loss, counted=_ANY,
             what="no change, samples in batches of 8 with a correlation of 0.1, one after the other; 100 problems, "
             "n = 256",
             draw=no_draws_of_their_own(in_luck(8, 0.1), n=256)),
        Case(name="batches, shuffled", null=False, counts=a_loss, counted=_ANY, part=0.1,
             what="no change, samples in batches of 8 with a correlation of 0.1, shuffled; 100 problems, n = 256: "
             "what is to be expected",
             draw=no_draws_of_their_own(shuffled(in_luck(8, 0.1)), n=256)),
    ]  # fmt: skip
    return [*unsolved, *copies, *others]


def _plans() -> list[Case]:
    return [
        Case(name=f"plan {loss} {n_problems}/{n}", null=False, counts=called("over_sharpened", "degraded"),
             counted="found", part=0.15,
             what=f"{loss} loss of 5 points of pass@32; {n_problems} problems, n = {n}, planned from 100 and n = 64",
             draw=promised_and_found(LAWS["logit-normal"], loss, pilot_problems=100, pilot_n=64,
                                     n_problems=n_problems, n=n, points=5))
        for loss in ("diffuse", "concentrated")
        for n_problems, n in ((100, 64), (100, 256), (400, 256))
    ]  # fmt: skip


def _base_distributions() -> list[Case]:
    """Return cases of every law with few and many problems, samples and checkpoints."""
    return [
        Case(name=f"no change {law} {n_problems}/{n}/{checkpoints}", null=True, counts=a_loss, counted=_ANY,
             what=f"no change; {n_problems} problems, {law}, n = {n}, checkpoints: {checkpoints}",
             draw=unchanged(LAWS[law], n_problems, n, checkpoints))
        for law in ("bimodal", "70 % unsolvable", "easy", "hard")
        for n_problems, n, checkpoints in ((30, 1024, 40), (1000, 32, 2))
    ]  # fmt: skip


#: Per cent by the rule of the first version in such a case. Users measured this with their own simulators, on 50 to
#: 1,400 other series.
FIRST_VERSION: Mapping[str, str] = {
    "guesses 0.001, n=1024": "100",
    "guesses 0.001, n=256": "51",
    "guesses 0.0003, n=1024": "50",
    "permuted easy 40/256": "53–54",
    "permuted easy 100/1024": "53–54",
    "related 5 of 100": "7–56",
    "related 10 of 100": "7–56",
    "related 10 of 300": "7–56",
    "cut off": "100 (over-sharpened)",
    "looks, any number": "12–23",
    "runs, eight": "17",
    "last alone": "7–34",
    "transient": "4 (of 96 no loss was said)",
    "killed 2/100": "printed 2.6 points too large",
    "nothing solved": "100 (no loss found)",
    "copies 2, in blocks, right and wrong alone are known": "15",
    "copies 8, in blocks, right and wrong alone are known": "33",
    "batches, in order": "8.8",
    "plan concentrated 100/256": "62 (81–95 promised)",
}

CASES: Mapping[str, Case] = {case.name: case for case in _cases()}
