"""What agents of several frameworks know after they were interrupted; `make peers` runs it."""
