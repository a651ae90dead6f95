"""Hard negatives and SLIDE's hashing, which brought nothing, and the comparison of samplers that says so."""
