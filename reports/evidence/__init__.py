"""Read the data of a report from the store: series, problems and kernels; check that series are comparable."""
