"""Load one problem at two checkpoints: answers with counts, and full responses with token scores."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import pandas as pd

from oversharp.diagnostics.records.errors import ConfigError
from oversharp.diagnostics.records.types import NO_ANSWER
from oversharp.diagnostics.series.tokenizers import tokenizer_folders
from oversharp.diagnostics.store import Store
from oversharp.diagnostics.verifiers.names import grader_name
from oversharp.diagnostics.viewer.answers import split_at_answer
from oversharp.diagnostics.viewer.records import (
    AnswerGroup,
    CoursePoint,
    ListedResponse,
    Place,
    ProblemSide,
    TokenScores,
    ViewedProblem,
    ViewedResponse,
    ViewedTurn,
    ViewSelection,
    point_name,
)
from oversharp.diagnostics.viewer.trajectories import MORE, LoadedTrajectory, find_places, load_trajectories

_TOKENIZER_FILE = "tokenizer.json"
#: Largest number of distinct responses that are listed per answer.
MOST_RESPONSES = 50
_PREVIEW_CHARACTERS = 160
# The import stores samples without a task under the name of their series. Show them with an empty task.
_PROBLEM = """
WITH of_tools AS (SELECT c.series FROM series_checkpoints AS c JOIN checkpoints AS k USING (checkpoint_id)
                  WHERE k.kind = 'recorded')
SELECT
    p.problem_id, coalesce(p.source_id, p.problem_id) AS problem, p.prompt, p.gold,
    CASE WHEN p.task NOT IN (FROM of_tools) THEN p.task ELSE '' END AS task,
    coalesce(a.verifier, p.verifier) AS verifier, p.verifier AS own_verifier, a.settings_id
FROM problems AS p, current_audits AS a
WHERE p.problem_id = $problem AND a.series = $series
"""
_COURSE = """
SELECT
    CASE WHEN n.is_base THEN 'base' ELSE n.step::VARCHAR END AS key,
    n.checkpoint_id, n.n, n.n_correct, n.n_planned, c.path
FROM counted_samples AS n
JOIN series_checkpoints AS c USING (series, step, checkpoint_id)
WHERE n.series = $series AND n.problem_id = $problem
ORDER BY n.is_base DESC, n.step
"""
# These queries use tables, not views, because the views join all samples before they filter by problem.
_RESPONSES = """
WITH own AS (
    SELECT
        response_id, sample_index, greedy, n_tokens, finish_reason, left(text, $cap) AS preview,
        length($search) > 0 AND (contains(lower(text), lower($search)) OR list_contains($observed, response_id)) AS hit
    FROM samples
    WHERE problem_id = $problem AND checkpoint_id = $checkpoint AND settings_id = $settings
      AND sample_index < $n_planned
),
graded AS (
    SELECT response_id, coalesce(mode, answer) AS answer, correct, state, reason, n_boxed
    FROM grades
    WHERE problem_id = $problem AND verifier = $verifier
),
refused AS (
    SELECT response_id
    FROM grades
    WHERE problem_id = $problem AND verifier = $own_verifier AND $own_verifier <> $verifier AND NOT correct
),
responses AS (
    SELECT
        g.answer, g.correct, o.response_id,
        count(*) FILTER (NOT o.greedy) AS n,
        min(o.sample_index) AS sample_index,
        any_value(o.n_tokens) AS n_tokens,
        bool_or(o.finish_reason = 'length') AS cut,
        bool_or(o.greedy) AS greedy,
        bool_or(o.hit) AS hit,
        -- other tools record no reason
        any_value(
            CASE WHEN g.state <> 'ok' AND $verifier NOT LIKE 'recorded:%' THEN g.state || ': ' || g.reason ELSE '' END
        ) AS why,
        any_value(g.n_boxed) AS n_boxed,
        o.response_id IN (FROM refused) AS refused,
        any_value(o.preview) AS preview
    FROM own AS o
    JOIN graded AS g USING (response_id)
    GROUP BY ALL
)
SELECT *, sum(n) OVER of_answer AS n_of_answer, count(*) OVER of_answer AS n_responses
FROM responses
WINDOW of_answer AS (PARTITION BY answer, correct)
QUALIFY row_number() OVER (PARTITION BY answer, correct ORDER BY hit DESC, n DESC, sample_index) <= $most
ORDER BY n_of_answer DESC, correct DESC, answer NULLS LAST, hit DESC, n DESC, sample_index
"""
_OWN_RESPONSES = """
SELECT DISTINCT response_id
FROM samples
WHERE problem_id = $problem AND checkpoint_id = $checkpoint AND settings_id = $settings AND sample_index < $n_planned
"""
_TEXTS = """
SELECT s.response_id, any_value(s.text) AS text, any_value(s.token_ids) AS token_ids, any_value(g.answer) AS answer
FROM samples AS s
JOIN grades AS g
    ON g.problem_id = s.problem_id
    AND g.response_id = s.response_id
    AND g.verifier = $verifier
