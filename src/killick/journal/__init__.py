"""What may follow what, and what it means: pure functions of values, no I/O, no clock."""
