"""Makes an ordinary checkpoint of a GGUF file: bfloat16 weights, tokenizer, chat template, end tokens, model card.

The checkpoint appears whole or not at all; what converted it is loaded again as an audit loads it, and asked three
questions.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from oversharp.diagnostics.models.load import LoadedModel, load_path, quiet_transformers
from oversharp.diagnostics.models.tokens import encode_prompt
from oversharp.diagnostics.records.errors import CheckpointError, ConfigError, first_line
from oversharp.diagnostics.records.files import require_regular
from oversharp.diagnostics.records.provenance import version
from oversharp.diagnostics.records.types import Problem, SamplingSettings
from oversharp.diagnostics.repair.folders import atomic_folder
from oversharp.diagnostics.series.weights import IncompleteCheckpointError, check_complete, weight_files

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

#: What a converted model is asked, so that one sees whether it is whole.
QUESTIONS = ("What is 17 + 25?", "What is the capital of France?", "Name three colours.")
ANSWER_TOKENS = 48
#: The file in a converted checkpoint that says what it was made of.
RECORD = "converted_from.json"
MEND_EXTRA = "run in oversharp's checkout: pip install '.[llm]'"
_MAGIC = b"GGUF"


@dataclass(frozen=True, kw_only=True)
class ModelSource:
    """What a model card says of where weights come from: ``name`` of the model, ``origin`` in prose, ``licence``.

    None for what nobody states.
    """

    name: str | None = None
    origin: str | None = None
    licence: str | None = None


@dataclass(frozen=True, kw_only=True)
class Conversion:
    """A converted checkpoint in ``path`` and what it said: (question, greedy answer). ``found``: it was there before.

    ``n_parameters`` counts a tied matrix once. ``end_tokens`` end a response, ``chat`` is whether there is a template.
    """

    path: Path
    n_parameters: int
    n_tokens: int
    context_tokens: int | None
    end_tokens: tuple[str, ...]
    chat: bool
    answers: tuple[tuple[str, str], ...]
    found: bool


def convert(
    file: Path, out: Path, *, source: ModelSource | None = None, note: Callable[[str], None] = lambda line: None
) -> Conversion:
    """Make a checkpoint in ``out`` of the GGUF ``file``; one that was made of the same file before is kept.

    Numbers are dequantised and rounded to bfloat16. Needs the package gguf, and as much memory as the model takes in
    float32. Raises ``ConfigError`` without that package or where ``out`` holds other things, ``CheckpointError`` for a
    file that is no whole GGUF or holds a model that transformers does not read from GGUF.
    """
    require_gguf()
    stated = read_metadata(file)
    digest = digest_of(file)
    kept = found(out, digest)
    if not kept:
        note(f"converting {file.name}, {file.stat().st_size / 1e6:,.0f} MB")
        _write(file, out, {"file": file.name, "sha256": digest}, stated, source or ModelSource())
    return asked(out, found=kept)


def digest_of(file: Path) -> str:
    """SHA-256 of a file, in hex digits."""
    with file.open("rb") as stream:
        digest = sha256()
        while chunk := stream.read(1 << 24):
            digest.update(chunk)
    return digest.hexdigest()


def read_metadata(file: Path) -> Mapping[str, Any]:
    """What the head of a GGUF file states, by key, lists left out.

    Raises ``CheckpointError`` for a file that is not there, no GGUF, cut short, or of an architecture that transformers
    reads no causal language model from.
    """
    from gguf import GGUFReader

    _require_magic(file)
    try:
        reader = GGUFReader(file)
        stated = {name: field.contents() for name, field in reader.fields.items() if len(field.data) == 1}
    except Exception as error:  # what lies behind the end of a short file makes it raise anything
        raise CheckpointError(f"{file}: is no whole GGUF file ({first_line(error)}); copy it anew") from error
    _require_architecture(file, str(stated.get("general.architecture")))
    return stated


def require_gguf() -> None:
    """Raise ``ConfigError`` without the package that reads GGUF files."""
    from transformers.utils.import_utils import is_gguf_available

    if not is_gguf_available():
        raise ConfigError(f"the package gguf is not installed, which reads GGUF files; {MEND_EXTRA}")


def _require_magic(file: Path) -> None:
    try:
        require_regular(file)
        with file.open("rb") as stream:
            magic = stream.read(len(_MAGIC))
    except OSError as error:
        raise CheckpointError(f"{file}: cannot be read ({error.strerror}); give a GGUF file") from error
    if magic != _MAGIC:
        raise CheckpointError(f"{file}: is no GGUF file; give one, or use a checkpoint of transformers as it is")


def _require_architecture(file: Path, architecture: str) -> None:
    from transformers.modeling_gguf_pytorch_utils import GGUF_SUPPORTED_ARCHITECTURES
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    known = sorted(set(GGUF_SUPPORTED_ARCHITECTURES) & set(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES))
    if architecture not in GGUF_SUPPORTED_ARCHITECTURES or architecture.startswith(("t5", "umt5")):
        raise CheckpointError(
            f"{file}: holds a model of architecture {architecture}, which transformers does not read from GGUF; "
            f"it reads {', '.join(known)}"
        )


def found(out: Path, sha256_digits: str) -> bool:
    """Whether ``out`` holds what was made of that file already.

    Raises ``ConfigError`` where it holds anything else, ``CheckpointError`` where it is not whole any more.
    """
    if out.exists() and not out.is_dir():
        raise ConfigError(f"--out {out}: is a file; choose another --out")
    if not out.is_dir() or not any(out.iterdir()):
        return False
    if _record_in(out).get("sha256") == sha256_digits:
        _require_whole(out)
        return True
    some = min(one.name for one in out.iterdir())
    raise ConfigError(f"--out {out}: holds other things ({some}); choose a new folder")


def _require_whole(out: Path) -> None:
    try:
        files = weight_files(out)
        if not files:
            raise IncompleteCheckpointError("model.safetensors missing")
        check_complete(files)
    except IncompleteCheckpointError as fault:
        raise CheckpointError(
            f"{out}: what was converted there before is damaged ({fault}); delete the folder and run the same command"
        ) from None


def _record_in(folder: Path) -> Mapping[str, Any]:
    """What a conversion wrote into the folder; empty where none did."""
    try:
        record = json.loads((folder / RECORD).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}


def _write(file: Path, out: Path, record: Mapping[str, str], stated: Mapping[str, Any], source: ModelSource) -> None:
    unfinished = out.with_name(f"tmp-{out.name}")
    if unfinished.is_dir():
        if not _record_in(unfinished):
            raise ConfigError(f"--out {out}: {unfinished} is in the way, which no conversion made; move it away")
        shutil.rmtree(unfinished)  # of a conversion that was killed
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with atomic_folder(out) as folder:
            (folder / RECORD).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
            model, tokenizer = _dequantised(file, stated)
            with quiet_transformers():
                model.save_pretrained(folder)
                tokenizer.save_pretrained(folder)
            card = _card(file, record, stated, source)
            (folder / "README.md").write_text(card, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"--out {out}: cannot be written ({error.strerror}); choose another --out") from error


def _dequantised(file: Path, stated: Mapping[str, Any]) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The model in bfloat16, free of what ties it to its quantisation, and its tokenizer."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    try:
        with quiet_transformers():
            tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
            held: Any = AutoModelForCausalLM.from_pretrained(
                file.parent, gguf_file=file.name, dtype=torch.bfloat16, output_loading_info=True
            )
            quantised, report = held
            if missing := sorted(report["missing_keys"]):
                raise CheckpointError(f"{file}: {len(missing)} tensors missing, {missing[0]} among them; copy it anew")
            model = _plain(quantised)
    except CheckpointError:
        raise
    except Exception as error:  # these libraries raise anything
        raise CheckpointError(f"{file}: cannot be converted ({first_line(error)}); take another file") from error
    model.generation_config = _generation_config(tokenizer, stated)
    return model, tokenizer


def _plain(quantised: PreTrainedModel) -> PreTrainedModel:
    """The same weights in a model that knows no quantisation: transformers saves none that does."""
    from transformers import AutoModelForCausalLM

    config = quantised.config
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    config.dtype = torch.bfloat16
    config.name_or_path = ""  # of whoever quantised it
    with torch.device("meta"):
        model: PreTrainedModel = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.load_state_dict(quantised.state_dict(), assign=True)
    model.tie_weights()
    return model


def _generation_config(tokenizer: PreTrainedTokenizerBase, stated: Mapping[str, Any]) -> Any:
    """Every token that ends a response: the tokenizer's, and the end of a turn where the file names another."""
    from transformers import GenerationConfig

    in_file = [stated.get(f"tokenizer.ggml.{kind}_token_id") for kind in ("eos", "eot")]
    named = (tokenizer.eos_token_id, *in_file)
    ends = list(dict.fromkeys(int(token) for token in named if token is not None))
    return GenerationConfig(
        eos_token_id=ends[0] if len(ends) == 1 else ends or None,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id,
    )


