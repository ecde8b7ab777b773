"""Many cases in one test: each is checked, and the test fails with all that failed, by name.

For checks of milliseconds: as parametrized tests, thousands of them cost more in pytest than in what they check.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any


def each_case(
    argument: str, cases: Iterable[Any], name_of: Callable[[Any], str] = str
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Run the decorated test once for every case, passed as ``argument``; fixtures are shared by all cases.

    Raises:
        ExceptionGroup: what the cases raised that failed, each with a note of its name.
    """
    listed = list(cases)

    def decorate(check: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(check)
        def all_of_them(**fixtures: Any) -> None:
            failures = []
            for case in listed:
                try:
                    check(**fixtures, **{argument: case})
                except Exception as failure:  # noqa: BLE001  # raised below, all together
                    failure.add_note(f"case: {name_of(case)}")
                    failures.append(failure)
            assert listed, "no case"
            if failures:
                raise ExceptionGroup(f"{len(failures)} of {len(listed)} cases", failures)

        signature = inspect.signature(check)
        rest = [parameter for name, parameter in signature.parameters.items() if name != argument]
        all_of_them.__signature__ = signature.replace(parameters=rest)  # type: ignore[attr-defined]
        return all_of_them

    return decorate
