"""Plugins of other distributions, in all six groups of entry points."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest

from oversharp.diagnostics.ingest.formats import all_importers, get_importer
from oversharp.diagnostics.measures import all_measures, get_measure
from oversharp.diagnostics.records import plugins as registry
from oversharp.diagnostics.records.errors import ConfigError, ProblemError
from oversharp.diagnostics.samplers import choose_sampler, make_sampler
from oversharp.diagnostics.tasks import load_problems, task_names
from oversharp.diagnostics.verifiers import Verifiers, get_verifier, verifier_names
from oversharp.diagnostics.ways import get_reader
from oversharp.diagnostics.ways.joining import name_ways


@dataclass(frozen=True, kw_only=True)
class Group:
    """``ask`` returns the plugin of an entry point; ``take`` is an entry point with one of our names."""

    noun: str
    ask: Callable[[str], object]
    take: tuple[str, str]

    @property
    def name(self) -> str:
        return f"oversharp.{self.noun}s"


GROUPS = (
    Group(noun="measure", ask=get_measure, take=("k_star", "oversharp.diagnostics.measures.coverage.changes")),
    Group(noun="importer", ask=get_importer, take=("verl", "oversharp.diagnostics.ingest.formats.verl")),
    Group(
        noun="sampler",
        ask=lambda name: make_sampler(choose_sampler(name, [], device=None)[0], None),
        take=("vllm", "outside:Made"),
    ),
    Group(noun="task", ask=lambda name: load_problems(None, name), take=("countdown", "outside:Made")),
    Group(noun="verifier", ask=get_verifier, take=("math", "outside:Made")),
    Group(noun="way", ask=lambda name: get_reader(), take=("steps", "outside:Made")),
)
every_group = pytest.mark.parametrize("group", GROUPS, ids=[group.noun for group in GROUPS])


@pytest.fixture
def install(monkeypatch, tmp_path) -> Iterator[Callable[..., None]]:
    """Installs a module ``outside`` for one test and entry points, (name, value) each; else those on the path count."""

    def forget() -> None:
        for cached in (registry._find_points_on, all_measures, all_importers):
            cached.cache_clear()

    def make(group: str | None = None, *points: tuple[str, str], outside: str = "") -> None:
        if group is not None:
            found = EntryPoints(EntryPoint(name=name, value=value, group=group) for name, value in points)
            monkeypatch.setattr(registry, "entry_points", lambda group: found.select(group=group))
        (tmp_path / "outside.py").write_text(outside)
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.delitem(sys.modules, "outside", raising=False)
        forget()

    yield make
    forget()


@every_group
@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("no_such_module:Made", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("outside:Missing", "AttributeError: module 'outside' has no attribute 'Missing'"),
        ("outside_broken:Made", "NameError: name 'undefined' is not defined"),
    ],
)
def test_a_broken_plugin_is_named_with_the_hint_in_one_line(install, tmp_path: Path, group: Group, value, why) -> None:
    (tmp_path / "outside_broken.py").write_text("undefined\n")
    install(group.name, ("broken", value))
    with pytest.raises(ConfigError) as refused:
        group.ask("broken")
    mend = "repair or uninstall the package that provides it"
    assert str(refused.value) == f"{group.noun} plugin broken = {value}: {why}; {mend}"


@every_group
def test_a_plugin_of_another_kind_is_named_with_the_hint_in_one_line(install, group: Group) -> None:
    install(group.name, ("broken", "outside:NUMBER"), outside="NUMBER = 1\n")
    with pytest.raises(
        ConfigError, match=rf"^{group.noun} plugin broken = outside:NUMBER: a int, not a .*; point it at"
    ):
        group.ask("broken")


@every_group
def test_a_plugin_may_not_take_a_name_of_ours(install, group: Group) -> None:
    install(group.name, group.take)
    named = rf"{group.take[0]} = {group.take[1]}; rename or uninstall one of them$"
    with pytest.raises(
        ConfigError, match=rf"^{group.noun} '\w+' is defined by both (oversharp|oversharp\.diagnostics\.[\w.]+) and"
    ):
        group.ask(group.take[0])
    with pytest.raises(ConfigError, match=named):
        group.ask("anything else")


@pytest.mark.parametrize("group", GROUPS[2:], ids=[group.noun for group in GROUPS[2:]])
def test_two_plugins_may_not_share_a_name(install, group: Group) -> None:
    install(group.name, ("twice", "one:Made"), ("twice", "other:Made"))
    with pytest.raises(
        ConfigError, match=r"'twice' is defined by both twice = one:Made and twice = other:Made; rename"
    ):
        group.ask("twice")


def test_a_module_a_record_and_a_family_of_records_are_found_with_their_docstrings(install) -> None:
    source = '''"""Foreign: measures from outside."""
from dataclasses import replace
from oversharp.diagnostics.measures.contract import Measure, Plot
MEASURE = Measure(name="foreign", title="Foreign", unit="nats", section="health", needs=(), missing="nothing",
                  plot=Plot(), compute=lambda evidence: [])
MEASURES = (replace(MEASURE, name="first", doc="First: one of two."), replace(MEASURE, name="second"))
'''
    install("oversharp.measures", ("foreign", "outside:MEASURE"), outside=source)
    assert get_measure("foreign").doc == "Foreign: measures from outside."
    install("oversharp.measures", ("foreign", "outside"), outside=source)
    docs = {name: get_measure(name).doc for name in ("foreign", "first", "second")}
    assert docs == {
        "foreign": "Foreign: measures from outside.",
        "first": "First: one of two.",
        "second": "Foreign: measures from outside.",
    }


def test_plugins_are_listed_beside_our_own_and_called_when_asked_for(install) -> None:
    source = "def made(*arguments, **named):\n    return arguments, named\n"
    install("oversharp.verifiers", ("yes", "outside:made"), outside=source)
    assert {"yes", "math"} <= set(verifier_names())
    assert get_verifier("yes") == ((), {})
    install("oversharp.samplers", ("mine", "outside:made"), outside=source)
    assert choose_sampler("mine", [], device=None) == ("mine", "as requested")
    assert make_sampler("mine", "context") == (("context",), {})


def test_a_reader_of_ways_that_names_classes_itself_reads_instead_of_ours(install) -> None:
    source = """
