"""Measurements of claims and speeds.

They are not part of the package. Run one as ``python -m benchmarks.FOLDER.MODULE``.
"""
