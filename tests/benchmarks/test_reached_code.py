"""What the code that a result rests on is: all of it, and nothing else."""

from __future__ import annotations

import importlib
import sys
from itertools import count
from pathlib import Path

import pytest

from benchmarks.calibration import reached_code
from benchmarks.calibration.reached_code import _is_below, code_reached

#: A drawing function, made by another one, and what it draws with in a second module.
MAIN = """
from {helper} import doubled, LEVEL

def made(size):
    def draw():
        return doubled(size) > LEVEL  # as it is
    return draw

def beside():
    return 1
"""
HELPER = '''
LEVEL = 3

class Scale:
    """Twice."""

    def of(self, x):
        return _SHARE * 4 * x

_SHARE = 0.5

def doubled(x):
    from math import floor
    return floor(Scale().of(x))

def alone():
    return LEVEL + 1
'''
_NUMBER = count()


@pytest.fixture
def reached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def of(main: str = MAIN, helper: str = HELPER, *, size: int = 2) -> frozenset[tuple[str, str]]:
        names = [f"{part}_{next(_NUMBER)}" for part in ("main", "helper")]
        for name, source in zip(names, (main.replace("{helper}", names[1]), helper), strict=True):
            (tmp_path / f"{name}.py").write_text(source)
        monkeypatch.syspath_prepend(tmp_path)
        return code_reached(importlib.import_module(names[0]).made(size), root=tmp_path)

    return of


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("LEVEL = 3", "LEVEL = 4"),
        ("4 * x", "5 * x"),
        ("_SHARE = 0.5", "_SHARE = 0.6"),
        ("math import floor", "math import ceil as floor"),
    ],
)
def test_a_change_of_anything_that_is_reached_shows(reached, before, after):
    assert HELPER.replace(before, after) != HELPER
    assert reached(helper=HELPER.replace(before, after)) != reached()


def test_so_does_a_value_that_a_function_was_made_with(reached):
    assert reached(size=3) != reached(size=2)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('"""Twice."""', '"""Two times."""'),
        ("def alone", "def other"),
        ("LEVEL + 1", "LEVEL + 2"),
        ("_SHARE * 4", "_SHARE  *  (4)"),
    ],
)
def test_a_change_of_anything_else_does_not(reached, before, after):
    assert HELPER.replace(before, after) != HELPER
    assert reached(helper=HELPER.replace(before, after)) == reached()


def test_code_may_move_and_be_commented(reached):
    everything = HELPER + MAIN.replace("from {helper} import doubled, LEVEL", "").replace("as it is", "as it was")
    assert reached(main=everything) == reached()


@pytest.mark.parametrize("inside", [False, True])
def test_imports_are_followed_of_modules_below_the_root_inside_functions_too(reached, inside):
    imported = "from {helper} import doubled, LEVEL"
    main = MAIN.replace(imported, "").replace("return doubled", f"{imported}\n        return doubled")
    names = {name for name, _ in reached(main=main if inside else MAIN)}
    assert names == {"made", "made.<locals>.draw: size", "doubled", "LEVEL", "Scale", "_SHARE"}


def test_a_package_that_is_installed_below_the_root_is_not_followed():
    root = Path(sys.prefix).parent  # a checkout that has its environment inside
    assert not _is_below(root, "numpy")
    assert _is_below(Path(reached_code.__file__).parents[2], reached_code.__name__)