from oversharp.diagnostics.ways.contract import Signature

class Judge:
    name, version, joined_from = "judge", 3, 1.0

    def read(self, texts):
        return [Signature(strategy="judged", steps=("long" if len(text) > 9 else "short",)) for text in texts]
"""
    install("oversharp.ways", ("judge", "outside:Judge"), outside=source)
    reader = get_reader()
    signatures = reader.read(["2 + 2 = 4 is four", "4", "it is 4"])
    named = name_ways(Counter(signatures), joined_from=reader.joined_from)
    assert [named[one] for one in signatures] == ["judged: long", "judged: short", "judged: short"]
    install("oversharp.ways", ("judge", "outside:Judge"), ("other", "outside:Judge"), outside=source)
    with pytest.raises(ConfigError, match=r"^several readers of ways are installed: judge, other; uninstall all but"):
        get_reader()


def test_a_plugin_in_an_installed_distribution_gives_problems_that_its_own_verifier_grades(install, tmp_path) -> None:
    source = """
from oversharp.diagnostics.records.types import Grade, Problem

def doubles(argument, *, limit, seed):
    for number in range(limit):
        gold, verifier = ("x y", "expression") if argument == "bad" else (str(2 * number), "yes")
        yield Problem(task="doubles", prompt=f"2*{number}", gold=gold, verifier=verifier)

class Yes:
    name = "yes"
    n_closed = 0

    def check_gold(self, problem): ...

    def grade(self, items):
        return [Grade(answer=text, mode=text, reward=1.0) for _, text in items]

    def close(self):
        Yes.n_closed += 1
"""
    (tmp_path / "outside-1.dist-info").mkdir()
    (tmp_path / "outside-1.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: outside\nVersion: 1\n")
    points = "[oversharp.tasks]\ndoubles = outside:doubles\n[oversharp.verifiers]\nyes = outside:Yes\n"
    (tmp_path / "outside-1.dist-info/entry_points.txt").write_text(points)
    install(outside=source)
    assert {"doubles", "countdown"} <= set(task_names())
    problems = load_problems(None, "doubles:x", limit=3)
    assert [problem.gold for problem in problems] == ["0", "2", "4"]
    with Verifiers() as verifiers:
        assert verifiers.grade([(problems[0], "no")])[0].correct
    assert sys.modules["outside"].Yes.n_closed == 2  # of the check of the golds, and this one
    with pytest.raises(ProblemError, match="task 'doubles:bad', problem 1: answer 'x y' is not a number"):
        load_problems(None, "doubles:bad", limit=3)
