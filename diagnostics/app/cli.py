"""The `oversharp` command."""

from __future__ import annotations

import errno
import json
import os
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, CycloptsError, Parameter
from cyclopts.config import Toml
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from diagnostics.app.cli_export import export
from diagnostics.app.cli_import import import_
from diagnostics.app.cli_merge import merge
from diagnostics.app.cli_regrade import regrade
from diagnostics.app.cli_shared import LEFT_OUT_EXIT_CODE, Json, Quiet, command_line, progress_sink
from diagnostics.app.cli_training import compare, demo, train, train_base
from diagnostics.audit.config import AuditConfig, ConfirmConfig
from diagnostics.records.errors import ConfigError, OversharpError, StoreError
from diagnostics.records.version import version

INTERRUPTED_EXIT_CODE = 130

app = App(
    name="oversharp",
    version=version,
    help="""Did this RLVR run make the model better, or did it only sharpen it until it forgot?

    Typical use: `oversharp audit RUN_DIR --problems problems.jsonl --out audit` writes audit/report.html and
    audit/audit.duckdb. Every command takes `--config FILE.toml`, with one table per command; flags win over it.
    """,
    help_format="markdown",
    suppress_keyboard_interrupt=False,  # main() says what is kept
)

for command in (train, compare, demo):
    app.command(command)
app.command(train_base, name="train-base")
app.command(import_, name="import")
app.command(export)
app.command(regrade, alias="rescore")
app.command(merge)


