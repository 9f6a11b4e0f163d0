"""How fast Killick is, always as a ratio to raw apsw doing the same work in the same run."""
