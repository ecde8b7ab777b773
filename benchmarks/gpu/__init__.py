"""Tests, speeds and audits on a GPU."""
