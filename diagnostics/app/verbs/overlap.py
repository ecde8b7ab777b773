"""``check_problems``: overlap of an audit's problems with training data."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from oversharp.diagnostics.records.arguments import check_arguments

if TYPE_CHECKING:
    from oversharp.diagnostics.tasks.overlap import OverlapResult


@check_arguments
def check_problems(audit: Path | str, against: Sequence[Path | str], *, words: int = 13) -> OverlapResult:
    """Find problems of an audit in other sets, such as the training data.

    Reports equal texts; equal words, ignoring case, spaces and punctuation; and a shared run of WORDS words, which may
    be a quotation, a template, or the same problem reworded. Words that more than half of the audit's prompts share are
    ignored. Files may have prompts in prompt, question, problem, input, query or instruction, as text or as a chat.

    Parameters
    ----------
    audit
        Problems of the audit: a JSONL or Parquet file, or a task such as benchmark:math500.
    against
        Training data: files or tasks, one or more.
    words
        Number of words in a shared run.
    """
    from oversharp.diagnostics.tasks.overlap import check_problems as run

    return run(str(audit), [str(one) for one in against], words=words)
