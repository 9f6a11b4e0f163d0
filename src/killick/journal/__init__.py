"""Decides what may follow what in a journal, and what it means: pure functions, no clock."""
