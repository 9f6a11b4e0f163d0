"""Which run of LangChain's is inside of which tool: that one's agent has a session of its own."""

from uuid import UUID


class RunTree:
    """Knows for each run the tool's run around it."""

    def __init__(self) -> None:
        self._inside: dict[UUID, UUID | None] = {}
        self._tools: dict[UUID, str] = {}

    def begin(self, run_id: UUID, parent: UUID | None) -> None:
        self._inside[run_id] = self.tool_around(parent)

    def begin_tool(self, run_id: UUID, parent: UUID | None, call_id: str) -> None:
        self.begin(run_id, parent)
        self._tools[run_id] = call_id

    def tool_around(self, run_id: UUID | None) -> UUID | None:
        """Return the innermost tool's run that this run is, or is inside of."""
        if run_id is None:
            return None
        return run_id if run_id in self._tools else self._inside.get(run_id)

    def parent_of(self, run_id: UUID) -> UUID | None:
        """Return the tool's run around a run, itself left out."""
        return self._inside.get(run_id)

    def call_of(self, run_id: UUID) -> str | None:
        return self._tools.get(run_id)

    def end(self, run_id: UUID) -> None:
        self._inside.pop(run_id, None)
        self._tools.pop(run_id, None)
