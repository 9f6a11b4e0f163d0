"""The neutral list in the shape that each provider takes, one module for each."""
