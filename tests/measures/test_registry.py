from importlib.metadata import EntryPoint, EntryPoints
from typing import get_args

import pytest

import diagnostics.measures as registry
from diagnostics.measures import all_measures, get_measure
from diagnostics.measures.contract import Section
from diagnostics.records.errors import ConfigError


@pytest.fixture
def plugins(monkeypatch):
    """Installs entry points for one test."""

    def install(**names_to_values):
        points = EntryPoints(
            EntryPoint(name=name, value=value, group=registry.ENTRY_POINT_GROUP)
            for name, value in names_to_values.items()
        )
        monkeypatch.setattr(registry, "entry_points", lambda group: points.select(group=group))
        all_measures.cache_clear()

    yield install
    all_measures.cache_clear()


def test_every_file_is_found_and_named_as_its_measure(plugins):
    from pathlib import Path

    plugins()
    files = {path.stem for path in Path(registry.__file__).parent.glob("[!_]*.py")} - {"contract"}
    assert set(all_measures()) == files
    assert {name: measure.name for name, measure in all_measures().items()} == {name: name for name in files}


def test_sections_come_in_reading_order_and_names_in_alphabetical(plugins):
    plugins()
    order = list(get_args(Section))
    keys = [(order.index(measure.section), measure.name) for measure in all_measures().values()]
    assert keys == sorted(keys)


def test_a_misspelt_name_gets_the_nearest(plugins):
    plugins()
    with pytest.raises(ConfigError, match="no measure is called 'answer_entrpy'; did you mean answer_entropy"):
        get_measure("answer_entrpy")
    with pytest.raises(ConfigError, match="known: greedy_accuracy, k_star"):
        get_measure("zzz")


def test_a_plugin_adds_a_measure_with_its_modules_docstring(plugins, tmp_path, monkeypatch):
    (tmp_path / "foreign_measure.py").write_text(
        '"""Foreign: a measure from outside."""\n'
        "from diagnostics.measures.contract import Measure, Plot\n"
        'MEASURE = Measure(name="foreign", title="Foreign", unit="nats", section="health", needs=(),\n'
        '                  missing="nothing", plot=Plot(), compute=lambda evidence: [])\n'
    )
    monkeypatch.syspath_prepend(tmp_path)
    plugins(foreign="foreign_measure:MEASURE")
    assert get_measure("foreign").doc == "Foreign: a measure from outside."
    plugins(foreign="foreign_measure")
    assert get_measure("foreign").title == "Foreign"


def test_a_plugin_may_not_take_a_name(plugins):
    plugins(again="diagnostics.measures.pass_at_k")
    with pytest.raises(ConfigError, match=r"'pass_at_k' is defined by both diagnostics\.measures\.pass_at_k and"):
        all_measures()


@pytest.mark.parametrize(
    "value", ["no_such_module:MEASURE", "diagnostics.records.types:MEASURE", "diagnostics.records.types"]
)
def test_a_broken_plugin_is_named(plugins, value):
    plugins(broken=value)
    with pytest.raises(ConfigError, match=f"measure plugin {value}"):
        all_measures()


def test_an_unknown_section_is_refused():
    from dataclasses import replace

    with pytest.raises(ValueError, match="no section 'gossip'"):
        replace(get_measure("pass_at_k"), section="gossip")
