"""Loads TRL and verl, where they are installed, before the tests make errors of the warnings of their imports."""

from __future__ import annotations

import warnings
from importlib import import_module

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import_module("trainers.integrations.trl")
    import_module("trainers.integrations.verl")