WHERE s.problem_id = $problem AND g.problem_id = $problem AND s.checkpoint_id = $checkpoint
  AND s.settings_id = $settings AND list_contains($responses, s.response_id)
GROUP BY s.response_id
"""
_SCORES = """
SELECT response_id, checkpoint_id, token_logps, token_entropies
FROM response_tokens
WHERE problem_id = $problem AND settings_id = $settings AND list_contains($checkpoints, checkpoint_id)
  AND list_contains($responses, response_id)
"""
_NOT_SCORED = "its tokens were not scored at these checkpoints"


@dataclass(frozen=True, kw_only=True)
class LoadedProblem:
    """Database row of a problem, and its counts at each checkpoint key."""

    row: Mapping[str, Any]
    course: Mapping[str, Mapping[str, Any]]


def load_problem(store: Store, series: str, problem_id: str) -> LoadedProblem:
    """Return a problem of ``series``.

    Raises ``ConfigError`` if the series has no samples of it.
    """
    keys = {"series": series, "problem": problem_id}
    rows = store.frame(_PROBLEM, **keys).to_dict("records")
    course = store.frame(_COURSE, **keys).to_dict("records")
    if not rows or not course:
        raise ConfigError(f"{series}: no samples of problem {problem_id!r}")
    return LoadedProblem(row=rows[0], course={str(counts["key"]): counts for counts in course})


def view_problem(store: Store, known: LoadedProblem, selection: ViewSelection) -> ViewedProblem:
    """Return a problem with the answers of both checkpoints.

    Raises ``ConfigError`` if a checkpoint has no samples of it.
    """
    row = known.row
    first, second = (
        _checkpoint_answers(store, selection, _checkpoint_row(known, key), row)
        for key in (selection.before, selection.after)
    )
    return ViewedProblem(
        problem_id=str(row["problem_id"]),
        problem=str(row["problem"]),
        task=str(row["task"]),
        prompt=str(row["prompt"]),
        gold=str(row["gold"]),
        grader=grader_name(str(row["verifier"])),
        course=tuple(
            CoursePoint(key=key, name=point_name(key), n=int(counts["n"]), n_correct=int(counts["n_correct"]))
            for key, counts in known.course.items()
        ),
        sides=(first, second),
    )


def _checkpoint_row(known: LoadedProblem, key: str) -> Mapping[str, Any]:
    if key not in known.course:
        raise ConfigError(f"no samples of problem {known.row['problem']!r} at {key!r}")
    return known.course[key]


def _checkpoint_answers(
    store: Store, selection: ViewSelection, own: Mapping[str, Any], row: Mapping[str, Any]
) -> ProblemSide:
    samples = {
        "problem": row["problem_id"],
        "checkpoint": own["checkpoint_id"],
        "settings": row["settings_id"],
        "n_planned": int(own["n_planned"]),
    }
    places: Mapping[str, tuple[Place, ...]] = {}
    if selection.search:
        response_ids = store.frame(_OWN_RESPONSES, **samples)["response_id"]
        places = find_places(store, list(response_ids), selection.search)
    responses = store.frame(
        _RESPONSES,
        **samples,
        verifier=row["verifier"],
        own_verifier=row["own_verifier"],
        search=selection.search,
        observed=[response_id for response_id, where in places.items() if where],
        cap=_PREVIEW_CHARACTERS,
        most=MOST_RESPONSES,
    )
    groups: dict[tuple[str | None, bool], list[dict[str, Any]]] = {}
    for response in responses.to_dict("records"):
        answer = None if pd.isna(response["answer"]) or response["answer"] == NO_ANSWER else str(response["answer"])
        groups.setdefault((answer, bool(response["correct"])), []).append(response)
    return ProblemSide(
        key=str(own["key"]),
        name=point_name(str(own["key"])),
        n=int(own["n"]),
        n_correct=int(own["n_correct"]),
        answers=tuple(_answer_group(answer, correct, rows, places) for (answer, correct), rows in groups.items()),
    )


def _answer_group(
    answer: str | None, correct: bool, rows: Sequence[dict[str, Any]], places: Mapping[str, tuple[Place, ...]]
) -> AnswerGroup:
    # the answers None and "NA" are two groups in the database, but one group here
    counts = {row["answer"]: (int(row["n_of_answer"]), int(row["n_responses"])) for row in rows}
    return AnswerGroup(
        answer=answer,
        correct=correct,
        n=sum(n for n, _ in counts.values()),
        n_responses=sum(n for _, n in counts.values()),
        responses=tuple(
            ListedResponse(
                response_id=str(row["response_id"]),
                n=int(row["n"]),
                sample_index=int(row["sample_index"]),
                n_tokens=None if pd.isna(row["n_tokens"]) else int(row["n_tokens"]),
                cut=None if pd.isna(row["cut"]) else bool(row["cut"]),
                greedy=bool(row["greedy"]),
                hit=bool(row["hit"]),
                why=str(row["why"]),
                lenient=_lenient_reason(row) if correct else "",
                preview=str(row["preview"]),
                places=places.get(str(row["response_id"]), ()),
            )
            for row in rows
        ),
    )


def _lenient_reason(row: dict[str, Any]) -> str:
    """Return the reason to doubt an accepted grade; "" if there is none."""
    if row["refused"]:
        return "the problem's own verifier rejects it"
    if not pd.isna(row["n_boxed"]) and row["n_boxed"] > 1:
        return f"accepted with {int(row['n_boxed'])} different boxes"
    return ""


def view_responses(
    store: Store, known: LoadedProblem, selection: ViewSelection, key: str, response_ids: Sequence[str]
) -> dict[str, ViewedResponse]:
    """Return the full responses among ``response_ids`` that the checkpoint ``key`` generated.

    Raises ``ConfigError`` if the checkpoint has no samples of the problem.
    """
    row, own = known.row, _checkpoint_row(known, key)
    texts = _texts(store, known, key, response_ids)
    trajectories = load_trajectories(store, list(texts))
    shown = {
        str(_checkpoint_row(known, shown_key)["checkpoint_id"]): shown_key
        for shown_key in (selection.before, selection.after)
    }
    keys = {"problem": row["problem_id"], "responses": list(response_ids), "settings": row["settings_id"]}
    scores = _token_scores(store, keys, shown)
    path, verifier = Path(str(own["path"])), str(row["verifier"])
    viewed: dict[str, ViewedResponse] = {}
    for response_id, text in texts.items():
        trajectory, turns = trajectories.get(response_id), None
        if trajectory is not None:
            turns = trajectory.view(selection.search, _answer_parts(trajectory, str(text["answer"]), verifier))
            text["text"] = ""
        response = _full_response(text, verifier, scores.get(response_id, ()), path)
        viewed[response_id] = replace(response, trajectory=turns)
    return viewed


def view_turns(
    store: Store, known: LoadedProblem, key: str, response_id: str, start: int, most: int | None = MORE
) -> tuple[ViewedTurn, ...]:
    """Return a part of the turns of a response, from number ``start`` on; all of them if ``most`` is None.

    Raises ``ConfigError`` if the checkpoint ``key`` did not generate the response, or it has no such turn.
    """
    texts = _texts(store, known, key, [response_id])
    trajectory = load_trajectories(store, list(texts)).get(response_id)
    if trajectory is None or not 1 <= start <= trajectory.n_turns:
        raise ConfigError(f"turn {start}: {key} has no such turn of response {response_id!r}; reload the page")
    parts = _answer_parts(trajectory, str(texts[response_id]["answer"]), str(known.row["verifier"]))
    if most is None:
        return trajectory.turns(start, trajectory.n_turns, parts, limit=None)
    return trajectory.turns(start, most, parts)


def _texts(store: Store, known: LoadedProblem, key: str, response_ids: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return response id → row, for those that the checkpoint ``key`` generated."""
    row, own = known.row, _checkpoint_row(known, key)
    texts = store.frame(
        _TEXTS,
        problem=row["problem_id"],
        responses=list(response_ids),
        settings=row["settings_id"],
        checkpoint=own["checkpoint_id"],
        verifier=row["verifier"],
    )
    return {str(text["response_id"]): text for text in texts.to_dict("records")}


