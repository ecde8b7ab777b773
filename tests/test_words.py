"""Ratchet on wording: turns of phrase and function names that are hard to read may only become fewer.

``python tests/test_words.py`` counts again and writes the numbers into ``LIMITS``.
"""

from __future__ import annotations

import ast
import re
import subprocess
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PRODUCT = ("diagnostics", "oversharp", "reports", "trainers")
PAGES = ("README.md", "CONTRIBUTING.md", "docs")
#: Each key is the wording to avoid, with what to write instead.
PHRASES: Mapping[str, str] = {
    "told (printed, returned, given)": r"\b(?:told|foretold|foretells?)\b",
    "tells (shows, states)": r"\btells?\b",
    "said (printed, stated)": r"\bsaid\b",
    "hears, believes (gets, verifies)": r"\b(?:hears?|heard|believe[sd]?)\b",
    "stands, lies, rests (is)": r"\b(?:stands?|stood|lies|lay|rests)\b",
    "whoever, whatever (if you, any)": r"\b(?:who|what|wher|which)ever\b",
    "nobody (unknown, no one)": r"\bnobody(?:'s)?\b",
    "anew (again)": r"\banew\b",
    "once more, twice over (again)": r"\b(?:once more|twice over)\b",
    "surely (significantly)": r"\bsurely\b",
    "lends, lent (shares, applies)": r"\b(?:lends?|lent|lending)\b",
    "mends (fixes, hint)": r"\bmend(?:s|ed|ing)?\b",
    "hotter, colder (temperature)": r"\b(?:hotter|colder)\b",
    "beside (next to, besides)": r"\bbeside\b",
    "so many, as far as (the number, if)": r"\b(?:so many|so much|so large as to|as far as)\b",
    "law (distribution)": r"\blaws?\b",
    "foresees (estimates)": r"\b(?:foresee[ns]?|foresaw)\b",
    "spares (saves)": r"\bspares?\b",
    "gives back (restores, returns)": r"\b(?:gives?|gave|given) back\b",
    "cut off (truncated)": r"\bcut off\b",
    "by itself (alone)": r"\bby itself\b",
    "of its own (separate)": r"\bof (?:its|their) own\b",
    "has a say (has an effect)": r"\bha(?:s|ve|d) (?:a|no) say\b",
    "in the mean (on average)": r"\bin the mean\b",
    "problems like these (the population)": r"\bproblems like (?:these|them)\b",
    "at worst (lower bound)": r"\bat worst\b",
    "hangs together (is correlated)": r"\bhangs? together\b",
}
_ANY_PHRASE = re.compile("|".join(PHRASES.values()))
#: Functions that are called by one of these words alone, or by a participle in -ed.
_BARE_WORDS = """
    about above after against among around at before behind below beside between beyond by for from in into like
    of off on over per since through to toward under until upon with within without begun bound broken built
    chosen cut drawn fallen fitted found given gone held hidden kept known laid left lent lost made meant met
    put read said seen sent shown sold spoken spread spent stuck taken taught thrown told torn understood undone
    won worn written
"""
BARE_WORDS = frozenset(_BARE_WORDS.split())
#: Words in -ed that are no participles.
NOT_PARTICIPLES = frozenset({"embed", "exceed", "feed", "need", "proceed", "seed", "shed", "speed"})
FUNCTIONS = "functions called by a bare participle or preposition"
#: The most hits in code (docstrings, comments, messages) and pages, and the most such functions. Only lower them.
LIMITS: dict[str, int] = {
    "code: beside (next to, besides)": 1,
    "code: cut off (truncated)": 2,
    "code: law (distribution)": 25,
    "code: nobody (unknown, no one)": 1,
    "code: of its own (separate)": 2,
    "code: said (printed, stated)": 1,
    "code: so many, as far as (the number, if)": 1,
    "code: stands, lies, rests (is)": 2,
    "code: surely (significantly)": 4,
    "code: tells (shows, states)": 2,
    "code: whoever, whatever (if you, any)": 1,
    "functions called by a bare participle or preposition": 89,
    "pages: anew (again)": 1,
    "pages: at worst (lower bound)": 1,
    "pages: beside (next to, besides)": 2,
    "pages: by itself (alone)": 1,
    "pages: cut off (truncated)": 2,
    "pages: foresees (estimates)": 1,
    "pages: gives back (restores, returns)": 1,
    "pages: hangs together (is correlated)": 1,
    "pages: has a say (has an effect)": 1,
    "pages: hotter, colder (temperature)": 2,
    "pages: in the mean (on average)": 1,
    "pages: law (distribution)": 1,
    "pages: lends, lent (shares, applies)": 1,
    "pages: mends (fixes, hint)": 1,
    "pages: nobody (unknown, no one)": 1,
    "pages: of its own (separate)": 1,
    "pages: once more, twice over (again)": 2,
    "pages: problems like these (the population)": 1,
    "pages: said (printed, stated)": 1,
    "pages: so many, as far as (the number, if)": 1,
    "pages: spares (saves)": 1,
    "pages: stands, lies, rests (is)": 2,
    "pages: surely (significantly)": 1,
    "pages: told (printed, returned, given)": 3,
    "pages: whoever, whatever (if you, any)": 2,
}


