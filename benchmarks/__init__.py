"""Measurements of claims and speeds. They do not ship; run one as ``python -m benchmarks.FOLDER.MODULE``."""
