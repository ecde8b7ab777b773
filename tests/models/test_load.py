from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from oversharp.diagnostics.models.devices import cpu_threads, default_threads, in_float32, pick_device, suitable_threads
from oversharp.diagnostics.models.files import is_local
from oversharp.diagnostics.models.load import Dtype, empty_model, load_model, load_path, model_folder, outline_path
from oversharp.diagnostics.models.tokens import PromptFormat, encode_prompt, pad_left, require_fit, response_ids
from oversharp.diagnostics.records.errors import CheckpointError, ConfigError, SamplerError
from oversharp.diagnostics.records.types import SamplingSettings
from oversharp.diagnostics.series.folders import locate_model
from oversharp.trainers.config import TrainConfig
from tests.samplers.tiny_models import (
    CONTEXT,
    WORDS,
    build_model,
    build_tokenizer,
    checkpoint_at,
    load,
    problem,
    write_adapter,
    write_checkpoint,
)
from tests.series.written_runs import change_json

CPU = torch.device("cpu")
TEMPLATE = "{% for m in messages %}{{ m['content'] }} {% endfor %}{% if add_generation_prompt %}?{% endif %}"


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return write_checkpoint(tmp_path / "checkpoint-20", seed=0)


def ids(words: str) -> list[int]:
    return [WORDS.index(word) for word in words.split()]


# ---------------------------------------------------------------- loading


