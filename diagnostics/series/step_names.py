"""Parse steps in the names of checkpoints, folders and files."""

from __future__ import annotations

import re
from itertools import chain
from pathlib import Path

#: Words before a step, the most reliable first. Epochs and updates are used only if there is no other step.
_WORDS = (
    r"(?:best_)?global_?steps?|steps?",
    r"iter(?:ation)?s?",
    r"checkpoints?|ckpts?|chkpts?",
    r"epochs?|updates?",
)
_AFTER_WORD = tuple(
    re.compile(rf"(?:\A|(?<![^\W_]))(?:{words})[-_ =:]*(\d{{1,9}})(?!\d|\.\d)", re.ASCII | re.IGNORECASE)
    for words in _WORDS
)
_NUMBER = re.compile(r"\d{1,9}", re.ASCII)
_AT_END = re.compile(r"(?:\A|[_-])(\d{1,9})\Z", re.ASCII)
#: Words before a final number that is not a step.
_NO_STEP = re.compile(
    r"(?:\A|[^a-z])(?:of|seed|part|shard|rank|worker|chunk|split)[-_]?\d+\Z", re.ASCII | re.IGNORECASE
)
#: Number of parent folders whose names may contain the step.
_MAX_FOLDERS = 4
#: Names of the model before training.
_BASE = re.compile(r"(?:base|init|initial|pretrained)(?:[-_ ]?(?:model|policy|checkpoint|ckpt))?", re.IGNORECASE)


def step_after_word(name: str) -> int | None:
    """Return the step after a word such as ``step``, ``iter`` or ``epoch``, anywhere in a name.

    >>> [step_after_word(name) for name in ("global_step_50", "eval_step20", "step-20-of-100", "step-160-rl")]
    [50, 20, 20, 160]
    >>> step_after_word("epoch-1-step-200"), step_after_word("epoch-1"), step_after_word("rl-100")
    (200, 1, None)
    """
    matches = (pattern.search(name) for pattern in _AFTER_WORD)
    return next((int(match[1]) for match in matches if match), None)


def step_at_end(name: str) -> int | None:
    """Return the number that ends a name, after a dash or alone; None if it is not a step.

    >>> [step_at_end(name) for name in ("40", "rl-100", "aime24", "part-00001-of-00004", "seed_1")]
    [40, 100, None, None, None]
    """
    match = _AT_END.search(name)
    return int(match[1]) if match and not _NO_STEP.search(name) else None


def is_base_name(name: str) -> bool:
    """Return whether a name refers to the model before training.

    >>> is_base_name("base"), is_base_name("base_model"), is_base_name("database")
    (True, True, False)
    """
    return _BASE.fullmatch(name) is not None


def named_step(name: str) -> int | None:
    """Return the step in a text such as a field of a dump; 0 for the base.

    >>> [named_step(name) for name in ("step_100", "checkpoint-200", "base", "300", "rl-400", "final")]
    [100, 200, 0, 300, 400, None]
    """
    name = name.strip()
    step = step_after_word(name)
    if step is None:
        step = step_at_end(name)
    return 0 if step is None and is_base_name(name) else step


def step_of_file(path: Path) -> int | None:
    """Return the step in the name of a file or of its folder, from the more reliable name.

    Up to ``_MAX_FOLDERS`` parent folders are searched for a word followed by a step.

    >>> [step_of_file(Path(path)) for path in ("run/eval_step20.jsonl", "checkpoint-8/40.csv", "step_100/aime_24.csv")]
    [20, 40, 100]
    >>> [step_of_file(Path(path)) for path in ("rl-100/a.csv", "dumps/base.csv", "ckpt-8/eval/a.csv", "val/aime24.csv")]
    [100, 0, 8, None]
    """
    folders = [folder.name for folder in path.absolute().parents[:_MAX_FOLDERS]]
    near = (path.stem, *folders[:1])
    after_word = (int(name) if _NUMBER.fullmatch(name) else step_after_word(name) for name in near)
    at_end = (step_at_end(name) for name in near)
    base = (0 if is_base_name(name) else None for name in near)
    parents = (step_after_word(name) for name in folders[1:])
    return next((step for step in chain(after_word, at_end, base, parents) if step is not None), None)
