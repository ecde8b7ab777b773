"""Every sample of freshly written dumps is imported with its text, in order."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from oversharp.diagnostics.ingest.formats import find_files
from oversharp.diagnostics.ingest.formats.contract import ReadOptions, Recorded
from tests.ingest.formats.real.tools import PROBLEMS, REPEATS, STEPS, run_inspect, run_lm_eval, write_run

pytestmark = pytest.mark.filterwarnings("ignore")  # of the tools' dependencies

Key = tuple[int | None, str | None, str | None, int | None]


def imported(folder: Path, tool: str) -> dict[Key, Recorded]:
    """Return all samples in an output folder, by step, task, problem and index."""
    inside = find_files([folder])
    assert {one.importer.name for one in inside.files} == {tool}
    assert all(path.name.startswith("results_") for path in inside.unknown)
    by_key: dict[Key, Recorded] = {}
    for one in inside.files:
        place = one.importer.place(one.path)
        assert place.run == "models/lucky"
        assert one.importer.settings(one.path)["temperature"] == 1.0
        for item in one.importer.read_samples(one.path, ReadOptions()):
            assert isinstance(item, Recorded)
            by_key[place.step, place.task, item.problem, item.index] = item
    return by_key


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run of two checkpoints, and problems."""
    write_run(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("lm_eval")
def test_samples_that_lm_evaluation_harness_logs(run: Path) -> None:
    files = run_lm_eval(run)
    by_key = imported(run / "out", "lm-eval")
    assert Counter(key[:2] for key in by_key) == {
        **{(step, "sums"): REPEATS * len(PROBLEMS) for step in STEPS},
        (STEPS[-1], "digits"): len(PROBLEMS),
    }
    for file in files:
        step = int(file.parent.name.rsplit("-", 1)[1])
        for row in map(json.loads, file.read_text().splitlines()):
            for index, text in enumerate(row["resps"][0]):
                item = by_key[step, file.name.split("_")[1], str(row["doc_id"]), index]
                assert (item.response, item.prompt, item.gold) == (text, row["doc"]["prompt"], row["target"])
    assert len({item.response for item in by_key.values()}) > len(by_key) / 2  # drawn, not greedy


@pytest.mark.usefixtures("inspect_ai")
def test_samples_that_inspect_logs(run: Path) -> None:
    from inspect_ai.log import read_eval_log

    files = run_inspect(run)
    by_key = imported(run / "out", "inspect")
    assert len(by_key) == len(STEPS) * REPEATS * len(PROBLEMS)
    for step, file in zip(STEPS, files, strict=True):
        for sample in read_eval_log(str(file)).samples or ():
            item = by_key[step, "sums", str(sample.id), sample.epoch - 1]
            assert (item.response, item.prompt, item.gold) == (sample.output.completion, sample.input, sample.target)
            assert item.reward == (sample.scores or {})["includes"].as_str().count("C")
