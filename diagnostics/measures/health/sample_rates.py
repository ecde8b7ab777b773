"""Measures of shares of samples: truncated, unparsed, ungraded, by answer style."""

from __future__ import annotations

from collections.abc import Callable

from oversharp.diagnostics.measures.contract import LAST, Measure, Plot
from oversharp.diagnostics.measures.declare import in_sql

_NO_STATE = "no graded samples, or another tool graded them without recording their states"
_NO_STYLE = (
    "no grade contains it: the verifier does not parse text, another tool graded the samples, or the grades are from "
    "an older version"
)
_NO_FINISH_REASON = "no graded sample has a finish reason"
_STYLES = ("boxed", "tagged", "hashes", "labelled", "bare", "prose", "none")


def _rate_of_samples(
    *,
    title: str,
    missing: str,
    rank: int = LAST,
    view: str = "graded_samples",
    y_label: str = "share of samples",
    by_scope: bool = False,
) -> Callable[[Callable[[], str]], Measure]:
    """Declare a measure of the section health: a share of the samples in ``view``."""
    return in_sql(
        needs=(view,),
        first_round=True,
        missing=missing,
        title=title,
        unit="share of samples",
        section="health",
        rank=rank,
        plot=Plot(x="step", group="scope" if by_scope else "none", y_label=y_label, y_range=(0.0, 1.0)),
    )


def _query(condition: str, *, view: str = "graded_samples", scopes: str = "('all', NULL)", counted: str = "*") -> str:
    """Return the SQL for the share of the samples ``g`` in ``view`` that satisfy ``condition``."""
    return f"""
WITH scopes AS (
    SELECT * FROM (VALUES {scopes}) AS t (scope, expected)
)
SELECT
    g.checkpoint_id,
    c.scope,
    NULL::INTEGER AS k,
    avg(({condition})::INTEGER) AS value,
    NULL::DOUBLE AS low,
    NULL::DOUBLE AS high,
    count({counted}) AS n
FROM {view} AS g
CROSS JOIN scopes AS c
WHERE g.series = $series AND NOT g.greedy AND g.in_first_round
GROUP BY g.checkpoint_id, g.step, c.scope
ORDER BY g.step, c.scope
"""


@_rate_of_samples(title="Truncated responses", missing=_NO_FINISH_REASON, rank=10, y_label="share of samples truncated")
def truncation_rate() -> str:
    """Truncation rate: the share of samples truncated at the token limit.

    Meaning: a truncated response rarely contains its answer. So a checkpoint whose responses became longer seems to
    have lost the ability to solve problems.
    Unit: share of samples. n counts samples. There is no interval, because the value describes exactly these samples.
    Limits: if the rate differs between checkpoints, their pass@k cannot be compared. Raise the token limit. For samples
    of another tool, n counts only the samples with a finish reason. The rate is unknown if no sample has one.
    Source: sample health. Finish reasons are those that the sampler reports.

    >>> import duckdb, pandas as pd
    >>> graded_samples = pd.DataFrame({"series": "run", "checkpoint_id": "base", "step": 0, "greedy": False,
    ...     "in_first_round": True,
    ...     "finish_reason": ["stop", "length", "stop", "stop"]})
    >>> duckdb.execute(truncation_rate.sql, {"series": "run"}).fetchall()
    [('base', 'all', None, 0.25, None, None, 4)]
    """
    return _query("g.finish_reason = 'length'", counted="g.finish_reason")


@_rate_of_samples(
    title="Responses without an answer", missing=_NO_STATE, rank=20, y_label="share of samples without an answer"
)
def parse_failure_rate() -> str:
    """Parse failure rate: the share of samples without a parsed final answer.

    Meaning: the grader found no answer that it could compare with the gold answer. Such a sample counts as not correct
    because of its format. Its content has no effect.
    Unit: share of samples. n counts samples. There is no interval, because the value describes exactly these samples.
    Limits: if training introduces a new answer format, the parse failures look like a loss of ability. Read a few such
    responses before you conclude that something was lost.
    Source: sample health, from the states of the grades.

    >>> import duckdb, pandas as pd
    >>> graded_samples = pd.DataFrame({"series": "run", "checkpoint_id": "base", "step": 0, "greedy": False,
    ...     "in_first_round": True,
    ...     "state": ["ok", "parse_fail", "ok", "timeout"]})
    >>> duckdb.execute(parse_failure_rate.sql, {"series": "run"}).fetchall()
    [('base', 'all', None, 0.25, None, None, 4)]
    """
    return _query("g.state = 'parse_fail'")


