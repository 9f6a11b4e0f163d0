"""Databases behind one contract, and the one funnel through which everything is written."""
