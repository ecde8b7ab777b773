"""The verb ``check_problems`` of the API: whether problems of an audit were trained on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from oversharp.diagnostics.records.arguments import checked_arguments

if TYPE_CHECKING:
    from oversharp.diagnostics.tasks.overlap import OverlapResult


@checked_arguments
def check_problems(audit: Path | str, against: Sequence[Path | str], *, words: int = 13) -> OverlapResult:
    """Find problems of an audit that other sets have: what a run was trained on tells nothing of what it learned.

    Told apart are the same text; the same words, whatever their case, spaces and punctuation; and a run of WORDS words
    in common, which may be a quotation, a template, or the same problem in other words. What more than half of the
    audit's prompts say counts as the way they ask. Files may hold prompts under prompt, question, problem, input, query
    or instruction, as text or as a chat.

    Parameters
    ----------
    audit
        The problems that are audited: a JSONL or Parquet file, or a task by name such as benchmark:math500.
    against
        What was trained on: files or tasks, one or more.
    words
        Words in a run.
    """
    from oversharp.diagnostics.tasks.overlap import check_problems as run

    return run(str(audit), [str(one) for one in against], words=words)
