"""First screen of the report: which checkpoint to ship, and how much pass@k training cost."""