@app.command
def audit(
    series: Annotated[tuple[str, ...], Parameter(negative=())],
    /,
    *,
    config: AuditConfig | None = None,
    shard: str | None = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Audit a series of checkpoints for over-sharpening.

    Samples every checkpoint, verifies the responses, measures what was gained and lost against the base model,
    and writes OUT/audit.duckdb and OUT/report.html. Killed or stopped, the same command continues.

    Parameters
    ----------
    series
        A directory that holds checkpoints, several checkpoint directories, or a quoted glob.
    shard
        I/N: take the I-th of N shares of the problems, I from 1 to N, into an --out of its own; there is no verdict.
        Machines without Ray audit one share each. Join them with oversharp merge.
    """
    if shard is not None:
        return _run_shard(series, config or AuditConfig(), shard, as_json=as_json, quiet=quiet)

    from diagnostics.audit.audit import audit as run_audit

    result = run_audit(
        series, config or AuditConfig(), command=command_line(), progress=progress_sink(as_json or quiet)
    )
    summary = {
        "series": result.series,
        "store": str(result.store_path),
        "report": str(result.report_path),
        "samples_drawn": result.samples_drawn,
        "left_out": dict(result.left_out),
        "without_kernel": dict(result.without_kernel),
        "verdict": json.loads(result.verdict.to_json()),
        "findings": _headline_findings(result.store_path, result.series),
    }
    if as_json:
        print(json.dumps(summary, indent=2))
    else:
        print(f"report  {result.report_path}\nstore   {result.store_path}\nverdict  {result.verdict.sentence}")
    for label, reason in result.left_out.items():
        print(f"warning: left out {label}: {reason}", file=sys.stderr)
    for label, reason in result.without_kernel.items():
        print(f"warning: no gradient kernel of {label}: {reason}", file=sys.stderr)
    return LEFT_OUT_EXIT_CODE if result.left_out or result.without_kernel else 0


def _run_shard(series: Sequence[str], config: AuditConfig, shard: str, *, as_json: bool, quiet: bool) -> int:
    """``oversharp audit --shard``: one share of an audit, and what to do next."""
    from diagnostics.audit.audit import audit_shard
    from diagnostics.records.shard import Shard

    part = Shard.from_text("--shard", shard)
    result = audit_shard(series, config, part, command=command_line(), progress=progress_sink(as_json or quiet))
    if as_json:
        print(json.dumps({**asdict(result), "shard": str(part)}, indent=2, default=str))
    else:
        problems = "1 problem" if result.n_problems == 1 else f"{result.n_problems} problems"
        print(f"shard   {part} of {result.series}: {problems}\nstore   {result.store_path}")
        print(f"next    when all {part.of} are done: oversharp merge STORES --out DIR, then this audit without --shard")
    for label, reason in result.left_out.items():
        print(f"warning: left out {label}: {reason}", file=sys.stderr)
    return LEFT_OUT_EXIT_CODE if result.left_out else 0


@app.command
def plan(
    store: Path,
    /,
    *,
    series: str | None = None,
    drop: float = 5.0,
    k: int | None = None,
    power: float = 0.8,
    checkpoints: int | None = None,
    as_json: Json = False,
) -> int:
    """Say how many problems and samples an audit needs to find a loss that you name, and how many tokens it costs.

    Starts from the base's samples in STORE: those of a finished audit, or of a small pilot. Simulates audits of
    several sizes in which pass@k falls by DROP, and counts how often the verdict would be over-sharpened. Samples
    nothing and changes nothing. The loss is a winner-take-all expansion: rarely solved problems become rarer, the
    others more frequent. Real losses scatter more from problem to problem, and the churn from checkpoint to checkpoint
    is not simulated: take the power for an upper estimate.

    Parameters
    ----------
    store
        The audit.duckdb file.
    series
        Name of the series whose base and responses to plan with; needed where there are several.
    drop
        The fall of pass@k that you want to find, in percentage points.
    k
        Where pass@k falls by that much, up to half of the base's samples. Default: half of the audit's n.
    power
        The chance of finding it that is wanted.
    checkpoints
        Trained checkpoints in the audit that is planned. Default: as many as in the store.
    """
    from diagnostics.audit.plan import plan as make_plan

    made = make_plan(store, series=series, drop_points=drop, k=k, wanted=power, n_checkpoints=checkpoints)
    if as_json:
        print(json.dumps(asdict(made), indent=2))
    else:
        from diagnostics.app.console_tables import print_plan

        print_plan(made)
    return 0


@app.command
def confirm(store: Path, /, *, config: ConfirmConfig | None = None, as_json: Json = False, quiet: Quiet = False) -> int:
    """Draw the problems that seem lost or gained again, and say which of them are.

    Problems that changed most in the audit are chosen for that, and some of them by chance. Fresh samples of them,
    from the base and from the last checkpoint, tell which; p values are corrected for the number of problems. Keeps
    the result in the store and writes the report again. Killed or stopped, the same command continues.

    To run it again does not help a problem to be confirmed: all that were ever tested are tested together, and the
    number of fresh samples cannot be changed after the first test. A larger --most only adds problems; choose it before
    you look.

    Parameters
    ----------
    store
        The audit.duckdb file.
    """
    from diagnostics.audit.confirm import confirm as run_confirm

    result = run_confirm(store, config or ConfirmConfig(), progress=progress_sink(as_json or quiet))
    if as_json:
        summary = {
            "series": result.series,
            "checkpoint": result.checkpoint,
            "step": result.step,
            "fresh": result.fresh,
            "samples_drawn": result.samples_drawn,
            "n_earlier": result.n_earlier,
            "store": str(result.store_path),
            "report": str(result.report_path),
            "problems": [{**asdict(one), "confirmed": one.confirmed} for one in result.tested],
        }
        print(json.dumps(summary, indent=2))
    else:
        from diagnostics.app.console_tables import print_confirmations

        print_confirmations(result)
        print(f"report  {result.report_path}\nstore   {result.store_path}")
    return 0


@app.command
def report(
    store: Path,
    /,
    *,
    series: Annotated[tuple[str, ...], Parameter(consume_multiple=True, negative=(), show_default=False)] = (),
    out: Path | None = None,
    allow: Annotated[bool, Parameter(negative=())] = False,
    as_json: Json = False,
) -> int:
    """Write the HTML report of a store again.

    Parameters
    ----------
    store
        The audit.duckdb file.
    series
        Names of the series to show side by side, for example --series grpo iac. Default: all.
    out
        Where to write the report. Default: report.html beside the store.
    allow
        Compare series although they were sampled or graded differently; the report says so.
    """
    from reports import build_report

    path = build_report(store, out or store.parent / "report.html", series=series or None, allow=allow)
    print(json.dumps({"report": str(path)}) if as_json else f"report  {path}")
    return 0


@app.command
def sql(store: Path, query: str | None = None, /, *, as_json: Json = False, csv: bool = False) -> int:
    """Run one SQL query on a store, read-only; without a query, list its views and columns.

    Parameters
    ----------
    store
        The audit.duckdb file.
    query
        For example "SELECT step, k, value, low, high FROM findings WHERE measure = 'pass_at_k' ORDER BY ALL", or
        "SELECT series, label, sentence FROM verdicts".
    csv
        Print comma-separated values.
    """
    from diagnostics.store import Store

    with Store.open(store, read_only=True) as opened:
        frame = opened.frame(query) if query else opened.columns()
    if as_json:
        print(frame.to_json(orient="records", indent=2, date_format="iso", default_handler=str))
    elif csv:
        print(frame.to_csv(index=False), end="")
    else:
        table = Table(*[str(column) for column in frame.columns], box=None, header_style="bold")
        for row in frame.itertuples(index=False):
            table.add_row(*[escape(_cell(value)) for value in row])
        Console().print(table)
    return 0


@app.command
def explain(name: str | None = None, /) -> int:
    """Print what a measure, benchmark or preset is. Without a name, list them all.

    Parameters
    ----------
    name
        For example pass_at_k, benchmark:gsm8k or two_stage.
    """
    from diagnostics.measures import all_measures, explanation, get_measure
    from diagnostics.tasks.listing import task_explanation, task_listing

    if name is None:
        for known in all_measures().values():
            print(f"{known.name:24} {known.title} [{known.unit}]")
        print(task_listing())
    else:
        print(task_explanation(name) or explanation(get_measure(name)))
    return 0


@app.command
def doctor(*, as_json: Json = False) -> int:
    """Say what this machine can run: Python, torch, GPU, engines, memory, disk, conflicts."""
    from diagnostics.app.doctor import examine

    checks = examine()
    if as_json:
        print(
            json.dumps([{"check": check.name, "state": check.state, "what": check.what} for check in checks], indent=2)
        )
    else:
        for check in checks:
            print(f"{check.state:5} {check.name:14} {check.what}")
    return int(any(check.state == "bad" for check in checks))


app.meta.suppress_keyboard_interrupt = False


@app.meta.default
def _launch(
    *tokens: Annotated[str, Parameter(show=False, allow_leading_hyphen=True)],
    config: Annotated[Path | None, Parameter(help="TOML file with one table per command; flags win over it.")] = None,
) -> Any:
    command = next((token for token in tokens if not token.startswith("-")), "")
    if config is not None:
        _require_table(config, command)
    app.config = () if config is None else (Toml(config, must_exist=True),)
    return app(tokens, exit_on_error=False, print_error=False, result_action="return_value")


def _require_table(path: Path, command: str) -> None:
    """Settings outside of the command's own table would be ignored without a word."""
    try:
        settings = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"--config {path}: cannot be read ({error.strerror})") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"--config {path}: not TOML ({error})") from error
    loose = sorted(key for key, value in settings.items() if not isinstance(value, dict))
    if loose or command not in settings:
        found = f"{', '.join(loose)} outside of any table" if loose else f"no table [{command}]"
        raise ConfigError(f"--config {path}: {found}; put the settings of this command under [{command}]")


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point: every foreseen error is one line on stderr and a non-zero exit code."""
    try:
        code = app.meta(arguments, exit_on_error=False, print_error=False, result_action="return_value")
    except CycloptsError as error:
        print(f"error: {' '.join(str(error).split())} (see oversharp --help)", file=sys.stderr)
        sys.exit(ConfigError.exit_code)
    except OversharpError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, RuntimeError) as error:
        # DuckDB's word for Ctrl-C while a query runs
        if isinstance(error, RuntimeError) and str(error) != "Query interrupted":
            raise
        print("stopped: what was committed is kept; run the same command to continue", file=sys.stderr)
        sys.exit(INTERRUPTED_EXIT_CODE)
    except BrokenPipeError:  # `oversharp sql … | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        where = error.filename or "the output directory"
        print(f"error: {where}: the disk is full; free some space and run the same command again", file=sys.stderr)
        sys.exit(StoreError.exit_code)
    sys.exit(code if isinstance(code, int) else 0)


def _headline_findings(store_path: Path, series: str) -> list[dict[str, Any]]:
    """The findings for the whole problem set at the last checkpoint: what a script wants to read."""
    from diagnostics.store import Store

    with Store.open(store_path, read_only=True) as store:
        frame = store.frame(
            """
            SELECT checkpoint, step, measure, k, value, low, high, n, unit, why
            FROM findings
            WHERE series = $series AND scope = 'all'
            QUALIFY step = max(step) OVER ()
            ORDER BY measure, k
            """,
            series=series,
        )
    return json.loads(frame.to_json(orient="records"))


def _cell(value: object) -> str:
    import pandas as pd

    if pd.api.types.is_scalar(value) and pd.isna(value):
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)
