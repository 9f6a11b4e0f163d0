"""One thread's checkpoints and writes, folded from the notes of its session.

Values are chains of nodes. A node holds one serialised value and the name of the node before it; a
list is named by its last node, so that a list that has grown by one adds one node. A value that is
no list is a node alone. Nodes are named by their content, and stored once for each thread.
"""

from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import Any, Final, NamedTuple, Protocol

from killick.model import entries as e

CHECKPOINT: Final = "langgraph.checkpoint"
WRITES: Final = "langgraph.writes"
REMOVED: Final = "langgraph.removed"
NAMES: Final = frozenset({CHECKPOINT, WRITES, REMOVED})
EMPTY: Final = "empty"
"""The name of the empty list."""


class Serde(Protocol):
    """Serialises values; LangGraph's."""

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]: ...

    def loads_typed(self, data: tuple[str, bytes]) -> Any: ...


class Node(NamedTuple):
    """A serialised value, and the node before it in a list; "" for the first, None outside."""

    before: str | None
    kind: str
    data: bytes


class Saved(NamedTuple):
    """A checkpoint as it is stored: its values are names of nodes."""

    namespace: str
    id: str
    parent: str | None
    checkpoint: str
    metadata: str
    values: dict[str, tuple[str, str]]
    """By channel, `list` or `value` and the name of the node."""


class SavedWrite(NamedTuple):
    """A pending write of a task."""

    task_id: str
    path: str
    number: int
    channel: str
    node: str


def name_of(node: Node) -> str:
    digest = blake2b(digest_size=16)
    for piece in (str(node.before).encode(), node.kind.encode(), node.data):
        digest.update(len(piece).to_bytes(8, "big"))
        digest.update(piece)
    return digest.hexdigest()


class NodePack:
    """Collects the nodes of values that a thread does not have yet."""

    def __init__(self, serde: Serde, known: Iterable[str]) -> None:
        self._serde = serde
        self._known = known if isinstance(known, set | dict) else set(known)
        self.nodes: dict[str, Node] = {}

    def value(self, value: Any, *, before: str | None = None) -> str:
        """Add one value; returns its name."""
        kind, data = self._serde.dumps_typed(value)
        node = Node(before, kind, data)
        name = name_of(node)
        if name not in self._known:
            self.nodes[name] = node
        return name

    def channel(self, value: Any) -> tuple[str, str]:
        """Add a channel's value, a list as a chain."""
        if type(value) is not list:
            return "value", self.value(value)
        name = ""
        for item in value:
            name = self.value(item, before=name)
        return "list", name or EMPTY

    def dumped(self) -> list[list[str | None]]:
        return [
            [node.before, node.kind, b64encode(node.data).decode()] for node in self.nodes.values()
        ]


class ThreadLog:
    """The fold. `seq` is the last entry that was taken."""

    def __init__(self) -> None:
        self.seq = 0
        self.nodes: dict[str, Node] = {}
        self.saved: dict[tuple[str, str], Saved] = {}
        self.writes: dict[tuple[str, str], dict[tuple[str, int], SavedWrite]] = {}
        self.removed: set[tuple[str, str]] = set()

    def take(self, entries: Iterable[e.Entry]) -> None:
        """Take further entries of the session; those that are not ours are passed over."""
        for entry in entries:
            self.seq = entry.seq
            body = entry.body
            if isinstance(body, e.Note) and body.name in NAMES and isinstance(body.data, dict):
                self._take(body.name, body.data)

    def _take(self, name: str, data: dict[str, Any]) -> None:
        for before, kind, text in data.get("nodes", ()):
            node = Node(before, kind, b64decode(text))
            self.nodes[name_of(node)] = node
        position = (data.get("namespace", ""), data.get("id", ""))
        match name:
            case "langgraph.checkpoint":
                values = {channel: (how, node) for channel, how, node in data["values"]}
                self.saved[position] = Saved(
                    *position, data["parent"], data["checkpoint"], data["metadata"], values
                )
                self.removed.discard(position)
            case "langgraph.writes":
                stored = self.writes.setdefault(position, {})
                for fields in data["writes"]:
                    write = SavedWrite(*fields)
                    key = (write.task_id, write.number)
                    if data["replace"] or key not in stored:
                        stored[key] = write
            case _:
                self._remove(data)

    def _remove(self, data: dict[str, Any]) -> None:
        if data.get("all"):
            self.saved.clear()
            self.writes.clear()
            self.removed.clear()
        # What was removed is kept for values that are rebuilt from the writes of their ancestors.
        self.removed |= {(namespace, name) for namespace, name in data.get("checkpoints", ())}

    # -- reading ---------------------------------------------------------------------------------

    def visible(self, namespace: str | None = None) -> Iterator[Saved]:
        """Yield checkpoints, the newest first within each namespace."""
        names = (
            sorted({position[0] for position in self.saved}) if namespace is None else [namespace]
        )
        for name in names:
            ids = sorted(
                (position[1] for position in self.saved if position[0] == name), reverse=True
            )
            for checkpoint_id in ids:
                if (name, checkpoint_id) not in self.removed:
                    yield self.saved[name, checkpoint_id]

    def pending(self, namespace: str, checkpoint_id: str) -> list[SavedWrite]:
        """Return the writes of a checkpoint in the order in which they are applied."""
        stored = self.writes.get((namespace, checkpoint_id), {}).values()
        return sorted(stored, key=lambda write: (write.path, write.task_id, write.number))

    def load(self, serde: Serde, name: str) -> Any:
        node = self.nodes[name]
        return serde.loads_typed((node.kind, node.data))

    def channel(self, serde: Serde, how: str, name: str) -> Any:
        if how == "value":
            return self.load(serde, name)
        items: list[Any] = []
        while name not in ("", EMPTY):
            node = self.nodes[name]
            items.append(serde.loads_typed((node.kind, node.data)))
            name = node.before or ""
        return items[::-1]
