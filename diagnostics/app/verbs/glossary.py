"""``oversharp explain``: words of report and console, measures, benchmarks and presets."""

from __future__ import annotations

import difflib
import re
import textwrap
from collections.abc import Iterator

from oversharp.diagnostics.app.verbs.words import ALSO, WORDS
from oversharp.diagnostics.records.errors import ConfigError

#: Parts of a heading that are not the word: unit, place, value.
_UNIT = re.compile(r"(, [^,]+| \([^)]*\))$")
_VALUE = re.compile(r"( =)? \d[\d,.]*( words)?$")
_AT = re.compile(r"@\d+\b")
_HYPHENATED = re.compile(r"\s*[\u2010-\u2014]\s*")
#: Number of words that an error lists if no word is near.
_FIRST_WORDS = 12


def find_meaning(name: str) -> str:
    """Return the meaning of ``name``. Raises ``ConfigError`` with the nearest names if there is none.

    >>> print(find_meaning("Coverage"))
    coverage: pass@k at large k: the problems that the model can solve at all with many samples.
    >>> print(find_meaning("aime25").splitlines()[0])
    benchmark:aime25: AIME 2025, I and II
    """
    from oversharp.diagnostics.measures import all_measures, explanation, get_measure
    from oversharp.diagnostics.tasks.benchmarks import BENCHMARKS
    from oversharp.diagnostics.tasks.listing import task_explanation

    measures = all_measures()
    titles = {one.title.lower(): one.name for one in measures.values()}
    for word in _spellings(name):
        if text := WORDS.get(known := ALSO.get(word, word)):
            return f"{known}: {text}"
        if measure := titles.get(word, word.replace(" ", "_") if word.replace(" ", "_") in measures else ""):
            return explanation(get_measure(measure))
    if name.lower() in BENCHMARKS:
        name = f"benchmark:{name.lower()}"
    if text := task_explanation(name):
        return text
    word = next(_spellings(name))
    near = difflib.get_close_matches(word, [*WORDS, *ALSO, *BENCHMARKS, *(one.replace("_", " ") for one in measures)])
    names = [one if one in WORDS or one in ALSO else one.replace(" ", "_") for one in near]
    words = f"the words: {', '.join(list(WORDS)[:_FIRST_WORDS])}, …;"
    hint = f"did you mean {', '.join(names)}?" if names else words
    raise ConfigError(f"nothing is called {name!r}; {hint} `oversharp explain` lists words, measures and benchmarks")


def _spellings(name: str) -> Iterator[str]:
    """Yield the spellings of a word in headings, labels and questions, the closest to ``name`` first.

    >>> list(_spellings("Worst pass@8, points"))
    ['worst pass@8, points', 'worst-pass@8,-points', 'worst pass@k', 'worst-pass@k']
    """
    whole = _HYPHENATED.sub("-", " ".join(name.lower().replace("_", " ").split()).strip(" .:?!◀▼▲"))
    short = _VALUE.sub("", _UNIT.sub("", _AT.sub("@k", whole)))
    bare = short.removeprefix("adjusted ").removeprefix("surely ").removeprefix("problems ")
    for word in dict.fromkeys((whole, short, bare, bare.removesuffix("s"))):
        yield word
        if " " in word:
            yield word.replace(" ", "-")


def list_entries() -> list[dict[str, str]]:
    """Return every word, measure, benchmark and preset with its ``name``, ``kind`` and ``text``."""
    from oversharp.diagnostics.measures import all_measures
    from oversharp.diagnostics.tasks.listing import task_titles

    measures = [{"name": one.name, "kind": "measure", "text": one.title} for one in all_measures().values()]
    tasks = [{"name": name, "kind": kind, "text": title} for kind, name, title in task_titles()]
    return [*measures, *tasks, *({"name": word, "kind": "word", "text": text} for word, text in WORDS.items())]


def listing_text() -> str:
    """Return one line per measure, benchmark and preset, and the words."""
    from oversharp.diagnostics.measures import all_measures
    from oversharp.diagnostics.tasks.listing import task_listing

    measures = (f"{known.name:24} {known.title} [{known.unit}]" for known in all_measures().values())
    words = textwrap.wrap(", ".join(WORDS), 96, break_on_hyphens=False)
    return "\n".join(
        (*measures, task_listing(), *(f"{'' if row else 'words':24} {text}" for row, text in enumerate(words)))
    )
