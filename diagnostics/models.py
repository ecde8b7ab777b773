"""Loads checkpoints and turns problems into tokens: the edge to transformers that sampler and scorer share."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

import torch

from diagnostics.errors import CheckpointError, ConfigError, OversharpError, SamplerError
from diagnostics.series.tokenizers import tokenizer_file, tokenizer_places
from diagnostics.types import Checkpoint, Problem, SamplingSettings

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

Dtype = Literal["float32", "bfloat16", "float16"]

#: Below this size the work per operation is too little to share: two threads were up to 14 times slower than one.
ONE_THREAD_BELOW_PARAMETERS = 50_000_000


@dataclass(frozen=True, kw_only=True)
class LoadedModel:
    """A causal language model in evaluation mode with its tokenizer, ready on ``device``.

    ``end_ids`` are the tokens that end a response, the tokenizer's own first. ``pad_id`` fills masked positions.
    ``context_tokens`` is the longest sequence the model was made for, None if it states no limit.
    ``vocabulary_size`` counts the rows of the embedding, which may exceed the tokenizer's vocabulary.
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    device: torch.device
    end_ids: tuple[int, ...]
    pad_id: int
    context_tokens: int | None
    vocabulary_size: int


def pick_device(wanted: str | None) -> torch.device:
    """The device asked for, else a GPU if there is one. Raises ``ConfigError`` for one that is not there.

    >>> pick_device("cpu")
    device(type='cpu')
    """
    if wanted is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(wanted)
    except RuntimeError:
        raise ConfigError(f"--device {wanted}: not a device name; use cpu, cuda or cuda:0") from None
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ConfigError(f"--device {wanted}: this machine has no such CUDA GPU; use --device cpu")
    return device


def default_threads(model: torch.nn.Module) -> int:
    """CPU threads that suit the model: one for small ones, else as many as torch would take."""
    n_parameters = sum(parameter.numel() for parameter in model.parameters())
    return 1 if n_parameters < ONE_THREAD_BELOW_PARAMETERS else torch.get_num_threads()


@contextmanager
def suitable_threads(model: torch.nn.Module) -> Iterator[None]:
    """Use ``default_threads`` inside the block."""
    before = torch.get_num_threads()
    torch.set_num_threads(default_threads(model))
    try:
        yield
    finally:
        torch.set_num_threads(before)


def load_model(checkpoint: Checkpoint, *, device: torch.device, dtype: Dtype) -> LoadedModel:
    """Load the weights, an adapter with the model under it, and the tokenizer.

    The checkpoint's own sampling defaults (temperature, repetition penalty, …) are dropped: the settings of the audit
    alone decide. Raises ``CheckpointError`` in one line for whatever keeps the checkpoint from being used: a file that
    does not load, a tensor that is missing or not finite, a tokenizer of another model, no end token.
    """
    try:
        with _quiet():
            model = _load_weights(checkpoint, dtype)
            tokenizer = _load_tokenizer(checkpoint)
            model.to(device)  # type: ignore[arg-type]  # the stub binds a wrapped method to its class
            model.eval()
    except OversharpError:
        raise
    except Exception as error:  # broken files make these libraries raise anything, plain Exception too
        raise CheckpointError(
            f"{checkpoint.label}: {checkpoint.path} cannot be loaded ({_first_line(error)}); "
            "check its files, or leave it out"
        ) from error
    _refuse_broken_numbers(checkpoint, model)
    embedding: Any = model.get_input_embeddings()
    vocabulary_size = int(embedding.weight.shape[0])
    if tokenizer.vocab_size > vocabulary_size:
        raise CheckpointError(
            f"{checkpoint.label}: the tokenizer has {tokenizer.vocab_size:,} tokens, the model {vocabulary_size:,}; "
            f"{checkpoint.path} carries the tokenizer of another model: copy the right one there"
        )
    end_ids = _end_ids(checkpoint, model, tokenizer)
    pad_id = tokenizer.pad_token_id
    if pad_id is None or pad_id >= vocabulary_size:
        pad_id = end_ids[0]
    context_tokens = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    return LoadedModel(
        model=model,
        tokenizer=tokenizer,
        device=device,
        end_ids=end_ids,
        pad_id=int(pad_id),
        context_tokens=context_tokens,
        vocabulary_size=vocabulary_size,
    )


