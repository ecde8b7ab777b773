"""First screen of the report: which checkpoint to ship, and the cost of training in pass@k."""
