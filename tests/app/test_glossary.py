"""Every label and heading on the console and in the report, every benchmark and preset can be explained."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, get_args

import pytest
from rich.console import Console
from rich.table import Table as ConsoleTable

import oversharp
from oversharp.diagnostics.app.cli import main
from oversharp.diagnostics.app.console import changes, judging, layout, results, shipping
from oversharp.diagnostics.app.console.changes import show_diff, show_lost
from oversharp.diagnostics.app.console.layout import LABEL_WIDTH, OutputColumn, table_lines
from oversharp.diagnostics.app.console.plan import print_plan
from oversharp.diagnostics.app.console.verdict import FRONTIER_TITLES, READINGS, print_verdict
from oversharp.diagnostics.app.verbs.glossary import ALSO, WORDS, task_explanation
from oversharp.diagnostics.app.verbs.planning import _print_overlap as show_overlap
from oversharp.diagnostics.measures import all_measures
from oversharp.diagnostics.records.errors import ConfigError, ProblemError
from oversharp.diagnostics.statistics.problem_changes import State
from oversharp.diagnostics.store import Store
from oversharp.diagnostics.tasks.benchmarks import BENCHMARKS
from oversharp.diagnostics.tasks.presets import PRESETS
from oversharp.diagnostics.verdict import audit_sizes
from oversharp.diagnostics.verdict.headings import TITLES
from oversharp.diagnostics.verdict.words.sharpening import SHARPENING_TITLES
from oversharp.reports.page import build_page, read_context
from oversharp.reports.records import Table, Tile

#: Headings of plain English, and of tables whose first column names settings.
PLAIN = {"", "benchmark", "how much", "id", "in", "of", "path", "runs", "setting", "table", "title", "value", "what"}
PLAIN |= {"method", "series or model", "answer", "part", "next", "task", "accepted by"}
PLAIN |= {"best between", "quantity", "amount", "explanation", "other explanation, or why not claimed"}


of_imports = pytest.mark.xdist_group("imported_store")  # they share what takes seconds to make


def explained(word: str) -> bool:
    try:
        return bool(oversharp.explain(word))
    except ConfigError:
        return False


def parts(record: Any) -> Iterator[Any]:
    """The record and all that it is made of."""
    yield record
    inside = [getattr(record, one.name) for one in fields(record)] if is_dataclass(record) else record
    for one in inside if isinstance(inside, list | tuple) else ():
        if is_dataclass(one) or isinstance(one, list | tuple):
            yield from parts(one)


def test_every_label_of_a_verdict_and_every_state_is_explained() -> None:
    out = [f"out, {word}" for word, _ in shipping.OUT.values()]
    labels = [*TITLES.values(), *SHARPENING_TITLES.values(), *FRONTIER_TITLES.values(), *out, *get_args(State)]
    labels += [shipping.UNKNOWN, "lower pass@1", "recommended", "kept", "open", "left out", "out, surely"]
    labels += [f"{state}, or chance" for state in get_args(State)]
    assert [label for label in labels if not explained(label)] == []
    assert oversharp.explain("Not shown").startswith("not shown: Heading of a verdict")


@dataclass(frozen=True)
class Results:
    """What the commands print of one store, computed once."""

    shipping: tuple[oversharp.Recommendation, ...]
    diff: oversharp.StepDifference
    lost: oversharp.LostProblems
    plan: oversharp.Plan


@pytest.fixture(scope="module")
def computed(imported_store: Path) -> Results:
    with pytest.MonkeyPatch.context() as patched:  # the largest audits take long to simulate
        patched.setattr(audit_sizes, "SAMPLES", (64,))
        patched.setattr(audit_sizes, "PROBLEM_MULTIPLES", (1, 2))
        planned = oversharp.plan(imported_store, series="one")
    return Results(
        # without and with a guarantee
        shipping=(*oversharp.ship(imported_store), *oversharp.ship(imported_store, allow_loss_points=90.0)),
        diff=oversharp.diff(imported_store, steps=[0, 100], series="one"),
        lost=oversharp.lost(imported_store, series="one"),
        plan=planned,
    )


@pytest.mark.slow
@of_imports
def test_every_word_that_starts_a_line_of_the_console_is_explained(
    imported_store: Path, computed: Results, capsys: pytest.CaptureFixture[str]
) -> None:
    with oversharp.open_store(imported_store) as store:
        verdict = store.verdict("one")
        assert verdict is not None
        for explain in (True, False):
            print_verdict(verdict, imported_store, made_of=store.made_of("one"), explain=explain)
    shipping.print_shipping(computed.shipping, store_path=imported_store, explain=True)
    show_diff(computed.diff, False, store_path=imported_store, explain=True)
    show_lost(computed.lost, False, store_path=imported_store, explain=True)
    print_plan(computed.plan)
    lines = capsys.readouterr().out.splitlines()
    starts = (line[:LABEL_WIDTH].strip() for line in lines)
    heads = {start for start in starts if re.fullmatch(r"[a-z][a-z@1]*( [a-z@]+)*", start)}
    assert {"verdict", "pass@1", "worst pass@k", "frontier", "cause", "ship", "next", "caveat", "guarantee"} <= heads
    heads |= {"made of", "report", "store", "warning", "lost step", "modes"}
    heads |= {"judge", "labels", "repeats agree", "leniency"}
    heads |= {f"{reading} @{k}" for reading in READINGS.values() for k in "1k"}
    assert [head for head in sorted(heads) if not explained(head)] == []


@pytest.mark.slow
@of_imports
def test_every_heading_of_a_table_on_the_console_is_explained(
    imported_store: Path, computed: Results, monkeypatch: pytest.MonkeyPatch
) -> None:
    headings: list[str] = []
    add = ConsoleTable.add_column

    def recorded_table(columns: Sequence[OutputColumn], rows: Sequence[Sequence[str] | str]) -> list[str]:
        headings.extend(column.heading for column in columns)
        return table_lines(columns, rows)

    def recorded(table: ConsoleTable, header: str = "", *given: Any, **named: Any) -> None:
        headings.append(str(header))
        add(table, header, *given, **named)

    monkeypatch.setattr(ConsoleTable, "add_column", recorded)
    monkeypatch.setattr(layout, "table_lines", recorded_table)
    out = Console(file=io.StringIO(), width=200)
    shipping.print_shipping(computed.shipping, out=out)
    print_plan(computed.plan, out)
    changes.show_diff(computed.diff, False, store_path=imported_store, explain=False)
    changes.show_lost(computed.lost, False, store_path=imported_store, explain=False)
    show_overlap(oversharp.check_problems("countdown", ["countdown"]), out)
    headings += [column.heading for column in (*results.CONFIRM_COLUMNS, *judging.PROBE_COLUMNS)]
    headings += [column.heading for column in judging.CORRECTED_COLUMNS]
    assert {"worst pass@k, points", "adjusted p", "problems", "same words", "seemed"} <= set(headings)
    assert [one for one in headings if one not in PLAIN | {"step 100"} and not explained(one)] == []


@pytest.mark.slow
@of_imports
def test_every_heading_of_the_report_is_explained(imported_store: Path) -> None:
    with Store.open(imported_store, read_only=True) as store:
        page = build_page(read_context(store, tuple(all_measures().values()), store_name="audit.duckdb", series=None))
    headings, own = set(), {"one", "two", "two \N{MINUS SIGN} one (points)"}
    for one in parts(page):
        if isinstance(one, Table) and not one.title.endswith("data"):  # a figure's own are names of its lines
            headings |= {column.name.removeprefix("one: ").removeprefix("two: ") for column in one.columns}
        if isinstance(one, Tile):
            headings.add(one.title)
    assert {"worst pass@k", "null hypothesis", "simultaneous", "problems lost", "weights hash"} <= headings
    assert [one for one in sorted(headings - PLAIN - own) if not explained(one)] == []


@pytest.mark.slow
@of_imports
def test_every_claim_of_a_verdict_is_explained(imported_store: Path) -> None:
    with oversharp.open_store(imported_store) as store:
        verdict = store.verdict("one")
    assert verdict is not None
    assert len(verdict.claims) == 7
    assert [one.name for one in verdict.claims if not explained(one.name)] == []


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("sharper", "sharper"),
        ("worst", "worst pass@k"),
        ("over-sharpened", "over-sharpened"),
        ("Over_Sharpened", "over-sharpened"),
        ("over sharpening", "over-sharpening"),
        ("pass@64", "pass@k"),
        ("n = 256", "n"),
        ("change (points)", "points"),
        ("better, or only sharper?", "sharper"),
        ("a run of 13 words", "shared run"),
        ("adjusted p", "p"),
        ("Answer entropy", "answer_entropy"),
        ("pass at k", "pass_at_k"),
    ],
)
def test_a_word_is_found_as_tables_sentences_and_people_write_it(asked: str, found: str) -> None:
    assert oversharp.explain(asked).startswith(f"{found}: ")


def test_other_spellings_lead_to_words_and_hide_none() -> None:
    assert set(ALSO.values()) <= WORDS.keys()
    assert not set(ALSO) & WORDS.keys()
    assert all(word == word.lower() for word in (*WORDS, *ALSO))


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
