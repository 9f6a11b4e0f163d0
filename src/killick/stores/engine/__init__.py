"""Every write, as one operation on what is known of a session."""
