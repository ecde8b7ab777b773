"""`make gpu` runs each stage once, leaves out what a package is missing for, and says which failed."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.gpu import kit as gpu
from benchmarks.gpu.base import SIZES, build
from benchmarks.gpu.kit import Outcome, Stage, run_all, stages
from oversharp.diagnostics.app.cli import app


def stage(name: str, code: str, *after: str) -> Stage:
    return Stage(name=name, command=(sys.executable, "-c", code), after=after)


def outcomes(done: list[Outcome]) -> dict[str, tuple[str, str | None]]:
    return {one.stage: (one.outcome, one.why) for one in done}


@pytest.mark.slow
def test_a_stage_that_ended_well_is_not_run_again_and_what_it_said_is_kept(tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    code = f"open({str(ran)!r}, 'a').write('x'); print('by the way'); print('{{\"tokens\": 3}}')"
    todo = [stage("one", code), stage("two", "raise SystemExit('no room left')", "one"), stage("three", "", "two")]
    first = run_all(todo, tmp_path, tmp_path / "stages.json", limit_s=60)
    assert first[0].told == {"tokens": 3}
    assert outcomes(first) == {
        "one": ("done", None),
        "two": ("failed", "no room left"),
        "three": ("left out", "two: no room left"),
    }
    mended = [todo[0], stage("two", "print('now')", "one"), todo[2]]
    second = run_all(mended, tmp_path, tmp_path / "stages.json", limit_s=60)
    assert [one.outcome for one in second] == ["done"] * 3
    assert second[1].told == "now"
    assert ran.read_text() == "x"
    assert [one["stage"] for one in json.loads((tmp_path / "stages.json").read_text())] == ["one", "two", "three"]


def test_a_package_that_is_not_there_is_no_failure_but_a_fault_of_ours_is(tmp_path: Path) -> None:
    todo = [stage("audit", "import duckdbb.core"), stage("ours", "import oversharp.diagnostics.no_such_room")]
    assert outcomes(run_all(todo, tmp_path, tmp_path / "stages.json", limit_s=60)) == {
        "audit": ("left out", "the package duckdbb is not installed"),
        "ours": ("failed", "ModuleNotFoundError: No module named 'oversharp.diagnostics.no_such_room'"),
    }


@pytest.mark.slow
def test_a_stage_that_takes_too_long_is_stopped_and_said_to_have_failed(tmp_path: Path) -> None:
    todo = [stage("hangs", "import time; time.sleep(60)"), stage("next", "print('ran')")]
    assert outcomes(run_all(todo, tmp_path, tmp_path / "stages.json", limit_s=1)) == {
        "hangs": ("failed", "took more than 1 s (--stage-limit-s)"),
        "next": ("done", None),
    }


def test_a_stage_finds_the_checkout_and_what_lay_on_the_path_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere.py").write_text("told = 5\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    todo = [stage("both", "import elsewhere, oversharp; print(elsewhere.told)")]
    assert run_all(todo, tmp_path, tmp_path / "stages.json", limit_s=60)[0].told == 5


@pytest.mark.parametrize("size", gpu.SIZES)
def test_oversharp_takes_the_commands_of_both_series_and_every_stage_comes_after_what_it_needs(
    size: str, tmp_path: Path
) -> None:
    todo = stages(tmp_path, "cpu", size)
    ours = [one for one in todo if one.command[1:3] == ("-m", "oversharp")]
    assert [one.name for one in ours] == ["train grpo", "audit grpo", "train iac", "audit iac"]
    for one in ours:
        called, bound, _ = app.parse_args(list(one.command[3:]), exit_on_error=False, print_error=False)
        assert called.__name__ == one.command[3]
        assert bound.arguments
    names = [one.name for one in todo]
    assert all(names.index(needed) < names.index(one.name) for one in todo for needed in one.after)
    assert todo[0].environment == {"GPU_TESTS": "cpu"}


def test_a_run_with_a_failed_stage_ends_with_1_and_its_result_names_device_and_versions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def main_with(code: str) -> tuple[int, dict[str, Any]]:
        monkeypatch.setattr(gpu, "stages", lambda *_: [stage("tests", code)])
        exit_code = gpu.main(["--device", "cpu", "--size", "smallest", "--out", str(tmp_path)])
        return exit_code, json.loads((tmp_path / "gpu.json").read_text())

    exit_code, result = main_with("raise SystemExit('1 failed, 8 passed')")
    assert exit_code == 1
    assert result["stages"][0]["why"] == "1 failed, 8 passed"
    assert main_with("import duckdbb")[0] == 0
    exit_code, result = main_with("print('9 passed')")
    assert exit_code == 0
    assert (result["device"], result["stages"][0]["told"]) == ("cpu", "9 passed")
    assert result["versions"]["torch"] == torch.__version__
    assert result["verdicts"] == "no audit came to its end"


def test_the_base_of_the_series_has_more_than_thirty_million_parameters() -> None:
    with torch.device("meta"):
        model = build(SIZES["full"])
    assert 30e6 < sum(one.numel() for one in model.parameters()) < 40e6


def test_selected_stages_run_in_the_given_order_and_results_of_earlier_calls_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ("one", "two", "three")
    monkeypatch.setattr(gpu, "stages", lambda *_: [stage(name, f"print('{name} ran')") for name in names])

    def main_with(chosen: str) -> list[str]:
        arguments = ["--device", "cpu", "--size", "smallest", "--out", str(tmp_path), "--stages", chosen]
        assert gpu.main(arguments) == 0
        return [one["told"] for one in json.loads((tmp_path / "gpu.json").read_text())["stages"]]

    assert main_with("two") == ["two ran"]
    assert main_with("three, one") == ["two ran", "three ran", "one ran"]
    with pytest.raises(SystemExit):
        main_with("four")
    assert "--stages four: unknown; one of one, two, three" in capsys.readouterr().err