def _answer_parts(trajectory: LoadedTrajectory, answer: str, verifier: str) -> dict[int, tuple[str, str, str]]:
    """Return number → parts of the turn that states the answer: the last one with a text."""
    number, text = trajectory.last_text()
    return {number: split_at_answer(text, answer, verifier)}


def _full_response(row: dict[str, Any], verifier: str, scores: tuple[TokenScores, ...], path: Path) -> ViewedResponse:
    before, answer, after = split_at_answer(str(row["text"]), str(row["answer"]), verifier)
    known = scores and row["token_ids"] is not None
    token_ids = tuple(int(token_id) for token_id in row["token_ids"]) if known else ()
    pieces, why = token_pieces(token_ids, path) if token_ids else ((), "")
    return ViewedResponse(
        before=before,
        answer=answer,
        after=after,
        scores=scores,
        why_no_scores="" if scores else _NOT_SCORED,
        pieces=pieces,
        why_no_pieces=why,
        token_ids=token_ids,
    )


def _token_scores(store: Store, keys: dict[str, Any], shown: dict[str, str]) -> dict[str, tuple[TokenScores, ...]]:
    """Return response id → scores under the displayed checkpoints, in their order."""
    if not store.has_tokens():
        return {}
    rows = store.frame(_SCORES, **keys, checkpoints=list(shown)).drop_duplicates(["response_id", "checkpoint_id"])
    by_pair = {(str(row["response_id"]), str(row["checkpoint_id"])): row for row in rows.to_dict("records")}
    return {
        response_id: tuple(
            TokenScores(
                name=point_name(key),
                logps=_round_scores(by_pair[response_id, checkpoint_id]["token_logps"]),
                entropies=_round_scores(by_pair[response_id, checkpoint_id]["token_entropies"]),
            )
            for checkpoint_id, key in shown.items()
            if (response_id, checkpoint_id) in by_pair
        )
        for response_id, _ in by_pair
    }


