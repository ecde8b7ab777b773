"""Steps in the names of checkpoints, folders and files."""

from __future__ import annotations

import re

#: Words before a step, from the surest: an epoch or an update counts only where no step is named.
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
#: What a number at the end counts behind one of these is no step.
_NO_STEP = re.compile(
    r"(?:\A|[^a-z])(?:of|seed|part|shard|rank|worker|chunk|split)[-_]?\d+\Z", re.ASCII | re.IGNORECASE
)
#: Names of the model before training.
_BASE = re.compile(r"(?:base|init|initial|pretrained)(?:[-_ ]?(?:model|policy|checkpoint|ckpt))?", re.IGNORECASE)


def step_after_word(name: str) -> int | None:
    """The step behind a word such as ``step``, ``iter``, ``checkpoint`` or ``epoch``, wherever it is in a name.

    >>> [step_after_word(name) for name in ("global_step_50", "eval_step20", "step-20-of-100", "step-160-rl")]
    [50, 20, 20, 160]
    >>> step_after_word("epoch-1-step-200"), step_after_word("epoch-1"), step_after_word("rl-100")
    (200, 1, None)
    """
    found = (pattern.search(name) for pattern in _AFTER_WORD)
    return next((int(match[1]) for match in found if match), None)


def step_at_end(name: str) -> int | None:
    """The number that a name ends with, behind a dash or alone; None where it counts something else.

    >>> [step_at_end(name) for name in ("40", "rl-100", "aime24", "part-00001-of-00004", "seed_1")]
    [40, 100, None, None, None]
    """
    found = _AT_END.search(name)
    return int(found[1]) if found and not _NO_STEP.search(name) else None


def is_base_name(name: str) -> bool:
    """Whether a name is one of the model before training.

    >>> is_base_name("base"), is_base_name("base_model"), is_base_name("database")
    (True, True, False)
    """
    return _BASE.fullmatch(name) is not None


def named_step(name: str) -> int | None:
    """The step that a text names, as the field of a dump has it: 0 for the base.

    >>> [named_step(name) for name in ("step_100", "checkpoint-200", "base", "300", "rl-400", "final")]
    [100, 200, 0, 300, 400, None]
    """
    name = name.strip()
    step = step_after_word(name)
    if step is None:
        step = step_at_end(name)
    return 0 if step is None and is_base_name(name) else step


def step_of_file(stem: str, folder: str) -> int | None:
    """The step in the name of a file, without its suffix, or of its folder; the surer one counts.

    >>> step_of_file("eval_step20", "run"), step_of_file("40", "checkpoint-8"), step_of_file("aime_24", "step_100")
    (20, 40, 100)
    >>> step_of_file("samples", "rl-100"), step_of_file("base", "dumps"), step_of_file("aime24", "val")
    (100, 0, None)
    """
    names = (stem, folder)
    sure = (int(name) if _NUMBER.fullmatch(name) else step_after_word(name) for name in names)
    named = (step_at_end(name) for name in names)
    base = (0 if is_base_name(name) else None for name in names)
    return next((step for steps in (sure, named, base) for step in steps if step is not None), None)