@_rate_of_samples(title="Responses without a single answer", missing=_NO_STATE, rank=30)
def ambiguous_rate() -> str:
    """Ambiguous rate: the share of samples without a single definite answer.

    Meaning: answers such as "not 42", "at least 42", "42 or 41" and "between 42 and 50" cannot be compared with the
    gold answer. Such a sample counts as not correct for every gold answer. The reason stored with the grade names the
    rule that applied.
    Unit: share of samples. n counts samples. There is no interval, because the value describes exactly these samples.
    Limits: the rules match words, so they may count a clear answer in unusual wording. Read a few such responses if the
    rate changes between checkpoints.
    Source: sample health, from the states of the grades.

    >>> import duckdb, pandas as pd
    >>> graded_samples = pd.DataFrame({"series": "run", "checkpoint_id": "base", "step": 0, "greedy": False,
    ...     "in_first_round": True,
    ...     "state": ["ok", "parse_fail", "ok", "ambiguous"]})
    >>> duckdb.execute(ambiguous_rate.sql, {"series": "run"}).fetchall()
    [('base', 'all', None, 0.25, None, None, 4)]
    """
    return _query("g.state = 'ambiguous'")


@_rate_of_samples(
    title="Ungraded responses", missing=_NO_STATE, rank=40, y_label="share of samples not graded", by_scope=True
)
def timeout_rate() -> str:
    """Timeout rate: the share of samples that could not be graded.

    Meaning: scope ``all`` is the share of samples whose grading timed out. Scope ``error`` is the share on which the
    verifier failed with an error. In all other measures both count as not correct, although they need not be wrong.
    Unit: share of samples. n counts samples. There is no interval, because the value describes exactly these samples.
    Limits: unless both shares are close to 0, pass@k is a lower bound. Raise the time limit or fix the verifier.
    Source: sample health, from the states of the grades.

    >>> import duckdb, pandas as pd
    >>> graded_samples = pd.DataFrame({"series": "run", "checkpoint_id": "base", "step": 0, "greedy": False,
    ...     "in_first_round": True,
    ...     "state": ["ok", "timeout", "timeout", "error"]})
    >>> [(row[1], row[3]) for row in duckdb.execute(timeout_rate.sql, {"series": "run"}).fetchall()]
    [('all', 0.5), ('error', 0.25)]
    """
    return _query("g.state = c.expected", scopes="('all', 'timeout'), ('error', 'error')")


@_rate_of_samples(title="How answers are stated", missing=_NO_STYLE, rank=50, by_scope=True)
def answer_style() -> str:
    r"""Answer style: the share of samples by the form of their answer, such as a box.

    Meaning: the scopes are the forms, and their shares sum to 1.
    - ``boxed``: \boxed{…}
    - ``tagged``: <answer>…</answer>
    - ``hashes``: a line that starts with ####
    - ``labelled``: "The answer is" and similar words
    - ``bare``: the response is only its answer
    - ``prose``: text without any of these marks
    - ``none``: a blank response, or one whose reasoning ends without an answer
    Unit: share of the samples whose style is known. n counts these samples. There is no interval, because the value
    describes exactly these samples.
    Limits: a change of style is not a loss. ``lenient_gap`` shows whether the verifier can parse the new style.
    Source: sample health, recorded during grading.

    >>> import duckdb, pandas as pd
    >>> graded_samples = pd.DataFrame({"series": "run", "checkpoint_id": "base", "step": 0, "greedy": False,
    ...     "in_first_round": True,
    ...     "answer_style": ["boxed", "boxed", "labelled", None]})
    >>> rows = duckdb.execute(answer_style.sql, {"series": "run"}).fetchall()
    >>> [(row[1], round(row[3], 2), row[6]) for row in rows if row[3]]
    [('boxed', 0.67, 3), ('labelled', 0.33, 3)]
    """
    scopes = ", ".join(f"('{style}', '{style}')" for style in _STYLES)
    return _query("g.answer_style = c.expected", scopes=scopes, counted="g.answer_style")