def asked(out: Path, *, found: bool) -> Conversion:
    """The checkpoint in ``out``, loaded as an audit loads it, and its answers. Raises ``CheckpointError``."""
    loaded = load_path(out, device=torch.device("cpu"), dtype="float32")
    chat = bool(loaded.tokenizer.chat_template)
    settings = SamplingSettings(sampler="transformers", chat=chat)
    return Conversion(
        path=out,
        n_parameters=sum(parameter.numel() for parameter in loaded.model.parameters()),
        n_tokens=loaded.vocabulary_size,
        context_tokens=loaded.context_tokens,
        end_tokens=tuple(map(str, loaded.tokenizer.convert_ids_to_tokens(list(loaded.end_ids)))),
        chat=chat,
        answers=tuple((question, _greedy(loaded, question, settings)) for question in QUESTIONS),
        found=found,
    )


@torch.inference_mode()
def _greedy(loaded: LoadedModel, question: str, settings: SamplingSettings) -> str:
    problem = Problem(task="conversion", prompt=question, gold="", verifier="")
    prompt_ids = encode_prompt(loaded.tokenizer, problem, settings)
    model: Any = loaded.model
    said = model.generate(
        torch.tensor([prompt_ids]),
        attention_mask=torch.ones(1, len(prompt_ids), dtype=torch.long),
        max_new_tokens=ANSWER_TOKENS,
        do_sample=False,
        eos_token_id=list(loaded.end_ids),
        pad_token_id=loaded.pad_id,
    )[0, len(prompt_ids) :]
    return str(loaded.tokenizer.decode(said, skip_special_tokens=True)).strip()


