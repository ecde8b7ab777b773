"""Encode problems and responses as tokens, and decode tokens."""

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
    """Settings that turn a prompt into model input, shared by audit and trainers."""

    @property
    def prompt_template(self) -> str:
        """Text around a prompt, with ``{prompt}`` as its placeholder."""

    @property
    def system_prompt(self) -> str:
        """System turn before the prompt, empty for none; unused without ``chat``."""

    @property
    def chat(self) -> bool:
        """Whether the text becomes the user turn of the tokenizer's chat template."""

    @property
    def chat_args(self) -> str | None:
        """Further arguments of the chat template, a JSON object; None for none."""


def chat_text(tokenizer: PreTrainedTokenizerBase, text: str, settings: PromptFormat) -> str:
    """Return ``text`` as the user turn of the chat template, up to the start of the answer.

    Raises ``SamplerError`` in one line if there is no template, it fails, or does not end.
    """
    if not tokenizer.chat_template:
        raise SamplerError(
            "--chat: the tokenizer has no chat template; leave --chat out and pass --prompt-template instead"
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
        if system and _takes(tokenizer, user, more):
            fault = f"--system-prompt: the chat template has no system turn ({first_line(error)}); put the text into"
        raise SamplerError(f"{fault} --prompt-template instead") from error


def _takes(tokenizer: PreTrainedTokenizerBase, turns: list[dict[str, str]], more: dict[str, Any]) -> bool:
    try:
        render_chat(tokenizer, turns, more)
    except Exception:  # noqa: BLE001  # a template is a program
        return False
    return True


def encode_prompt(tokenizer: PreTrainedTokenizerBase, problem: Problem, settings: PromptFormat) -> list[int]:
    """Return the token ids of the prompt in its prompt template and, if set, chat template.

    Raises ``SamplerError`` if there is no chat template, or the tokenizer cannot encode the prompt or returns no
    tokens.
    """
    # not str.format, because a template may contain other braces, as in \boxed{}
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
    """Left-pad token rows on the model's device; return them with the mask of real tokens."""
    width = max(map(len, rows))
    ids_BL = torch.tensor([[loaded.pad_id] * (width - len(row)) + list(row) for row in rows], device=loaded.device)
    length_B = torch.tensor([len(row) for row in rows], device=loaded.device)
    return ids_BL, torch.arange(width, device=loaded.device) >= width - length_B[:, None]


def response_ids(tokenizer: PreTrainedTokenizerBase, text: str) -> tuple[int, ...]:
    """Return the tokens of a complete response, end token included."""
    ids = _encode(tokenizer, text, what=f"response {text!r:.80}", special_tokens=False)
    return (*ids, int(tokenizer.eos_token_id))


def response_texts(tokenizer: PreTrainedTokenizerBase, token_rows: Sequence[tuple[int, ...]]) -> list[str]:
    """Return the text of each row of response tokens, without special tokens."""
    distinct = list(dict.fromkeys(token_rows))  # sharpened models often repeat a response
    decoded = tokenizer.batch_decode([list(tokens) for tokens in distinct], skip_special_tokens=True)
    texts = dict(zip(distinct, decoded, strict=True))
    return [texts[tokens] for tokens in token_rows]


def require_fit(loaded: LoadedModel, problem: Problem, prompt_ids: Sequence[int], *, n_response: int) -> None:
    """Raise ``SamplerError`` unless prompt and ``n_response`` tokens fit the context."""
    foreign = max(prompt_ids)
    if foreign >= loaded.vocabulary_size:
        raise SamplerError(
            f"prompt {problem.prompt!r:.80}: token {foreign} is outside the model's {loaded.vocabulary_size:,}; "
            "the tokenizer belongs to another model"
        )
    if loaded.context_tokens is not None and len(prompt_ids) + n_response > loaded.context_tokens:
        raise SamplerError(
            f"prompt {problem.prompt!r:.80}: {len(prompt_ids):,} tokens and {n_response:,} of response exceed the "
            f"model's context of {loaded.context_tokens:,}; lower --max-tokens or drop problem {problem.problem_id}"
        )


def _encode(tokenizer: PreTrainedTokenizerBase, text: str, *, what: str, special_tokens: bool) -> list[int]:
    try:
        ids: list[int] = tokenizer(text, add_special_tokens=special_tokens, verbose=False)["input_ids"]
    except Exception as error:  # the tokenizers library raises only plain Exception
        raise SamplerError(
            f"{what}: the tokenizer cannot encode it ({first_line(error)}); "
            "the tokenizer of this model does not cover these problems: use a matching problem set"
        ) from error
    return ids
