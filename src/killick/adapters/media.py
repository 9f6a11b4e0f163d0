"""Read the images and files that a neutral context names."""

import contextlib
from collections.abc import Sequence
from typing import Any

from killick.errors import BlobNotFound
from killick.session.aio import AsyncSession
from killick.session.sync import Session


def blob_names(messages: Sequence[dict[str, Any]]) -> set[str]:
    """Return the names of all images and files in a neutral context, also inside of results."""
    names: set[str] = set()
    for message in messages:
        for part in message["parts"]:
            inner = part.get("content") if part["type"] == "tool_result" else [part]
            names.update(
                item["blob"] for item in inner if isinstance(item, dict) and "blob" in item
            )
    return names


async def read_blobs(session: AsyncSession, messages: Sequence[dict[str, Any]]) -> dict[str, bytes]:
    """Return their bytes by name; one that is not there any more is left out."""
    data: dict[str, bytes] = {}
    for name in blob_names(messages):
        with contextlib.suppress(BlobNotFound):
            data[name] = await session.blob(name)
    return data


def read_blobs_blocking(session: Session, messages: Sequence[dict[str, Any]]) -> dict[str, bytes]:
    """Return the same on the synchronous face."""
    data: dict[str, bytes] = {}
    for name in blob_names(messages):
        with contextlib.suppress(BlobNotFound):
            data[name] = session.blob(name)
    return data
