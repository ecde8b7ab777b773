"""Rates of samples: truncated, unparsed, ungraded, by style, graded differently."""

from __future__ import annotations

from collections.abc import Callable

from oversharp.diagnostics.measures.contract import LAST, Measure, Plot
from oversharp.diagnostics.measures.declare import in_sql

_NO_STATE = "no graded samples, or another tool graded them without recording their states"
_NO_STYLE = "no grade records it: the verifier parses no text, another tool graded, or the grades are old"
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
    """Declare a share of the samples of ``view`` as a measure of the section health."""
    return in_sql(
        needs=(view,),
        missing=missing,
        title=title,
        unit="share of samples",
        section="health",
        rank=rank,
        plot=Plot(x="step", group="scope" if by_scope else "none", y_label=y_label, y_range=(0.0, 1.0)),
    )


def _query(condition: str, *, view: str = "graded_samples", scopes: str = "('all', NULL)", counted: str = "*") -> str:
    """Return the query for the share of samples g of ``view`` with ``condition``."""
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
WHERE g.series = $series AND NOT g.greedy
GROUP BY g.checkpoint_id, g.step, c.scope
ORDER BY g.step, c.scope
"""


@_rate_of_samples(title="Truncated responses", missing=_NO_FINISH_REASON, rank=10, y_label="share of samples truncated")
def truncation_rate() -> str:
    """Truncation rate: the share of samples truncated at the token limit.

    Meaning: a truncated response rarely contains its answer. A checkpoint with longer responses then seems to have lost
    modes.
    Unit: share of samples; n counts samples. No interval: it describes these samples.
    Limits: a rate that differs between checkpoints makes their pass@k incomparable: raise the token limit. For samples
    of another tool, n counts those with a finish reason; without any, the rate is unknown.
    Source: sample health; finish reasons as the sampler reports them.

    >>> import duckdb, pandas as pd
    >>> graded_samples = pd.DataFrame({"series": "run", "checkpoint_id": "base", "step": 0, "greedy": False,
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

    Meaning: the grader had no answer to compare. Such a sample is not correct because of its form, not its content.
    Unit: share of samples; n counts samples. No interval: it describes these samples.
    Limits: a new answer format under training looks like lost modes: check a few such responses before concluding a
    loss.
    Source: sample health; states of the grades.

    >>> import duckdb, pandas as pd
    >>> graded_samples = pd.DataFrame({"series": "run", "checkpoint_id": "base", "step": 0, "greedy": False,
    ...     "state": ["ok", "parse_fail", "ok", "timeout"]})
    >>> duckdb.execute(parse_failure_rate.sql, {"series": "run"}).fetchall()
    [('base', 'all', None, 0.25, None, None, 4)]
    """
    return _query("g.state = 'parse_fail'")


@_rate_of_samples(title="Responses without a single answer", missing=_NO_STATE, rank=30)
def ambiguous_rate() -> str:
    """Ambiguous rate: the share of samples without a single definite answer.

    Meaning: "not 42", "at least 42", "42 or 41", "between 42 and 50" cannot be compared with the gold answer. Such a
    sample is not correct for any gold answer. The reason of the grade names the rule.
    Unit: share of samples; n counts samples. No interval: it describes these samples.
    Limits: these are rules over words, and may count a clear answer in unusual words. Check a few such responses if the
    rate changes from checkpoint to checkpoint.
    Source: sample health; states of the grades.

    >>> import duckdb, pandas as pd
    >>> graded_samples = pd.DataFrame({"series": "run", "checkpoint_id": "base", "step": 0, "greedy": False,
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

    Meaning: scope ``all`` counts grades that timed out, ``error`` grades on which the verifier failed. Both count as
    not correct in every other measure, without being wrong.
    Unit: share of samples; n counts samples. No interval: it describes these samples.
    Limits: more than a trace of either makes pass@k a lower bound: raise the time limit or fix the verifier.
    Source: sample health; states of the grades.

    >>> import duckdb, pandas as pd
    >>> graded_samples = pd.DataFrame({"series": "run", "checkpoint_id": "base", "step": 0, "greedy": False,
    ...     "state": ["ok", "timeout", "timeout", "error"]})
    >>> [(row[1], row[3]) for row in duckdb.execute(timeout_rate.sql, {"series": "run"}).fetchall()]
    [('all', 0.5), ('error', 0.25)]
    """
    return _query("g.state = c.expected", scopes="('all', 'timeout'), ('error', 'error')")


@_rate_of_samples(title="How answers are stated", missing=_NO_STYLE, rank=50, by_scope=True)
def answer_style() -> str:
    r"""Answer style: the share of samples by the form of their answer, such as a box.

    Meaning: scope ``boxed`` is \boxed{…}, ``tagged`` <answer>…</answer>, ``hashes`` a line that starts with ####,
    ``labelled`` "The answer is" and similar, ``bare`` a response that is only its answer, ``prose`` a response without
    any mark, ``none`` a blank response, or one whose reasoning ends without an answer. The scopes sum to 1.
    Unit: share of the samples whose style is known; n counts them. No interval: it describes these samples.
    Limits: a change of style is no loss. ``lenient_gap`` shows whether the verifier parses the new style.
    Source: sample health; recorded while grading.

    >>> import duckdb, pandas as pd
    >>> graded_samples = pd.DataFrame({"series": "run", "checkpoint_id": "base", "step": 0, "greedy": False,
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

    Meaning: the lenient reader accepts a response whose last number, expression or letter is the gold answer, in any
    wording. If the gap grows over training, answers have a style that the verifier does not parse. A fall of pass@k
    that the lenient reader does not show is then explained by the format.
    Unit: share of the samples that both readers parsed; n counts them. No interval: it describes these samples.
    Limits: the lenient reader accepts wrong responses that end on the right number; the level of the gap has no
    meaning.
    Source: sample health; recorded while grading.

    >>> import duckdb, pandas as pd
    >>> graded_samples = pd.DataFrame({"series": "run", "checkpoint_id": "base", "step": 0, "greedy": False,
    ...     "correct": [True, False, False, False], "lenient": [True, True, False, None]})
    >>> [(row[1], round(row[3], 2), row[6]) for row in duckdb.execute(lenient_gap.sql, {"series": "run"}).fetchall()]
    [('all', 0.33, 3)]
    """
    return _query("CASE WHEN g.lenient IS NOT NULL THEN g.lenient AND NOT g.correct END", counted="g.lenient")


@_rate_of_samples(
    title="Responses with several different boxes",
    missing="no grade counts boxes: the verifier does not use them, another tool graded, or the grades are old",
    rank=70,
)
def several_boxes_rate() -> str:
    """Several boxes rate: the share of samples with different contents in several boxes.

    Meaning: the last of several boxes counts, as in other graders, so a response may try several answers in turn.
    ``oversharp regrade STORE --verifier math_strict`` grades such responses of the same samples as ambiguous.
    Unit: share of the samples whose boxes were counted; n counts them. No interval: it describes these samples.
    Limits: contents are compared as text without spaces: ``0.5`` and ``1/2`` differ. A long solution may box its parts.
    Source: sample health; counted while grading.

    >>> import duckdb, pandas as pd
    >>> graded_samples = pd.DataFrame({"series": "run", "checkpoint_id": "base", "step": 0, "greedy": False,
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
    """Verifier disagreement: the share of samples that one of two verifiers accepts.

    Meaning: scope ``all`` counts both directions; ``only here`` are those that the verifier of this series alone
    accepts, ``only own`` those that the problem's own verifier alone accepts. If the rate changes from checkpoint to
    checkpoint, the form of answers has changed, and one of the two verifiers mistakes that for a change of ability.
    Unit: share of samples that both graded; n counts samples. No interval: it describes these samples.
    Limits: two verifiers that agree may both be wrong; check the samples of the view ``grade_disagreements``.
    Source: sample health; grades by two verifiers, after ``oversharp regrade``.

    >>> import duckdb, pandas as pd
    >>> regraded_samples = pd.DataFrame({"series": "run", "checkpoint_id": "base", "step": 0, "greedy": False,
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

    Meaning: degenerate repetition. At least the last 60 characters repeat one passage of at most 200 characters, at
    least three times. A higher token limit does not help such a response, unlike the other samples of
    ``truncation_rate``.
    Unit: share of the samples with a finish reason; n counts them. No interval: it describes these samples.
    Limits: does not detect loops of longer passages, loops that change a number in each round, and loops that stopped.
    Source: sample health; greedy failures of [C] (The Reasoning Boundary Paradox), tables 6 and 7.

    >>> import duckdb, pandas as pd
    >>> graded_samples = pd.DataFrame({"series": "run", "checkpoint_id": "base", "step": 0, "greedy": False,
    ...     "looped": pd.array([False, True, False, None], dtype="boolean")})
    >>> [(row[3], row[6]) for row in duckdb.execute(looped_rate.sql, {"series": "run"}).fetchall()]
    [(0.3333333333333333, 3)]
    """
    return _query("g.looped", counted="g.looped")


@_rate_of_samples(title="Responses that retract something", missing="no graded samples", by_scope=True)
def self_correction() -> str:
    """Self-correction: the share of samples that retract something ("wait, …").

    Meaning: scope ``all`` is their share; ``correct with`` is their accuracy, ``correct without`` that of the others.
    Training that rewards whole trajectories may remove the habit, or reward a wrong start together with its correction.
    If the share rises while ``correct with`` falls, the corrections do not help.
    Unit: share of the first 32 samples of each problem; n counts the samples of the scope. No interval: it describes
    the samples at hand.
    Limits: English words only. A correction without such words is not detected, and a mere "wait" is counted. Harder
    problems may have more corrections and fewer correct samples: compare changes of the two scopes, not their levels.
    Source: [B] (the two-stage dynamic view), case study of section 4.3; [C] (The Reasoning Boundary Paradox), tables 6
    and 7.

    >>> import duckdb, pandas as pd
    >>> graded_samples = pd.DataFrame({"series": "run", "checkpoint_id": "base", "step": 0, "greedy": False,
    ...     "reconsiders": [True, True, False, False], "correct": [True, False, True, True]})
    >>> [(row[1], row[3], row[6]) for row in duckdb.execute(self_correction.sql, {"series": "run"}).fetchall()]
    [('all', 0.5, 4), ('correct with', 0.5, 2), ('correct without', 1.0, 2)]
    """
    return _query(
        "CASE WHEN c.expected IS NULL THEN g.reconsiders WHEN g.reconsiders = c.expected THEN g.correct END",
        scopes="('all', NULL), ('correct with', true), ('correct without', false)",
        counted="CASE WHEN c.expected IS NULL THEN g.reconsiders WHEN g.reconsiders = c.expected THEN true END",
    )
