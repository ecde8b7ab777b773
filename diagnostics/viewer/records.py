"""What the page of ``oversharp view`` is given: records that become JSON as they are. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

#: Problems that can be asked for alone; "all" is no filter.
Only = Literal["all", "lost", "gained", "fell", "rose", "sure", "lenient", "cut"]
ONLY: tuple[Only, ...] = get_args(Only)
#: How the base is named beside steps: it may share its step with a checkpoint.
BASE = "base"


def point_name(key: str) -> str:
    """What a checkpoint is called.

    >>> point_name("base"), point_name("20")
    ('base', 'step 20')
    """
    return key if key == BASE else f"step {key}"


@dataclass(frozen=True, kw_only=True)
class ViewedCheckpoint:
    """A checkpoint with graded samples. ``key`` names it in links: "base", or its step."""

    key: str
    name: str
    checkpoint: str


@dataclass(frozen=True, kw_only=True)
class ViewedSeries:
    """A series with its checkpoints, the base first, and the sentence of its verdict, None without one."""

    name: str
    checkpoints: tuple[ViewedCheckpoint, ...]
    verdict: str | None


@dataclass(frozen=True, kw_only=True)
class ViewSelection:
    """What is looked at: two checkpoints of a series by key, the problems ``only``, and those that have a text."""

    series: str
    before: str
    after: str
    only: Only = "all"
    search: str = ""


@dataclass(frozen=True, kw_only=True)
class ViewStart:
    """What the page shows first. ``bundle``: a static copy, of this selection alone; ``note`` says what it lacks."""

    store: str
    series: tuple[ViewedSeries, ...]
    selection: ViewSelection
    bundle: bool = False
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class ListedProblem:
    """A problem of the list. Counts at both checkpoints; ``cut`` and ``lenient`` are None where nobody tells."""

    problem_id: str
    problem: str
    title: str
    state: str
    sure: bool
    correct: tuple[int, int]
    n: tuple[int, int]
    cut: tuple[int | None, int | None]
    lenient: tuple[int | None, int | None]


@dataclass(frozen=True, kw_only=True)
class ProblemList:
    """The problems that both checkpoints have samples of, the surest change first."""

    selection: ViewSelection
    names: tuple[str, str]
    problems: tuple[ListedProblem, ...]
    sentence: str
    notes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class ListedResponse:
    """A different response, drawn ``n`` times. ``hit``: it holds the text that is searched for.

    ``why`` says why it was not graded, "" where it was; ``lenient``, why the grade is doubtful though it was accepted.
    """

    response_id: str
    n: int
    sample_index: int
    n_tokens: int | None
    cut: bool | None
    greedy: bool
    hit: bool
    why: str
    lenient: str
    preview: str


@dataclass(frozen=True, kw_only=True)
class AnswerGroup:
    """An answer with the responses that gave it, the most frequent first; None is no readable answer.

    ``n`` samples gave it, greedy ones apart; ``n_responses`` are different, of which ``responses`` has the first.
    """

    answer: str | None
    correct: bool
    n: int
    n_responses: int
    responses: tuple[ListedResponse, ...]


@dataclass(frozen=True, kw_only=True)
class ProblemSide:
    """What a checkpoint answers to a problem: the most frequent answer first."""

    key: str
    name: str
    n: int
    n_correct: int
    answers: tuple[AnswerGroup, ...]


@dataclass(frozen=True, kw_only=True)
class CoursePoint:
    """Correct samples of a problem at one checkpoint of the series."""

    key: str
    name: str
    n: int
    n_correct: int


@dataclass(frozen=True, kw_only=True)
class ViewedProblem:
    """A problem with its text, its course over the series, and what both checkpoints answer; ``task`` may be empty."""

    problem_id: str
    problem: str
    task: str
    prompt: str
    gold: str
    grader: str
    course: tuple[CoursePoint, ...]
    sides: tuple[ProblemSide, ProblemSide]


@dataclass(frozen=True, kw_only=True)
class TokenScores:
    """Log-probabilities and entropies in nats of a response's tokens under a checkpoint; None is minus infinity."""

    name: str
    logps: tuple[float | None, ...]
    entropies: tuple[float | None, ...]


@dataclass(frozen=True, kw_only=True)
class ViewedResponse:
    """A response in full: what stands before its answer, the answer as it was read, and what follows.

    Where no answer is found in the text, all of it is ``before``. ``pieces``: the text of every token; empty where
    ``why_no_pieces`` says why. ``scores`` are those of the two checkpoints that have any; ``why_no_scores`` if none.
    """

    before: str
    answer: str
    after: str
    scores: tuple[TokenScores, ...]
    why_no_scores: str
    pieces: tuple[str, ...]
    why_no_pieces: str
    token_ids: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class SearchPart:
    """Problems that a part of the search found, and where the next part begins; ``done`` of ``total`` rows are read."""

    problem_ids: tuple[str, ...]
    next: int | None
    done: int
    total: int
