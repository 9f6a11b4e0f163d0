"""Sessions of other agents in, and sessions out in formats that others read."""
