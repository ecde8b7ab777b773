"""What holds for every registered measure."""

import doctest
import math
import re
from collections.abc import Mapping
from dataclasses import replace
from operator import attrgetter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from oversharp.diagnostics.measures import all_measures
from oversharp.diagnostics.measures.contract import Evidence, Measure
from oversharp.diagnostics.records.types import Finding
from tests.cases import each_case

MEASURES = list(all_measures().values())
every_measure = each_case("measure", MEASURES, name_of=attrgetter("name"))
PROBLEMS = ("q1", "q2", "q3", "q4")
MODES = ("a", "b", "c")
N = 8
KS = (1, 4, 8, 64)
#: Needs a rise of pass@1, which this evidence does not have.
OF_A_RISE = ("sharpening_share",)
#: Needs recorded rewards instead of grades; no series has both.
OF_REWARDS = ("best_at_k",)
OF_THE_SERIES = ("interference_correlation", "interference_correlation_p", "z_prime_fall")


def random_samples(seed: int = 0, *, n: int = N, hard: Mapping[str, float] | None = None) -> list[dict]:
    """``hard``: factor of the success rate, by problem."""
    rng = np.random.default_rng(seed)
    samples = []
    for checkpoint in ("base", "late", "middle"):
        for problem in PROBLEMS:
            solved = 0.3 if checkpoint == "late" else 0.6  # pass@k falls, so that there is a k where it does
            for index in range(-1, n):
                correct = bool(rng.random() < solved * (hard or {}).get(problem, 1.0))
                mode = str(rng.choice(MODES)) if correct else None
                samples.append(
                    {
                        "checkpoint": checkpoint,
                        "problem": problem,
                        "task": "sums" if problem in PROBLEMS[:2] else "logic",
                        "greedy": index < 0,
                        "sample_index": max(index, 0),
                        "text": str(rng.choice(["```1```", "so"])),
                        "n_tokens": int(rng.integers(1, 30)),
                        "finish_reason": str(rng.choice(["stop", "length"])),
                        "answer": "4" if correct else str(rng.choice(["5", "6", "NA"])),
                        "mode": mode,
                        "correct": correct,
                        "own_correct": correct != (index == 0),
                        "state": "ok"
                        if correct
                        else str(rng.choice(["ok", "parse_fail", "ambiguous", "timeout", "error"])),
                        "n_boxed": index % 3,
                        "answer_style": ("boxed", "labelled", "prose")[index % 3],
                        "lenient": index % 3 != 2,
                        "entropy_sum": float(rng.random() * 5),
                        "calls": tuple(f"tool {index % 3}" for _ in range(index % 5)) if index >= 0 else None,
                        "logp_sum": -6.0,
                        "own_logp_sum": -6.0 + float(rng.normal() * 1e-4),
                        "base_logp_sum": -float(rng.uniform(3, 9)),
                        "token_logps": [-1.0, -2.0, -3.0],
                        "token_entropies": [float(rng.random()) for _ in range(3)],
                    }
                )
    return samples


def control_samples(seed: int = 5) -> list[dict]:
    """The base at lower temperatures, the last checkpoint at a higher one."""
    rng = np.random.default_rng(seed)
    return [
        {
            "checkpoint": checkpoint,
            "problem": problem,
            "task": "sums" if problem in PROBLEMS[:2] else "logic",
            "sample_index": index,
            "text": f"T={temperature}",
            "temperature": temperature,
            "correct": bool(rng.random() < 0.6),
        }
        for checkpoint, temperature in (("base", 0.5), ("base", 0.25), ("middle", 1.5))
        for problem in PROBLEMS
        for index in range(N)
    ]


def random_scores(seed: int = 1) -> list[tuple[str, str, str, float]]:
    rng = np.random.default_rng(seed)
    return [
        (checkpoint, problem, mode, float(math.log(rng.random() / 3)))
        for checkpoint in ("base", "late", "middle")
        for problem in PROBLEMS
        for mode in MODES
    ]


