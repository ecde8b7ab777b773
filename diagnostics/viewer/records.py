"""Records that ``oversharp view`` sends to its page as JSON. No I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

#: Filters of the problem list. "all" shows every problem.
Only = Literal["all", "lost", "gained", "fell", "rose", "sure", "lenient", "cut"]
ONLY: tuple[Only, ...] = get_args(Only)
#: Part of a trajectory in which a search text occurs. "text" includes the model's reasoning and messages of users.
Place = Literal["text", "call", "observation"]
PLACES: tuple[Place, ...] = get_args(Place)
#: Key of the base. The base's step is not used as key, because a checkpoint may have the same step.
BASE = "base"


def point_name(key: str) -> str:
    """Return the display name of a checkpoint key.

    >>> point_name("base"), point_name("20")
    ('base', 'step 20')
    """
    return key if key == BASE else f"step {key}"


@dataclass(frozen=True, kw_only=True)
class ViewedCheckpoint:
    """Checkpoint with graded samples. ``key`` identifies it in links: "base" or its step."""

    key: str
    name: str
    checkpoint: str


@dataclass(frozen=True, kw_only=True)
class ViewedSeries:
    """Series with its checkpoints, base first, and the sentence of its verdict (None without a verdict)."""

    name: str
    checkpoints: tuple[ViewedCheckpoint, ...]
    verdict: str | None


@dataclass(frozen=True, kw_only=True)
class ViewSelection:
    """Two checkpoints of a series by key, a filter of problems, and a search text."""

    series: str
    before: str
    after: str
    only: Only = "all"
    search: str = ""


@dataclass(frozen=True, kw_only=True)
class ViewStart:
    """Initial state of the page.

    ``bundle`` marks a static copy of this selection. ``note`` describes the limits of the copy.
    """

    store: str
    series: tuple[ViewedSeries, ...]
    selection: ViewSelection
    bundle: bool = False
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class ListedProblem:
    """Row of the problem list. Counts of samples are pairs (before, after).

    ``cut`` counts truncated samples and ``lenient`` leniently graded samples; None if unknown.
    """

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
    """Problems that both checkpoints have samples of, sorted by adjusted p value."""

    selection: ViewSelection
    names: tuple[str, str]
    problems: tuple[ListedProblem, ...]
    sentence: str
    notes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class ListedResponse:
    """Distinct response, sampled ``n`` times.

    ``hit``: it contains the search text, in a trajectory at ``places``. ``cut``: it was truncated, None if unknown.
    ``why`` is the reason why it was not graded, "" if it was. ``lenient`` is the reason to doubt an accepted response,
    "" if there is none.
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
    places: tuple[Place, ...] = ()


@dataclass(frozen=True, kw_only=True)
class AnswerGroup:
    """Answer with its responses, most frequent first. The answer None means unparsed.

    ``n`` counts its samples without greedy ones, and ``n_responses`` its distinct responses. ``responses`` may have
    fewer.
    """

    answer: str | None
    correct: bool
    n: int
    n_responses: int
    responses: tuple[ListedResponse, ...]


@dataclass(frozen=True, kw_only=True)
class ProblemSide:
    """Answers of a checkpoint to a problem, most frequent first."""

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
    """Problem with its prompt, its counts over the series, and the answers of both checkpoints."""

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
    """Log-probability and entropy of each token of a response under a checkpoint, in nats; None is −∞.

    ``entropies`` is empty if they are unknown, because a server scored the response.
    """

    name: str
    logps: tuple[float | None, ...]
    entropies: tuple[float | None, ...]


@dataclass(frozen=True, kw_only=True)
class ViewedCall:
    """Tool call. Calls with the same name and arguments have the same ``key``.

    ``fields`` are its arguments by name, empty if they are no JSON object. ``is_error`` is whether it failed, None if
    unknown. ``has_result`` is whether an observation answers it.
    """

    name: str
    arguments: str
    fields: tuple[tuple[str, str], ...]
    is_valid: bool
    is_error: bool | None
    has_result: bool
    key: str


@dataclass(frozen=True, kw_only=True)
class ViewedObservation:
    """Message of a tool or a user. ``call`` is the pair (turn, call) that it answers, counted from 1, if known."""

    role: str
    name: str
    text: str
    is_error: bool | None
    call: tuple[int, int] | None


@dataclass(frozen=True, kw_only=True)
class ViewedTurn:
    """Message of the model with the observations after it. ``number`` counts from 1.

    The message's text has three parts as in ``ViewedResponse``. ``n_tokens`` counts the tokens of the message.
    """

    number: int
    reasoning: str
    before: str
    answer: str
    after: str
    calls: tuple[ViewedCall, ...]
    observations: tuple[ViewedObservation, ...]
    n_tokens: int | None


@dataclass(frozen=True, kw_only=True)
class TurnHits:
    """Turns that contain the search text at one place: ``n`` turns, and the numbers of the first ones."""

    place: Place
    n: int
    turns: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class ViewedTrajectory:
    """First and last turns of a response, and the keys of the calls of each turn.

    ``n_invalid`` counts calls that could not be read and ``n_failed`` failed ones.
    """

    n_turns: int
    n_invalid: int
    n_failed: int
    call_keys: tuple[tuple[str, ...], ...]
    first: tuple[ViewedTurn, ...]
    last: tuple[ViewedTurn, ...]
    hits: tuple[TurnHits, ...]


@dataclass(frozen=True, kw_only=True)
class ViewedResponse:
    """Full text of a response in three parts: before its answer, the answer, and after it.

    If the answer does not occur in the text, all of it is ``before``. ``pieces`` has the text of every token, and
    ``scores`` the scores under the two checkpoints. If ``pieces`` or ``scores`` is empty, ``why_no_pieces`` or
    ``why_no_scores`` is the reason. A response of several turns has a ``trajectory``, and no text here.
    """

    before: str
    answer: str
    after: str
    scores: tuple[TokenScores, ...]
    why_no_scores: str
    pieces: tuple[str, ...]
    why_no_pieces: str
    token_ids: tuple[int, ...]
    trajectory: ViewedTrajectory | None = None


@dataclass(frozen=True, kw_only=True)
class SearchPart:
    """Problems that one part of a search found, and the row where the next part starts.

    ``done`` of ``total`` rows have been searched.
    """

    problem_ids: tuple[str, ...]
    next: int | None
    done: int
    total: int
