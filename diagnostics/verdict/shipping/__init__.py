"""Choice of the checkpoint to ship: its options and sentences. Pure."""
