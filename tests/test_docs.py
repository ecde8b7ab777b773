"""What the pages name exists: files, modules, commands with their flags, targets, figures; and no page is an orphan."""

from __future__ import annotations

import doctest
import json
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import oversharp
from benchmarks.speed.claims import CLAIMS
from oversharp.diagnostics.app.cli import app
from oversharp.diagnostics.tasks.benchmarks import BENCHMARKS
from tests.cases import each_case
from tests.shell import blocks, commands, words
from tests.test_architecture import ROOMS

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
RESULTS = ROOT / "benchmarks" / "results"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])
SOURCES = sorted(file for folder in ("diagnostics", "trainers", "reports") for file in (ROOT / folder).rglob("*.py"))
FOLDERS = ("diagnostics", "trainers", "reports", "benchmarks", "tests", "docs")

a_page = each_case("page", PAGES, name_of=lambda page: page.relative_to(ROOT).as_posix())


@cache
def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def code_in(text: str) -> str:
    """Code blocks and code spans, a line each."""
    fenced = re.findall(r"```\w*\n(.*?)```", text, re.DOTALL)
    rest = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    return "\n".join([*fenced, *(span.replace("\n", " ") for span in re.findall(r"`([^`]+)`", rest))])


def verbs() -> set[str]:
    return {name for name in app if not name.startswith("-")}


def missing_files(text: str) -> list[str]:
    """Paths below the repository's folders that are not there; what a command writes is not below them."""
    paths = re.findall(rf"(?<![\w./-])((?:{'|'.join(FOLDERS)})/[\w./-]*\w)", text)
    return sorted({path for path in paths if not (ROOT / path).exists()})


def missing_modules(code: str) -> list[str]:
    """Dotted names of ours of which no part is a module that has the next part."""
    names = set(re.findall(r"(?<![\w./+-])((?:benchmarks|oversharp)(?:\.\w+)+)", code))
    return sorted(
        name for name in names if not name.endswith((".py", ".md", ".duckdb", ".toml")) and not is_there(name)
    )


def is_there(name: str) -> bool:
    if name.startswith("oversharp.") and name.split(".")[1] not in FOLDERS:
        named_in_code = f'"{name}"'  # a group of entry points, a logger
        return name.split(".")[1] in oversharp.__all__ or any(named_in_code in text_of(file) for file in SOURCES)
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        folder = ROOT.joinpath(*parts[:length])
        for file in (folder.with_suffix(".py"), folder / "__init__.py"):
            if file.is_file():
                return length == len(parts) or re.search(rf"\b{parts[length]}\b", text_of(file)) is not None
    return False


def unknown_verbs(code: str) -> list[str]:
    named = set(re.findall(r"(?:^|(?<=[\s(]))oversharp ([a-z][\w-]*)", re.sub(r" # .*", "", code), re.MULTILINE))
    return sorted(named - verbs() - {"rescore"})


def typed(page: Path) -> Iterator[list[str]]:
    """Words of every ``oversharp`` command in the page's shell blocks, without placeholders of settings."""
    for language, block in blocks(page):
        for command in commands(block) if language == "bash" else ():
            match words(command):
                case ["oversharp", *arguments] if "…" not in command:
                    yield arguments


@a_page
def test_files_modules_commands_and_targets_that_a_page_names_exist(page: Path) -> None:
    text = text_of(page)
    code = code_in(text)
    assert missing_files(text) == []
    assert missing_modules(code) == []
    assert unknown_verbs(code) == []
    targets = set(re.findall(r"^([a-z-]+):", text_of(ROOT / "Makefile"), re.MULTILINE))
    assert set(re.findall(r"(?:^|(?<=\s))make ([a-z-]+)", code, re.MULTILINE)) <= targets
    benchmarks = set(re.findall(r"\bbenchmark:([a-z]\w*)", code))
    assert benchmarks <= BENCHMARKS.keys()


@pytest.mark.parametrize("name", ["Makefile", ".ci/run", "pyproject.toml", "mkdocs.yml"])
def test_files_that_the_workshop_names_exist(name: str) -> None:
    assert missing_files(text_of(ROOT / name)) == []


def test_the_messages_on_the_troubleshooting_page_are_printed_by_the_code() -> None:
    code = "\n".join([*map(text_of, SOURCES), text_of(ROOT / "Makefile")])
    printed = re.sub(r'"\s*\n\s*f?"', "", code)  # a message that goes over several lines
    quoted = [
        span
        for row in re.findall(r"^\| (.*?) \|", text_of(DOCS / "troubleshooting.md"), re.MULTILINE)
        for span in re.findall(r"`([^`]+)`", row)
    ]
    assert len(quoted) > 25
    assert [span for span in quoted if span not in printed] == []