def tracked(places: tuple[str, ...], suffixes: tuple[str, ...]) -> list[Path]:
    """Files in the repository's index below ``places``."""
    listing = subprocess.run(["git", "ls-files", *places], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [ROOT / name for name in listing.splitlines() if name.endswith(suffixes) and (ROOT / name).is_file()]


def phrase_hits(text: str) -> Iterator[tuple[str, int]]:
    """Every phrase of ``PHRASES`` in a text, with its line. Variables of such a name count too."""
    for number, line in enumerate(text.lower().split("\n"), 1):
        if _ANY_PHRASE.search(line):  # one search instead of one per phrase, ten times as fast
            for phrase, pattern in PHRASES.items():
                for _ in re.finditer(pattern, line):
                    yield phrase, number


def bare_functions(source: str) -> Iterator[tuple[str, int]]:
    """Functions and methods whose name is a participle or a preposition alone, with their lines."""
    if not any(_is_bare(name) for name in re.findall(r"\bdef\s+(\w+)", source)):
        return  # parsing takes longer
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and _is_bare(node.name):
            yield node.name, node.lineno


def _is_bare(name: str) -> bool:
    word = name.strip("_")
    is_participle = word.endswith("ed") and "_" not in word and word not in NOT_PARTICIPLES
    return not name.startswith("__") and (word in BARE_WORDS or is_participle)


def count_all() -> dict[str, list[str]]:
    """``file:line`` of every hit, by key of ``LIMITS``."""
    hits: dict[str, list[str]] = defaultdict(list)
    for area, places, suffixes in (("code", PRODUCT, (".py", ".sql")), ("pages", PAGES, (".md",))):
        for path in tracked(places, suffixes):
            text = path.read_text(encoding="utf-8")
            name = path.relative_to(ROOT).as_posix()
            for phrase, line in phrase_hits(text):
                hits[f"{area}: {phrase}"].append(f"{name}:{line}")
            if path.suffix == ".py":
                hits[FUNCTIONS] += [f"{name}:{line} {function}" for function, line in bare_functions(text)]
    return hits


def risen(hits: Mapping[str, list[str]], limits: Mapping[str, int]) -> list[str]:
    """A line for every number above its limit, with files that have it most often."""
    lines = []
    for key in sorted(hits):
        if len(hits[key]) > limits.get(key, 0):
            files = sorted({place.split(":")[0] for place in hits[key]}, key=lambda name: -_count(hits[key], name))
            most = ", ".join(f"{name} ({_count(hits[key], name)})" for name in files[:5])
            lines.append(f"{key}: {len(hits[key])}, at most {limits.get(key, 0)}; most in {most}")
    return lines


def _count(places: list[str], name: str) -> int:
    return sum(place.startswith(f"{name}:") for place in places)


def test_hard_wording_only_becomes_rarer() -> None:
    lines = risen(count_all(), LIMITS)
    assert not lines, "reword what you added (git diff shows it):\n" + "\n".join(lines)


def test_a_phrase_that_rose_is_named_with_its_files() -> None:
    hits = {"code: anew (again)": ["a.py:1", "a.py:2", "b.py:3"]}
    assert risen(hits, {"code: anew (again)": 2}) == ["code: anew (again): 3, at most 2; most in a.py (2), b.py (1)"]
    assert risen(hits, {"code: anew (again)": 3}) == []


def test_phrases_are_found_whole_words_alone() -> None:
    text = "said = 1\n# Told here,\n# and stood anew; surely."
    assert [(phrase.split()[0].strip(","), line) for phrase, line in phrase_hits(text)] == [
        ("said", 1), ("told", 2), ("stands", 3), ("anew", 3), ("surely", 3),
    ]  # fmt: skip
    assert not list(phrase_hits("the same path again, understood; see `_told` and lawn"))


def test_functions_called_by_a_participle_or_preposition_are_found() -> None:
    source = (
        "def _told(): ...\ndef find_lost(): ...\nclass A:\n    def of(self): ...\ndef seed(): ...\ndef planned(): ..."
    )
    assert sorted(bare_functions(source)) == [("_told", 1), ("of", 4), ("planned", 6)]


def write_limits() -> None:
    """Write today's counts into ``LIMITS`` of this file."""
    own = Path(__file__)
    rows = "".join(f'    "{key}": {len(places)},\n' for key, places in sorted(count_all().items()) if places)
    text = re.sub(
        r"(?ms)^LIMITS: dict\[str, int\] = \{.*?\}$",
        lambda _: f"LIMITS: dict[str, int] = {{\n{rows}}}",
        own.read_text(),
    )
    own.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write_limits()
