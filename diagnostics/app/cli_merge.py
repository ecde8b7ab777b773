"""`oversharp merge`."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from diagnostics.app.cli_shared import Json, Quiet, progress_sink


def merge(
    stores: Annotated[tuple[Path, ...], Parameter(negative=())],
    /,
    *,
    out: Path,
    as_json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Join stores: the shards of one audit, or audits made on several machines.

    After shards, run the same audit without --shard and with this --out: it draws nothing, computes the kernels and
    comes to the verdict. A store that was merged before adds nothing. Killed or stopped, the same command continues.

    Parameters
    ----------
    stores
        The audit.duckdb files; of an audit in shards, all of them.
    out
        Directory for the joined audit.duckdb, which may hold some of the stores already.
    """
    from diagnostics.store.merge import merge as run_merge

    result = run_merge(stores, out, progress=progress_sink(as_json or quiet))
    if as_json:
        print(json.dumps(asdict(result), indent=2, default=str))
    else:
        print(f"store   {result.store_path}: {', '.join(result.series)}; {result.samples_added:,} samples added")
        if result.to_conclude:
            print(f"next    the audit of {', '.join(result.to_conclude)} without --shard, with --out {out}")
        else:
            print(f"next    oversharp report {result.store_path}")
    for label, reason in result.left_out.items():
        print(f"warning: {label} was left out: {reason}", file=sys.stderr)
    return 0
