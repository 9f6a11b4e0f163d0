"""Campaigns that try to lose something; `docs/evidence.md` tells what came of them."""
