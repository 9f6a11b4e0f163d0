"""Looks after a store: erase, retention, backup, examination."""
