"""From counts to the verdict on a series. Pure: nothing is read or written."""
