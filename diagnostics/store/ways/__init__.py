"""Ways of correct responses in the store: signatures, pending responses, and relations."""
