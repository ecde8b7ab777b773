"""Measures of tool calls: their number, the tools, invalid and repeated calls, and distinct sequences of calls."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pandas as pd

from oversharp.diagnostics.measures.contract import Evidence, Plot, Results
from oversharp.diagnostics.measures.declare import Input, Loaded, per_checkpoint
from oversharp.diagnostics.measures.tools.samples import AGENT_SAMPLES, NO_TURNS, AgentSamples, load_agent_samples
from oversharp.diagnostics.measures.tools.turns import mean_count
from oversharp.diagnostics.statistics.intervals import mean_interval, ratio_interval, share_interval

#: Largest number of tools with a scope each, by their number of calls in the series.
MOST_TOOLS = 12
NO_CALLS = "no sample has a tool call here"


@per_checkpoint(
    input=AGENT_SAMPLES,
    title="Tool calls",
    unit="calls",
    section="tools",
    rank=30,
    plot=Plot(x="step", group="scope", y_label="calls per sample"),
)
def calls_per_sample(samples: AgentSamples) -> Results:
    """Tool calls: the mean number of calls per sample.

    Meaning: whether training taught the model to use its tools, or to stop using them. Scope ``all`` is over all
    samples. Scopes ``correct`` and ``not_correct`` are over samples of one grade. Invalid calls count too.
    Unit: calls: mean over a problem's samples, then over problems. 95 % t interval over problems. n counts samples.
    Limits: a scope of one grade covers only the problems that have such samples. A call without effect counts like any
    other.
    Source: ours.

    >>> from oversharp.diagnostics.measures.examples import tiny_evidence
    >>> columns = "checkpoint_id problem_id sample_index correct n_turns n_calls n_invalid n_repeated"
    >>> rows = [("base", "q", 0, True, 1, 0, 0, 0), ("base", "q", 1, False, 4, 3, 0, 0)]
    >>> [(f.scope, f.value) for f in calls_per_sample(tiny_evidence("agent_samples", columns, rows, n=2))]
    [('all', 1.5), ('correct', 0.0), ('not_correct', 3.0)]
    """
    return samples.by_grade("n_calls", mean_count)


@per_checkpoint(
    input=AGENT_SAMPLES,
    title="Invalid calls",
    unit="share of calls",
    section="tools",
    rank=50,
    plot=Plot(x="step", y_label="share of calls", y_range=(0.0, 1.0)),
)
def invalid_calls(samples: AgentSamples) -> Results:
    """Invalid calls: the share of tool calls that cannot be read.

    Meaning: a call is invalid if it has no name, its arguments are no JSON object, or the tool that wrote the dump
    could not read it. It is the same in all formats: some write such a call as text, others as a call with an error.
    Unit: share of calls, pooled. 95 % t interval over problems (ratio estimator). n counts calls.
    Limits: a call of an unknown tool, or with wrong arguments, is valid here; its observation says what failed. Dumps
    in which calls are marked by special tokens may lack unread calls.
    Source: ours.

    >>> from oversharp.diagnostics.measures.examples import tiny_evidence
    >>> columns = "checkpoint_id problem_id sample_index correct n_turns n_calls n_invalid n_repeated"
    >>> rows = [("base", "q", 0, True, 1, 1, 1, 0), ("base", "q", 1, False, 4, 3, 0, 0)]
    >>> [(f.value, f.n) for f in invalid_calls(tiny_evidence("agent_samples", columns, rows, n=2))]
    [(0.25, 4)]
    """
    calls_P = samples.sum_by_problem(samples.rows["n_calls"])
    if not calls_P.any():
        return NO_CALLS
    invalid_P = samples.sum_by_problem(samples.rows["n_invalid"])
    interval = ratio_interval(invalid_P, calls_P, floor=True, bounds=(0.0, 1.0), cluster_P=samples.cluster_P)
    return replace(interval, n=int(calls_P.sum()))


@per_checkpoint(
    input=AGENT_SAMPLES,
    title="Repeated calls",
    unit="share of samples",
    section="tools",
    rank=60,
    plot=Plot(x="step", y_label="share of samples", y_range=(0.0, 1.0)),
)
def repeated_calls(samples: AgentSamples) -> Results:
    """Repeated calls: the share of samples that make the same call three times or more.

    Meaning: loops. Calls are the same if their tool and their arguments are equal as text.
    Unit: share of samples: mean over a problem's samples, then over problems. 95 % t interval over problems with a
    variance floor. n counts samples.
    Limits: repeating a call is right where its result changes, such as when polling.
    Source: ours.

    >>> from oversharp.diagnostics.measures.examples import tiny_evidence
    >>> columns = "checkpoint_id problem_id sample_index correct n_turns n_calls n_invalid n_repeated"
    >>> rows = [("base", "q", 0, True, 2, 2, 0, 2), ("base", "q", 1, False, 4, 3, 0, 3)]
    >>> [f.value for f in repeated_calls(tiny_evidence("agent_samples", columns, rows, n=2))]
    [0.5]
    """
    share_P = samples.mean_by_problem((samples.rows["n_repeated"] >= 3).astype(float))
    return replace(share_interval(share_P, cluster_P=samples.cluster_P), n=len(samples.rows))


@per_checkpoint(
    input=AGENT_SAMPLES,
    title="Distinct sequences of calls",
    unit="sequences",
    section="tools",
    rank=70,
    plot=Plot(x="step", group="scope", y_label="distinct sequences per problem"),
)
def call_sequences(samples: AgentSamples) -> Results:
    """Distinct sequences of calls: how many ways of using the tools a problem's samples have.

    Meaning: strategies, seen by the calls. Scope ``tools`` compares the names of the called tools in order, scope
    ``calls`` also the arguments. A sample without calls has the empty sequence, which counts as one. A fall means that
    the samples use the tools in fewer ways.
    Unit: distinct sequences among a problem's samples, averaged over problems. 95 % t interval over problems. n counts
    samples.
    Limits: the number grows with n, so compare only series with the same n. It is at most n. Arguments that differ only
    in spaces are different.
    Source: arXiv 2604.14877 counts unique sequences of queries among 64 samples.

    >>> from oversharp.diagnostics.measures.examples import tiny_evidence
    >>> columns = "checkpoint_id problem_id sample_index tools calls"
    >>> rows = [("base", "q", 0, 1, 11), ("base", "q", 1, 1, 12), ("base", "q", 2, 1, 11)]
    >>> [(f.scope, f.value) for f in call_sequences(tiny_evidence("agent_samples", columns, rows, n=3))]
    [('tools', 1.0), ('calls', 2.0)]
    """
    results = {}
    for scope in ("tools", "calls"):
        distinct_P = samples.rows.groupby("problem_id")[scope].nunique().to_numpy(np.float64)
        interval = mean_interval(distinct_P, bounds=(1.0, math.inf), cluster_P=samples.cluster_P)
        results[scope] = replace(interval, n=len(samples.rows))
    return results


def _load_tools(evidence: Evidence) -> Loaded[tuple[AgentSamples, pd.DataFrame, tuple[str, ...]]]:
    samples, why = load_agent_samples(evidence)
    users = evidence.frames["tool_users"]
    most_used = users.groupby("tool")["n_calls"].sum().sort_values(ascending=False, kind="stable")
    tools = tuple(map(str, most_used.index[:MOST_TOOLS]))
    return {i: (own, users[users["checkpoint_id"] == i], tools) for i, own in samples.items()}, why


@per_checkpoint(
    input=Input(load=_load_tools, needs=("agent_samples", "tool_users"), missing=NO_TURNS, first_round=True),
    title="Use of each tool",
    unit="share of samples",
    section="tools",
    rank=40,
    plot=Plot(x="step", group="scope", y_label="share of samples", y_range=(0.0, 1.0)),
)
def tool_use(samples_and_tools: tuple[AgentSamples, pd.DataFrame, tuple[str, ...]]) -> Results:
    """Use of each tool: the share of samples that call it at least once.

    Meaning: which tools training made the model use more or less. Each scope is the name of a tool, at most 12, those
    with the most calls in the series. Calls without a name have the scope ``unreadable``.
    Unit: share of samples: mean over a problem's samples, then over problems. 95 % t interval over problems with a
    variance floor. n counts samples.
    Limits: a tool that no sample of the series calls has no scope.
    Source: ours.

    >>> from dataclasses import replace
    >>> import pandas as pd
    >>> from oversharp.diagnostics.measures.examples import tiny_evidence
    >>> rows = [("base", "q", 0, True), ("base", "q", 1, False)]
    >>> evidence = tiny_evidence("agent_samples", "checkpoint_id problem_id sample_index correct", rows, n=2)
    >>> users = pd.DataFrame([("base", "q", "add", 1, 3)], columns="checkpoint_id problem_id tool n n_calls".split())
    >>> evidence = replace(evidence, frames={**evidence.frames, "tool_users": users})
    >>> [(f.scope, f.value) for f in tool_use(evidence)]
    [('add', 0.5)]
    """
    samples, users, tools = samples_and_tools
    n_P = samples.rows.groupby("problem_id").size()
    results = {}
    for tool in tools:
        users_P = users[users["tool"] == tool].set_index("problem_id")["n"].reindex(n_P.index, fill_value=0)
        share_P = (users_P / n_P).to_numpy(np.float64)
        results[tool] = replace(share_interval(share_P, cluster_P=samples.cluster_P), n=len(samples.rows))
    return results
