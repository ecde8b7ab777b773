"""The first screen of the report: what to ship, and what training cost."""