def encode_prompt(tokenizer: PreTrainedTokenizerBase, problem: Problem, settings: SamplingSettings) -> list[int]:
    """Token ids of the prompt: the template around it, and the chat template around that where settings say so.

    Raises ``SamplerError`` if the tokenizer has no chat template, cannot encode the prompt, or makes nothing of it.
    """
    # not str.format: a template may hold braces of its own, as in \boxed{}
    text = settings.prompt_template.replace("{prompt}", problem.prompt)
    if settings.chat:
        if not tokenizer.chat_template:
            raise SamplerError(
                "--chat: the tokenizer has no chat template; leave --chat out and give --prompt-template instead"
            )
        system = [{"role": "system", "content": settings.system_prompt}] if settings.system_prompt else []
        turns = [*system, {"role": "user", "content": text}]
        text = str(tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True))
    # a chat template writes the special tokens itself
    ids = _encode(tokenizer, text, what=f"prompt {problem.prompt!r:.80}", special_tokens=not settings.chat)
    if not ids:
        raise SamplerError(f"prompt {problem.prompt!r:.80}: no tokens; give it text or a --prompt-template")
    return ids


def response_ids(tokenizer: PreTrainedTokenizerBase, text: str) -> tuple[int, ...]:
    """Tokens of a whole response as the model would write it, the end token included."""
    ids = _encode(tokenizer, text, what=f"response {text!r:.80}", special_tokens=False)
    return (*ids, int(tokenizer.eos_token_id))


def require_fit(loaded: LoadedModel, problem: Problem, prompt_ids: Sequence[int], *, n_response: int) -> None:
    """Raise ``SamplerError`` unless the model can read the prompt and ``n_response`` tokens after it."""
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
    except Exception as error:  # the tokenizers library raises nothing more specific
        raise SamplerError(f"{what}: the tokenizer cannot encode it ({_first_line(error)})") from error
    return ids


def _load_weights(checkpoint: Checkpoint, dtype: Dtype) -> PreTrainedModel:
    from transformers import AutoModelForCausalLM

    loaded: Any = AutoModelForCausalLM.from_pretrained(  # a pair, which its annotation does not know
        checkpoint.base_path or checkpoint.path,
        dtype=getattr(torch, dtype),
        local_files_only=True,
        trust_remote_code=False,  # None would ask on the terminal
        output_loading_info=True,
    )
    model, report = loaded
    # transformers fills these with random numbers and goes on
    if missing := sorted(report["missing_keys"]):
        raise CheckpointError(
            f"{checkpoint.label}: {len(missing)} tensors missing in {checkpoint.base_path or checkpoint.path}, "
            f"{missing[0]} among them; save the checkpoint anew"
        )
    if checkpoint.kind == "full":
        return cast("PreTrainedModel", model)
    return _with_adapter(model, checkpoint)


def _with_adapter(model: Any, checkpoint: Checkpoint) -> Any:
    from peft import PeftModel

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        adapted = PeftModel.from_pretrained(model, str(checkpoint.path), local_files_only=True)
    # peft only warns, and leaves the adapter at its random start
    missing = [str(warning.message) for warning in caught if "missing adapter keys" in str(warning.message)]
    if missing:
        raise CheckpointError(f"{checkpoint.label}: {missing[0][:160]}; the adapter belongs to another model")
    return adapted


def _load_tokenizer(checkpoint: Checkpoint) -> PreTrainedTokenizerBase:
    from transformers import AutoTokenizer

    file = tokenizer_file(tokenizer_places(checkpoint))
    if file is None:
        raise CheckpointError(f"{checkpoint.label}: tokenizer.json missing in {checkpoint.path}; copy the base model's")
    return AutoTokenizer.from_pretrained(file.parent, local_files_only=True, trust_remote_code=False)


def _end_ids(checkpoint: Checkpoint, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> tuple[int, ...]:
    """Every token that ends a response, as generation engines take them: the tokenizer's and the model's."""
    from transformers import GenerationConfig

    wrapped: Any = model
    inner = wrapped.get_base_model() if checkpoint.kind == "lora" else wrapped
    stated = inner.generation_config.eos_token_id
    of_model = [stated] if isinstance(stated, int) else list(stated or [])
    inner.generation_config = GenerationConfig()
    if tokenizer.eos_token_id is None and of_model:
        tokenizer.eos_token = str(tokenizer.convert_ids_to_tokens(of_model[0]))
    if tokenizer.eos_token_id is None:
        raise CheckpointError(f"{checkpoint.label}: no end token known; set eos_token_id in generation_config.json")
    return tuple(dict.fromkeys([int(tokenizer.eos_token_id), *of_model]))


def _refuse_broken_numbers(checkpoint: Checkpoint, model: PreTrainedModel) -> None:
    for name, parameter in model.named_parameters():
        if not bool(torch.isfinite(parameter).all()):
            raise CheckpointError(
                f"{checkpoint.label}: {name} holds NaN or infinite numbers; the training diverged or the file is "
                "damaged: leave this checkpoint out"
            )


@contextmanager
def _quiet() -> Iterator[None]:
    """No bars and notes of transformers inside the block: ours say what happens."""
    from transformers.utils import logging

    bars, verbosity = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:200] if lines else type(error).__name__
