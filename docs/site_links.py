"""Hook of mkdocs: pages link to files outside docs/ as on GitHub, and the site gets copies of these files.

A Markdown file outside docs/ becomes a page of the site, any other file is copied. Both get the prefix
``repository/``. A link to a file that does not exist stays as it is, so that the strict build reports it.
"""

from __future__ import annotations

import os
import posixpath
import re
from pathlib import Path, PurePosixPath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
DOCS = "docs"
PREFIX = "repository"
_CODE = re.compile(r"(^ *```.*?^ *```$)", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(\]\()(?!\w+:|#)([^)#\s]+)((?:#[^)\s]+)?\))")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add every file outside docs/ that a page links to, and the files that these link to."""
    waiting = [source_path(file.src_uri) for file in files.documentation_pages()]
    seen = set(waiting)
    while waiting:
        page = waiting.pop()
        for target in link_targets(page, (ROOT / page).read_text(encoding="utf-8")):
            if target in seen or not (ROOT / target).is_file() or target.startswith(f"{DOCS}/"):
                continue
            seen.add(target)
            files.append(
                File.generated(
                    config,
                    f"{PREFIX}/{target}",
                    abs_src_path=str(ROOT / target),
                    inclusion=InclusionLevel.NOT_IN_NAV,
                )
            )
            if target.endswith(".md"):
                waiting.append(target)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point links at the copies in the site."""
    here = page.file.src_uri

    def moved(link: re.Match[str]) -> str:
        target = resolve(source_path(here), link[2])
        if not (ROOT / target).exists():
            return link[0]
        return f"{link[1]}{posixpath.relpath(site_path(target), posixpath.dirname(here) or '.')}{link[3]}"

    return "".join(
        part if part.lstrip().startswith("```") else _LINK.sub(moved, part) for part in _CODE.split(markdown)
    )


def link_targets(page: str, markdown: str) -> list[str]:
    """Paths below the root of the repository that a page links to."""
    return [resolve(page, link[2]) for part in _CODE.split(markdown)[::2] for link in _LINK.finditer(part)]


def resolve(page: str, link: str) -> str:
    """The path below the root of the repository that a link of a page leads to."""
    return os.path.normpath(PurePosixPath(page).parent / link)


def source_path(site: str) -> str:
    """The path below the root of the repository of a file of the site."""
    return site.removeprefix(f"{PREFIX}/") if site.startswith(f"{PREFIX}/") else f"{DOCS}/{site}"


def site_path(source: str) -> str:
    """The path in the site of a path below the root of the repository."""
    return source.removeprefix(f"{DOCS}/") if source.startswith(f"{DOCS}/") else f"{PREFIX}/{source}"
