"""Choose whether prompts use the tokenizer's chat template, and test the template."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from oversharp.diagnostics.models.templates import render_chat
from oversharp.diagnostics.records.errors import SamplerError
from oversharp.diagnostics.records.types import Checkpoint, Problem, SamplingSettings
from oversharp.diagnostics.series.tokenizers import find_tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_OFF = "--no-chat disables it"


@dataclass(frozen=True, kw_only=True)
class ChatChoice:
    """Whether the chat template is used, and a line for the user that explains why.

    ``note`` is None if the tokenizer has no chat template.
    """

    chat: bool
    note: str | None = None


def choose_chat(
    base: Checkpoint, problems: Sequence[Problem], *, own_words: bool, trained: bool | None, needed_by: str | None
) -> ChatChoice:
    """Choose whether to use the tokenizer's chat template.

    Called only if the user passed neither --chat nor --no-chat.

    Args:
        base: checkpoint with the tokenizer.
        problems: problems whose prompts are checked. If a prompt already contains a chat turn, the template is not
            used.
        own_words: whether the user sets the whole prompt by a prompt template or preset. Then the chat template is not
            used, unless ``trained`` is True.
        trained: whether the run was trained with the chat template; None if unknown. If it is known, the choice is the
            same.
        needed_by: name of a flag that requires the chat template, None if there is none.

    Raises:
        SamplerError: ``needed_by`` is given and the chat template is not used.
    """
    choice = _choose(base, problems, own_words=own_words, trained=trained)
    if needed_by is not None and not choice.chat:
        why = choice.note or f"the tokenizer of {base.label} has no chat template"
        raise SamplerError(
            f"{needed_by}: no chat template is used ({why}); remove {needed_by}"
            f"{', or pass --chat' if choice.note else ''}"
        )
    return choice


def _choose(base: Checkpoint, problems: Sequence[Problem], *, own_words: bool, trained: bool | None) -> ChatChoice:
    if not has_chat_template(base):
        return ChatChoice(chat=False)
    if trained is not None:
        how = "with the tokenizer's chat template" if trained else "without a chat template"
        return ChatChoice(chat=trained, note=f"prompts are formatted {how}, as in training")
    if own_words:
        return ChatChoice(
            chat=False, note="the prompt template is the whole prompt; pass --chat to make it the user turn of a chat"
        )
    marks = turn_marks(load_chat_tokenizer(base))
    chats = [mark for problem in problems for mark in marks if mark in problem.prompt]
    if chats:
        return ChatChoice(chat=False, note=f"prompts contain chat turns already ({chats[0]}): no chat template is used")
    return ChatChoice(chat=True, note=f"prompts are formatted with the tokenizer's chat template ({_OFF})")


def has_chat_template(base: Checkpoint) -> bool:
    """Return whether the tokenizer has a chat template, without importing transformers."""
    file = find_tokenizer(base)
    if file is None:
        return False
    if any(file.parent.glob("chat_template.*")) or any(file.parent.glob("additional_chat_templates/*")):
        return True
    try:
        settings = json.loads((file.parent / "tokenizer_config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False  # loading the tokenizer will raise the error
    return isinstance(settings, dict) and bool(settings.get("chat_template"))


def trained_with_chat(run: Path) -> bool | None:
    """Return whether a run of ``oversharp train`` used the chat template.

    Returns None if unknown.
    """
    try:
        settings = tomllib.loads((run / "config.toml").read_text(encoding="utf-8")).get("train")
    except (OSError, ValueError):
        return None
    chat = settings.get("chat") if isinstance(settings, dict) else None
    return chat if isinstance(chat, bool) else None


def load_chat_tokenizer(base: Checkpoint) -> PreTrainedTokenizerBase:
    """Load the tokenizer of ``base``. Raises ``CheckpointError``."""
    from oversharp.diagnostics.models.load import load_own_tokenizer

    return load_own_tokenizer(base)


def turn_marks(tokenizer: PreTrainedTokenizerBase) -> tuple[str, ...]:
    """Return the special tokens that the chat template writes around a turn.

    An example is <|im_start|>. The longest token comes first.
    """
    turn = [{"role": "user", "content": "?"}]
    try:
        written = render_chat(tokenizer, turn, {})
    except Exception:  # noqa: BLE001  # a template may raise any error; require_usable reports it
        return ()
    marks = [token for token in tokenizer.get_added_vocab() if len(token) > 1 and token in written]
    return tuple(sorted(marks, key=lambda token: (-len(token), token)))


def require_usable(base: Checkpoint, settings: SamplingSettings) -> None:
    """Raise ``SamplerError`` if the chat template is missing or fails with these settings."""
    from oversharp.diagnostics.models.tokens import chat_text

    chat_text(load_chat_tokenizer(base), "?", settings)
