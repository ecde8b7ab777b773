"""The claims as one HTML page, with the report's records and style. It loads and runs nothing."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from benchmarks.papers.claim import FAILS_AS_PRINTED, Claim, Effort, Family
from benchmarks.papers.table import (
    KINDS,
    counts_text,
    estimate_text,
    kind_counts,
    numbers_text,
    range_text,
    rules_text,
    scope_text,
    told_text,
)
from benchmarks.papers.verdicts import RULE, agreement, named, verdict
from oversharp.reports.citations import PAPERS, references
from oversharp.reports.numbers import decimal
from oversharp.reports.records import Card, Cell, Column, Figure, Headline, Missing, Page, Section, Table, Tile
from oversharp.reports.render import render_page

_FEW = 3  # numbers that fit into a table cell
_CLAIM_COLUMNS = ("claim", "where", "verdict", "numbers (95 %)", "independent")
#: Columns break between words. On a phone a claim is a card, and its cells have the names of their columns.
_STYLE = (
    ".data td:not(.num) { min-width: 8rem; overflow-wrap: break-word; }\n"
    "@media screen and (max-width: 600px) {\n"
    ".plain .data, .plain .data tbody, .plain .data tr, .plain .data td { display: block; }\n"
    ".plain .data thead, .plain .data td:has(bdi:empty) { display: none; }\n"
    ".plain .data tr { background: var(--surface); border: 1px solid var(--line); border-radius: 8px; "
    "padding: 10px 12px; margin-bottom: 10px; }\n"
    ".plain .data td { border: 0; padding: 2px 0; max-width: none; }\n"
    ".plain .data td:first-child { font-weight: 600; }\n"
    + "".join(
        f'.plain .data td:nth-child({i})::before {{ content: "{name}: "; color: var(--muted); }}\n'
        for i, name in enumerate(_CLAIM_COLUMNS, start=1)
        if i > 1
    )
    + "}\n"
)
_LIMITS = (
    "The toy worlds have four labels, three or four actions, or one bandit; a claim that holds here may still fail on "
    "a language model, and the other way round.",
    "The papers leave some settings of their figures unsaid (learning rates, starting probabilities). What was "
    "run stands with every family and claim.",
    "Shares of random instances depend on how the instances were drawn; a universal statement does not.",
)


def build_page(families: Sequence[Family], effort: Effort) -> Page:
    """Build the page with all families as sections and every claim."""
    claims = [claim for family in families for claim in family.claims]
    return Page(
        title="The papers' claims, run again",
        subtitle=f"{len(claims)} claims · {effort.seeds} seeds · {effort.steps} steps · "
        f"{decimal(effort.instances, 0)} random instances · seed {effort.seed}",
        headline=Headline(
            definition=RULE,
            cards=tuple(_card(letter, own) for letter, own in _by_paper(claims)),
            limits=(scope_text(claims), *_LIMITS),
            figure=_first_figure(families),
        ),
        sections=tuple(_section(i, family) for i, family in enumerate(families)),
    )


def page_html(page: Page) -> str:
    """Render the page in the report's style with additional rules.

    Its content security policy allows only this stylesheet.
    """
    return render_page(page, extra_rules=_STYLE)


def _by_paper(claims: Sequence[Claim]) -> list[tuple[str, list[Claim]]]:
    ordered = sorted(claims, key=lambda claim: claim.paper)
    return [(letter, list(own)) for letter, own in itertools.groupby(ordered, key=lambda claim: claim.paper)]


def _card(letter: str, claims: Sequence[Claim]) -> Card:
    kinds = [verdict(claim.checks).kind for claim in claims]
    sentences = [
        f"{said}: {claim.statement} ({claim.place})."
        for wanted, said in ((FAILS_AS_PRINTED, "Fails as printed"), ("fails", "Fails"))
        for claim, kind in zip(claims, kinds, strict=True)
        if kind == wanted
    ]
    reported = [text for claim in claims if (text := agreement(claim))]
    agreeing = sum(text.startswith("agrees") for text in reported)
    apart = sum(text.startswith("same verdict") for text in reported)
    tiles = tuple(
        Tile(title=KINDS[kind][1], value=str(n), change=f"of {len(claims)}", direction="unknown")
        for kind, n in kind_counts(claims).items()
    )
    return Card(
        series=f"[{letter}]",
        subtitle=PAPERS[letter],
        reading=counts_text(claims),
        direction="unknown",
        sentences=(
            *sentences,
            f"Of {len(reported)} claims that an independent implementation reported on, {agreeing} agree and {apart} "
            "have the same verdict with other shares.",
        ),
        tiles=tiles,
    )


def _first_figure(families: Sequence[Family]) -> Figure | Missing:
    """Return the picture of the headline, or a note if there is none.

    The section shows the other pictures.
    """
    for family in families:
        if family.figures:
            return family.figures[0]
    return Missing(title="Figures", why=("No family drew one.",))


def _section(i: int, family: Family) -> Section:
    shown = family.figures[1:] if i == 0 else family.figures
    letters = "".join(sorted({claim.paper for claim in family.claims}))
    return Section(
        section_id=f"family-{i}",
        title=family.title,
        lead=(family.setting,),
        blocks=(*shown, _claims_table(family), _numbers_table(family), _settings_table(family)),
        sources=references(letters),
    )


def _claims_table(family: Family) -> Table:
    return Table(
        title="Claims",
        columns=_text_columns(*_CLAIM_COLUMNS),
        rows=tuple(
            (
                Cell(text=claim.statement),
                Cell(text=f"[{claim.paper}] {claim.place}"),
                Cell(text=verdict(claim.checks).text),
                Cell(text=_numbers(claim)),
                Cell(text=_told(claim)),
            )
            for claim in family.claims
        ),
    )


def _numbers(claim: Claim) -> str:
    """Return all numbers if there are few, otherwise their range. The table below has every one."""
    if len(claim.checks) <= _FEW:
        return numbers_text(claim, between="; ")
    quantities = "; ".join(dict.fromkeys(check.quantity for check in claim.checks))
    return f"{quantities}: {range_text(claim.checks)}"


def _numbers_table(family: Family) -> Table:
    columns = ("claim", "setting", "quantity", "number (95 %)", "n", "independent", "outcome")
    return Table(
        title="Numbers of these claims",
        columns=tuple(Column(name=name, numeric=name in ("number (95 %)", "n", "independent")) for name in columns),
        rows=tuple(
            (
                Cell(text=claim.statement),
                Cell(text=", ".join(named(factor, level) for factor, level in check.setting)),
                Cell(text=check.quantity),
                Cell(text=estimate_text(check.estimate), sort=check.estimate.value),
                Cell(text=str(check.estimate.n), sort=float(check.estimate.n)),
                Cell(text=told_text(check), sort=check.independent),
                Cell(text=check.outcome),
            )
            for claim in family.claims
            for check in claim.checks
        ),
        folded=True,
    )


def _settings_table(family: Family) -> Table:
    return Table(
        title="Settings and rules of these claims",
        columns=_text_columns("claim", "setting", "rule"),
        rows=tuple(
            (
                Cell(text=claim.statement),
                Cell(text=f"{claim.setting} {claim.note}".strip()),
                Cell(text=rules_text(claim)),
            )
            for claim in family.claims
        ),
        folded=True,
    )


def _told(claim: Claim) -> str:
    text = claim.independent.text if claim.independent else ""
    return f"{text} ({agrees})" if text and (agrees := agreement(claim)) else text


def _text_columns(*names: str) -> tuple[Column, ...]:
    return tuple(Column(name=name, numeric=False) for name in names)
