"""What a run leaves on disk and sends to trackers."""
