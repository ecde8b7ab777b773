"""Result files that are older than the code they depend on are marked where the documentation quotes them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from benchmarks.speed import claims, results
from benchmarks.speed.claims import CLAIMS, MARK, PAGE, code_hash, marked, stale


@pytest.mark.slow
def test_the_page_marks_the_files_that_are_older_than_their_code() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == marked(page, stale()), "run: python -m benchmarks.speed.claims --mark"


def test_every_result_file_of_the_page_has_a_claim() -> None:
    linked = re.findall(r"\[`\w+\.json`\]\(\.\./benchmarks/results/(\w+)\.json\)", PAGE.read_text(encoding="utf-8"))
    assert set(linked) == set(CLAIMS)


def test_a_mark_comes_and_goes() -> None:
    page = "[`a.json`](../benchmarks/results/a.json), and [`b.json`](../benchmarks/results/b.json) again"
    once = marked(page, ["b"])
    assert once == page.replace("b.json)", f"b.json){MARK}")
    assert marked(once, ["b"]) == once
    assert marked(once, []) == page


def test_a_result_is_fresh_until_its_code_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "room"
    folder.mkdir()
    (folder / "one.py").write_text('def f() -> int:\n    """Old."""\n    return 1\n')
    (folder / "views.sql").write_text("-- a comment\nSELECT 1\n")
    claim = claims.Claim(module="benchmarks.speed.loss_memory", folders=(str(folder),))
    monkeypatch.setattr(claims, "CLAIMS", {"fast": claim})
    monkeypatch.setattr(claims, "RESULTS", tmp_path)
    monkeypatch.setattr(results, "RESULTS", tmp_path)
    results.write("fast", {"cpu_s": 1.0})
    assert json.loads((tmp_path / "fast.json").read_text())["code"] == code_hash("fast")
    assert stale() == ()

    def now(name: str, text: str) -> tuple[str, ...]:
        (folder / name).write_text(text)
        claims._files.cache_clear()
        return stale()

    assert now("one.py", 'def f() -> int:\n    """New."""\n    return 1  # one\n') == ()
    assert now("views.sql", "-- another comment\nSELECT 1\n") == ()
    assert now("views.sql", "SELECT 2\n") == ("fast",)
    assert now("views.sql", "SELECT 1\n") == ()
    assert now("one.py", "def f() -> int:\n    return 2\n") == ("fast",)


def test_code_that_a_benchmark_starts_in_another_process_counts() -> None:
    reached = {name for name, _ in claims._reached("oversharp.diagnostics.audit.audit:audit")}
    assert {"grade_planned", "SampleForecast"} <= reached
