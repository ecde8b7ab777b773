"""Method section: settings, checkpoints, commands, versions and times, so that readers can reproduce the audit."""

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

#: Note on times. DuckDB stores the current time as a TIMESTAMP in the local time zone of the process that writes it.
_CLOCK = "local time of the machine that ran the audit; the store has no time zone"
#: Sampling setting → format of its value in a sentence.
_SETTING_TEXTS: Mapping[str, str] = MappingProxyType(
    {
        "temperature": "at temperature {:g}",
        "top_p": "top-p {:g}",
        "max_tokens": "at most {} tokens",
        "seed": "seed {}",
    }
)
_SETTING_NAMES: Mapping[str, str] = MappingProxyType({"top_p": "top-p", "max_tokens": "max tokens"})
#: Keys of the provenance that other blocks of the section show.
_SHOWN_ELSEWHERE = ("left_out", "regraded")
_COMMAND_KEYS = ("command", "argv", "command_line")
_SQL = """oversharp sql {store} "
SELECT series, step, k, value, low, high
FROM findings
WHERE measure = 'pass_at_k_delta' AND scope = 'all'
ORDER BY series, k, step"
oversharp explain pass_at_k"""


def method(context: Context) -> Section:
    """Build the section on method and reproducibility."""
    blocks: list[Block] = [_settings(context), _checkpoints(context)]
    for series in context.series:
        command, versions = _provenance(series)
        suffix = f": {series.name}" if len(context.series) > 1 else ""
        if command:
            blocks.append(Listing(title=f"Command{suffix}", text=command))
        else:
            blocks.append(
                Missing(title=f"Command{suffix}", why=("the store has no command line for this audit",), label="")
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
            blocks.append(Missing(title=f"Checkpoints omitted from {series.name}", why=why, label=""))
        blocks += _omitted_problems(series)
    blocks.append(_events(context))
    blocks.append(findings_download(context.source))
    blocks.append(
        Link(
            title="The store",
            href=quote(context.source.store_link),
            text="DuckDB file with every sample, grade and finding. The link works unless the report was moved.",
        )
    )
    blocks.append(Listing(title="Query the store", text=_SQL.format(store=context.source.store_name)))
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
        more = "" if first.n_base == first.n else f", the base {first.samples_text('time', is_base=True)},"
        at_most = "up to " if any("fewer samples" in key for key in first.settings) else ""
        lead.append(
            f"Every checkpoint was sampled {at_most}{first.samples_text('time')} per problem{more} "
            f"{_sampling_text(first.settings)}."
        )
    else:
        lead.append("The series were sampled with different settings, which may explain differences between them.")
    lead.append(
        f"pass@k is the unbiased estimate. CIs: {numbers.NINETY_FIVE}, over {_units(context)}, paired with the base."
    )
    lead += _stopping_texts(context)
    lead.append("CIs of differences are clipped to the possible range: from a base of 1.000, pass@k cannot rise.")
    updated = "; ".join(f"{s.name} last updated {s.updated_at}" for s in context.series)
    lead.append(f"{updated} ({_CLOCK}).")
    return tuple(lead)


def _stopping_texts(context: Context) -> Iterator[str]:
    """Yield a text per series with a stopping rule, and what it means for the measures."""
    stopped = [series for series in context.series if series.is_stopped]
    for series in stopped:
        mean = f"{series.mean_n:.0f} samples on average, {series.mean_n_base:.0f} of the base"
        text = f"A problem was sampled until {series.enough} samples were correct: {mean}."
        yield context.with_series_name(series, text)
    if stopped:
        yield (
            "The numbers of samples depend on the grades, so shares of samples are biased. pass@k uses all samples, by "
            "an estimate without bias. Other measures use the first round, in which every problem has the same number."
        )


def _units(context: Context) -> str:
    over = set(context.source.findings["interval_over"].dropna())
    return "problems" if "clusters" not in over else "problems or, if given, clusters of problems"


def _sampling_text(settings: Mapping[str, Any]) -> str:
    """Return the known sampling settings as text, with the names of the settings that are not recorded.

    >>> _sampling_text({"sampler": "vllm", "temperature": 0.6, "top_p": 0.95, "max_tokens": 4096, "seed": 0})
    'at temperature 0.6, top-p 0.95, at most 4096 tokens and seed 0, by vllm'
    >>> _sampling_text({"sampler": "verl", "temperature": 1.0, "top_p": None, "max_tokens": None, "seed": None})
    'at temperature 1, by verl (top-p, max tokens and seed not recorded)'
    """
    known = {name: text for name, text in _SETTING_TEXTS.items() if settings[name] is not None}
    at = f"{numbers.listing(tuple(text.format(settings[name]) for name, text in known.items()))}, " if known else ""
    unknown = tuple(_SETTING_NAMES.get(name, name) for name in _SETTING_TEXTS if name not in known)
    missing = f" ({numbers.listing(unknown)} not recorded)" if unknown else ""
    return f"{at}by {settings['sampler']}{missing}"


def _settings(context: Context) -> Table:
    """Return a table with one row per setting and one column per series. Settings that differ come first."""
    keys = tuple(context.series[0].settings)
    rows = []
    for key in keys:
        values = [_value_text(series.settings.get(key)) for series in context.series]
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


def _value_text(value: Any) -> str:
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


def _omitted_problems(series: SeriesSource) -> list[Block]:
    """Return a block on the problems that regrading omitted, because the verifier cannot parse their gold answers."""
    regraded = series.provenance.get("regraded")
    left_out = regraded.get("problems_left_out") if isinstance(regraded, Mapping) else None
    if not left_out:
        return []
    title = f"{numbers.plural(len(left_out), 'problem')} omitted from {series.name}"
    return [Missing(title=title, why=tuple(f"{name}: {why}" for name, why in sorted(left_out.items())), label="")]


def _provenance(series: SeriesSource) -> tuple[str, tuple[tuple[str, str], ...]]:
    """Return the command line of the audit, and the rest of its provenance as flat (name, value) pairs."""
    command = ""
    for key in _COMMAND_KEYS:
        value = series.provenance.get(key)
        if value:
            command = " ".join(str(part) for part in value) if isinstance(value, list) else str(value)
            break
    rest = {key: value for key, value in series.provenance.items() if key not in (*_COMMAND_KEYS, *_SHOWN_ELSEWHERE)}
    return command, tuple(_flatten(rest))


def _flatten(value: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield the leaves of nested mappings as (dotted name, text), sorted by name.

    >>> list(_flatten({"versions": {"torch": "2.13"}, "seed": 1}))
    [('seed', '1'), ('versions.torch', '2.13')]
    """
    for key in sorted(value):
        name = f"{prefix}{key}"
        if isinstance(value[key], Mapping):
            yield from _flatten(value[key], f"{name}.")
        else:
            yield name, str(value[key])


def _events(context: Context) -> Table | Missing:
    events = context.source.events
    if events.empty:
        return Missing(title="Stages", why=("the store has no record of stages",), label="")
    return Table(
        title="Stages",
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
