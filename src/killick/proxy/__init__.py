"""A recording HTTP proxy: an agent's base URL points at it, and nothing else changes.

Bytes go through as they came; the recorder reads a copy. What a request means is decided by pure
functions (`wire`, `request`, `history`); `conversations` writes it down, `forward` passes it on.
"""
