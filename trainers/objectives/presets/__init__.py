"""Presets: complete objectives of papers, as expressions of parts."""