def _round_scores(values: Sequence[float] | None) -> tuple[float | None, ...]:
    """Return rounded numbers, None for one that is not finite; empty if all are unknown."""
    if values is None:
        return ()
    return tuple(round(float(value), 3) if math.isfinite(value) else None for value in values)


def token_pieces(token_ids: Sequence[int], checkpoint_path: Path) -> tuple[tuple[str, ...], str]:
    """Return the text of each token and "", or no texts and the reason. transformers is not imported.

    A character that spans several tokens belongs to the last of them. Special tokens are shown by name. The reason
    contains no path, because a static copy may include the reason.
    """
    candidates = (folder / _TOKENIZER_FILE for folder in tokenizer_folders(checkpoint_path, None))
    path = next((candidate for candidate in candidates if candidate.is_file()), None)
    if path is None:
        return (), f"token texts are unknown: {checkpoint_path.name} has no {_TOKENIZER_FILE}"
    try:
        return _decode_tokens(_load_tokenizer(path, path.stat().st_mtime_ns), token_ids), ""
    # the tokenizers library raises plain Exception for an invalid file
    except Exception as error:  # noqa: BLE001
        why = f"{_TOKENIZER_FILE} of {checkpoint_path.name} cannot be loaded ({type(error).__name__})"
        return (), f"token texts are unknown: {why}"


def _decode_tokens(tokenizer: Any, token_ids: Sequence[int]) -> tuple[str, ...]:
    from tokenizers.decoders import DecodeStream

    stream = DecodeStream(skip_special_tokens=False)
    return tuple(stream.step(tokenizer, int(token_id)) or "" for token_id in token_ids)


@lru_cache(maxsize=4)
def _load_tokenizer(path: Path, _changed: int) -> Any:
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(path))