def random_panel(seed: int = 2) -> dict[str, list]:
    """A panel of four responses per problem under every checkpoint, training batches, and second scores."""
    rng = np.random.default_rng(seed)

    def logps() -> list[float]:
        return [float(math.log(rng.uniform(0.2, 1.0))) for _ in range(5)]

    responses = [(problem, f"panel {index}") for problem in PROBLEMS for index in range(4)]
    scores = [
        (checkpoint, problem, text, logps(), [float(rng.random() * 2) for _ in range(5)])
        for checkpoint in ("base", "late", "middle")
        for problem, text in responses
    ]
    return {
        "panel_logps": scores,
        "training": [
            (checkpoint, "t1", f"text {index}", bool(index % 2), logps(), logps())
            for checkpoint in ("late", "middle")
            for index in range(4)
        ],
        "second_logps": [(c, problem, text, sum(row) + 1e-5) for c, problem, text, row, _ in scores],
    }


def panel_samples(seed: int = 3) -> list[dict]:
    rng = np.random.default_rng(seed)
    return [
        {
            "problem": problem,
            "task": "sums" if problem in PROBLEMS[:2] else "logic",
            "sample_index": index,
            "text": f"panel {index}",
            "panel": True,
            "correct": bool(rng.random() < 0.6),
        }
        for problem in PROBLEMS
        for index in range(4)
    ]


def random_kernels(kernel_type, seed: int = 4, *, reverse: bool = False) -> dict:
    """Kernels over four fixed responses, four own samples and two of a training batch, of two groups of problems."""
    rng = np.random.default_rng(seed)
    kernels = {}
    for checkpoint in ("base", "late", "middle"):
        rows = []
        for problem in PROBLEMS:
            for index in range(4):
                roles = [("panel" if index else "mode", index, index != 3)]
                roles += [("own", index, index != 3)] if index > 1 else []
                rows.append((problem, f"{problem} panel {index}", -float(rng.uniform(3, 9)), 5, roles))
            rows.append(
                (problem, f"{checkpoint} own", -float(rng.uniform(3, 9)), 4, [("own", 0, True), ("own", 1, True)])
            )
        rows += [("t1", f"{checkpoint} {i}", -5.0, 3, [("batch", i, bool(i))]) for i in range(2)]
        gradient = rng.normal(size=(len(rows), 30)) + 0.7
        kernel = gradient @ gradient.T
        if reverse:
            rows, kernel = rows[::-1], kernel[::-1, ::-1]
        kernels[checkpoint] = kernel_type(rows=rows, kernel=kernel)
    return kernels


GROUPS = {"q1": "one", "q2": "one", "q3": "two", "q4": "two"}


class Read:
    """A world whose views are read once; every measure gets its own ``Evidence`` of them."""

    def __init__(self, made) -> None:
        self.made, self._evidence = made, made.evidence()
        self._found: dict[str, list[Finding]] = {}

    def evidence(self) -> Evidence:
        return replace(self._evidence)

    def findings(self, measure: Measure) -> list[Finding]:
        """The findings of the measure, computed once."""
        if measure.name not in self._found:
            self._found[measure.name] = self._compute(measure)
        return self._found[measure.name]

    def _compute(self, measure: Measure) -> list[Finding]:
        if measure.compute is not None:
            return list(measure(self.evidence()))
        told = {True: measure.missing, False: None}
        return [
            Finding(measure=measure.name, unit=measure.unit, why=told[row["value"] is None], **row)
            for row in self.made.sql_rows(measure)
        ]


@pytest.fixture(scope="module")
def full_world(world, kernel_type) -> Read:
    samples, kernels = [*random_samples(), *panel_samples() + control_samples()], random_kernels(kernel_type)
    scores = random_scores()
    return Read(
        world(samples, n=N, ks=KS, mode_logps=scores, kernels=kernels, groups=GROUPS, **random_panel()),
    )


@pytest.fixture(scope="module")
def shuffled_world(world, kernel_type) -> Read:
    """The same facts in another order of rows."""
    samples, scores, panel = [*random_samples(), *panel_samples() + control_samples()], random_scores(), random_panel()
    panel["panel_logps"].reverse()
    np.random.default_rng(7).shuffle(samples)
    np.random.default_rng(8).shuffle(scores)
    kernels = random_kernels(kernel_type, reverse=True)
    return Read(world(samples, n=N, ks=KS, mode_logps=scores, kernels=kernels, groups=GROUPS, **panel))


