-- Lists by project, of interrupted and of pinned sessions: each finds its matches, however many other sessions there are.
CREATE INDEX sessions_by_project ON killick.sessions (tenant, project) WHERE project IS NOT NULL;
CREATE INDEX sessions_interrupted ON killick.sessions (tenant, deleted, updated_at_us, id) WHERE status = 'interrupted';
CREATE INDEX sessions_pinned ON killick.sessions (tenant, deleted, updated_at_us, id) WHERE pinned;

-- What was spent on some days, without that of all others.
CREATE INDEX usage_by_day ON killick.usage (tenant, day);
