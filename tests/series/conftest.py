"""Folders that the tests of series copy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.series.written_runs import write_pieces


@pytest.fixture(scope="session")
def pieces(tmp_path_factory: pytest.TempPathFactory, make_checkpoint: Callable[[Path, int], Path]) -> Path:
    """Return the folders of ``written_runs``. Do not write into them."""
    return write_pieces(tmp_path_factory.mktemp("pieces"), make_checkpoint)
