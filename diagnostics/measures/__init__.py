"""Registry of the measures of the audit. Folders group measures by their input.

A measure is a function under a decorator of ``declare``, which also sets its place in the report. ``oversharp explain``
prints the function's docstring without the example. The registry finds the measures in all modules of this package.
Other packages add measures by the entry-point group ``oversharp.measures``. An entry point is a measure, or a module
with measures.
"""

from __future__ import annotations

import difflib
import inspect
import re
import sys
import textwrap
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
#: Former names of measures, with the current name of each.
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
    """Return all measures by name, in the order of the report: section, rank, name.

    Raises ``ConfigError`` for a plugin that is broken or reuses a name.

    >>> list(all_measures())[:2]
    ['pass_at_k', 'pass_at_k_delta']
    """
    measures = find_records(Measure, sys.modules[__name__], ENTRY_POINT_GROUP)
    sections = get_args(Section)
    ordered = sorted(measures.values(), key=lambda m: (sections.index(m.section), m.rank, m.name))
    return MappingProxyType({measure.name: measure for measure in ordered})


def get_measure(name: str) -> Measure:
    """Return the measure with this name or former name, else raise ``ConfigError``.

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


#: Printed for every measure that uses only the first round of an audit with a stopping rule.
_FIRST_ROUND = "With a stopping rule, only the samples of the first round count."
#: Explanations of words, each printed for every measure whose docstring contains the word.
_EXPLAINED_WORDS = {
    "interval": "Clusters: if the audit has clusters of related problems, an interval over problems is computed over "
    "clusters. If there are too few clusters, it is missing, and the finding has the reason.",
    "stopping rule": "Stopping rule: with --until-solved, a problem is not sampled further after the round that leaves "
    "it with enough correct samples. The number of samples then depends on their grades, so shares of samples are "
    "biased. pass@k uses all samples, because its estimate has no bias. In the first round, every problem has the same "
    "number of samples.",
    "variance floor": "Variance floor: the variance is computed as if one more problem deviated by the full range. So "
    "the interval has a width even if all problems have the same value.",
    "moderate sharpening": "Moderate sharpening: no correct mode loses probability ([A], Def 2.1).",
}


def explanation(measure: Measure) -> str:
    """Return the text that ``oversharp explain`` prints for a measure, with the papers it cites.

    The example is omitted, because it uses artificial evidence.

    >>> print(explanation(get_measure("token_entropy")))
    token_entropy: Token entropy
    Unit: nats per token. Section: entropy
    <BLANKLINE>
    Token entropy: the entropy of the next token in the model's own responses.
    ...
    References:
    [A] When Sharpening Becomes Collapse, arXiv 2601.15609
    [B] The Debate on RLVR Reasoning Capability Boundary, arXiv 2510.04028
    """
    paragraphs = [
        paragraph
        for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(measure.doc))
        if paragraph and not _EXAMPLE.match(paragraph) and not _EXAMPLE_HEADING.fullmatch(paragraph)
    ]
    head = f"{measure.name}: {measure.title}\nUnit: {measure.unit}. Section: {measure.section}"
    if measure.first_round:
        paragraphs.append(_FIRST_ROUND)
    words = " ".join(" ".join(paragraphs).split()).lower()
    explained = [textwrap.fill(meaning, 116) for word, meaning in _EXPLAINED_WORDS.items() if word in words]
    text = "\n\n".join([head, *paragraphs, *explained])
    cited = [f"[{letter}] {paper}" for letter, paper in PAPERS.items() if f"[{letter}]" in text]
    return "\n".join([text, "", "References:", *cited]) if cited else text
