"""Rates of single samples, as they are: could they be graded, were they cut off, do two verifiers agree on them."""

from __future__ import annotations

from typing import Literal

from oversharp.diagnostics.measures.contract import Measure, Plot, View


def _rate(
    name: str,
    title: str,
    *,
    condition: str,
    missing: str,
    y_label: str,
    doc: str,
    view: View = "graded_samples",
    scopes: str = "('all', NULL)",
    counted: str = "*",
) -> Measure:
    """The share of the drawn samples g of ``view`` for which ``condition`` holds, by the rows c (scope, told)."""
    sql = f"""
WITH scopes AS (
    SELECT * FROM (VALUES {scopes}) AS t (scope, told)
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
    group: Literal["scope", "none"] = "scope" if "), (" in scopes else "none"
    return Measure(
        name=name,
        title=title,
        unit="share of samples",
        section="health",
        needs=(view,),
        missing=missing,
        plot=Plot(x="step", group=group, y_label=y_label, y_range=(0.0, 1.0)),
        sql=sql,
        doc=doc,
    )


_NOT_TOLD = "no graded samples, or another tool graded them, which does not tell"

MEASURES = (
    _rate(
        "parse_failure_rate",
        "Responses without an answer",
        condition="g.state = 'parse_fail'",
        missing=_NOT_TOLD,
        y_label="share of samples without an answer",
        doc="""
Parse failure rate: the share of samples without a parseable final answer.

Meaning: the grader found nothing to compare. Such a sample is not correct, for want of form, not of knowledge.
Unit: share of samples; n counts samples. No interval: it describes the samples at hand.
Limits: a new answer format under training looks like lost modes: read a few such responses before believing a loss.
Source: sample health; states of the grades.

>>> import duckdb, pandas as pd
>>> graded_samples = pd.DataFrame({"series": "run", "checkpoint_id": "base", "step": 0, "greedy": False,
...     "state": ["ok", "parse_fail", "ok", "timeout"]})
>>> duckdb.execute(MEASURE.sql, {"series": "run"}).fetchall()
[('base', 'all', None, 0.25, None, None, 4)]
""",
    ),
    _rate(
        "ambiguous_rate",
        "Responses without a single answer",
        condition="g.state = 'ambiguous'",
        missing=_NOT_TOLD,
        y_label="share of samples",
        doc="""
Ambiguous rate: the share of samples whose answer is no answer: it is negated, compared, a range or one of several.

Meaning: "not 42", "at least 42", "42 or 41", "between 42 and 50" state nothing that could be compared with the gold.
Such a sample is not correct, whatever the gold is. The reason beside the grade says which rule it fell under.
Unit: share of samples; n counts samples. No interval: it describes the samples at hand.
Limits: by rules over words, so a clear answer in unusual words may be counted here; read a few such responses where the
rate moves from checkpoint to checkpoint.
Source: sample health; states of the grades.

>>> import duckdb, pandas as pd
>>> graded_samples = pd.DataFrame({"series": "run", "checkpoint_id": "base", "step": 0, "greedy": False,
...     "state": ["ok", "parse_fail", "ok", "ambiguous"]})
>>> duckdb.execute(MEASURE.sql, {"series": "run"}).fetchall()
[('base', 'all', None, 0.25, None, None, 4)]
""",
    ),
    _rate(
        "several_boxes_rate",
        "Responses with several different boxes",
        condition="g.n_boxed > 1",
        counted="g.n_boxed",
        missing="no grade tells: the verifier does not look at boxes, another tool graded, or the grades are old",
        y_label="share of samples",
        doc="""
Several boxes rate: the share of samples that put different contents into boxes, anywhere in the response.

Meaning: of several boxes the last counts, as everywhere in the field, so that a response may try one answer after the
other. ``oversharp regrade STORE --verifier math_strict`` grades the same samples with such responses as ambiguous.
Unit: share of the samples whose boxes were counted; n counts them. No interval: it describes the samples at hand.
Limits: contents are compared as text without spaces: ``0.5`` and ``1/2`` differ. A long solution may box its parts.
Source: sample health; counted while grading.

>>> import duckdb, pandas as pd
>>> graded_samples = pd.DataFrame({"series": "run", "checkpoint_id": "base", "step": 0, "greedy": False,
...     "n_boxed": pd.array([1, 0, 2, None], dtype="Int64")})
>>> [(row[3], row[6]) for row in duckdb.execute(MEASURE.sql, {"series": "run"}).fetchall()]
[(0.3333333333333333, 3)]
""",
    ),
    _rate(
        "answer_style",
        "How answers are stated",
        scopes="('boxed', 'boxed'), ('tagged', 'tagged'), ('hashes', 'hashes'), ('labelled', 'labelled'), "
        "('bare', 'bare'), ('prose', 'prose'), ('none', 'none')",
        condition="g.answer_style = c.told",
        counted="g.answer_style",
        missing="no grade tells: the verifier reads no text, another tool graded, or the grades are old",
        y_label="share of samples",
        doc="""
