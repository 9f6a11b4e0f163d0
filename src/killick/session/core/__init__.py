"""Sessions, turns, streams and tools, written once for both faces."""