def test_the_error_for_a_model_that_does_not_fit_the_gpu_does_not_mention_files(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_small(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nMore")

    monkeypatch.setattr("transformers.PreTrainedModel.to", too_small)
    with pytest.raises(
        CheckpointError, match=r"does not fit the GPU \(CUDA out of memory.*GiB.\); .*--dtype"
    ) as caught:
        load(checkpoint)
    assert "check its files" not in str(caught.value)


def test_a_loaded_model_has_end_tokens_padding_and_limits(checkpoint: Path) -> None:
    loaded = load(checkpoint)
    assert (loaded.end_ids, loaded.pad_id) == ((1,), 0)
    assert (loaded.context_tokens, loaded.vocabulary_size) == (CONTEXT, len(WORDS))
    assert not loaded.model.training
    assert loaded.model.dtype == torch.float32


@pytest.mark.slow
def test_a_model_is_loaded_in_the_requested_precision(checkpoint: Path) -> None:
    assert load_model(checkpoint_at(checkpoint), device=CPU, dtype="bfloat16").model.dtype == torch.bfloat16


def test_loading_prints_nothing(checkpoint: Path, capfd: pytest.CaptureFixture[str]) -> None:
    capfd.readouterr()
    load(checkpoint)
    assert capfd.readouterr() == ("", "")


def test_a_tokenizer_without_padding_pads_with_the_end_token(checkpoint: Path) -> None:
    tokenizer = build_tokenizer()
    tokenizer.pad_token = None
    tokenizer.save_pretrained(checkpoint)
    assert load(checkpoint).pad_id == 1


@pytest.mark.slow
@pytest.mark.parametrize("stated", [9, [9], [9, 1], [9, 1, 10]])  # the model has tokens 0 … 9
def test_every_end_token_of_tokenizer_and_generation_config_ends_a_response(
    checkpoint: Path, stated: int | list[int]
) -> None:
    change_json(checkpoint / "generation_config.json", eos_token_id=stated)
    assert load(checkpoint).end_ids == (1, 9)
    assert load_path(checkpoint, device=CPU, dtype="float32").end_ids == (1, 9)


def test_the_audit_drops_the_sampling_defaults_of_a_checkpoint_and_the_trainer_saves_them_again(
    checkpoint: Path, tmp_path: Path
) -> None:
    change_json(checkpoint / "generation_config.json", repetition_penalty=1.3, do_sample=True)
    assert load(checkpoint).model.generation_config.repetition_penalty is None
    load_path(checkpoint, device=CPU, dtype="float32").model.save_pretrained(tmp_path / "saved")
    before, after = (
        json.loads((path / "generation_config.json").read_text()) for path in (checkpoint, tmp_path / "saved")
    )
    assert before == after


@pytest.mark.parametrize("stated", ["</s>", -1, [1, "x"], {"a": 1}, 1.5])
def test_an_invalid_end_token_is_refused(checkpoint: Path, stated: object) -> None:
    change_json(checkpoint / "generation_config.json", eos_token_id=stated)
    with pytest.raises(CheckpointError, match=r"checkpoint-20: eos_token_id .* is not a token; set an integer"):
        load(checkpoint)


def test_a_checkpoint_without_any_end_token_is_refused(checkpoint: Path) -> None:
    tokenizer = build_tokenizer()
    tokenizer.eos_token = None
    tokenizer.save_pretrained(checkpoint)
    for name in ("config.json", "generation_config.json"):
        change_json(checkpoint / name, eos_token_id=None)
    with pytest.raises(CheckpointError, match="checkpoint-20: the model has no end token"):
        load(checkpoint)


@pytest.mark.parametrize(
    ("number", "message"),
    [
        (float("nan"), "checkpoint-20: model.norm.weight contains NaN or infinite numbers"),
        (float("inf"), "checkpoint-20: model.norm.weight contains NaN or infinite numbers"),
        (None, "1 tensors are missing in .*, such as model.norm.weight"),
    ],
)
def test_a_weight_that_is_not_finite_or_missing_is_refused(
    checkpoint: Path, number: float | None, message: str
) -> None:
    weights = load_file(checkpoint / "model.safetensors")
    norm = weights.pop("model.norm.weight")
    if number is not None:
        norm[3] = number
        weights["model.norm.weight"] = norm
    save_file(weights, checkpoint / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match=message):
        load(checkpoint)


def test_tied_embeddings_are_not_missing(tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path / "checkpoint-0", seed=0, tie_word_embeddings=True)
    assert "lm_head.weight" not in load_file(path / "model.safetensors")
    assert load(path).vocabulary_size == len(WORDS)


@pytest.mark.parametrize("broken", ["weights of another shape", "tokenizer"])
def test_a_loading_error_is_one_line(checkpoint: Path, broken: str) -> None:
    if broken == "tokenizer":
        (checkpoint / "tokenizer.json").write_text('{"model": ')
    else:
        build_model(0, hidden_size=32).save_pretrained(checkpoint.parent / "other")
        shutil.copy(checkpoint.parent / "other/model.safetensors", checkpoint)
    reason = (
        "cannot be loaded"
        if broken == "tokenizer"
        else r"but 10 × 16 according to its config.json \(21 tensors differ\)"
    )
    with pytest.raises(CheckpointError, match=rf"checkpoint-20: .* {reason}") as caught:
        load(checkpoint)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("opened", [load, outline_path])
def test_a_tokenizer_larger_than_the_model_is_refused(checkpoint: Path, opened: Callable[[Path], object]) -> None:
    build_tokenizer((*WORDS, "h", "i")).save_pretrained(checkpoint)
    with pytest.raises(CheckpointError, match=r"the tokenizer has 12 tokens, the model 10; .* of another model"):
        opened(checkpoint)


@pytest.mark.slow
@pytest.mark.parametrize("dora", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_factors_have_the_precision_of_their_model_and_magnitudes_float32(
    dtype: Dtype, dora: bool, tmp_path: Path
) -> None:
    base = write_checkpoint(tmp_path / "base", seed=0)
    adapter = checkpoint_at(write_adapter(tmp_path / "adapter", base, seed=1, use_dora=dora), base_path=base)
    model = load_model(adapter, device=CPU, dtype=dtype).model
    dtypes = {parameter.dtype for name, parameter in model.named_parameters() if "lora_" in name}
    assert dtypes == {torch.float32 if dora else getattr(torch, dtype)}


@pytest.mark.slow
def test_an_adapter_loads_only_on_its_model_with_the_tokenizer_of_either(tmp_path: Path) -> None:
    base = write_checkpoint(tmp_path / "base", seed=0)
    adapter = write_adapter(tmp_path / "adapter", base, seed=1)
    loaded = load_model(checkpoint_at(adapter, base_path=base), device=CPU, dtype="float32")
    assert loaded.tokenizer("a b")["input_ids"] == ids("a b")
    ids_BL = torch.tensor([ids("a b c ?")])
    with torch.no_grad():
        assert not torch.allclose(loaded.model(ids_BL).logits, load(base).model(ids_BL).logits)
    deeper = write_checkpoint(tmp_path / "deeper", seed=0, num_hidden_layers=3)
    with pytest.raises(CheckpointError, match=r"adapter: .*missing adapter keys.* belongs to another model"):
        load_model(checkpoint_at(adapter, base_path=deeper), device=CPU, dtype="float32")


@pytest.mark.parametrize(
    ("file", "message"), [("config.json", "no config.json here"), ("tokenizer.json", "missing in")]
)
def test_a_directory_without_a_model_or_a_tokenizer_is_refused(checkpoint: Path, file: str, message: str) -> None:
    (checkpoint / file).unlink()
    for path in (checkpoint, str(checkpoint)):
        with pytest.raises(CheckpointError, match=f"checkpoint-20: .*{message}"):
            load_path(path, device=CPU, dtype="float32")


def test_owner_and_name_are_a_hub_name_and_other_paths_directories() -> None:
    with pytest.raises(CheckpointError, match=r"^owner/model cannot be loaded \(.*\); check the name") as caught:
        load_path("owner/model", device=CPU, dtype="float32")
    assert "\n" not in str(caught.value)
    for directory in ("./model", "/model", "~/model", "runs/grpo/checkpoint-20", Path("owner/model")):
        with pytest.raises(CheckpointError, match=r"(model|checkpoint-20): no such directory"):
            load_path(directory, device=CPU, dtype="float32")


def test_a_typing_error_in_a_path_is_not_looked_up_on_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise AssertionError("the hub was queried")

    write_checkpoint(tmp_path / "runs/base", seed=0)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("oversharp.diagnostics.models.load.load_outline", fail)
    for typed in ("runs/bsae", "rusn/base", "./runs/bsae", "runs/base2"):
        with pytest.raises(
            CheckpointError, match=r"^(runs/bsae|rusn/base|runs/base2): no such directory; did you mean"
        ):
            outline_path(typed)
    with pytest.raises(CheckpointError, match=r"^run: no such directory; did you mean runs\?$"):
        empty_model("run")
    with pytest.raises(CheckpointError, match=r"^runs: no config.json here; runs/base has one$"):
        empty_model("runs")
    assert [is_local(name) for name in ("gpt2", "owner/model", "runs/owner")] == [False, False, True]


def test_an_outline_has_the_models_attributes_without_its_weights(checkpoint: Path) -> None:
    change_json(checkpoint / "generation_config.json", eos_token_id=9)
    outline, loaded = outline_path(checkpoint), load_path(checkpoint, device=CPU, dtype="float32")
    for name in ("end_ids", "pad_id", "context_tokens", "vocabulary_size"):
        assert getattr(outline, name) == getattr(loaded, name)
    assert all(parameter.is_meta for parameter in outline.model.parameters())
    assert model_folder(checkpoint) == checkpoint


def test_a_missing_path_is_not_in_the_hubs_cache() -> None:
    assert [locate_model(name) for name in ("../nothing", "nothing/..", "owner/nothing", "nothing")] == [None] * 4


# ---------------------------------------------------------------- formats of trainers


def logits_of(path: Path, base: Path | None = None) -> torch.Tensor:
    loaded = (
        load(path) if base is None else load_model(checkpoint_at(path, base_path=base), device=CPU, dtype="float32")
    )
    with torch.no_grad():
        return loaded.model(torch.tensor([ids("a b c ?")])).logits


@pytest.mark.slow
@pytest.mark.parametrize("form", ["safetensors", "shards", "pickle"])
@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.module.", "base_model.model.", ""])
def test_a_model_with_prefixes_or_without_an_index_is_loaded(checkpoint: Path, prefix: str, form: str) -> None:
    expected = logits_of(checkpoint)
    inner = "_orig_mod." if prefix else ""
    whole = load_file(checkpoint / "model.safetensors")
    named = {f"{prefix}{name.replace('self_attn.', f'self_attn.{inner}')}": tensor for name, tensor in whole.items()}
    (checkpoint / "model.safetensors").unlink()
    if form == "pickle":
        torch.save(named, checkpoint / "pytorch_model.bin")
    else:
        names = sorted(named)
        count = 2 if form == "shards" else 1
        for place in range(count):
            shard = "model.safetensors" if count == 1 else f"model-{place + 1:05}-of-{count:05}.safetensors"
            own = {name: named[name] for name in names[place::count]}
            save_file(own, checkpoint / shard, metadata={"format": "pt"})
    assert torch.equal(logits_of(checkpoint), expected)


@pytest.mark.slow
@pytest.mark.parametrize("outer", ["module.base_model.model.", "_orig_mod.base_model.model._orig_mod."])
def test_an_adapter_with_prefixes_is_loaded(outer: str, tmp_path: Path) -> None:
    base = write_checkpoint(tmp_path / "base", seed=0)
    adapter = write_adapter(tmp_path / "adapter", base, seed=1)
    expected = logits_of(adapter, base)
    file = adapter / "adapter_model.safetensors"
    save_file({name.replace("base_model.model.", outer): tensor for name, tensor in load_file(file).items()}, file)
    assert torch.equal(logits_of(adapter, base), expected)


def write_resized_adapter(folder: Path, base: Path, *, tokens: int, with_embeddings: bool) -> torch.Tensor:
    """Write an adapter of the model in ``base`` with a resized vocabulary; return its logits."""
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(base)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model.resize_token_embeddings(tokens)
        targets = ["q_proj"] if with_embeddings else ["q_proj", "embed_tokens"]
        adapted = get_peft_model(model, LoraConfig(r=2, target_modules=targets))
        adapted.get_parameter("base_model.model.lm_head.weight").data.normal_()
    adapted.save_pretrained(folder, save_embedding_layers=with_embeddings)
    with torch.no_grad():
        return adapted.eval()(torch.tensor([ids("a b c ?")])).logits


def test_an_adapter_with_all_rows_of_a_resized_vocabulary_is_loaded(tmp_path: Path) -> None:
    base = write_checkpoint(tmp_path / "base", seed=0)
    expected = write_resized_adapter(tmp_path / "adapter", base, tokens=14, with_embeddings=True)
    torch.testing.assert_close(logits_of(tmp_path / "adapter", base), expected)


@pytest.mark.slow
def test_an_adapter_without_the_rows_of_a_resized_vocabulary_is_refused_with_both_sizes(tmp_path: Path) -> None:
    base = write_checkpoint(tmp_path / "base", seed=0)
    write_resized_adapter(tmp_path / "adapter", base, tokens=14, with_embeddings=False)
    with pytest.raises(
        CheckpointError, match=r"adapter: the adapter has a vocabulary of 14 tokens, its base model 10, and"
    ):
        logits_of(tmp_path / "adapter", base)


@pytest.mark.slow
def test_a_tensor_of_another_shape_is_refused_with_both_shapes(checkpoint: Path, tmp_path: Path) -> None:
    weights = load_file(checkpoint / "model.safetensors")
    weights["model.norm.weight"] = torch.ones(5)
    save_file(weights, checkpoint / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(
        CheckpointError, match=r"checkpoint-20: model.norm.weight is 5 in .*, but 16 according to its config.json"
    ):
        load(checkpoint)
    base = write_checkpoint(tmp_path / "base", seed=0)
    adapter = write_adapter(tmp_path / "adapter", base, seed=1)
    file = adapter / "adapter_model.safetensors"
    factors = load_file(file)
    name = next(name for name in factors if "lora_B" in name)
    save_file(factors | {name: torch.ones(7, factors[name].shape[1])}, file)
    with pytest.raises(CheckpointError, match=r"adapter: .*lora_B.* is 7 × \d+ in the adapter, but \d+ × \d+ in its "):
        logits_of(adapter, base)


class Harmless:
    def __reduce__(self) -> tuple[object, tuple[str, ...]]:
        return print, ("ran",)


def test_a_pickle_with_more_than_tensors_is_refused_without_torchs_advice(
    checkpoint: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (checkpoint / "model.safetensors").unlink()
    torch.save({"weight": Harmless()}, checkpoint / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match=r"checkpoint-20/pytorch_model.bin: the pickle .* convert it") as caught:
        load(checkpoint)
    assert "weights_only" not in str(caught.value)
    assert "ran" not in capfd.readouterr().out


def test_a_head_that_a_tied_model_would_ignore_is_refused(tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path / "checkpoint-0", seed=0, tie_word_embeddings=True)
    weights = load_file(path / "model.safetensors")
    weights["lm_head.weight"] = weights["model.embed_tokens.weight"] + 1
    save_file(weights, path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match=r"checkpoint-0: config.json ties .* lm_head.weight differs"):
        load(path)


# ---------------------------------------------------------------- prompts and responses


@pytest.mark.parametrize(
    "settings",
    [
        SamplingSettings(sampler="transformers", prompt_template="a {prompt} {}"),
        TrainConfig(prompt_template="a {prompt} {}"),
    ],
)
def test_a_prompt_is_wrapped_in_its_template_which_may_contain_braces(settings: PromptFormat) -> None:
    words = (*WORDS, "{}")
    assert encode_prompt(build_tokenizer(words), problem("c d"), settings) == [*ids("a c d"), words.index("{}")]


def test_prompts_are_padded_on_the_left(checkpoint: Path) -> None:
    ids_BL, mask_BL = pad_left([ids("a b"), ids("c d e f"), ids("g")], load(checkpoint))
    assert ids_BL.tolist() == [[0, 0, *ids("a b")], ids("c d e f"), [0, 0, 0, *ids("g")]]
    assert mask_BL.long().tolist() == [[0, 0, 1, 1], [1, 1, 1, 1], [0, 0, 0, 1]]


@pytest.mark.slow
def test_a_chat_prompt_is_rendered_with_its_system_turn() -> None:
    tokenizer = build_tokenizer(chat_template=TEMPLATE)
    settings = SamplingSettings(sampler="transformers", chat=True, system_prompt="a", prompt_template="b {prompt}")
    assert encode_prompt(tokenizer, problem("c"), settings) == ids("a b c ?")
    assert encode_prompt(tokenizer, problem("c"), SamplingSettings(sampler="t", chat=True)) == ids("c ?")


@pytest.mark.parametrize(
    ("prompt", "chat", "message"),
    [
        ("c", True, "--chat: the tokenizer has no chat template; remove --chat"),
        ("zebra", False, r"prompt 'zebra': the model's tokenizer cannot encode this text .*; use a problem set"),
        ("  ", False, "prompt '  ': no tokens"),
    ],
    ids=["no chat template", "another alphabet", "blank"],
)
def test_a_prompt_that_cannot_be_encoded_is_refused(prompt: str, chat: bool, message: str) -> None:
    with pytest.raises(SamplerError, match=message):
        encode_prompt(build_tokenizer(), problem(prompt), SamplingSettings(sampler="transformers", chat=chat))


def test_a_response_ends_with_the_end_token() -> None:
    assert response_ids(build_tokenizer(), "a b") == (*ids("a b"), 1)
    assert response_ids(build_tokenizer(), "") == (1,)


def test_a_prompt_with_tokens_outside_the_vocabulary_is_refused(checkpoint: Path) -> None:
    with pytest.raises(SamplerError, match=r"token 10 is outside the model's vocabulary of 10; the tokenizer belongs"):
        require_fit(load(checkpoint), problem("a"), [2, 10], n_response=1)


# ---------------------------------------------------------------- device and threads


def test_a_missing_device_is_refused() -> None:
    assert pick_device("cpu") == CPU
    assert pick_device(None).type == ("cuda" if torch.cuda.is_available() else "cpu")
    with pytest.raises(ConfigError, match="--device tpu9: not a device name"):
        pick_device("tpu9")
    with pytest.raises(ConfigError, match="--device cuda:99: this machine has no such CUDA GPU"):
        pick_device("cuda:99")
    with pytest.raises(ConfigError, match="--device meta: the meta device cannot compute"):
        pick_device("meta")


@pytest.mark.parametrize(("set_before", "then"), [(None, "128"), ("7", "7")])
def test_the_primitive_cache_is_limited_unless_the_user_set_it(
    set_before: str | None, then: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "ONEDNN_PRIMITIVE_CACHE_CAPACITY"
    monkeypatch.setenv(name, set_before or "")
    if set_before is None:
        monkeypatch.delenv(name)
    pick_device("cpu")
    assert os.environ[name] == then


def test_a_small_model_gets_one_thread_and_the_setting_is_restored() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        small = torch.nn.Linear(10, 10)
        assert default_threads(small) == 1
        assert default_threads(torch.nn.Linear(10_000, 5_001, device="meta")) == 2
        with suitable_threads(small):
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 2
        with cpu_threads(3):
            assert torch.get_num_threads() == 3
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_temporary_float32_restores_the_weights(tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path / "checkpoint-0", seed=0)
    loaded = load_model(checkpoint_at(path), device=CPU, dtype="bfloat16")
    before = {name: tensor.clone() for name, tensor in loaded.model.state_dict().items()}
    with in_float32(loaded.model):
        assert {tensor.dtype for tensor in loaded.model.parameters()} == {torch.float32}
    for name, tensor in loaded.model.state_dict().items():
        assert tensor.dtype == before[name].dtype
        assert torch.equal(tensor, before[name])
