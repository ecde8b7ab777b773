"""The sections of the report, one file each: a function from the context to what it says."""
