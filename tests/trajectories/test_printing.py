"""Commands and reports that print a response print what the model wrote, without observations."""

from __future__ import annotations

from pathlib import Path

import pytest

from oversharp.diagnostics.app.cli import main
from tests.viewer.agents import PROMPT, SHORT, write_agents

CALL, OBSERVATION = 'list_files({"path": "."})', "zebra.md <img"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a store and its report."""
    folder = tmp_path_factory.mktemp("printed")
    write_agents(folder, {step: [(PROMPT, turns, reward) for turns, reward in SHORT[step]] for step in SHORT})
    return folder


@pytest.mark.slow
def test_lost_answers_print_calls_and_no_observations(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["lost", str(folder / "agents.duckdb"), "--answers"])
    assert ended.value.code == 0
    printed = capsys.readouterr().out
    assert f"    | {CALL}" in printed
    assert "It has 12 lines" in printed
    assert OBSERVATION not in printed


@pytest.mark.slow
def test_the_report_has_calls_and_no_observations(folder: Path) -> None:
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "list_files({" in page
    assert "zebra.md &lt;img" not in page