TEMPLATES = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))


@pytest.mark.parametrize("template", [file for file in TEMPLATES if file.stem != "config"], ids=lambda file: file.stem)
def test_an_issue_template_asks_for_commands_that_exist(template: Path) -> None:
    text = text_of(template)
    fields = re.findall(r"^    id: (\w+)$", text, re.MULTILINE)
    assert len(fields) == len(set(fields)) == text.count("\n  - type: ") > 0
    commands_asked = [span for span in re.findall(r"`([^`]+)`", text) if span.startswith("oversharp ")]
    for command in commands_asked:
        arguments = words(command.partition(" > ")[0])[1:]
        assert arguments[0] in verbs()
        app.parse_args(arguments, exit_on_error=False, print_error=False)


def test_there_is_a_template_for_bugs_verdicts_and_answers() -> None:
    assert {file.stem for file in TEMPLATES} == {"bug", "config", "misread_answer", "wrong_verdict"}


def test_the_citation_has_the_version_and_the_licence_of_the_package() -> None:
    package = tomllib.loads(text_of(ROOT / "pyproject.toml"))["project"]
    citation = dict(re.findall(r"^(\w[\w-]*): (.+)$", text_of(ROOT / "CITATION.cff"), re.MULTILINE))
    assert (citation["version"], citation["license"]) == (package["version"], package["license"])
    assert citation["cff-version"] == "1.2.0"


def test_what_is_not_there_is_found() -> None:
    assert missing_files("see `diagnostics/nowhere.py`, diagnostics/store and audit/audit.duckdb") == [
        "diagnostics/nowhere.py"
    ]
    code = "oversharp.diagnostics.records.types.Problem oversharp.trainers.nowhere oversharp.audit oversharp.nothing"
    assert missing_modules(code) == ["oversharp.nothing", "oversharp.trainers.nowhere"]
    assert unknown_verbs("oversharp audit x  # oversharp is\n$(oversharp adit)\nthe oversharp\n") == ["adit"]


def failed_examples(text: str) -> int:
    """Number of examples at a Python prompt that print something else. They run in order, in one namespace."""
    runner, names = doctest.DocTestRunner(verbose=False), dict[str, Any]()
    for block in re.findall(r"^```python\n(>>> .*?)^```$", text, re.MULTILINE | re.DOTALL):
        test = doctest.DocTestParser().get_doctest(block, names, "page", None, None)
        runner.run(test, out=lambda _: None, clear_globs=False)
        names = test.globs
    return runner.summarize(verbose=False).failed


@a_page
def test_examples_at_a_python_prompt_print_what_the_page_shows(page: Path) -> None:
    assert failed_examples(text_of(page)) == 0


def test_an_example_that_prints_something_else_is_found() -> None:
    page = "```python\n>>> a = 1\n>>> a\n{shown}\n```\nand\n```python\n>>> a + 1\n2\n```\n"
    assert failed_examples(page.format(shown="1")) == 0
    assert failed_examples(page.format(shown="2")) == 1


@a_page
def test_commands_in_shell_blocks_have_arguments_that_the_command_takes(page: Path) -> None:
    for arguments in typed(page):
        app.parse_args(arguments, exit_on_error=False, print_error=False)


@a_page
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target, anchor in links(page):
        assert target.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.+)$", text_of(target), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def links(page: Path) -> list[tuple[Path, str]]:
    """Files that the page links or shows, with the heading behind ``#``."""
    text = re.sub(r"```.*?```", "", text_of(page), flags=re.DOTALL)
    found = re.findall(r"\]\((?!https?://|#)([^)#\s]+)(?:#([^)\s]+))?\)", text)
    return [((page.parent / target).resolve(), anchor) for target, anchor in found]


def test_every_page_is_linked_from_the_list_of_pages_and_that_from_the_readme() -> None:
    listed = {target for target, _ in links(DOCS / "README.md")}
    assert set(DOCS.rglob("*.md")) - listed == {DOCS / "README.md"}
    assert DOCS / "README.md" in {target for target, _ in links(ROOT / "README.md")}


def test_a_newcomer_reads_the_readme_to_the_end_and_finds_every_guide() -> None:
    assert len(text_of(ROOT / "README.md").splitlines()) <= 120
    guides = set((DOCS / "guides").glob("*.md"))
    assert guides <= {target for target, _ in links(ROOT / "README.md")}


