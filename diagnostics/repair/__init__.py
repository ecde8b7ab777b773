"""Weights between the base and a checkpoint, written as a series that an audit takes."""

from __future__ import annotations
