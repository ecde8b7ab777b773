"""Cells of the held-out simulation: distribution, size, and whether there is a loss."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.calibration.held_out_laws import (
    MASTERY,
    Law,
    cut_off,
    drifting,
    few_solvable,
    graded_strictly,
    guessed,
    items,
    lasting,
    mended,
    moved,
    nearly_solved,
    polarised,
    powers,
    scaled,
    sharpened,
    shifted,
    skills,
    still,
    struck,
    tail_killed,
    topics_lost,
    ways,
)


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One distribution at one size.

    Attributes:
        n_S: Samples per problem at the base and each checkpoint, or one number for all.
        null: There is no loss at the end.
        stays: The rates move, but their distribution stays the same.
        expected: The known fault of a cell that is expected to fail.
    """

    name: str
    what: str
    law: Law
    n_problems: int
    n_S: tuple[int, ...]
    null: bool
    stays: bool = False
    expected: str | None = None


def _cell(name: str, what: str, law: Law, n_problems: int, *n_S: int, null: bool, **more: object) -> Cell:
    sizes = f"{n_problems} problems, n = {n_S[0]}" + ("" if len(set(n_S)) == 1 else ", then " + _told(n_S[1:]))
    return Cell(name=name, what=f"{what}; {sizes}", law=law, n_problems=n_problems, n_S=n_S, null=null, **more)


def _told(n_S: tuple[int, ...]) -> str:
    return ", ".join(map(str, dict.fromkeys(n_S)))


_TOPIC_WANDER = drifting(6, stays=0.6, largest_topic=10, shared=0.7)
_EASY_ITEMS = items(1.0)
_NEARLY = nearly_solved(0.95)
#: All skills improve; or all but one, which is nearly forgotten.
_BETTER = np.sqrt(MASTERY)
_FORGOTTEN = np.where(np.arange(12) == 8, 0.05 * MASTERY, _BETTER)

_NULLS = (
    _cell("items", "items of normal difficulty, unchanged, 6 checkpoints",
          moved(items(), *[still] * 6), 80, 64, null=True),
    _cell("t items gained", "items of difficulty by t with 2 degrees, all become easier over 9 checkpoints",
          moved(items(tails=2.0), *(shifted(0.1 * step) for step in range(1, 10))), 100, 64, null=True),
    _cell("oscillating", "ability swings between the base's and a better one, 12 checkpoints",
          moved(items(), *[still, shifted(0.8)] * 6), 60, 32, null=True),
    _cell("skills", "products of up to 4 of 12 skills, unchanged, 12 checkpoints",
          skills(*[MASTERY] * 13), 50, 8, null=True),
    _cell("skills gained", "products of up to 4 of 12 skills, all better mastered, 3 checkpoints",
          skills(MASTERY, *[_BETTER] * 3), 1000, 16, null=True),
    _cell("skills large", "products of up to 4 of 12 skills, unchanged, 3 checkpoints",
          skills(*[MASTERY] * 4), 1000, 16, null=True),
    _cell("drift", "rates wander at 10 checkpoints, as often up as down",
          drifting(10, stays=0.8), 60, 64, null=True, stays=True),
    _cell("drift of topics", "rates wander, by topics of 1 to 10 problems that are declared, 6 checkpoints",
          _TOPIC_WANDER, 200, 32, null=True, stays=True),
    _cell("aime", "a quarter of the problems can be solved, unchanged, 8 checkpoints",
          moved(few_solvable(0.25), *[still] * 8), 30, 64, null=True),
    _cell("twenty", "items, unchanged, 5 checkpoints", moved(items(), *[still] * 5), 20, 64, null=True),
    _cell("saturated", "pass@1 .95, unchanged, 5 checkpoints", moved(_NEARLY, *[still] * 5), 500, 32, null=True),
    _cell("powers", "rates are uniform numbers to the power 5, unchanged, 4 checkpoints",
          moved(powers(5.0), *[still] * 4), 200, 256, null=True),
    _cell("ways kept",
          "four ways of being right: wrong mass moves to the likeliest, the others are kept, 5 checkpoints",
          ways(5, dominant=0.5, others=1.0), 80, 128, null=True),
    _cell("ways still", "four ways of being right, unchanged, 5 checkpoints",
          ways(5, dominant=0.0, others=1.0), 80, 64, null=True),
    _cell("dip", "a twelfth of the problems is lost at checkpoints 2 and 3 of 9 and comes back",
          lasting(struck(1 / 12), at=[step in (2, 3) for step in range(1, 10)])(_EASY_ITEMS), 300, 64, null=True),
    _cell("hiccup", "one checkpoint, 5 of 9, lost a third of the problems; the others gain",
          moved(items(), *(struck(1 / 3) if step == 5 else shifted(0.3) for step in range(1, 10))),
          150, 128, null=True),
    _cell("cut wrong", "ever longer answers are cut off, wrong ones twice as often as right ones, 6 checkpoints",
          cut_off(moved(items(), *[still] * 6), of_right=0.1, of_wrong=0.2), 100, 64, null=True),
    _cell("mended", "a fifth of the base's answers cannot be parsed, later all; nothing else changes, 6 checkpoints",
          mended(moved(items(), *[still] * 6), unread=0.2), 120, 64, null=True),
    _cell("guesses", "the base's grader accepts .3 % of wrong answers evenly, later none; 4 checkpoints",
          guessed(moved(powers(5.0), *[still] * 4), shares=[0.003, 0, 0, 0, 0]), 200, 128, null=True),
    _cell("strict graders", "graders that miss a share of each problem's right answers; the model gains, 6 checkpoints",
          moved(graded_strictly(items()), *[sharpened(1.3)] * 6), 40, 64, null=True),
    _cell("sharpened", "wrong answers alone lose, all problems gain, 9 checkpoints",
          moved(powers(3.0), *(sharpened(1.0 + 0.5 * step) for step in range(1, 10))), 60, 24, null=True),
    _cell("small base", "items, unchanged, the base sampled less",
          moved(items(tails=3.0), *[still] * 4), 60, 32, *[128] * 4, null=True),
    _cell("large base", "items, unchanged, the base sampled more",
          moved(items(tails=3.0), *[still] * 4), 60, 256, *[16] * 4, null=True),
    _cell("each its n", "items, unchanged, every checkpoint with another n",
          moved(items(slope=1.0), *[still] * 5), 45, 24, 64, 16, 48, 8, 32, null=True),
    _cell("cut evenly", "ever longer answers are cut off, right ones as often as wrong ones, 6 checkpoints",
          cut_off(moved(items(), *[still] * 6), of_right=0.2, of_wrong=0.2), 100, 64, null=True),
    _cell("cut right", "ever longer answers are cut off, right ones twice as often as wrong ones, 6 checkpoints",
          cut_off(moved(items(), *[still] * 6), of_right=0.2, of_wrong=0.1), 100, 64, null=True,
          expected="samples that are cut off are taken to be as good as the read ones"),
)  # fmt: skip

