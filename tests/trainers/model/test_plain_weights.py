from __future__ import annotations

from pathlib import Path

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

from oversharp.diagnostics.records.errors import TrainingError
from oversharp.trainers.model.plain_weights import count_plain_weights, plain_weights
from tests.trainers.runs import apply_adapter


def test_a_plain_model_gives_its_live_tensors(model_path: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(model_path)
    parameters = dict(model.named_parameters())
    given = dict(plain_weights(model))
    assert given.keys() == parameters.keys()
    assert all(given[name].data_ptr() == parameters[name].data_ptr() for name in given)


def test_adapters_are_merged_and_the_model_stays_as_it_was(model_path: Path) -> None:
    plain = AutoModelForCausalLM.from_pretrained(model_path)
    names = {name for name, _ in plain.named_parameters()}
    adapted = apply_adapter(plain)
    before = {name: tensor.clone() for name, tensor in adapted.state_dict().items()}
    merged = AutoModelForCausalLM.from_pretrained(model_path)
    given = dict(plain_weights(adapted))
    assert given.keys() == names
    assert count_plain_weights(adapted) == sum(tensor.numel() for tensor in given.values())
    merged.load_state_dict(given, strict=False)  # the tied head is in no list of parameters
    ids = torch.tensor([[5, 6, 7, 8]])
    with torch.no_grad():
        assert torch.allclose(merged(ids).logits, adapted(ids).logits, atol=1e-5)
        fresh = AutoModelForCausalLM.from_pretrained(model_path)
        assert not torch.allclose(merged(ids).logits, fresh(ids).logits, atol=1e-2)
    assert all(torch.equal(tensor, before[name]) for name, tensor in adapted.state_dict().items())


def test_dora_is_refused(model_path: Path) -> None:
    plain = AutoModelForCausalLM.from_pretrained(model_path)
    adapted = get_peft_model(plain, LoraConfig(r=4, use_dora=True, target_modules=["q_proj"]))
    with pytest.raises(TrainingError, match="DoRA"):
        dict(plain_weights(adapted))