def _card(file: Path, record: Mapping[str, str], stated: Mapping[str, Any], source: ModelSource) -> str:
    """The README.md of a converted checkpoint; JSON strings are YAML as they stand."""
    name = str(source.name or stated.get("general.name") or file.stem)
    licence = source.licence or stated.get("general.license")
    kinds = _quantisations(file)
    front = [
        *([] if licence is None else [f"license: {json.dumps(str(licence).lower())}"]),
        "library_name: transformers",
        f"model_name: {json.dumps(name, ensure_ascii=False)}",
        "pipeline_tag: text-generation",
        "tags:",
        *(f"- {json.dumps(tag)}" for tag in ("oversharp", "gguf")),
    ]
    lines = [
        *("---", *front, "---", "", f"# {name}", ""),
        f"Source: {source.origin or 'a local file'}; `{record['file']}` (SHA-256 {record['sha256']}).",
        f"Licence: {licence or 'the file states none'}.",
        "",
        f"Converted by oversharp {version()}. The file's numbers ({', '.join(kinds)}) were dequantised and rounded to "
        "bfloat16: what the quantisation lost is not restored.",
    ]
    return "\n".join(lines) + "\n"


def _quantisations(file: Path) -> Sequence[str]:
    from gguf import GGUFReader

    return sorted({tensor.tensor_type.name for tensor in GGUFReader(file).tensors})
