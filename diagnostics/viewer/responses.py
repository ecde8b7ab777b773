"""One problem at two checkpoints: answers with their counts, and responses in full with the scores of their tokens."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from oversharp.diagnostics.records.errors import ConfigError
from oversharp.diagnostics.records.types import NO_ANSWER
from oversharp.diagnostics.store import Store
from oversharp.diagnostics.verifiers.names import grader_name
from oversharp.diagnostics.viewer.answers import answer_span
from oversharp.diagnostics.viewer.records import (
    AnswerGroup,
    CoursePoint,
    ListedResponse,
    ProblemSide,
    TokenScores,
    ViewedProblem,
    ViewedResponse,
    ViewSelection,
    point_name,
)
from oversharp.diagnostics.viewer.tokens import token_pieces

#: Different responses of an answer that are listed.
MOST_RESPONSES = 50
_PREVIEW_CHARACTERS = 160
# Samples of another tool that name no task stand under the name of a series, which is none.
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
# Of the tables, and not of the views: these would join all samples before they leave out those of other problems.
_SAID = """
WITH own AS (
    SELECT
        response_id, sample_index, greedy, n_tokens, finish_reason, left(text, $cap) AS preview,
        length($search) > 0 AND contains(lower(text), lower($search)) AS hit
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
said AS (
    SELECT
        g.answer, g.correct, o.response_id,
        count(*) FILTER (NOT o.greedy) AS n,
        min(o.sample_index) AS sample_index,
        any_value(o.n_tokens) AS n_tokens,
        bool_or(o.finish_reason = 'length') AS cut,
        bool_or(o.greedy) AS greedy,
        bool_or(o.hit) AS hit,
        -- another tool does not tell
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
FROM said
WINDOW of_answer AS (PARTITION BY answer, correct)
QUALIFY row_number() OVER (PARTITION BY answer, correct ORDER BY hit DESC, n DESC, sample_index) <= $most
ORDER BY n_of_answer DESC, correct DESC, answer NULLS LAST, hit DESC, n DESC, sample_index
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
class KnownProblem:
    """What is known of a problem of a series before any response is read: its row, and its counts by key."""

    row: Mapping[str, Any]
    course: Mapping[str, Mapping[str, Any]]


def known_problem(store: Store, series: str, problem_id: str) -> KnownProblem:
    """A problem of ``series``. Raises ``ConfigError`` where the series has no samples of it."""
    asked = {"series": series, "problem": problem_id}
    rows = store.frame(_PROBLEM, **asked).to_dict("records")
    course = store.frame(_COURSE, **asked).to_dict("records")
    if not rows or not course:
        raise ConfigError(f"{series}: there are no samples of problem {problem_id!r}")
    return KnownProblem(row=rows[0], course={str(one["key"]): one for one in course})


def viewed_problem(store: Store, known: KnownProblem, selection: ViewSelection) -> ViewedProblem:
    """One problem with the answers of both checkpoints. Raises ``ConfigError`` where one has no samples of it."""
    row = known.row
    first, second = (_side(store, selection, _point(known, key), row) for key in (selection.before, selection.after))
    return ViewedProblem(
        problem_id=str(row["problem_id"]),
        problem=str(row["problem"]),
        task=str(row["task"]),
        prompt=str(row["prompt"]),
        gold=str(row["gold"]),
        grader=grader_name(str(row["verifier"])),
        course=tuple(
            CoursePoint(key=key, name=point_name(key), n=int(one["n"]), n_correct=int(one["n_correct"]))
            for key, one in known.course.items()
        ),
        sides=(first, second),
    )


def _point(known: KnownProblem, key: str) -> Mapping[str, Any]:
    if key not in known.course:
        raise ConfigError(f"there are no samples of problem {known.row['problem']!r} at {key!r}")
    return known.course[key]


def _side(store: Store, selection: ViewSelection, own: Mapping[str, Any], row: Mapping[str, Any]) -> ProblemSide:
    said = store.frame(
        _SAID,
        problem=row["problem_id"],
        checkpoint=own["checkpoint_id"],
        settings=row["settings_id"],
        verifier=row["verifier"],
        own_verifier=row["own_verifier"],
        n_planned=int(own["n_planned"]),
        search=selection.search,
        cap=_PREVIEW_CHARACTERS,
        most=MOST_RESPONSES,
    )
    groups: dict[tuple[str | None, bool], list[dict[str, Any]]] = {}
    for one in said.to_dict("records"):
        answer = None if pd.isna(one["answer"]) or one["answer"] == NO_ANSWER else str(one["answer"])
        groups.setdefault((answer, bool(one["correct"])), []).append(one)
    return ProblemSide(
        key=str(own["key"]),
        name=point_name(str(own["key"])),
        n=int(own["n"]),
        n_correct=int(own["n_correct"]),
        answers=tuple(_group(answer, correct, rows) for (answer, correct), rows in groups.items()),
    )


def _group(answer: str | None, correct: bool, rows: Sequence[dict[str, Any]]) -> AnswerGroup:
    # None and "NA" are one group of two in the database
    counts = {one["answer"]: (int(one["n_of_answer"]), int(one["n_responses"])) for one in rows}
    return AnswerGroup(
        answer=answer,
        correct=correct,
        n=sum(n for n, _ in counts.values()),
        n_responses=sum(n for _, n in counts.values()),
        responses=tuple(
            ListedResponse(
                response_id=str(one["response_id"]),
                n=int(one["n"]),
                sample_index=int(one["sample_index"]),
                n_tokens=None if pd.isna(one["n_tokens"]) else int(one["n_tokens"]),
                cut=None if pd.isna(one["cut"]) else bool(one["cut"]),
                greedy=bool(one["greedy"]),
                hit=bool(one["hit"]),
                why=str(one["why"]),
                lenient=_lenient(one) if correct else "",
                preview=str(one["preview"]),
            )
            for one in rows
        ),
    )


def _lenient(row: dict[str, Any]) -> str:
    """Why a grade is doubtful though it was accepted."""
    if row["refused"]:
        return "the problem's own verifier refuses it"
    if not pd.isna(row["n_boxed"]) and row["n_boxed"] > 1:
        return f"accepted with {int(row['n_boxed'])} different boxes"
    return ""


def viewed_responses(
    store: Store, known: KnownProblem, selection: ViewSelection, key: str, response_ids: Sequence[str]
) -> dict[str, ViewedResponse]:
    """Responses of the checkpoint ``key`` in full, those of ``response_ids`` that it said. Raises ``ConfigError``."""
    row, own = known.row, _point(known, key)
    asked = {"problem": row["problem_id"], "responses": list(response_ids), "settings": row["settings_id"]}
    found = store.frame(_TEXTS, checkpoint=own["checkpoint_id"], verifier=row["verifier"], **asked)
    shown = {str(_point(known, one)["checkpoint_id"]): one for one in (selection.before, selection.after)}
    scores = _scores(store, asked, shown)
    path = Path(str(own["path"]))
    return {
        str(one["response_id"]): _response(one, str(row["verifier"]), scores.get(str(one["response_id"]), ()), path)
        for one in found.to_dict("records")
    }


def _response(row: dict[str, Any], verifier: str, scores: tuple[TokenScores, ...], path: Path) -> ViewedResponse:
    text = str(row["text"])
    span = answer_span(text, str(row["answer"]), verifier) or (len(text), len(text))
    known = scores and row["token_ids"] is not None
    token_ids = tuple(int(one) for one in row["token_ids"]) if known else ()
    pieces, why = token_pieces(token_ids, path) if token_ids else ((), "")
    return ViewedResponse(
        before=text[: span[0]],
        answer=text[slice(*span)],
        after=text[span[1] :],
        scores=scores,
        why_no_scores="" if scores else _NOT_SCORED,
        pieces=pieces,
        why_no_pieces=why,
        token_ids=token_ids,
    )


def _scores(store: Store, asked: dict[str, Any], shown: dict[str, str]) -> dict[str, tuple[TokenScores, ...]]:
    """Response → its scores under the checkpoints that are shown, in their order."""
    if not store.has_tokens():
        return {}
    rows = store.frame(_SCORES, **asked, checkpoints=list(shown)).drop_duplicates(["response_id", "checkpoint_id"])
    held = {(str(one["response_id"]), str(one["checkpoint_id"])): one for one in rows.to_dict("records")}
    return {
        response_id: tuple(
            TokenScores(
                name=point_name(key),
                logps=_rounded(held[response_id, checkpoint_id]["token_logps"]),
                entropies=_rounded(held[response_id, checkpoint_id]["token_entropies"]),
            )
            for checkpoint_id, key in shown.items()
            if (response_id, checkpoint_id) in held
        )
        for response_id, _ in held
    }


def _rounded(values: Sequence[float]) -> tuple[float | None, ...]:
    return tuple(round(float(one), 3) if math.isfinite(one) else None for one in values)
