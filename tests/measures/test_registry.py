import importlib
import pkgutil
from dataclasses import replace
from typing import get_args

import pytest

import oversharp.diagnostics.measures as registry
from oversharp.diagnostics.measures import FORMER_NAMES, all_measures, get_measure
from oversharp.diagnostics.measures.contract import Section
from oversharp.diagnostics.records.errors import ConfigError


def test_a_file_defines_the_measure_of_its_name_or_a_family():
    modules = [
        importlib.import_module(f"{registry.__name__}.{info.name}")
        for info in pkgutil.iter_modules(registry.__path__)
        if not info.name.startswith("_") and info.name != "contract"
    ]
    alone = {module.MEASURE.name: module.__name__.split(".")[-1] for module in modules if hasattr(module, "MEASURE")}
    families = [measure.name for module in modules for measure in getattr(module, "MEASURES", ())]
    assert all(name == file for name, file in alone.items())
    assert sorted(all_measures()) == sorted([*alone, *families])
    assert {name: measure.name for name, measure in all_measures().items()} == {name: name for name in all_measures()}


def test_sections_come_in_reading_order_and_names_in_alphabetical():
    order = list(get_args(Section))
    keys = [(order.index(measure.section), measure.name) for measure in all_measures().values()]
    assert keys == sorted(keys)


def test_a_misspelt_name_gets_the_nearest():
    with pytest.raises(ConfigError, match="no measure is called 'answer_entrpy'; did you mean answer_entropy"):
        get_measure("answer_entrpy")
    with pytest.raises(ConfigError, match="known: best_at_k, best_of_k, change_budget"):
        get_measure("zzz")


def test_a_former_name_finds_the_measure():
    assert {get_measure(former).name for former in FORMER_NAMES} == set(FORMER_NAMES.values())


def test_an_unknown_section_is_refused():
    with pytest.raises(ValueError, match="no section 'gossip'"):
        replace(get_measure("pass_at_k"), section="gossip")
