"""Sampling, teacher forcing and grading for an audit, in this process or on a Ray cluster."""
