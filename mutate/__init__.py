"""Bugs planted by rule: small changes of the package, each to be caught by the tests near it."""
