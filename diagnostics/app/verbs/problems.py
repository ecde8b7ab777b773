"""``oversharp problems check``: overlap of an audit's problems with training data."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from oversharp.diagnostics.app.commands import Json
from oversharp.diagnostics.app.verbs.overlap import check_problems
from oversharp.diagnostics.records.amounts import plural
from oversharp.diagnostics.records.cells import escape_controls

if TYPE_CHECKING:
    from oversharp.diagnostics.tasks.overlap import OverlapResult

#: Pairs that are printed, and characters of their prompts; ``--json`` has all.
_SHOWN, _CHARACTERS = 10, 60
_FOUND = 3

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
    return _FOUND if result.found else 0


check.__doc__ = check_problems.__doc__


def _print_overlap(result: OverlapResult, out: Console) -> None:
    out.print(escape(f"{escape_controls(result.name)}: {plural(result.n, 'problem')}, of which"))
    table = Table(box=None, header_style="bold")
    for heading in ("in", "prompts", "same text", "same words", f"a run of {result.words} words"):
        table.add_column(heading, justify="left" if heading == "in" else "right", overflow="fold")
    for one in result.sets:
        counts = (one.n, one.same_text, one.same_words, one.shared_run)
        table.add_row(escape(escape_controls(one.name)), *(f"{count:,}" for count in counts))
    out.print(table)
    for pair in sorted(result.found, key=lambda one: -one.shared)[:_SHOWN]:
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
