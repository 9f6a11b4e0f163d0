"""Runs the flows of the core on a thread or in an event loop."""
