"""Chromium for the tests of pages, and what they need besides: without it they are skipped, or fail where required."""

from __future__ import annotations

import importlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import pytest

_CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
_FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip


@contextmanager
def chromium() -> Iterator[Any]:
    """A headless browser. Playwright runs once in a process: take the fixture ``browser``."""
    if reason := _missing():
        _without(reason)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=_CHROMIUM, args=_FLAGS)
        yield browser
        browser.close()


def serious_violations(page: Any) -> dict[str, list[Any]]:
    """Rule → first elements of what axe calls serious or critical on a page."""
    axe = needed("axe_playwright_python.sync_playwright").Axe()
    found = axe.run(page, options={"resultTypes": ["violations"]}).response["violations"]
    serious = [one for one in found if one["impact"] in ("serious", "critical")]
    return {one["id"]: [node["target"] for node in one["nodes"]][:3] for one in serious}


def needed(module: str) -> Any:
    """An optional module; without it the test is skipped, or fails where everything is required."""
    try:
        return importlib.import_module(module)
    except ImportError:
        _without(f"{module.split('.')[0]} is not installed")


def _missing() -> str:
    try:
        import playwright  # noqa: F401
    except ImportError:
        return "playwright is not installed"
    return "" if _CHROMIUM else "no chromium on PATH"


def _without(reason: str) -> NoReturn:
    if os.environ.get("REQUIRE_ALL") == "1":
        pytest.fail(f"REQUIRE_ALL=1 but {reason}")
    pytest.skip(reason)
