"""Tools that write dumps for tests. Tests of a missing tool are skipped, or fail with REQUIRE_IMPORTERS=1."""

from __future__ import annotations

import os
from importlib.util import find_spec

import pytest


def _need(package: str) -> None:
    if find_spec(package) is None:
        reason = f"{package} is not installed: make importers"
        if os.environ.get("REQUIRE_IMPORTERS"):
            pytest.fail(reason)
        pytest.skip(reason)


@pytest.fixture(scope="session")
def inspect_ai() -> None:
    """inspect-ai is installed."""
    _need("inspect_ai")


@pytest.fixture(scope="session")
def lm_eval() -> None:
    """lm-evaluation-harness is installed."""
    _need("lm_eval")
