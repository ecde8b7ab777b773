"""What a verdict is made of: counts of every checkpoint, and what is known about how they came to be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Bool, Int

from diagnostics.verdict.record import Rates

#: Of wrong responses, the share that a grader may accept where nobody knows better: short answers can be guessed.
ASSUMED_GUESS_RATE = 0.005


@dataclass(frozen=True, kw_only=True)
class CheckpointCounts:
    """What one checkpoint's samples are worth: counts per problem among the first ``n`` samples of each.

    ``n`` is the least that was planned for any problem. ``minority_P`` counts correct samples outside the problem's
    dominant mode; of the base those of its second half alone. ``why`` says why the checkpoint cannot be compared.
    ``rates`` is None without a sample. ``unread_P`` are those of the ``n`` samples that were cut off, not parsed or out
    of the grader's time, and not correct; None where nobody knows. ``weights`` is the checkpoint's id in the store, the
    hash of its tensors; None where nobody gave it.
    """

    step: int
    checkpoint: str
    n: int
    n_most: int
    correct_P: Int[np.ndarray, " problem"]
    minority_P: Int[np.ndarray, " problem"]
    rates: Rates | None
    unread_P: Int[np.ndarray, " problem"] | None = None
    why: str | None = None
    weights: str | None = None


@dataclass(frozen=True, kw_only=True)
class ControlCounts:
    """What a checkpoint said at another ``temperature`` than the audit's: correct ones of ``n`` samples per problem.

    The base colder, or a checkpoint hotter, with the step, label and ``weights`` that it has in the series.
    """

    step: int
    checkpoint: str
    temperature: float
    n: int
    correct_P: Int[np.ndarray, " problem"]
    weights: str | None = None


@dataclass(frozen=True, kw_only=True)
class SharperDraws:
    """The base drawn at lower temperatures: ``temperature_S`` descends from the audit's own, ``n_S`` samples each.

    ``correct_SP`` are correct ones; those of the first row are the audit's own. ``greedy_P``: whether the base's greedy
    response is right; None where nobody knows.
    """

    temperature_S: tuple[float, ...]
    n_S: tuple[int, ...]
    correct_SP: Int[np.ndarray, "temperature problem"]
    greedy_P: Bool[np.ndarray, " problem"] | None


@dataclass(frozen=True, kw_only=True)
class GuessRate:
    """How often a grader accepts a wrong response: the share of them, and who says so.

    ``source``: "assumed" unless the user gave it, a grader knows it, or it was measured.
    """

    share: float = ASSUMED_GUESS_RATE
    source: str = "assumed"


@dataclass(frozen=True, kw_only=True)
class Looks:
    """How often verdicts are read before training ends, and of how many runs one is chosen: each look spends level.

    ``number`` counts this look from 1. ``declared`` is how many there will be in all; None where nobody knows, as in a
    live audit: any number then.
    """

    number: int = 1
    declared: int | None = 1
    runs: int = 1


@dataclass(frozen=True, kw_only=True)
class SeriesCounts:
    """What a verdict is made of. ``trained`` are the checkpoints after the base in step order.

    ``shows_modes_P``: whether a correct sample in the first half of the base's has a mode, so that one dominates.
    ``skipped`` maps checkpoints that never were read to the reason. ``cluster_P`` numbers the cluster of every problem;
    None where each stands for itself. ``n_near_duplicates`` are problems whose prompt nearly repeats another's although
    no cluster was named. ``guess_rate`` is the largest share of wrong responses that the graders may accept.
    ``sharper``: the base at lower temperatures, if it was drawn there. ``controls`` are all that was drawn at
    others, of checkpoints that can be compared. ``dependence`` says how samples of a problem hang together, in words;
    None where they may be independent draws. ``is_repaired``: the steps are no training, but hundredths of the way from
    the base to a checkpoint. ``grading``: faults of the grading as a whole, in sentences. ``why_ungraded``: why there
    is no verdict, where too many samples have no grade.
    """

    series: str
    base: CheckpointCounts
    trained: tuple[CheckpointCounts, ...]
    shows_modes_P: Bool[np.ndarray, " problem"]
    tasks: tuple[str, ...]
    graders: tuple[str, ...]
    tokens_per_sample: float | None
    skipped: Mapping[str, str] = field(default_factory=dict)
    cluster_P: Int[np.ndarray, " problem"] | None = None
    n_near_duplicates: int = 0
    guess_rate: GuessRate = field(default_factory=GuessRate)
    looks: Looks = field(default_factory=Looks)
    sharper: SharperDraws | None = None
    controls: tuple[ControlCounts, ...] = ()
    dependence: str | None = None
    is_repaired: bool = False
    grading: tuple[str, ...] = ()
    why_ungraded: str | None = None
