"""HTTP requests to inference servers, for samplers and for judges."""
