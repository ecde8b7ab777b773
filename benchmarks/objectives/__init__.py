"""Training objectives over seeds, worlds and batch sizes."""
