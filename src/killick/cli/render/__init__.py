"""What a person reads, as lines: pure functions of what was read from a store."""
