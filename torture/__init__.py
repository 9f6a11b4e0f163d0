"""Campaigns that try to lose something: what was tried, how often, with which seed, what was lost."""
