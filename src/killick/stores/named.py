"""Statements by name: every store keeps its SQL in a file of its own, in blocks with names."""


def parse(text: str) -> dict[str, str]:
    """Blocks by name: a line `-- name --` opens one, other comments are left out."""
    blocks: dict[str, list[str]] = {}
    current: list[str] = []
    for line in text.splitlines():
        if line.startswith("-- ") and line.endswith(" --"):
            current = blocks.setdefault(line[3:-3], [])
        elif not line.startswith("--"):
            current.append(line)
    return {name: "\n".join(lines).strip().rstrip(";") for name, lines in blocks.items()}
