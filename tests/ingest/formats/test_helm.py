"""HELM is not installed here: the files have the fields of its records, written as its runner writes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from oversharp.diagnostics.ingest.config import ImportConfig
from oversharp.diagnostics.ingest.formats import find_files, helm
from oversharp.diagnostics.ingest.formats.contract import Fault, FilePlace, Recorded, ToolScore
from oversharp.diagnostics.ingest.ingest import import_samples
from oversharp.diagnostics.records.errors import ImportFileError
from tests.ingest.formats.reading import reader, samples
from tests.ingest.formats.test_bad_input import JSON, SETTINGS, changed

read = reader(helm)


def request(i: int, *texts: str, **more: Any) -> dict[str, Any]:
    completions = [
        {"text": text, "logprob": 0, "tokens": [{"text": "a", "logprob": 0}] * 3, "finish_reason": {"reason": "stop"}}
        for text in texts
    ]
    reference = {"output": {"text": f"6 times {i} is {6 * i}. The answer is {6 * i}."}, "tags": ["correct"]}
    return {
        "instance": {"input": {"text": f"6*{i}?"}, "references": [reference], "split": "test", "id": f"id{i}"},
        "train_trial_index": 0,
        "request": {
            "model": "lab/lucky",
            "prompt": f"Q: 6*{i}?\nA:",
            "temperature": 0.7,
            "num_completions": len(texts),
        },
        "result": {"success": True, "embedding": [], "completions": completions, "cached": False},
        "num_train_instances": 0,
        "prompt_truncated": False,
        **more,
    }


def stats(i: int, value: float, **more: Any) -> dict[str, Any]:
    names = {"num_references": 1.0, "exact_match": 0.0, "final_number_exact_match": value}
    listed = [{"name": {"name": name, "split": "test"}, "count": 1, "sum": mean} for name, mean in names.items()]
    return {"instance_id": f"id{i}", "train_trial_index": 0, "stats": listed, **more}


def written(folder: Path, requests: list[dict[str, Any]], scores: list[dict[str, Any]] | None, **adapter: Any) -> Path:
    spec = {"method": "generation", "model": "lab/lucky", "temperature": 0.7, "max_tokens": 400, **adapter}
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "scenario_state.json"
    path.write_text(json.dumps({"adapter_spec": spec, "request_states": requests}, indent=2))
    (folder / "run_spec.json").write_text(json.dumps({"name": "gsm", "adapter_spec": spec}, indent=2))
    if scores is not None:
        (folder / "per_instance_stats.json").write_text(json.dumps(scores, indent=2))
    return path


def test_a_run_is_recognised_and_read(tmp_path: Path) -> None:
    folder = tmp_path / "lucky" / "step_40" / "gsm:model=lab_lucky,stop=none"
    path = written(folder, [request(12, "72.")], [stats(12, 1.0)])
    (found,) = find_files([tmp_path]).files
    assert (found.path, found.importer.name) == (path, "helm")
    assert helm.place(path) == FilePlace(run="lucky", step=40, task="gsm:,stop=none")
    assert helm.settings(path) == {"temperature": 0.7, "max_tokens": 400}
    assert read(path) == [
        Recorded(
            1, "Q: 6*12?\nA:", "72.", gold="72", reward=1.0, problem="id12", n_tokens=3, finish_reason="stop"
        )
    ]  # fmt: skip
    assert samples(read(path, "exact_match"))[0].reward == 0.0
    assert read(path, "f1") == [Fault(1, "no score f1")]


def test_the_models_name_tells_the_step_before_folders_do(tmp_path: Path) -> None:
    path = written(tmp_path / "step_3" / "gsm", [], None, model="lab/lucky-step-60")
    assert helm.place(path) == FilePlace(run="lab/lucky", step=60, task="gsm")


def test_several_completions_are_graded_and_the_first_is_compared(tmp_path: Path) -> None:
    path = written(tmp_path, [request(12, "71.", "72.")], [stats(12, 0.0)])
    first, second = samples(read(path))
    assert (first.reward, second.reward, first.gold) == (None, None, "72")
    assert (first.claim, second.claim) == (ToolScore("final_number_exact_match", 0.0, 1), None)


def test_messages_choices_and_thoughts(tmp_path: Path) -> None:
    asked = request(12, "B")
    asked["request"] = {"messages": [{"role": "user", "content": "Which?"}], "prompt": ""}
    asked["output_mapping"] = {"A": "71", "B": asked["instance"]["references"][0]["output"]["text"]}
    asked["result"]["completions"][0] |= {"thinking": {"text": "six dozen"}, "tokens": []}
    (sample,) = samples(read(written(tmp_path, [asked], None, temperature=0)))
    assert (sample.prompt, sample.response, sample.gold) == ("Which?", "<think>six dozen</think>\nB", "B")
    assert (sample.greedy, sample.n_tokens, sample.reward) == (True, None, None)


def test_a_perturbed_copy_is_a_related_problem_with_its_own_score(tmp_path: Path) -> None:
    changed = {"name": "typos", "robustness": True}
    copy = request(12, "70.")
    copy["instance"] |= {"perturbation": changed, "input": {"text": "6*12 ?"}}
    path = written(tmp_path, [request(12, "72."), copy], [stats(12, 1.0), stats(12, 0.0, perturbation=changed)])
    assert [(one.cluster, one.reward) for one in samples(read(path))] == [("id12", 1.0), ("id12", 0.0)]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"reference_index": 0}, "generates no text; tasks that compare likelihoods cannot be imported"),
        ({"result": {"success": False, "completions": []}}, "the request failed"),
        ({"request": {"prompt": ""}}, "no prompt"),
        ({"instance": None}, "no instance"),
    ],
)
def test_what_is_no_sample_is_told(tmp_path: Path, change: dict[str, Any], why: str) -> None:
    items = read(written(tmp_path, [request(1, "6.") | change, request(2, "12.")], [stats(2, 1.0)]))
    assert items[0] == Fault(1, why)
    assert len(samples(items)) == 1


def test_a_file_that_is_cut_short_is_told(tmp_path: Path) -> None:
    path = written(tmp_path, [request(1, "6.")], None)
    path.write_text(path.read_text()[:-40])
    with pytest.raises(ImportFileError, match=r"scenario_state\.json: .*copy it again"):
        read(path)


@pytest.mark.slow
@given(change=changed(request(12, "72.", "71.")) | JSON, score=changed(stats(12, 1.0)) | JSON)
@SETTINGS
def test_no_request_and_no_score_stops_the_reader(tmp_path: Path, change: Any, score: Any) -> None:
    path = written(tmp_path, [change, request(2, "12.")], [score, stats(2, 1.0)])
    helm.place(path)
    helm.settings(path)
    last = read(path)[-1]
    assert isinstance(last, Recorded)
    assert (last.line, last.reward) == (2, 1.0)


@pytest.mark.slow
@pytest.mark.usefixtures("few_measures")
@pytest.mark.parametrize("n", [1, 4])
def test_completions_are_samples_up_to_the_verdict(tmp_path: Path, n: int) -> None:
    for step in (0, 40):
        texts = {i: [f"try {j}: the answer is {6 * i if (i + j) % 2 else 1000}." for j in range(n)] for i in range(10)}
        scores = [stats(i, float(i % 2)) for i in texts]
        written(tmp_path / "run" / f"step_{step}" / "gsm", [request(i, *texts[i]) for i in texts], scores)
    (one,) = import_samples([tmp_path / "run"], ImportConfig(store=tmp_path / "audit.duckdb")).series
    assert (one.name, one.steps, one.n_problems, one.n, one.doubts) == ("run", (0, 40), 10, n, ())
    assert one.verdict is not None
    assert one.verdict.changes[0].base == pytest.approx(0.5)