Answer style: the share of samples that state their answer in a box, in tags, after ####, after a label, or otherwise.

Meaning: scope ``boxed`` is \\boxed{…}, ``tagged`` <answer>…</answer>, ``hashes`` a line that starts with ####,
``labelled`` "The answer is" and the like, ``bare`` a response that is nothing but its answer, ``prose`` one without any
mark, ``none`` a blank one, or one whose thoughts end without an answer. The scopes sum to 1.
Unit: share of the samples whose style is known; n counts them. No interval: it describes the samples at hand.
Limits: a change of style is no loss. ``lenient_gap`` tells whether the verifier reads the new style.
Source: sample health; recorded while grading.

>>> import duckdb, pandas as pd
>>> graded_samples = pd.DataFrame({"series": "run", "checkpoint_id": "base", "step": 0, "greedy": False,
...     "answer_style": ["boxed", "boxed", "labelled", None]})
>>> rows = duckdb.execute(MEASURE.sql, {"series": "run"}).fetchall()
>>> [(row[1], round(row[3], 2), row[6]) for row in rows if row[3]]
[('boxed', 0.67, 3), ('labelled', 0.33, 3)]
""",
    ),
    _rate(
        "lenient_gap",
        "Answers that only a lenient reader accepts",
        condition="CASE WHEN g.lenient IS NOT NULL THEN g.lenient AND NOT g.correct END",
        counted="g.lenient",
        missing="no grade tells: the verifier reads no text, another tool graded, or the grades are old",
        y_label="share of samples",
        doc="""
Lenient gap: the share of samples that are not correct, but that a deliberately lenient reader accepts.

Meaning: the lenient reader accepts a response whose last number, expression or letter is the gold, whatever the words
around it are. A gap that grows over training says that answers are stated in a style that the verifier does not read:
a fall of pass@k that the lenient reader does not show is then "Explained by format".
Unit: share of the samples that both readers read; n counts them. No interval: it describes the samples at hand.
Limits: the lenient reader accepts wrong responses that end on the right number; the level of the gap says nothing.
Source: sample health; recorded while grading.

>>> import duckdb, pandas as pd
>>> graded_samples = pd.DataFrame({"series": "run", "checkpoint_id": "base", "step": 0, "greedy": False,
...     "correct": [True, False, False, False], "lenient": [True, True, False, None]})
>>> [(row[1], round(row[3], 2), row[6]) for row in duckdb.execute(MEASURE.sql, {"series": "run"}).fetchall()]
[('all', 0.33, 3)]
""",
    ),
    _rate(
        "timeout_rate",
        "Ungraded responses",
        scopes="('all', 'timeout'), ('error', 'error')",
        condition="g.state = c.told",
        missing=_NOT_TOLD,
        y_label="share of samples not graded",
        doc="""
Timeout rate: the share of samples that could not be graded.

Meaning: scope ``all`` counts grades that ran out of time, ``error`` grades on which the verifier failed. Both count
as not correct in every other measure, without being wrong.
Unit: share of samples; n counts samples. No interval: it describes the samples at hand.
Limits: more than a trace of either makes pass@k a lower bound: raise the time limit or mend the verifier.
Source: sample health; states of the grades.

>>> import duckdb, pandas as pd
>>> graded_samples = pd.DataFrame({"series": "run", "checkpoint_id": "base", "step": 0, "greedy": False,
...     "state": ["ok", "timeout", "timeout", "error"]})
>>> [(row[1], row[3]) for row in duckdb.execute(MEASURE.sql, {"series": "run"}).fetchall()]
[('all', 0.5), ('error', 0.25)]
""",
    ),
    _rate(
        "truncation_rate",
        "Truncated responses",
        condition="g.finish_reason = 'length'",
        counted="g.finish_reason",
        missing="no graded sample tells why it ended",
        y_label="share of samples cut off",
        doc="""
Truncation rate: the share of samples cut off at the token limit.

Meaning: a cut response has rarely given its answer. A checkpoint that writes longer then looks as if it had lost modes.
Unit: share of samples; n counts samples. No interval: it describes the samples at hand.
Limits: a rate that differs between checkpoints makes their pass@k incomparable: raise the token limit. Of samples that
another tool drew, those count that tell why they ended; where none does, the rate is unknown.
Source: sample health; finish reasons as the sampler reports them.

