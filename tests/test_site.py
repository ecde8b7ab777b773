"""The pages as a site: `make docs` builds it, every link leads somewhere, and it loads nothing from other hosts."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.test_docs import DOCS, ROOT, text_of

pytestmark = pytest.mark.xdist_group("site")
needs_mkdocs = pytest.mark.skipif(
    find_spec("mkdocs") is None and not os.environ.get("REQUIRE_ALL"), reason="mkdocs is not installed: make docs"
)


def build(root: Path, out: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(out)],
        cwd=root,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site")
    done = build(ROOT, out)
    assert done.returncode == 0, done.stdout + done.stderr
    return out


def nav() -> list[str]:
    return re.findall(r"^ +- .+: (\S+\.md)$", text_of(ROOT / "mkdocs.yml"), re.MULTILINE)


def test_the_navigation_has_every_page_once() -> None:
    assert sorted(nav()) == sorted(page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md"))


def test_the_navigation_has_four_shelves() -> None:
    shelves = re.findall(r"^  - ([A-Z][\w-]+):$", text_of(ROOT / "mkdocs.yml"), re.MULTILINE)
    assert shelves == ["Tutorials", "How-to", "Reference", "Explanation"]


@pytest.mark.slow
@needs_mkdocs
def test_every_page_and_every_linked_file_is_in_the_site(site: Path) -> None:
    assert (site / "index.html").is_file()
    assert [page for page in nav() if page != "README.md" and not (site / page).with_suffix(".html").is_file()] == []
    assert (site / "repository/benchmarks/results/demo_truth.json").is_file()
    assert 'href="repository/benchmarks/results/demo_truth.json"' in text_of(site / "demo.html")
    assert 'src="repository/benchmarks/results/report.png"' in text_of(site / "demo.html")
    assert 'href="../repository/CONTRIBUTING.html"' in text_of(site / "guides/measures.html")


@pytest.mark.slow
@needs_mkdocs
def test_the_site_loads_nothing_from_other_hosts(site: Path) -> None:
    loaded = re.compile(r"<(?:script|img|iframe|source)[^>]+src=\"?(https?:)?//|<link[^>]+href=\"?(https?:)?//")
    pages = [page for page in site.rglob("*.html") if page.name != "example_report.html"]
    assert [page.name for page in pages if loaded.search(text_of(page))] == []
    assert [sheet.name for sheet in site.rglob("*.css") if re.search(r"url\(\"?https?:", text_of(sheet))] == []


@pytest.mark.slow
@needs_mkdocs
def test_a_broken_link_fails_the_build(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    settings = text_of(ROOT / "mkdocs.yml").partition("\nnav:")[0]
    (tmp_path / "mkdocs.yml").write_text(f"{settings}\nnav: [README.md]\n", encoding="utf-8")
    for name in ("site_links.py", "site.css"):
        shutil.copy(DOCS / name, tmp_path / "docs")
    page = tmp_path / "docs" / "README.md"
    page.write_text("# Page\n", encoding="utf-8")
    assert build(tmp_path, tmp_path / "site").returncode == 0
    links = ("nowhere.md", "../benchmarks/results/absent.md", "README.md#missing")
    page.write_text("# Page\n\n" + "".join(f"[link]({link})\n" for link in links), encoding="utf-8")
    broken = build(tmp_path, tmp_path / "site")
    assert broken.returncode == 1
    warnings = [line for line in (broken.stdout + broken.stderr).splitlines() if line.startswith("WARNING")]
    for link in links:
        assert [line for line in warnings if link.rpartition("/")[2] in line], link
