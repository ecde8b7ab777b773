"""Verbs of the API that need few words of their own, a file for each question."""
