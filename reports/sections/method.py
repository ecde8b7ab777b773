"""Method and reproducibility: everything needed to run the audit again and to question it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any
from urllib.parse import quote

from oversharp.reports import citations, numbers
from oversharp.reports.context import Context
from oversharp.reports.evidence.source import SeriesSource
from oversharp.reports.records import Block, Cell, Column, Link, Listing, Missing, Section, Table, columns
from oversharp.reports.sections.downloads import findings_download

#: DuckDB turns the current time into a TIMESTAMP in the zone of the process that writes it.
_CLOCK = "local time of the machine that ran the audit; the store keeps no time zone"
#: What a sentence says of how samples were drawn, where some of it is unknown.
_DRAWN: Mapping[str, str] = MappingProxyType(
    {
        "temperature": "at temperature {:g}",
        "top_p": "top-p {:g}",
        "max_tokens": "at most {} tokens",
        "seed": "seed {}",
    }
)
_CALLED: Mapping[str, str] = MappingProxyType({"top_p": "top-p", "max_tokens": "most tokens"})
_TOLD_APART = ("left_out", "regraded")
_COMMAND_KEYS = ("command", "argv", "command_line")
_SQL = """oversharp sql {store} "
SELECT series, step, k, value, low, high
FROM findings
WHERE measure = 'pass_at_k_delta' AND scope = 'all'
ORDER BY series, k, step"
oversharp explain pass_at_k"""


def method(context: Context) -> Section:
    """Settings, checkpoints, commands, versions and times of every series."""
    blocks: list[Block] = [_settings(context), _checkpoints(context)]
    for series in context.series:
        command, versions = _provenance(series)
        suffix = f": {series.name}" if len(context.series) > 1 else ""
        if command:
            blocks.append(Listing(title=f"Command{suffix}", text=command))
        else:
            blocks.append(
                Missing(title=f"Command{suffix}", why=("the store holds no command line for this audit",), label="")
            )
        if versions:
            blocks.append(
                Table(
                    title=f"Versions and machine{suffix}",
                    columns=columns("what", "value"),
                    rows=tuple((Cell(text=name), Cell(text=value, code=True)) for name, value in versions),
                    folded=True,
                )
            )
    for series in context.series:
        left_out = series.provenance.get("left_out")
        if isinstance(left_out, Mapping) and left_out:
            why = tuple(f"{name}: {reason}" for name, reason in sorted(left_out.items()))
            blocks.append(Missing(title=f"Checkpoints left out of {series.name}", why=why, label=""))
        blocks += _problems_left_out(series)
    blocks.append(_events(context))
    blocks.append(findings_download(context.source))
    blocks.append(
        Link(
            title="The store",
            href=quote(context.source.store_link),
            text="DuckDB, with every sample, grade and finding; the link works while it lies where the audit put it.",
        )
    )
    blocks.append(Listing(title="Read the numbers yourself", text=_SQL.format(store=context.source.store_name)))
    return Section(
        section_id="method",
        title="Method and reproducibility",
        lead=_lead(context),
        blocks=tuple(blocks),
        sources=citations.references(),
    )


def _lead(context: Context) -> tuple[str, ...]:
    same = len({series.settings_id for series in context.series}) == 1 and len({s.n for s in context.series}) == 1
    lead = []
    if same:
        first = context.series[0]
        more = "" if first.n_base == first.n else f", the base {numbers.plural(first.n_base, 'time')},"
        at_most = "up to " if any("fewer samples" in key for key in first.settings) else ""
        lead.append(
            f"Every checkpoint was sampled {at_most}{numbers.plural(first.n, 'time')} per problem{more} "
            f"{_drawn(first.settings)}."
        )
    else:
        lead.append("The series were sampled under different settings: differences between them mix with that.")
    lead.append(
        f"pass@k is the unbiased estimate; intervals are {numbers.NINETY_FIVE} over {_units(context)}, paired with the "
        "base."
    )
    lead.append(
        "Intervals of differences end where pass@k would leave the range from 0 to 1: a base at 1.000 cannot rise."
    )
    updated = "; ".join(f"{s.name} last updated {s.updated_at}" for s in context.series)
    lead.append(f"{updated} ({_CLOCK}).")
    return tuple(lead)


def _units(context: Context) -> str:
    over = set(context.source.findings["interval_over"].dropna())
    return "problems" if "clusters" not in over else "problems, or over their clusters where these are named"


def _drawn(settings: Mapping[str, Any]) -> str:
    """How samples were drawn, as far as that is known, and what is not.

    >>> _drawn({"sampler": "vllm", "temperature": 0.6, "top_p": 0.95, "max_tokens": 4096, "seed": 0})
    'at temperature 0.6, top-p 0.95 and at most 4096 tokens, seed 0, by vllm'
    >>> _drawn({"sampler": "verl", "temperature": 1.0, "top_p": None, "max_tokens": None, "seed": None})
    'at temperature 1, by verl; top-p, most tokens and seed are not told by verl'
    """
    known = {name: settings[name] for name in _DRAWN if settings[name] is not None}
    unknown = tuple(name for name in _DRAWN if name not in known)
    if not unknown:
        return (
            f"at temperature {known['temperature']:g}, top-p {known['top_p']:g} and at most {known['max_tokens']} "
            f"tokens, seed {known['seed']}, by {settings['sampler']}"
        )
    told = [form.format(known[name]) for name, form in _DRAWN.items() if name in known]
    missing = numbers.listing(tuple(_CALLED.get(name, name) for name in unknown))
    verb = "is" if len(unknown) == 1 else "are"
    at = f"{numbers.listing(tuple(told))}, " if told else ""
    return f"{at}by {settings['sampler']}; {missing} {verb} not told by {settings['sampler']}"


def _settings(context: Context) -> Table:
    """One row per setting, one column per series; rows that differ come first and say so."""
    keys = tuple(context.series[0].settings)
    rows = []
    for key in keys:
        values = [_shown(series.settings.get(key)) for series in context.series]
        differs = len(set(values)) > 1
        name = f"{key} (differs)" if differs else key
        rows.append((differs, (Cell(text=name), *(Cell(text=value, code=True) for value in values))))
    rows.sort(key=lambda row: not row[0])
    names = tuple(series.name for series in context.series)
    return Table(
        title="Sampling settings",
        columns=columns("setting", *names),
        rows=tuple(row for _, row in rows),
    )


def _shown(value: Any) -> str:
    if value is None:
        return numbers.UNKNOWN
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, str):
        return repr(value) if value != value.strip() or not value else value
    return str(value)


def _checkpoints(context: Context) -> Table:
    rows = tuple(
        (
            Cell(text=series.name),
            Cell.count(row["step"]),
            Cell(text=f"{row['checkpoint']}{' (base)' if row['is_base'] else ''}"),
            Cell(text=str(row["checkpoint_id"]), code=True),
            Cell(text=str(row["path"]), code=True),
        )
        for series in context.series
        for row in series.checkpoints.to_dict("records")
    )
    return Table(
        title="Checkpoints",
        columns=(
            Column(name="series", numeric=False),
            Column(name="step"),
            Column(name="checkpoint", numeric=False),
            Column(name="weights hash", numeric=False),
            Column(name="path", numeric=False),
        ),
        rows=rows,
        folded=True,
    )


def _problems_left_out(series: SeriesSource) -> list[Block]:
    """Problems whose gold the verifier of samples that were graded again cannot read."""
    regraded = series.provenance.get("regraded")
    left_out = regraded.get("problems_left_out") if isinstance(regraded, Mapping) else None
    if not left_out:
        return []
    title = f"{numbers.plural(len(left_out), 'problem')} left out of {series.name}"
    return [Missing(title=title, why=tuple(f"{name}: {why}" for name, why in sorted(left_out.items())), label="")]


def _provenance(series: SeriesSource) -> tuple[str, tuple[tuple[str, str], ...]]:
    """The command line, and everything else the audit wrote down, flattened."""
    command = ""
    for key in _COMMAND_KEYS:
        value = series.provenance.get(key)
        if value:
            command = " ".join(str(part) for part in value) if isinstance(value, list) else str(value)
            break
    rest = {key: value for key, value in series.provenance.items() if key not in (*_COMMAND_KEYS, *_TOLD_APART)}
    return command, tuple(_flat(rest))


def _flat(value: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """
    >>> list(_flat({"versions": {"torch": "2.13"}, "seed": 1}))
    [('seed', '1'), ('versions.torch', '2.13')]
    """
    for key in sorted(value):
        name = f"{prefix}{key}"
        if isinstance(value[key], Mapping):
            yield from _flat(value[key], f"{name}.")
        else:
            yield name, str(value[key])


def _events(context: Context) -> Table | Missing:
    events = context.source.events
    if events.empty:
        return Missing(title="What ran", why=("the store holds no record of stages",), label="")
    return Table(
        title="What ran",
        columns=columns("series", "stage", numbers=("runs", "wall time (s)", "rows written")),
        rows=tuple(
            (
                Cell(text=str(row["series"])),
                Cell(text=str(row["stage"])),
                Cell(text=numbers.decimal(row["runs"], 0), sort=float(row["runs"])),
                Cell(text=numbers.decimal(row["wall_s"], 1), sort=float(row["wall_s"])),
                Cell(text=numbers.decimal(row["rows_written"], 0), sort=float(row["rows_written"])),
            )
            for row in events.to_dict("records")
        ),
        folded=True,
    )
