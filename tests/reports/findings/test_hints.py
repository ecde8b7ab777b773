"""Every line on what has no value says what would give one, in words that fit an audit and an import."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path

import oversharp.diagnostics.measures
from oversharp.diagnostics.measures import all_measures
from oversharp.reports.context import Context
from oversharp.reports.findings.hints import missing_value, split_reason
from tests.cases import each_case

PLACE = Path(oversharp.diagnostics.measures.__file__).parent


def _texts() -> list[str]:
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in PLACE.rglob("*.py")]
    nodes = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    return [node.value for node in nodes if isinstance(node.value, str) and "\n" not in node.value]


@each_case("name", sorted(all_measures()))
def test_what_would_measure_it_is_known_of_every_measure_that_may_lack_data(name: str) -> None:
    why, mend = split_reason(all_measures()[name].missing)
    assert mend
    assert "--" not in why


def test_a_reason_that_tells_a_command_is_cut_where_that_begins() -> None:
    told = [text for text in _texts() if "run the audit" in text or "does, of the" in text or "; draw more" in text]
    assert len(told) > 10
    assert not [text for text in told if "audit" in split_reason(text)[0] or "--" in split_reason(text)[0]]


def test_who_imported_is_not_told_to_run_the_same_audit_again(context: Context) -> None:
    checkpoints = context.source.series[0].checkpoints
    recorded = tuple(replace(one, checkpoints=checkpoints.assign(kind="recorded")) for one in context.source.series)
    imported = replace(context.source, series=recorded)
    why = ("not sampled at another temperature; run the audit with --controls",)
    assert missing_value(context.source, "x", why).how == "the same audit with --controls"
    assert missing_value(imported, "x", why).how == "`oversharp audit` of the checkpoints with --controls"
    panel = ("no panel; run the audit with --panel 4",)  # which an audit has unless it is told otherwise
    assert missing_value(imported, "x", panel).how == "`oversharp audit` of the checkpoints themselves"


def test_what_was_asked_and_has_no_answer_is_not_called_unmeasured(context: Context) -> None:
    fell = missing_value(context.source, "k*", ("pass@k does not fall up to k = 128",), unmeasured="no graded samples")
    assert (fell.label, fell.how) == ("no value", "")
    lacks = missing_value(context.source, "k*", ("no graded samples (step 20)",), unmeasured="no graded samples")
    assert (lacks.label, lacks.how) == ("not measured", "the same audit again, until it finishes")
    unknown = missing_value(context.source, "x", ("a plug-in's own reason",), unmeasured="a plug-in's own reason")
    assert (unknown.label, unknown.how) == ("not measured", "")