def test_every_command_is_on_the_page_of_commands() -> None:
    listed = set(re.findall(r"^\| `oversharp ([\w-]+)` \|", text_of(DOCS / "command_line.md"), re.MULTILINE))
    assert listed == verbs() - {"rescore"}


def test_contributing_lists_the_rooms_from_the_ground_up() -> None:
    table = re.findall(r"^\| `([\w.]+)` \|", text_of(ROOT / "CONTRIBUTING.md"), re.MULTILINE)
    assert tuple(table) == ROOMS


@pytest.mark.parametrize("name", ["pages", "code"])
def test_nobody_is_told_to_install_oversharp_from_an_index_that_lacks_it(name: str) -> None:
    files = {"pages": PAGES, "code": SOURCES}[name]
    wrong = re.compile(
        r"oversharp\[|pip install [^`\n#]*(?<![\w/-])oversharp(?!')\b|^import diagnostics$", re.MULTILINE
    )
    assert [file.name for file in files if wrong.search(text_of(file))] == []


def numbers_in(value: Any) -> Iterator[float]:
    """Every number in a result file, those in its texts and names too."""
    if isinstance(value, dict):
        yield from numbers_in(list(value))
        yield from numbers_in(list(value.values()))
    elif isinstance(value, list):
        for one in value:
            yield from numbers_in(one)
    elif isinstance(value, str):
        yield from (float(number.replace(",", "")) for number in re.findall(r"\d[\d,]*(?:\.\d+)?", value))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield float(value)


def held_by(number: str, held: list[float]) -> bool:
    """Whether the number is one of these, rounded to as many digits as it has."""
    if "e" in number:
        return float(number) in held
    places = len(number.partition(".")[2])
    return any(f"{one:.{places}f}" == number for one in held)


#: Result files of the page, each with the text up to the next one.
MEASURED = re.findall(
    r"\[`(\w+\.json)`\]\(\.\./benchmarks/results/\w+\.json\)(.*?)(?=\[`\w+\.json`\]\(|^## |\Z)",
    text_of(DOCS / "measured.md"),
    re.MULTILINE | re.DOTALL,
)


@pytest.mark.parametrize(("file", "body"), MEASURED, ids=[file for file, _ in MEASURED])
def test_measured_figures_are_those_of_the_result_file(file: str, body: str) -> None:
    held = list(numbers_in(json.loads((RESULTS / file).read_text(encoding="utf-8"))))
    body = re.sub(r"^\|.*\n(?=\|[-:| ]+\|$)", "", body, flags=re.MULTILINE)  # heads of tables
    figures = re.findall(r"^\| [^|]* \| (.*\d.*) \|$", body, re.MULTILINE)
    assert figures
    for figure in figures:
        numbers = re.findall(r"-?\d[\d,]*(?:\.\d+)?(?:e-\d+)?", figure.replace("−", "-"))
        assert [number for number in numbers if not held_by(number.replace(",", ""), held)] == [], figure


def test_every_result_file_of_the_page_is_compared() -> None:
    assert len(MEASURED) == len(CLAIMS)


def test_a_figure_that_nobody_measured_is_found() -> None:
    held = list(numbers_in({"at n=256": [0.0194, "4000 of 4000"], "most": 1.99, "none": None, "met": True}))
    assert sorted(held) == [0.0194, 1.99, 256, 4000, 4000]
    assert all(held_by(number, held) for number in ("0.0194", "0.02", "2.0", "4000", "256"))
    assert not any(held_by(number, held) for number in ("0.019400001", "0.03", "1.9", "1"))


#: Section of [A] that introduces each of its methods.
SECTIONS = {"IAC": "3.1", "DLC": "3.2"}


def test_the_sections_of_a_paper_are_those_that_introduce_what_is_cited() -> None:
    rows = re.findall(r"^\| (IAC|DLC)\b[^|]*\[A\] (3\.\d)", text_of(DOCS / "findings.md"), re.MULTILINE)
    assert {name for name, _ in rows} == SECTIONS.keys()
    assert [(name, section) for name, section in rows if SECTIONS[name] != section] == []
    for name, folder in (("IAC", "calibrations/iac"), ("DLC", "sampling/dlc")):
        assert f"section {SECTIONS[name]}" in text_of(ROOT / f"trainers/objectives/{folder}.py")


def test_every_result_file_stands_on_a_page() -> None:
    text = "".join(text_of(page) for page in PAGES)
    assert [file.name for file in RESULTS.iterdir() if file.stem not in text] == []
