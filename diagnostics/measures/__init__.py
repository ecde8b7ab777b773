"""The measures of the audit: one file in this folder is one measure, or a family that shares its computation.

A file that defines ``MEASURE`` is found by itself; its docstring, without the example, is what ``oversharp explain``
prints. A family is a tuple ``MEASURES``, each with its text in ``doc``. Files whose name starts with an underscore hold
shared computations. Other distributions add measures through the entry-point group ``oversharp.measures``; an entry
point names a ``Measure`` or a module that defines ``MEASURE`` or ``MEASURES``.
"""

from __future__ import annotations

import difflib
import inspect
import re
import sys
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import get_args

from oversharp.diagnostics.measures.contract import Measure, Section
from oversharp.diagnostics.records.errors import ConfigError
from oversharp.diagnostics.records.plugins import find_records

ENTRY_POINT_GROUP = "oversharp.measures"

#: The papers that docstrings cite by letter, as in ``[A]``.
PAPERS: Mapping[str, str] = MappingProxyType(
    {
        "A": "When Sharpening Becomes Collapse, arXiv 2601.15609",
        "B": "The Debate on RLVR Reasoning Capability Boundary, arXiv 2510.04028",
        "C": "The Reasoning Boundary Paradox, OpenReview",
    }
)
#: Names that measures had before, and have now.
FORMER_NAMES: Mapping[str, str] = MappingProxyType(
    {
        "queries_gained": "problems_gained",
        "queries_kept": "problems_kept",
        "queries_lost": "problems_lost",
        "queries_lost_exact": "problems_lost_exact",
        "queries_over_sharpened": "problems_over_sharpened",
    }
)
_EXAMPLE = re.compile(r"(?:Examples?:?\n(?:-+\n)?)? *>>> ")
_EXAMPLE_HEADING = re.compile(r"Examples?:?(?:\n-+)?")


@cache
def all_measures() -> Mapping[str, Measure]:
    """Every measure by name, sorted by section and name. Raises ``ConfigError`` for a broken or clashing plugin.

    >>> list(all_measures())[:2]
    ['best_at_k', 'best_of_k']
    """
    found = find_records(Measure, sys.modules[__name__], ENTRY_POINT_GROUP)
    sections = get_args(Section)
    ordered = sorted(found.values(), key=lambda measure: (sections.index(measure.section), measure.name))
    return MappingProxyType({measure.name: measure for measure in ordered})


def get_measure(name: str) -> Measure:
    """The measure of that name, or of that former name. Raises ``ConfigError`` with the nearest names.

    >>> get_measure("pass_at_k").unit
    'probability'
    >>> get_measure("pass@k")
    Traceback (most recent call last):
        ...
    oversharp.diagnostics.records.errors.ConfigError: no measure is called 'pass@k'; did you mean pass_at_k, pass_hat_k?
    """
    measures = all_measures()
    name = FORMER_NAMES.get(name, name)
    if name in measures:
        return measures[name]
    near = difflib.get_close_matches(name, measures, n=3)
    hint = f"did you mean {', '.join(near)}?" if near else f"known: {', '.join(measures)}"
    raise ConfigError(f"no measure is called {name!r}; {hint}")


#: Said of every measure that has an interval.
_CLUSTERS = (
    "Clusters: where related problems are named, an interval over problems is over their clusters, or left out with "
    "the reason."
)


def explanation(measure: Measure) -> str:
    """What a measure means, for people: name, title, unit, section, its docstring, and the papers that it cites.

    The docstring's example is left out, because it runs on made-up evidence.

    >>> print(explanation(get_measure("token_entropy")))
    token_entropy: Token entropy
    Unit: nats per token. Section: entropy
    <BLANKLINE>
    Token entropy: how undecided the model is at each token of its own responses.
    ...
    References:
    [B] The Debate on RLVR Reasoning Capability Boundary, arXiv 2510.04028
    """
    paragraphs = [
        paragraph
        for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(measure.doc))
        if paragraph and not _EXAMPLE.match(paragraph) and not _EXAMPLE_HEADING.fullmatch(paragraph)
    ]
    head = f"{measure.name}: {measure.title}\nUnit: {measure.unit}. Section: {measure.section}"
    clusters = [_CLUSTERS] if "interval" in measure.doc else []
    text = "\n\n".join([head, *paragraphs, *clusters])
    cited = [f"[{letter}] {paper}" for letter, paper in PAPERS.items() if f"[{letter}]" in text]
    return "\n".join([text, "", "References:", *cited]) if cited else text