@pytest.fixture(scope="module")
def empty_world(world):
    return world([], n=N)


def key(finding: Finding) -> tuple[object, ...]:
    return finding.checkpoint_id, finding.scope, finding.k


@pytest.mark.slow
@every_measure
def test_the_docstring_says_what_a_reader_needs(measure):
    first, blank, *rest = measure.doc.splitlines()
    assert first.endswith(".")
    assert blank == ""
    starts = [line.split(":")[0] for line in rest if line.split(":")[0] in ("Meaning", "Unit", "Limits", "Source")]
    assert starts == ["Meaning", "Unit", "Limits", "Source"]
    assert measure.unit.split()[0] in measure.doc


@pytest.mark.slow
@every_measure
def test_the_example_runs(measure):
    test = doctest.DocTestParser().get_doctest(measure.doc, {measure.name: measure}, measure.name, None, 0)
    assert test.examples
    assert doctest.DocTestRunner().run(test).failed == 0


@pytest.mark.slow
@every_measure
def test_every_measure_is_imported_or_named_by_a_test(measure):
    texts = [path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("test_*.py")]
    named = re.compile(rf'"{measure.name}"|^from .* import (?:.*|\([^)]*)\b{measure.name}\b', re.MULTILINE)
    assert any(named.search(text) for text in texts)


@pytest.mark.slow
@every_measure
def test_there_are_findings_for_every_checkpoint_and_each_is_unique(measure, full_world):
    findings = full_world.findings(measure)
    if measure.name in OF_REWARDS:
        assert not findings
        return
    places = {f.checkpoint_id for f in findings}
    of_the_series = places == {"middle"}
    assert of_the_series or places == {"middle", "late"} | ({"base"} if measure.of_base else set())
    assert len({key(f) for f in findings}) == len(findings)
    assert {f.measure for f in findings} == {measure.name}
    assert {f.unit for f in findings} == {measure.unit}
    assert any(f.value is not None for f in findings) or measure.name in OF_A_RISE


@pytest.mark.slow
@every_measure
def test_values_keep_to_their_unit_and_intervals_hold_their_values(measure, full_world):
    high = 1.0 if measure.unit.split()[0] in ("share", "probability", "correlation") else math.inf
    low = -high if measure.signed else 0.0
    for finding in full_world.findings(measure):
        if finding.value is None:
            continue
        assert low <= finding.value <= high
        assert finding.n is not None
        assert finding.n >= 1
        if finding.low is not None:
            assert low <= finding.low <= finding.value
        if finding.high is not None:
            assert finding.value <= finding.high <= high


@pytest.mark.slow
@every_measure
def test_the_order_of_rows_does_not_matter(measure, full_world, shuffled_world):
    before, after = full_world.findings(measure), shuffled_world.findings(measure)
    assert [key(f) for f in before] == [key(f) for f in after]
    for one, two in zip(before, after, strict=True):
        numbers = [(one.value, two.value), (one.low, two.low), (one.high, two.high)]
        assert all(a == b or a == pytest.approx(b, rel=1e-12, abs=1e-15) for a, b in numbers)
        assert one.n == two.n


@every_measure
def test_nothing_in_is_nothing_known_and_no_crash(measure, full_world, empty_world):
    if measure.sql is not None:
        assert empty_world.sql_rows(measure) == []
        return
    evidence = full_world.evidence()
    empty = replace(evidence, frames={view: frame.iloc[:0] for view, frame in evidence.frames.items()})
    findings = measure(empty)
    assert {f.checkpoint_id for f in findings} >= {"middle"}
    assert all(f.value is None and f.why for f in findings)
    nothing = replace(empty, checkpoints=evidence.checkpoints.iloc[:0])
    assert list(measure(nothing)) == []


#: Views that a checkpoint must have in full, and the start of the reason if a row is missing.
IN_FULL = {
    **dict.fromkeys(
        ("sampled_counts", "problem_counts", "answer_counts", "sample_entropies"),
        "3 of 4 problems have exactly 8 graded samples here; run the",
    ),
    "agent_samples": "3 of 4 problems have exactly 8 graded samples here; run the",
    "sampled_logps": "1 of 4 problems lack log-probabilities of some samples here",
    "mode_logps": "11 of 12 modes are scored here; run the audit again to complete them",
    "panel_logps": "15 of 16 panel responses are scored here; run the audit again to complete them",
    "own_logps": "15 of 16 own samples are scored",
}


