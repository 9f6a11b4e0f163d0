-- A process looks here for turns of its own that others have asked to stop: at few rows, however many turns it runs.
CREATE INDEX sessions_stopping ON sessions (key, stop_seq) WHERE stop_seq IS NOT NULL;
