"""Store, Session, Turn, Stream and Tool: the synchronous face, and the asynchronous one over it."""