def lacking_one_row(measure: Measure, evidence: Evidence, checkpoint: str) -> list[Finding]:
    view = evidence.frames[measure.needs[0]]
    left = view.drop(index=view.index[view["checkpoint_id"] == checkpoint][-1])
    return list(measure(replace(evidence, frames={**evidence.frames, measure.needs[0]: left})))


@pytest.mark.slow
@each_case(
    "measure",
    # those over the whole series, and over what was scored at the checkpoint before, have tests of their own
    [m for m in MEASURES if m.compute and m.needs[0] in IN_FULL and m.name not in OF_THE_SERIES],
    name_of=attrgetter("name"),
)
def test_a_checkpoint_with_a_part_of_its_evidence_is_unknown_and_the_others_keep_their_values(measure, full_world):
    evidence, reason = full_world.evidence(), IN_FULL[measure.needs[0]]
    findings = lacking_one_row(measure, evidence, "middle")
    values = {key(f): f.value for f in full_world.findings(measure) if f.checkpoint_id != "middle"}
    assert {key(f): f.value for f in findings if f.checkpoint_id != "middle"} == values
    whys = [(f.value, f.why[: len(reason)]) for f in findings if f.checkpoint_id == "middle"]
    assert set(whys) == {(None, reason)}
    compared = ("", "base: ") if measure.of_base else ("base: ", "previous checkpoint: ")
    looked_at = "base" if measure.of_base else "late"
    unknown = [f for f in lacking_one_row(measure, evidence, "base") if f.checkpoint_id == looked_at]
    assert unknown
    assert all(f.value is None and f.why.startswith(tuple(f"{c}{reason}" for c in compared)) for f in unknown)


@pytest.mark.slow
@every_measure
def test_a_measure_reads_only_the_views_it_asks_for(measure, full_world):
    if measure.sql is not None:
        assert all(view in measure.sql for view in measure.needs)
        return
    evidence = full_world.evidence()
    assert set(measure.columns) <= {*measure.needs, *measure.also}
    frames = {view: evidence.frames[view] for view in (*measure.needs, *measure.also)}
    read = {view: frame[list(measure.columns.get(view, frame.columns))] for view, frame in frames.items()}
    assert list(measure(replace(evidence, frames=read))) == full_world.findings(measure)


@pytest.mark.slow
def test_measures_that_share_one_evidence_find_what_each_finds_alone(full_world):
    shared = full_world.evidence()
    computed = [measure for measure in MEASURES if measure.compute is not None]
    for measure in (*computed, *computed[::-1]):
        assert list(measure(shared)) == full_world.findings(measure), measure.name


@pytest.mark.slow
def test_the_evidence_is_left_as_it_was(full_world):
    evidence = full_world.evidence()
    before = {view: frame.copy() for view, frame in evidence.frames.items()}
    for measure in MEASURES:
        if measure.compute is not None:
            measure(evidence)
            for view in (*measure.needs, *measure.also):
                pd.testing.assert_frame_equal(evidence.frames[view], before[view], obj=f"{view} after {measure.name}")
    for view, frame in evidence.frames.items():
        pd.testing.assert_frame_equal(frame, before[view], obj=view)


@pytest.mark.slow
@every_measure
def test_the_plot_can_be_drawn_from_the_findings(measure, full_world):
    findings = [f for f in full_world.findings(measure) if f.value is not None]
    assert measure.plot.y_label
    assert measure.missing
    assert measure.title
    if "k" in (measure.plot.x, measure.plot.group):
        assert all(f.k is not None for f in findings)
    if measure.plot.group == "none":
        assert {f.scope for f in findings} == {"all"}
    if measure.plot.y_range is not None:
        low, high = measure.plot.y_range
        assert all(low <= f.value <= high for f in findings)


@pytest.mark.slow
@every_measure
def test_sql_is_bound_and_ordered(measure):
    if measure.sql is None:
        return
    assert "$series" in measure.sql
    assert "ORDER BY step" in measure.sql or "ORDER BY g.step" in measure.sql
    assert "{" not in measure.sql
