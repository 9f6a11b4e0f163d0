"""Finds messages by their words: the query, the documents, the index behind the writers."""
