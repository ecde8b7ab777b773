"""Sections of the report: functions from the context to a section record."""
