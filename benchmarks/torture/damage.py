"""Damages of a file, as by a bad disk, a bad copy or a mistake. Each returns a description."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

_BLOCK = 1 << 12


def cut(path: Path, rng: np.random.Generator) -> str:
    """Cut off the end."""
    n_bytes = path.stat().st_size
    left = int(rng.integers(0, max(1, n_bytes)))
    os.truncate(path, left)
    return f"{left} of {n_bytes} bytes left"


def flip(path: Path, rng: np.random.Generator) -> str:
    """Flip one to eight bits."""
    content = bytearray(path.read_bytes())
    places = rng.integers(0, max(1, len(content)), size=int(rng.integers(1, 9)))
    for place in places if content else ():
        content[place] ^= 1 << int(rng.integers(8))
    path.write_bytes(content)
    return f"bits at {', '.join(map(str, places))}"


def blank(path: Path, rng: np.random.Generator) -> str:
    """Set a block to zeros, as after a power cut."""
    content = bytearray(path.read_bytes())
    start = int(rng.integers(0, max(1, len(content)))) // _BLOCK * _BLOCK
    content[start : start + _BLOCK] = bytes(len(content[start : start + _BLOCK]))
    path.write_bytes(content)
    return f"zeros from {start}"


def swap(path: Path, rng: np.random.Generator) -> str:
    """Swap two blocks."""
    content = path.read_bytes()
    blocks = [content[start : start + _BLOCK] for start in range(0, len(content), _BLOCK)]
    one, other = (int(place) for place in rng.integers(0, max(1, len(blocks)), size=2))
    if blocks:
        blocks[one], blocks[other] = blocks[other], blocks[one]
    path.write_bytes(b"".join(blocks))
    return f"blocks {one} and {other}"


def double(path: Path, rng: np.random.Generator) -> str:
    """Duplicate a part, as if a copy had been resumed at the wrong place."""
    content = path.read_bytes()
    first, last = sorted(int(place) for place in rng.integers(0, len(content) + 1, size=2))
    path.write_bytes(content[:last] + content[first:last] + content[last:])
    return f"bytes {first} to {last} twice"


def remove(path: Path, rng: np.random.Generator) -> str:
    """Remove the file."""
    path.unlink()
    return "removed"


DAMAGES: Mapping[str, Callable[[Path, np.random.Generator], str]] = {
    damage.__name__: damage for damage in (cut, flip, blank, swap, double, remove)
}
