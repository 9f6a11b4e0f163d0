"""`killick demo`: an agent that is killed and stopped, for real, and what its store knows then."""
