"""What ``oversharp explain`` says of benchmarks and presets."""

from pathlib import Path

import pytest

from oversharp.diagnostics.app.cli import main
from oversharp.diagnostics.records.errors import ProblemError
from oversharp.diagnostics.tasks.benchmarks import BENCHMARKS
from oversharp.diagnostics.tasks.listing import task_explanation
from oversharp.diagnostics.tasks.presets import PRESETS

DOCUMENT = Path(__file__).parents[2] / "docs" / "benchmarks.md"


def explain(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as left:
        main(["explain", *arguments])
    assert left.value.code == 0
    return capsys.readouterr().out


def test_explain_lists_every_benchmark_and_preset(capsys: pytest.CaptureFixture[str]) -> None:
    lines = explain(capsys).splitlines()
    assert {line.split()[0] for line in lines} >= {f"benchmark:{name}" for name in BENCHMARKS} | set(PRESETS)
    assert any(line.startswith("pass_at_k ") for line in lines)


@pytest.mark.parametrize("name", BENCHMARKS)
def test_a_benchmark_is_explained_with_its_commit_and_how_to_copy_it(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = explain(capsys, f"benchmark:{name}")
    known = BENCHMARKS[name]
    for part in (known.title, known.data.path, known.data.revision, known.verifier, f"--task benchmark:{name}={name}"):
        assert part in text
    assert ("--limit" in text) == known.limit_draws


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_explained_and_documented_with_all_it_sets(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    preset = PRESETS[name]
    text = explain(capsys, name)
    for part in (repr(preset.prompt_template), str(preset.temperature), str(preset.top_p), str(preset.max_tokens)):
        assert part in text
    assert preset.source in text
    documented = DOCUMENT.read_text(encoding="utf-8")
    assert f"`{name}`" in documented
    assert f"```\n{preset.prompt_template}```" in documented


def test_other_names_are_left_to_the_measures_but_a_misspelt_benchmark_is_told() -> None:
    assert task_explanation("pass_at_k") is None
    with pytest.raises(ProblemError, match="did you mean: benchmark:gsm8k"):
        task_explanation("benchmark:gsm")
