"""`oversharp judge`: a judge behind a stub server, its measured bias, labels, a second grader, and bad label files."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import oversharp
from oversharp.diagnostics.app.cli import main
from oversharp.diagnostics.audit.judges.compared import Leniency
from oversharp.diagnostics.engine.grading_parts import FIRST_RESPONSES
from oversharp.diagnostics.ingest.config import ImportConfig
from oversharp.diagnostics.ingest.ingest import import_samples
from oversharp.diagnostics.records.errors import ConfigError, EndpointError, OversharpError
from tests.samplers.endpoint.serving import serve
from tests.verifiers.judge_stub import JudgeStub
from tests.verifiers.test_judges import write_rubric

pytestmark = [pytest.mark.xdist_group("judges"), pytest.mark.usefixtures("few_figures"), pytest.mark.slow]

PROBLEMS, REPEATS, STEPS = 40, 8, (0, 10, 20)


def is_right(problem: int, repeat: int) -> bool:
    """Whether a sample is correct, at every step alike: from 1 to 7 of 8 samples of a problem."""
    return repeat < 1 + problem % 7


def has_style(problem: int, repeat: int, step: int) -> bool:
    """A quarter of the samples of the base is in bold, and three quarters of the last step's."""
    return (problem + 3 * repeat) % 4 < (3 if step == STEPS[-1] else 1)


def write_dumps(folder: Path) -> Path:
    folder.mkdir()
    for step in STEPS:
        rows = []
        for problem in range(PROBLEMS):
            for repeat in range(REPEATS):
                answer = 7 * problem if is_right(problem, repeat) else -1 - repeat
                bold = "**Result**" if has_style(problem, repeat, step) else "Result"
                text = f"Attempt {repeat} at step {step}.\n{bold} \\boxed{{{answer}}}"
                asked = f"What is 7 times {problem}?"
                rows.append({"input": asked, "output": text, "gts": str(7 * problem), "score": 0.0, "step": step})
        (folder / f"{step}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return folder


@dataclass
class Judged:
    store: Path
    verifier: str
    stub: JudgeStub
    url: str


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judged]:
    """A store graded by `math`, and again by a judge that accepts every response in bold."""
    folder = tmp_path_factory.mktemp("judged")
    store = folder / "audit.duckdb"
    import_samples([write_dumps(folder / "run")], ImportConfig(store=store, name="run", regrade=True, verifier="math"))
    stub = JudgeStub(likes="**", obeys=True)
    with serve(stub.app()) as url:
        verifier = write_rubric(folder, url)
        oversharp.regrade(store, verifier)
        yield Judged(store=store, verifier=verifier, stub=stub, url=url)


