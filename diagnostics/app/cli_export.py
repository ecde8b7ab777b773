"""The command that takes results out of a store: `export`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

from cyclopts import Parameter, Token

from diagnostics.app.cli_shared import Json, Quiet, progress_sink
from diagnostics.export.contract import DEFAULT_WHAT, EVERYTHING

if TYPE_CHECKING:
    from diagnostics.export.contract import Format, What


def _names(_type: Any, tokens: Sequence[Token]) -> tuple[str, ...]:
    """``--what a,b`` and ``--what a --what b`` and the TOML list ``what = ["a", "b"]`` all mean the same."""
    return tuple(part.strip() for token in tokens for part in token.value.split(",") if part.strip())


_NAMED = Parameter(converter=_names, n_tokens=1, negative=(), show_default=False)


def export(
    store: Path,
    /,
    *,
    out: Path | None = None,
    what: Annotated[tuple[str, ...], _NAMED] = (),
    formats: Annotated[tuple[str, ...], _NAMED, Parameter(name="--format")] = (),
    series: Annotated[tuple[str, ...], Parameter(consume_multiple=True, negative=(), show_default=False)] = (),
    replace: Annotated[bool, Parameter(negative=())] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Take findings, verdicts, samples or plots out of a store, in formats that other tools read.

    findings and verdicts become tables; samples a folder that datasets.load_dataset reads; every_eval_ever a folder of
    records of that schema, 0.3.0; plots the report's pictures, a file for each. The same store gives the same files.

    Parameters
    ----------
    store
        The audit.duckdb file.
    out
        Directory to write into. Default: export beside the store.
    what
        findings, verdicts, samples, every_eval_ever, plots, comma-separated, or all. Default: findings,verdicts.
    formats
        csv, parquet, markdown for the tables, svg, png for the plots, comma-separated. Default: all three; svg.
    series
        Names of the series to take, for example --series grpo iac. Default: all.
    replace
        Replace what an earlier export left in OUT. Without it, what exists is an error.
    """
    from diagnostics.export.export import export as run_export

    wanted = tuple(name for one in what for name in (EVERYTHING if one == "all" else (one,)))
    result = run_export(
        store,
        out,
        what=cast("tuple[What, ...]", wanted) or DEFAULT_WHAT,  # it refuses names that are none of them
        formats=cast("tuple[Format, ...]", formats),
        series=series or None,
        replace=replace,
        progress=progress_sink(as_json or quiet),
    )
    if as_json:
        written = [{"what": one.what, "path": str(one.path), "n": one.n} for one in result.written]
        print(json.dumps({"series": result.series, "written": written}, indent=2))
    else:
        for one in result.written:
            print(f"{one.what:16} {one.path}  ({one.n:,})")
    return 0
