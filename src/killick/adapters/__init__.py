"""Agents of other frameworks, recorded through the framework's own hooks. One file or folder each.

Nothing here is imported unless it is asked for: each adapter needs the framework it is for.
"""
