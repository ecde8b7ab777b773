"""Encode prompts and responses as tokens, and decode tokens."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from oversharp.diagnostics.models.load import LoadedModel
from oversharp.diagnostics.models.templates import TemplateLimitError, render_chat
from oversharp.diagnostics.records.errors import SamplerError, first_line
from oversharp.diagnostics.records.types import Problem

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class PromptFormat(Protocol):
    """Settings that convert a problem's prompt to model input. Audit and trainers share them."""

    @property
    def prompt_template(self) -> str:
        """Text around a prompt, with ``{prompt}`` as its placeholder."""

    @property
    def system_prompt(self) -> str:
        """System prompt, empty for none. It has no effect without ``chat``."""

    @property
    def chat(self) -> bool:
        """Whether the text becomes the user turn of the tokenizer's chat template."""

    @property
    def chat_args(self) -> str | None:
        """Additional arguments of the chat template as a JSON object, None for none."""


class TokenLimits(Protocol):
    """Limits of a model's tokens."""

    @property
    def context_tokens(self) -> int | None:
        """Maximum sequence length, None without a limit."""

    @property
    def vocabulary_size(self) -> int:
        """Number of rows of the embedding."""


def chat_text(tokenizer: PreTrainedTokenizerBase, text: str, settings: PromptFormat) -> str:
    """Return ``text`` as the user turn of the chat template, ready for the assistant's answer.

    Raises ``SamplerError`` if there is no chat template, or if it fails or does not terminate.
    """
    if not tokenizer.chat_template:
        raise SamplerError(
            "--chat: the tokenizer has no chat template; remove --chat and pass --prompt-template instead"
        )
    more: dict[str, Any] = {} if settings.chat_args is None else json.loads(settings.chat_args)
    user = [{"role": "user", "content": text}]
    system = [{"role": "system", "content": settings.system_prompt}] if settings.system_prompt else []
    try:
        return render_chat(tokenizer, [*system, *user], more)
    except TemplateLimitError:
        raise
    except Exception as error:
        fault = f"--chat: the tokenizer's chat template fails ({first_line(error)}); pass --no-chat and"
        if system and _can_render(tokenizer, user, more):
            fault = f"--system-prompt: the chat template has no system turn ({first_line(error)}); put the text into"
        raise SamplerError(f"{fault} --prompt-template instead") from error


def _can_render(tokenizer: PreTrainedTokenizerBase, turns: list[dict[str, str]], more: dict[str, Any]) -> bool:
    try:
        render_chat(tokenizer, turns, more)
    except Exception:  # noqa: BLE001  # a template is a program, which may raise any error
        return False
    return True


def encode_prompt(tokenizer: PreTrainedTokenizerBase, problem: Problem, settings: PromptFormat) -> list[int]:
    """Return the token ids of a problem's prompt.

    The prompt template and, if set, the chat template are applied.

    Raises ``SamplerError`` if the chat template is missing or fails, or if the tokenizer cannot encode the prompt or
    returns no tokens.
    """
    # replace instead of str.format, because a template may contain other braces, as in \boxed{}
    text = settings.prompt_template.replace("{prompt}", problem.prompt)
    if settings.chat:
        text = chat_text(tokenizer, text, settings)
    # a chat template adds the special tokens itself
    ids = _encode(tokenizer, text, what=f"prompt {problem.prompt!r:.80}", special_tokens=not settings.chat)
    if not ids:
        raise SamplerError(f"prompt {problem.prompt!r:.80}: no tokens; add text or a --prompt-template")
    return ids


def pad_left(
    rows: Sequence[Sequence[int]], loaded: LoadedModel
) -> tuple[Int[Tensor, "row token"], Bool[Tensor, "row token"]]:
    """Return left-padded token rows and the mask of non-padding tokens, on the model's device."""
    width = max(map(len, rows))
    ids_BL = torch.tensor([[loaded.pad_id] * (width - len(row)) + list(row) for row in rows], device=loaded.device)
    length_B = torch.tensor([len(row) for row in rows], device=loaded.device)
    return ids_BL, torch.arange(width, device=loaded.device) >= width - length_B[:, None]


def response_ids(tokenizer: PreTrainedTokenizerBase, text: str) -> tuple[int, ...]:
    """Return the token ids of a complete response, including the end token."""
    ids = _encode(tokenizer, text, what=f"response {text!r:.80}", special_tokens=False)
    return (*ids, int(tokenizer.eos_token_id))


def response_texts(tokenizer: PreTrainedTokenizerBase, token_rows: Sequence[tuple[int, ...]]) -> list[str]:
    """Return the text of each row of response tokens, without special tokens."""
    distinct = list(dict.fromkeys(token_rows))  # sharpened models often repeat a response, so decode it once
    decoded = tokenizer.batch_decode([list(tokens) for tokens in distinct], skip_special_tokens=True)
    texts = dict(zip(distinct, decoded, strict=True))
    return [texts[tokens] for tokens in token_rows]


def require_fit(loaded: TokenLimits, problem: Problem, prompt_ids: Sequence[int], *, n_response: int) -> None:
    """Raise ``SamplerError`` unless prompt and ``n_response`` tokens fit in the context.

    Also raises for a prompt token outside the model's vocabulary.
    """
    foreign = max(prompt_ids)
    if foreign >= loaded.vocabulary_size:
        raise SamplerError(
            f"prompt {problem.prompt!r:.80}: token {foreign} is outside the model's vocabulary of "
            f"{loaded.vocabulary_size:,}; the tokenizer belongs to another model"
        )
    if loaded.context_tokens is not None and len(prompt_ids) + n_response > loaded.context_tokens:
        raise SamplerError(
            f"prompt {problem.prompt!r:.80}: {len(prompt_ids):,} prompt tokens and {n_response:,} response tokens "
            f"exceed the model's context of {loaded.context_tokens:,}; lower --max-tokens or drop problem "
            f"{problem.problem_id}"
        )


def _encode(tokenizer: PreTrainedTokenizerBase, text: str, *, what: str, special_tokens: bool) -> list[int]:
    try:
        ids: list[int] = tokenizer(text, add_special_tokens=special_tokens, verbose=False)["input_ids"]
    except Exception as error:  # the tokenizers library raises only plain Exception
        raise SamplerError(
            f"{what}: the model's tokenizer cannot encode this text ({first_line(error)}); "
            "use a problem set that this tokenizer can encode"
        ) from error
    return ids