>>> import duckdb, pandas as pd
>>> graded_samples = pd.DataFrame({"series": "run", "checkpoint_id": "base", "step": 0, "greedy": False,
...     "finish_reason": ["stop", "length", "stop", "stop"]})
>>> duckdb.execute(MEASURE.sql, {"series": "run"}).fetchall()
[('base', 'all', None, 0.25, None, None, 4)]
""",
    ),
    _rate(
        "looped_rate",
        "Responses cut off in a loop",
        condition="g.looped",
        counted="g.looped",
        missing="no graded sample tells why it ended",
        y_label="share of samples cut off while repeating themselves",
        doc="""
Looped rate: the share of samples that were cut off at the token limit while they repeated one passage.

Meaning: degenerate repetition. The last 60 characters or more are one passage of at most 200 characters, three times or
more. A higher token limit does not help such a response: what ``truncation_rate`` counts beyond these ran out of room.
Unit: share of the samples that tell why they ended; n counts them. No interval: it describes the samples at hand.
Limits: a loop of longer passages, or one that changes a number each time round, is not seen; nor one that ended by
itself.
Source: sample health; greedy failures of [C] (The Reasoning Boundary Paradox), tables 6 and 7.

>>> import duckdb, pandas as pd
>>> graded_samples = pd.DataFrame({"series": "run", "checkpoint_id": "base", "step": 0, "greedy": False,
...     "looped": pd.array([False, True, False, None], dtype="boolean")})
>>> [(row[3], row[6]) for row in duckdb.execute(MEASURE.sql, {"series": "run"}).fetchall()]
[(0.3333333333333333, 3)]
""",
    ),
    _rate(
        "self_correction",
        "Responses that take something back",
        scopes="('all', NULL), ('correct with', true), ('correct without', false)",
        condition="CASE WHEN c.told IS NULL THEN g.reconsiders WHEN g.reconsiders = c.told THEN g.correct END",
        counted="CASE WHEN c.told IS NULL THEN g.reconsiders WHEN g.reconsiders = c.told THEN true END",
        missing="no graded samples",
        y_label="share of samples",
        doc="""
Self-correction: the share of samples that take something back ("wait, …", "let me re-check", "that is wrong").

Meaning: scope ``all`` is their share; ``correct with`` is how many of them are correct, ``correct without`` how many of
the others. Training that rewards whole trajectories may drop the habit, or reward a wrong start together with its
mending; a share that rises while ``correct with`` falls is doubt without use.
Unit: share of the first 32 samples of each problem; n counts those it is a share of. No interval: it describes the
samples at hand.
Limits: English words alone; who corrects without saying so is not seen, and who only says "wait" is. Harder problems
may bring more of it, and so fewer right ones: look at how the two move, not at which is higher.
Source: [B] (the two-stage dynamic view), case study of section 4.3; [C] (The Reasoning Boundary Paradox), tables 6 and
7.

>>> import duckdb, pandas as pd
>>> graded_samples = pd.DataFrame({"series": "run", "checkpoint_id": "base", "step": 0, "greedy": False,
...     "reconsiders": [True, True, False, False], "correct": [True, False, True, True]})
>>> [(row[1], row[3], row[6]) for row in duckdb.execute(MEASURE.sql, {"series": "run"}).fetchall()]
[('all', 0.5, 4), ('correct with', 0.5, 2), ('correct without', 1.0, 2)]
""",
    ),
    _rate(
        "verifier_disagreement",
        "Disagreement of two verifiers",
        view="regraded_samples",
        scopes="('all', NULL), ('only here', true), ('only own', false)",
        condition="g.correct <> g.own_correct AND coalesce(g.correct = c.told, true)",
        missing="graded by one verifier; `oversharp regrade` grades the same samples by another, "
        "as a series of its own",
        y_label="share of samples",
        doc="""
Verifier disagreement: the share of samples that one of two verifiers calls correct and the other does not.

Meaning: scope ``all`` counts both ways; ``only here`` are those that the verifier of this series alone accepts, ``only
own`` those that the problem's own verifier alone accepts. A rate that changes from checkpoint to checkpoint is a change
of how answers are written, or of how they are read; one of the two verifiers takes it for a change of ability.
Unit: share of samples that both graded; n counts samples. No interval: it describes the samples at hand.
Limits: two verifiers that agree may both be wrong; read the samples of the view ``grade_disagreements``.
Source: sample health; grades by two verifiers, after ``oversharp regrade``.

>>> import duckdb, pandas as pd
>>> regraded_samples = pd.DataFrame({"series": "run", "checkpoint_id": "base", "step": 0, "greedy": False,
...     "correct": [True, True, False, False], "own_correct": [True, False, True, False]})
>>> [(row[1], row[3]) for row in duckdb.execute(MEASURE.sql, {"series": "run"}).fetchall()]
[('all', 0.5), ('only here', 0.25), ('only own', 0.25)]
""",
    ),
)
