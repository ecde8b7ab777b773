"""Measures of the ways of solving a problem, which are parsed from the text of correct samples."""