_LOSSES = (
    _cell("ability lost", "all items become harder, 4 checkpoints",
          moved(items(), *[shifted(-0.5)] * 4), 100, 64, null=False),
    _cell("tail lost", "what was solved in less than 5 % of samples is given up, the rest gained on, 6 checkpoints",
          moved(powers(3.0), *[tail_killed(0.05, kept=0.1, gain=0.6)] * 6), 200, 128, null=False),
    _cell("winner takes all", "what was mostly right becomes surely right, the rest surely wrong, 6 checkpoints",
          moved(items(), *[polarised] * 6), 100, 64, null=False),
    _cell("skill lost", "one of 12 skills is forgotten, the others better mastered, 4 checkpoints",
          skills(MASTERY, *[_FORGOTTEN] * 4), 300, 32, null=False),
    _cell("ways lost", "four ways of being right: the likeliest takes most of the others' mass, 5 checkpoints",
          ways(5, dominant=0.3, others=0.3), 150, 128, null=False),
    _cell("mended and lost",
          "a fifth of the base's answers cannot be parsed, later all, while hard problems are given up",
          mended(moved(items(), *[tail_killed(0.2, kept=0.1, gain=0.3)] * 6), unread=0.2), 150, 64, null=False),
    _cell("slowly", "hard items are lost little by little over 12 checkpoints, easy ones gained on",
          moved(items(), *(tail_killed(0.02 * step, kept=0.2, gain=0.05 * step) for step in range(1, 13))),
          200, 64, null=False),
    _cell("last bad", "the last of 9 checkpoints lost a fifth of the problems",
          lasting(struck(0.2), at=[step == 9 for step in range(1, 10)])(_EASY_ITEMS), 200, 64, null=False),
    _cell("few carry it", "pass@1 .98, one problem in 40 is forgotten, 3 checkpoints: few problems carry 2.5 points",
          lasting(struck(0.025), at=[True] * 3)(nearly_solved(0.98, scatter=40.0)), 200, 64, null=False),
    _cell("just over", "pass@1 falls by 2.2 points everywhere alike, 3 checkpoints",
          moved(_EASY_ITEMS, *[scaled(0.966)] * 3), 400, 64, null=False),
    _cell("topics lost", "one topic in 12 is forgotten, topics of 1 to 6 problems are declared, 4 checkpoints",
          topics_lost(1 / 12, largest=6, n_steps=4, rates=_EASY_ITEMS), 240, 32, null=False),
    _cell("few topics carry it", "pass@1 .98, one topic in 40 is forgotten, topics of 1 to 10 are declared",
          topics_lost(0.025, largest=10, n_steps=3, rates=nearly_solved(0.98, scatter=40.0)), 1000, 16, null=False),
    _cell("aime lost", "of 30 problems 40 % can be solved, of these a third is forgotten, 6 checkpoints",
          lasting(struck(1 / 3), at=[True] * 6)(few_solvable(0.4)), 30, 64, null=False),
    _cell("small base lost", "hard items are given up, the base sampled less",
          moved(items(tails=3.0), *[tail_killed(0.2, kept=0.1, gain=0.3)] * 4), 60, 32, *[128] * 4, null=False),
    _cell("hidden by mending", "a third of the base's answers cannot be parsed, later all, while a tenth is forgotten",
          mended(lasting(struck(0.1), at=[True] * 4)(powers(1.5)), unread=1 / 3), 150, 8, null=False,
          expected="what could not be parsed at the base hides it, for the verdict is of accepted answers"),
)  # fmt: skip

CELLS = {cell.name: cell for cell in (*_NULLS, *_LOSSES)}
