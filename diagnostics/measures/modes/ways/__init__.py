"""Measures of the ways of solving a problem, parsed from correct samples."""