@_rate_of_samples(title="Answers that only a lenient reader accepts", missing=_NO_STYLE, rank=60)
def lenient_gap() -> str:
    """Lenient gap: the share of samples that only a deliberately lenient reader accepts.

    Meaning: the lenient reader accepts a response if its last number, expression or letter is the gold answer, in any
    wording. If the gap grows over training, answers have a style that the verifier does not parse. If pass@k falls with
    the verifier but not with the lenient reader, the answer format explains the fall.
    Unit: share of the samples that both readers parsed. n counts these samples. There is no interval, because the value
    describes exactly these samples.
    Limits: the lenient reader also accepts wrong responses that happen to end with the right number. So interpret only
    changes of the gap, not its level.
    Source: sample health, recorded during grading.

    >>> import duckdb, pandas as pd
    >>> graded_samples = pd.DataFrame({"series": "run", "checkpoint_id": "base", "step": 0, "greedy": False,
    ...     "in_first_round": True,
    ...     "correct": [True, False, False, False], "lenient": [True, True, False, None]})
    >>> [(row[1], round(row[3], 2), row[6]) for row in duckdb.execute(lenient_gap.sql, {"series": "run"}).fetchall()]
    [('all', 0.33, 3)]
    """
    return _query("CASE WHEN g.lenient IS NOT NULL THEN g.lenient AND NOT g.correct END", counted="g.lenient")


@_rate_of_samples(
    title="Responses with several different boxes",
    missing="no grade contains the number of boxes: the verifier does not use boxes, another tool graded the samples, "
    "or the grades are from an older version",
    rank=70,
)
def several_boxes_rate() -> str:
    """Several boxes rate: the share of samples with several boxes of different content.

    Meaning: as in other graders, only the last box counts. So a response could state several answers in turn and end
    with the right one. ``oversharp regrade STORE --verifier math_strict`` grades the same samples again and treats such
    responses as ambiguous.
    Unit: share of the samples whose boxes were counted. n counts these samples. There is no interval, because the value
    describes exactly these samples.
    Limits: contents are compared as text without spaces, so ``0.5`` and ``1/2`` count as different. A long solution may
    box intermediate results.
    Source: sample health, counted during grading.

    >>> import duckdb, pandas as pd
    >>> graded_samples = pd.DataFrame({"series": "run", "checkpoint_id": "base", "step": 0, "greedy": False,
    ...     "in_first_round": True,
    ...     "n_boxed": pd.array([1, 0, 2, None], dtype="Int64")})
    >>> [(row[3], row[6]) for row in duckdb.execute(several_boxes_rate.sql, {"series": "run"}).fetchall()]
    [(0.3333333333333333, 3)]
    """
    return _query("g.n_boxed > 1", counted="g.n_boxed")


