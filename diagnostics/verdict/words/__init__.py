"""Texts of the verdict: sentences, caveats, the decomposition of a change, and formatted numbers."""
