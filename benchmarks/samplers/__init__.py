"""Hard negatives, which brought nothing, and the comparison of samplers that says so."""