@_rate_of_samples(
    title="Disagreement of two verifiers",
    missing="graded by one verifier; `oversharp regrade` grades the same samples by another, as a separate series",
    rank=80,
    view="regraded_samples",
    by_scope=True,
)
def verifier_disagreement() -> str:
    """Verifier disagreement: the share of samples that only one of two verifiers accepts.

    Meaning: ``only here`` is the share that only the verifier of this series accepts. ``only own`` is the share that
    only the problem's own verifier accepts. Scope ``all`` is their sum. If the rate changes between checkpoints, the
    format of answers has changed, and one of the verifiers mistakes that for a change of ability.
    Unit: share of the samples that both verifiers graded. n counts these samples. There is no interval, because the
    value describes exactly these samples.
    Limits: two verifiers that agree may both be wrong. Read samples of the view ``grade_disagreements``.
    Source: sample health, from the grades of two verifiers after ``oversharp regrade``.

    >>> import duckdb, pandas as pd
    >>> regraded_samples = pd.DataFrame({"series": "run", "checkpoint_id": "base", "step": 0, "greedy": False,
    ...     "in_first_round": True,
    ...     "correct": [True, True, False, False], "own_correct": [True, False, True, False]})
    >>> [(row[1], row[3]) for row in duckdb.execute(verifier_disagreement.sql, {"series": "run"}).fetchall()]
    [('all', 0.5), ('only here', 0.25), ('only own', 0.25)]
    """
    return _query(
        "g.correct <> g.own_correct AND coalesce(g.correct = c.expected, true)",
        view="regraded_samples",
        scopes="('all', NULL), ('only here', true), ('only own', false)",
    )


@_rate_of_samples(
    title="Responses truncated in a loop",
    missing=_NO_FINISH_REASON,
    y_label="share of samples truncated while repeating themselves",
)
def looped_rate() -> str:
    """Looped rate: the share of samples truncated while they repeated one passage.

    Meaning: degenerate repetition. At least the last 60 characters of the response are one passage of at most 200
    characters, repeated at least three times. A higher token limit does not help such a response. It may help the other
    samples of ``truncation_rate``.
    Unit: share of the samples with a finish reason. n counts these samples. There is no interval, because the value
    describes exactly these samples.
    Limits: loops of longer passages, loops that change a number in each round, and loops that stopped are not detected.
    Source: sample health; greedy failures of [C] (The Reasoning Boundary Paradox), tables 6 and 7.

    >>> import duckdb, pandas as pd
    >>> graded_samples = pd.DataFrame({"series": "run", "checkpoint_id": "base", "step": 0, "greedy": False,
    ...     "in_first_round": True,
    ...     "looped": pd.array([False, True, False, None], dtype="boolean")})
    >>> [(row[3], row[6]) for row in duckdb.execute(looped_rate.sql, {"series": "run"}).fetchall()]
    [(0.3333333333333333, 3)]
    """
    return _query("g.looped", counted="g.looped")


@_rate_of_samples(title="Responses that retract something", missing="no graded samples", by_scope=True)
def self_correction() -> str:
    """Self-correction: the share of samples that retract something ("wait, …").

    Meaning: scope ``all`` is the share of samples with a retraction. ``correct with`` is the accuracy of these samples,
    ``correct without`` the accuracy of all others. Training that rewards whole responses may remove the habit, or may
    reward a wrong start together with its correction. If the share rises while ``correct with`` falls, the corrections
    do not help.
    Unit: share of the first 32 samples of each problem. n counts the samples of the scope. There is no interval,
    because the value describes exactly these samples.
    Limits: only English words are detected. A correction without such words is missed, and a mere "wait" is counted.
    Harder problems may have more corrections and fewer correct samples, so compare the changes of the two scopes, not
    their levels.
    Source: [B] (the two-stage dynamic view), case study of section 4.3; [C] (The Reasoning Boundary Paradox), tables 6
    and 7.

    >>> import duckdb, pandas as pd
    >>> graded_samples = pd.DataFrame({"series": "run", "checkpoint_id": "base", "step": 0, "greedy": False,
    ...     "in_first_round": True,
    ...     "reconsiders": [True, True, False, False], "correct": [True, False, True, True]})
    >>> [(row[1], row[3], row[6]) for row in duckdb.execute(self_correction.sql, {"series": "run"}).fetchall()]
    [('all', 0.5, 4), ('correct with', 0.5, 2), ('correct without', 1.0, 2)]
    """
    return _query(
        "CASE WHEN c.expected IS NULL THEN g.reconsiders WHEN g.reconsiders = c.expected THEN g.correct END",
        scopes="('all', NULL), ('correct with', true), ('correct without', false)",
        counted="CASE WHEN c.expected IS NULL THEN g.reconsiders WHEN g.reconsiders = c.expected THEN true END",
    )
