"""Builders of the report's sections: functions that take the context and return a section record."""
