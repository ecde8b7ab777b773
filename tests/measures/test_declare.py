"""The decorators that make a measure of a function."""

import doctest
import sys

import pytest

from oversharp.diagnostics.measures.contract import Plot, Unknown
from oversharp.diagnostics.measures.counts import SAMPLED_COUNTS
from oversharp.diagnostics.measures.coverage.problem_flow import problems_lost
from oversharp.diagnostics.measures.declare import (
    against_base,
    against_previous,
    in_sql,
    per_checkpoint,
    per_series,
)
from oversharp.diagnostics.measures.examples import tiny_evidence
from oversharp.diagnostics.statistics.units import Interval

SHOWN = {"title": "Title", "unit": "samples", "section": "health", "plot": Plot(y_label="samples")}
COLUMNS = "checkpoint_id problem_id n n_correct"
#: Checkpoint "b" lacks a sample of one problem.
ROWS = [("base", "q", 4, 1), ("a", "q", 4, 2), ("b", "q", 3, 3), ("c", "q", 4, 4)]
LACKS = "0 of 1 problems have exactly 4 graded samples here; run the audit again to complete them"


def exactly(value):
    return Interval(mean=float(value), low=None, high=None, n=1)


def told(measure, *, rows=ROWS, ks=(1,)):
    findings = measure(tiny_evidence("sampled_counts", COLUMNS, rows, ks=ks))
    return [(f.checkpoint_id, f.scope, f.k, f.value if f.why is None else f.why) for f in findings]


def test_a_function_is_called_at_every_checkpoint_and_a_lacking_one_has_its_reason():
    @per_checkpoint(input=SAMPLED_COUNTS, **SHOWN)
    def correct(counts):
        """Correct samples."""
        return exactly(counts.correct_P.sum())

    assert (correct.name, correct.doc, correct.needs) == ("correct", "Correct samples.", ("sampled_counts",))
    assert told(correct) == [
        ("base", "all", None, 1.0), ("a", "all", None, 2.0), ("b", "all", None, LACKS), ("c", "all", None, 4.0),
    ]  # fmt: skip


def test_with_k_it_is_called_for_every_k_and_the_reason_is_that_of_every_scope_and_k():
    @per_checkpoint(input=SAMPLED_COUNTS, by_k=True, scopes=("one", "two"), **SHOWN)
    def times_k(counts, k):
        """Correct samples times k."""
        return {"one": exactly(k * counts.correct_P.sum()), "two": "no second one"}

    rows = [("base", "q", 4, 1), ("b", "q", 3, 3)]
    assert told(times_k, rows=rows, ks=(1, 2)) == [
        ("base", "one", 1, 1.0), ("base", "two", 1, "no second one"),
        ("base", "one", 2, 2.0), ("base", "two", 2, "no second one"),
        *(("b", scope, k, LACKS) for k in (1, 2) for scope in ("one", "two")),
    ]  # fmt: skip


def test_a_comparison_has_no_finding_at_the_base_and_none_without_it():
    @against_base(input=SAMPLED_COUNTS, **SHOWN)
    def gained(base, late):
        """Correct samples gained."""
        return exactly((late.correct_P - base.correct_P).sum())

    assert told(gained) == [("a", "all", None, 1.0), ("b", "all", None, LACKS), ("c", "all", None, 3.0)]
    broken = [("base", "q", 3, 1), *ROWS[1:]]
    assert told(gained, rows=broken) == [(name, "all", None, f"base: {LACKS}") for name in "abc"]


def test_a_step_needs_both_of_its_ends():
    @against_previous(input=SAMPLED_COUNTS, **SHOWN)
    def gained(before, after):
        """Correct samples gained in a step."""
        return exactly((after.correct_P - before.correct_P).sum())

    ends = [("a", 1.0), ("b", LACKS), ("c", f"previous checkpoint: {LACKS}")]
    assert told(gained) == [(name, "all", None, result) for name, result in ends]


def test_bounds_may_be_known_where_the_value_is_not():
    @per_series(needs=("sampled_counts",), missing="nothing", **SHOWN)
    def bounded(evidence):
        """A bound."""
        yield "c", {("part", 8): Unknown(why="beyond the range", low=2.0, n=7)}

    (finding,) = bounded(tiny_evidence("sampled_counts", COLUMNS, ROWS))
    assert (finding.scope, finding.k, finding.value, finding.low, finding.n) == ("part", 8, None, 2.0, 7)
    assert (finding.why, finding.interval_over) == ("beyond the range", "problems")


def test_an_empty_view_is_unknown_everywhere_for_the_reason_of_the_measure():
    evidence = tiny_evidence("problem_counts", COLUMNS, ROWS)
    evidence.frames["problem_counts"] = evidence.frames["problem_counts"].iloc[:0]
    assert [(f.checkpoint_id, f.why) for f in problems_lost(evidence)] == [
        (name, "no graded samples") for name in "abc"
    ]


def test_a_value_that_is_not_finite_is_refused():
    @per_checkpoint(input=SAMPLED_COUNTS, **SHOWN)
    def broken(counts):
        """Not a number."""
        return exactly("nan")

    with pytest.raises(ValueError, match="broken: nan is not a finding"):
        told(broken)


def test_sql_is_run_by_a_store_alone():
    @in_sql(needs=("sampled_counts",), missing="nothing", **SHOWN)
    def one():
        """One."""
        return "SELECT 1"

    assert one.sql == "SELECT 1"
    with pytest.raises(TypeError, match=r"measure one is SQL: run one\.sql on a store"):
        told(one)


def test_doctest_finds_the_examples_of_measures():
    module = sys.modules["oversharp.diagnostics.measures.coverage.problem_flow"]
    found = {test.name.rpartition(".")[2] for test in doctest.DocTestFinder().find(module) if test.examples}
    assert found == {"problems_lost", "problems_gained", "problems_kept", "support_retention", "net_discovery"}
