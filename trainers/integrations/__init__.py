"""The calibrations in other trainers: ``verl`` and ``trl``, one file each, which need that trainer installed."""
