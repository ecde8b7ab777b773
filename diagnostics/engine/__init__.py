"""Samples and teacher-forces for an audit: in this process, or by the workers of a Ray cluster."""
