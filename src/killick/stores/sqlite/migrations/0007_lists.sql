-- Lists by project, of interrupted and of pinned sessions: each finds its matches, however many other sessions there are.
-- The first is not in the order of time, so that a session's every change does not move it.
CREATE INDEX sessions_by_project ON sessions (tenant, project) WHERE project IS NOT NULL;
CREATE INDEX sessions_interrupted ON sessions (tenant, deleted, updated_at_us, id) WHERE status = 'interrupted';
CREATE INDEX sessions_pinned ON sessions (tenant, deleted, updated_at_us, id) WHERE pinned = 1;
