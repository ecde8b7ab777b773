"""Commands to use before an audit: ``plan`` and ``problems check``."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from oversharp.diagnostics.app.commands import Json
from oversharp.diagnostics.app.console import results
from oversharp.diagnostics.app.console.plan import show_plan_cost, show_top_up
from oversharp.diagnostics.app.verbs.preparing import check_problems, plan_cost, plan_top_up
from oversharp.diagnostics.app.verbs.preparing import plan as plan_size
from oversharp.diagnostics.records.amounts import plural
from oversharp.diagnostics.records.cells import escape_controls
from oversharp.diagnostics.records.errors import ConfigError

if TYPE_CHECKING:
    from oversharp.diagnostics.tasks.overlap import OverlapResult


_COST_HELP = """
    `oversharp plan STORE --top-up FILE` is for imported samples. It writes the problems that need further samples:
    those with fewer than UNTIL_SOLVED (default 4) correct ones at a step, with the number to draw in the next round.
    Sample them with the tool of the import, and import the result into the same series with --until-solved. Repeat
    until nothing is left.

    `oversharp plan --cost MODEL --problems 500 --tokens 2000` needs no store. It estimates hours, disk and memory of
    each stage of an audit with the default settings (default: 10 checkpoints). Without --gpu the hours are for one core
    of this CPU. GPU hours are not measured: they are lower bounds from the data sheet.

    Parameters
    ----------
    top_up
        JSON Lines file to write: a line for each problem and step, with its prompt, gold and number of samples to draw.
    cost
        Model to estimate the cost of an audit for: a directory, or a hub name.
    problems
        With --cost: number of problems.
    n
        With --cost: samples per problem and checkpoint, or at most with --until-solved; twice as many of the base.
        Default: 256. With --top-up: largest number of samples of a problem. Default: four times the n of
        the first import.
    tokens
        With --cost: mean length of a response, in tokens.
    prompt_tokens
        With --cost: mean length of a prompt with its chat template, in tokens.
    gpu
        With --cost: h100, h200, a100, l40s or l4, a single one.
    prices
        With --cost: prices of a million tokens of prompts and of responses at a hosted service, such as 0.15,0.60.
"""


def plan(
    store: Path | None = None,
    /,
    *,
    series: str | None = None,
    drop_points: Annotated[float, Parameter(name="--drop")] = 5.0,
    k: int | None = None,
    power: float = 0.8,
    checkpoints: int | None = None,
    until_solved: int | None = None,
    first: int | None = None,
    top_up: Path | None = None,
    cost: str | None = None,
    problems: int | None = None,
    n: int | None = None,
    tokens: int | None = None,
    prompt_tokens: int = 200,
    gpu: str | None = None,
    prices: str | None = None,
    as_json: Json = False,
) -> int:
    """See ``api.plan``, and with --cost ``api.plan_cost``."""
    if cost is None:
        if store is None:
            raise ConfigError("plan needs the STORE of an audit or a pilot, or --cost MODEL")
        flags = (("--problems", problems), ("--tokens", tokens), ("--gpu", gpu), ("--prices", prices))
        cost_flags = [flag for flag, value in flags if value]
        if cost_flags:
            raise ConfigError(f"{cost_flags[0]}: only applies to a cost estimate; add --cost MODEL, or remove the flag")
        if top_up is not None:
            unused = (("--first", first), ("--checkpoints", checkpoints), ("--power", None if power == 0.8 else power))
            for flag, value in unused:
                if value is not None:
                    raise ConfigError(f"{flag} {value}: has no effect with --top-up; remove it")
            further = plan_top_up(
                store, top_up, series=series, n=n, until_solved=until_solved, drop_points=drop_points, k=k
            )
            return show_top_up(further, store, as_json)
        if n is not None:
            raise ConfigError(f"--n {n}: only applies with --cost or --top-up; remove it")
        planned = plan_size(
            store,
            series=series,
            drop_points=drop_points,
            k=k,
            power=power,
            checkpoints=checkpoints,
            until_solved=until_solved,
            first=first,
        )
        return results.show_plan(planned, as_json)
    if store is not None or top_up is not None:
        raise ConfigError(f"--cost {cost}: needs no store; remove {store or '--top-up'}")
    if problems is None or tokens is None:
        raise ConfigError("--cost needs --problems and --tokens (mean length of a response), for example 500 and 2000")
    estimate = plan_cost(
        cost,
        problems=problems,
        tokens=tokens,
        checkpoints=10 if checkpoints is None else checkpoints,
        n=256 if n is None else n,
        prompt_tokens=prompt_tokens,
        gpu=gpu,
        until_solved=until_solved,
        first=first,
        prices=prices,
    )
    return show_plan_cost(estimate, as_json)


#: Number of pairs to print, and number of characters of their prompts. ``--json`` has all pairs.
_SHOWN, _CHARACTERS = 10, 60
_FOUND_EXIT_CODE = 3

plan.__doc__ = (plan_size.__doc__ or "").replace("\n    Parameters\n    ----------\n", _COST_HELP)

problems = App(name="problems", help="Check a problem set before an audit: was it in the training data?")


@problems.command(name="check")
def check(
    audit: str,
    /,
    *,
    against: Annotated[tuple[str, ...], Parameter(consume_multiple=True, negative=())],
    words: int = 13,
    as_json: Json = False,
) -> int:
    """See ``check_problems``."""
    result = check_problems(audit, against, words=words)
    if as_json:
        print(json.dumps(asdict(result), indent=2, ensure_ascii=False))
    else:
        _print_overlap(result, Console(highlight=False))
    return _FOUND_EXIT_CODE if result.found else 0


check.__doc__ = check_problems.__doc__


def _print_overlap(result: OverlapResult, out: Console) -> None:
    out.print(escape(f"{escape_controls(result.name)}: {plural(result.n, 'problem')}, of which"))
    table = Table(box=None, header_style="bold")
    for heading in ("in", "prompts", "same text", "same words", f"a run of {result.words} words"):
        table.add_column(heading, justify="left" if heading == "in" else "right", overflow="fold")
    for other in result.sets:
        counts = (other.n, other.same_text, other.same_words, other.shared_run)
        table.add_row(escape(escape_controls(other.name)), *(f"{count:,}" for count in counts))
    out.print(table)
    for pair in sorted(result.found, key=lambda overlap: -overlap.shared)[:_SHOWN]:
        prompt = " ".join(pair.prompt.split())
        shown = prompt if len(prompt) <= _CHARACTERS else f"{prompt[:_CHARACTERS]}…"
        share = "" if pair.how != "shared run" else f", {100 * pair.shared:.0f} % of its runs"
        out.print(
            escape(
                f"problem {pair.place}: {pair.how}{share}, {pair.other} {pair.other_place}: {escape_controls(shown)}"
            )
        )
    if len(result.found) > _SHOWN:
        out.print(f"and {len(result.found) - _SHOWN} more: --json has all")
