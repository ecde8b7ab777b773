"""Arguments of Python: valid ones are passed on; others raise one line with name and expected type."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import pytest

import oversharp
from oversharp.diagnostics.app import api
from oversharp.diagnostics.records.arguments import check_arguments, convert_value
from oversharp.diagnostics.records.errors import ConfigError


@pytest.mark.parametrize(
    ("hint", "given", "taken"),
    [
        (Sequence[str] | None, "verl", ("verl",)),
        (Sequence[str] | None, ["a", "b"], ("a", "b")),
        (Sequence[str] | None, pd.Series(["a", "b"]), ("a", "b")),
        (Sequence[str] | None, (name for name in "ab"), ("a", "b")),
        (Sequence[str] | None, None, None),
        (Sequence[Path | str], Path("a"), (Path("a"),)),
        (Path | str | Sequence[Path | str], "runs/a", "runs/a"),
        (tuple[int, ...], 8, (8,)),
        (tuple[int, ...], [1, np.int64(8)], (1, 8)),
        (tuple[float, ...] | None, 0.5, (0.5,)),
        (Path, "audit", Path("audit")),
        (Path | None, Path("audit"), Path("audit")),
        (float, 1, 1),
        (int, np.int32(3), 3),
        (Literal["auto", "none"], "none", "none"),
        (Any, [object], [object]),
    ],
)
def test_what_fits_is_passed_on_and_one_value_does_for_a_list(hint: Any, given: Any, taken: Any) -> None:
    fitting = convert_value("argument", given, hint)
    assert fitting == taken
    assert type(fitting) is type(taken) or isinstance(fitting, np.integer)


@pytest.mark.parametrize(
    ("hint", "given", "message"),
    [
        (int, "64", "n='64': takes a whole number, not str"),
        (int | None, 6.5, "n=6.5: takes a whole number or None, not float"),
        (int, True, "n=True: takes a whole number, not bool"),
        (bool, "yes", "n='yes': takes True or False, not str"),
        (str, 3, "n=3: takes text, not int"),
        (Path, 3, "n=3: takes a path, not int"),
        (Path, None, "n=None: takes a path, not NoneType"),
        (Sequence[str] | None, ["a", 4], "n=['a', 4]: takes a list of texts or None, not list with int and str"),
        (tuple[int, ...], "1,8", "n='1,8': takes a list of whole numbers, not str"),
        (Literal["auto", "bfloat16"], "bf16", "n='bf16': takes auto or bfloat16; did you mean: bfloat16"),
        (int, ["x" * 200], "n=['" + "x" * 58 + "…: takes a whole number, not list with str"),
    ],
)
def test_what_does_not_fit_is_one_line_with_what_it_takes(hint: Any, given: Any, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        convert_value("n", given, hint)
    assert str(refused.value) == message


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: oversharp.AuditConfig(task="countdown", n="64"), "n='64': takes a whole number, not str"),
        (lambda: oversharp.AuditConfig(num_samples=64), "num_samples: AuditConfig takes no such argument; did you me"),
        (lambda: oversharp.AuditConfig(64), "AuditConfig: takes only keyword arguments, not 64"),
        (lambda: oversharp.ImportConfig(stor="x"), "stor: ImportConfig takes no such argument; did you mean: store"),
        (lambda: oversharp.TrainConfig(lr=1.0), "lr: TrainConfig takes no such argument; did you mean: learning_rate"),
        (lambda: oversharp.ConfirmConfig(most="3"), "most='3': takes a whole number, not str"),
        (lambda: oversharp.audit("runs/grpo", nn=4), "nn: audit takes no such argument; did you mean: n"),
        (lambda: oversharp.audit("runs/grpo", task="countdown", n="4"), "n='4': takes a whole number, not str"),
        (lambda: oversharp.audit("runs/grpo", task="countdown", n=0), "n=0: must be at least 1"),
        (lambda: oversharp.audit_shard("runs/grpo", task="countdown"), "shard: pass the share of the problems"),
        (lambda: oversharp.ship("a.duckdb", serie="x"), "serie: ship takes no such argument; did you mean: series"),
        (lambda: oversharp.ship(), "ship: missing a required argument: 'store'; its arguments are store, series"),
        (lambda: oversharp.ship("a.duckdb", "x"), "ship: too many positional arguments; its arguments are store, ser"),
        (lambda: oversharp.ship("a.duckdb", allow_loss_points="3"), "allow_loss_points='3': takes a number, not str"),
        (lambda: oversharp.diff("a.duckdb", steps="20"), "steps='20': takes a list of whole numbers, not str"),
        (lambda: oversharp.explain(3), "name=3: takes text, not int"),
    ],
)
def test_a_wrong_argument_of_the_api_is_a_config_error_of_one_line(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        call()
    assert str(refused.value).startswith(message)
    assert len(str(refused.value).splitlines()) == 1


#: Positional arguments of verbs that take more than one path.
FIRST = {"train": [], "audit_shard": ["first", None, "1/2"]}


@pytest.mark.parametrize("verb", api.VERBS)
def test_every_verb_checks_its_arguments(verb: str) -> None:
    with pytest.raises(ConfigError, match=r"surely_no_argument: \w+ takes no such argument"):
        getattr(oversharp, verb)(*FIRST.get(verb, ["first"]), surely_no_argument=1)


def test_what_a_module_imports_for_annotations_alone_is_not_checked() -> None:
    def call(count: int, other: heard.Of | None = None) -> heard.Of[int]:  # type: ignore[name-defined]  # noqa: F821
        return count, other

    assert check_arguments(call)(3, other="anything") == (3, "anything")
    with pytest.raises(ConfigError, match="count='3': takes a whole number"):
        check_arguments(call)("3")
