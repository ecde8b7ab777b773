"""Series of a real pretrained model."""
