"""What several test files use; each module says what it is."""
