"""Words of the verdict: sentences, caveats, the decomposition of a change, and numbers as text."""
