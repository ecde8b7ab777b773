import importlib
import pkgutil
import re
from dataclasses import replace
from inspect import getsource
from typing import get_args

import pytest

import oversharp.diagnostics.measures as registry
from oversharp.diagnostics.measures import FORMER_NAMES, all_measures, get_measure
from oversharp.diagnostics.measures.contract import LAST, Section
from oversharp.diagnostics.records.errors import ConfigError


def test_every_function_under_a_decorator_is_a_measure():
    modules = [
        importlib.import_module(info.name)
        for info in pkgutil.walk_packages(registry.__path__, f"{registry.__name__}.")
        if info.name != f"{registry.__name__}.declare"  # its example is no measure
    ]
    decorated = re.compile(
        r"^@(?:per_checkpoint|against_base|against_previous|per_series|in_sql|_declare|_rate_of_samples)\("
        r".*?^def (\w+)",
        re.MULTILINE | re.DOTALL,
    )
    declared = [name for module in modules for name in decorated.findall(getsource(module) if module.__file__ else "")]
    assert len(declared) > 90
    assert sorted(all_measures()) == sorted(declared)
    assert {name: measure.name for name, measure in all_measures().items()} == {name: name for name in all_measures()}


def test_measures_are_in_the_order_of_the_report():
    order = list(get_args(Section))
    keys = [(order.index(measure.section), measure.rank, measure.name) for measure in all_measures().values()]
    assert keys == sorted(keys)
    ranks = [key[:2] for key in keys if key[1] != LAST]
    assert len(ranks) == len(set(ranks))


def test_a_misspelt_name_gets_the_nearest():
    with pytest.raises(ConfigError, match="no measure is called 'answer_entrpy'; did you mean answer_entropy"):
        get_measure("answer_entrpy")
    with pytest.raises(ConfigError, match="known: pass_at_k, pass_at_k_delta, pass_at_k_band"):
        get_measure("zzz")


def test_a_former_name_finds_the_measure():
    assert {get_measure(former).name for former in FORMER_NAMES} == set(FORMER_NAMES.values())


def test_an_unknown_section_is_refused():
    with pytest.raises(ValueError, match="unknown section 'gossip'"):
        replace(get_measure("pass_at_k"), section="gossip")
