"""Figures that compare runs with their base at lower temperatures."""