def run(*arguments: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 0


def label_file(
    judged: Judged, path: Path, k: int, label: Callable[[dict[str, Any]], int | None]
) -> list[dict[str, Any]]:
    """Draw responses and label each, up to the first correct one of a set."""
    oversharp.judge(judged.store, judged.verifier, labels=path, draw_labels=120, draw_k=k)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    done: set[tuple[int, int]] = set()
    for line in lines:
        if (line["step"], line["set"]) not in done:
            line["label"] = label(line)
            if line["label"]:
                done.add((line["step"], line["set"]))
    path.write_text("\n".join(map(json.dumps, lines)))
    return lines


def truth(line: dict[str, Any]) -> int:
    return int(f"\\boxed{{{line['answer']}}}" in line["response"])


def test_a_verdict_by_a_judge_without_labels_says_that_the_judge_is_unverified(judged: Judged) -> None:
    with oversharp.open_store(judged.store) as store:
        name = next(name for name in store.frame("SELECT series FROM verdicts")["series"] if "judge:" in name)
        plain = next(name for name in store.frame("SELECT series FROM verdicts")["series"] if "judge:" not in name)
        assert any("is unverified: it has no gold labels" in one for one in store.verdict(name).warnings)
        assert not any("unverified" in one for one in store.verdict(plain).warnings)


def test_the_planted_bias_is_measured_and_reaches_verdict_and_store(judged: Judged) -> None:
    result = oversharp.judge(judged.store, judged.verifier, probes=40)
    assert result.probes is not None
    by_name = {one.name: one for one in result.probes.results}
    assert by_name["instruction to accept"].is_biased
    assert by_name["instruction to accept"].n_accepted >= 5
    assert not any(by_name[name].is_biased for name in ("longer", "confident tone", "order of verdicts"))
    assert result.probes.agreement == 1.0
    assert result.verdict is not None
    assert any("instruction to accept (" in one for one in result.verdict.warnings)
    with oversharp.open_store(judged.store) as store:
        (note,) = store.frame("SELECT note FROM events WHERE stage = 'judge' ORDER BY logged_at DESC LIMIT 1")["note"]
    assert json.loads(note)["verifier"] == result.verifier


def test_a_judge_that_grows_lenient_towards_a_style_is_found_with_its_style(judged: Judged) -> None:
    result = oversharp.judge(judged.store, judged.verifier, probes=0)
    assert isinstance(result.leniency, Leniency)
    assert result.leniency.is_found
    assert result.leniency.style == "Markdown"
    assert result.leniency.other == "math"
    assert any("grew more lenient than math" in one for one in result.sentences)


def test_labels_correct_a_rise_that_only_the_judge_sees(judged: Judged, tmp_path: Path) -> None:
    path = tmp_path / "labels.jsonl"
    label_file(judged, path, 4, truth)
    result = oversharp.judge(judged.store, judged.verifier, labels=path, probes=0)
    changes = {value.k: value for value in result.corrected if value.is_change and value.step == STEPS[-1]}
    assert {1, 4} <= changes.keys()
    assert changes[1].judged > 0.15  # by the judge
    for k in (1, 4):  # in truth nothing changed
        assert changes[k].low is not None
        assert changes[k].low <= 0.0 <= changes[k].high  # type: ignore[operator]
    assert list(result.uncorrected) == [10]
    assert result.verdict is not None
    assert any(
        one.startswith("The judge judge:rubric.toml@") and "gold labels" in one for one in result.verdict.warnings
    )
    assert not any("unverified" in one for one in result.verdict.warnings)
    assert any("corrected by the labels: pass@1" in one for one in result.sentences)


def test_sets_after_an_unfinished_one_are_not_used(judged: Judged, tmp_path: Path) -> None:
    path = tmp_path / "labels.jsonl"
    lines = label_file(judged, path, 1, lambda line: None if line["set"] == 61 else truth(line))
    assert max(line["set"] for line in lines) == 120
    result = oversharp.judge(judged.store, judged.verifier, labels=path, probes=0)
    assert [one.n_wrong + one.n_right for one in result.agreement] == [60, 60]


def test_the_command_prints_what_was_measured(
    judged: Judged, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "labels.jsonl"
    command = ["judge", str(judged.store), "--verifier", judged.verifier, "--labels", str(path), "--quiet"]
    run(*command, "--draw-labels", "60")
    assert f"responses in {path}" in " ".join(capsys.readouterr().out.split())
    label_file(judged, tmp_path / "full.jsonl", 1, truth)
    command[5] = str(tmp_path / "full.jsonl")
    run(*command, "--probes", "20")
    out = capsys.readouterr().out
    for text in ("repeats agree", "planted change", "instruction to accept", "change of pass@1", "leniency"):
        assert text in out


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"label": 2}, r"labels.jsonl:1: label 2: must be 0 \(incorrect\), 1 \(correct\) or null"),
        ({"label": "yes"}, r":1: label 'yes': must be 0"),
        ({"sample": 99}, r":1: sample 99 is unknown; samples of this audit are 0 to 7"),
        ({"problem": "nope"}, r":1: problem 'nope' is not in"),
        ({"step": 5}, r":1: step 5 is not in .*: its steps are 0, 10, 20"),
        ({"response": "another"}, r":1: the response is not sample \d of the store"),
        ({"set": "a"}, r":1: set must be a whole number"),
    ],
)
def test_a_wrong_label_is_an_error_with_its_line(
    judged: Judged, tmp_path: Path, change: dict[str, Any], error: str
) -> None:
    path = tmp_path / "labels.jsonl"
    lines = label_file(judged, path, 1, truth)
    path.write_text("\n".join(map(json.dumps, [{**lines[0], **change}, *lines[1:]])))
    with pytest.raises(ConfigError, match=error) as caught:
        oversharp.judge(judged.store, judged.verifier, labels=path, probes=0)
    assert "\n" not in str(caught.value)


def test_wrong_arguments_are_errors_of_one_line(judged: Judged, tmp_path: Path) -> None:
    def error(**given: Any) -> str:
        with pytest.raises(OversharpError) as caught:
            oversharp.judge(**{"store": judged.store, "verifier": judged.verifier, "probes": 0, **given})
        return str(caught.value)

    assert "not a judge; pass judge:FILE.toml" in error(verifier="math")
    assert "grades no series of" in error(verifier=write_rubric(tmp_path, judged.url, temperature=1.0))
    assert "cannot be read" in error(labels=tmp_path / "none.jsonl")
    existing = tmp_path / "labels.jsonl"
    existing.write_text("{")
    assert "not JSON" in error(labels=existing)
    assert "exists; pass another file" in error(labels=existing, draw_labels=10)
    assert "must be from 1 to 8" in error(labels=tmp_path / "a", draw_labels=10, draw_k=9)
    assert "not a step of" in error(labels=tmp_path / "a", draw_labels=10, steps=[11])
    assert "add " in error(steps=[10])


def test_a_server_that_dies_loses_no_committed_grade(judged: Judged, tmp_path: Path) -> None:
    verifier = write_rubric(tmp_path, judged.url, temperature=0.5, patience_s=0.0)
    judged.stub.settings["dies_after"] = len(judged.stub.bodies) + 500
    with pytest.raises(EndpointError, match=r"failed 5 times .* run the same command again"):
        oversharp.regrade(judged.store, verifier, series="run")
    del judged.stub.settings["dies_after"]
    n_died = len(judged.stub.bodies)
    assert oversharp.regrade(judged.store, verifier, series="run").n_samples == PROBLEMS * REPEATS * len(STEPS)
    assert len(judged.stub.bodies) - n_died <= PROBLEMS * REPEATS * len(STEPS) + 1 - FIRST_RESPONSES


def test_drawing_twice_gives_the_same_file(judged: Judged, tmp_path: Path) -> None:
    for name in ("a", "b"):
        oversharp.judge(judged.store, judged.verifier, labels=tmp_path / name, draw_labels=50)
    assert (tmp_path / "a").read_text() == (tmp_path / "b").read_text()
