"""Presets: prompts and sampling settings of papers, by name.

The templates contain the turns of a chat, because a tokenizer's chat template may add a system turn or today's date.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class PromptPreset:
    """Prompt and sampling settings of a paper.

    ``source`` cites it. The other fields are settings of an audit.
    """

    title: str
    source: str
    prompt_template: str
    temperature: float
    top_p: float
    max_tokens: int


#: Settings of an audit that a preset determines. Flags and TOML keys override it.
PRESET_SETTINGS = ("prompt_template", "temperature", "top_p", "max_tokens")

PRESETS: Mapping[str, PromptPreset] = {
    "two_stage": PromptPreset(
        title="The two-stage dynamic view, every model",
        source="[B] (arXiv 2510.04028) C.2. The paper states no response length for evaluation. With 3,072 tokens, "
        "1,024 of the context of 4,096 tokens remain for the prompt.",
        prompt_template=(
            "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"
            "<|im_start|>user\n{prompt}\n"
            "Please reason step by step, and put your final answer within \\boxed{}.<|im_end|>\n"
            "<|im_start|>assistant\n"
        ),
        temperature=0.6,
        top_p=0.95,
        max_tokens=3072,
    ),
    "boundary_paradox_qwen": PromptPreset(
        title="The reasoning boundary paradox, Qwen2.5-Math",
        source="[C] A.3 (Table 2) and A.4.",
        prompt_template=(
            "<|im_start|>system\nPlease reason step by step, and put your final answer within \\boxed{}.<|im_end|>\n"
            "<|im_start|>user\n{prompt}\n"
            "Let's think step by step and output the final answer within \\boxed{}.<|im_end|>\n"
            "<|im_start|>assistant\n"
        ),
        temperature=0.6,
        top_p=0.95,
        max_tokens=3072,
    ),
    "boundary_paradox_llama": PromptPreset(
        title="The reasoning boundary paradox, Llama-3.2-3B-Instruct",
        source="[C] A.3 (Table 3) and A.4. Corrected to Llama's format: the table lacks the end of the system turn, "
        "ends the user turn twice and prints \\boxed{\\}. The tokenizer adds <|begin_of_text|>.",
        prompt_template=(
            "<|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: December 2023\n\n<|eot_id|>"
            "<|start_header_id|>user<|end_header_id|>\n\n{prompt}\n"
            "Let's think step by step and output the final answer within \\boxed{}.<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n"
        ),
        temperature=0.6,
        top_p=0.95,
        max_tokens=16384,
    ),
}
