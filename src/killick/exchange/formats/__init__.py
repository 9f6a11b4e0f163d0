"""One module for each format of another agent, to records."""
