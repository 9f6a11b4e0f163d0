"""Images and files for a provider, or the sentence that stands where one is left out."""

from base64 import b64encode
from collections.abc import Callable
from typing import Final

import msgspec

from holdfast.model.parts import File, Image
from holdfast.views import wording

Blobs = Callable[[str], bytes | None]
"""The bytes of a blob, by its name; None when there is none."""

IMAGES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
IMAGE_BYTES_MAX: Final = 5 * 1024 * 1024 * 3 // 4
"""What every provider takes: five megabytes once it is encoded."""

_STARTS: Final = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"%PDF-", "application/pdf"),
)

DOCUMENTS: Final = frozenset({"application/pdf"})
DOCUMENT_BYTES_MAX: Final = 20 * 1024 * 1024


class Media(msgspec.Struct, frozen=True):
    """Bytes that a provider can be sent."""

    media_type: str
    data: str
    name: str | None = None

    @property
    def url(self) -> str:
        return f"data:{self.media_type};base64,{self.data}"


def load(part: Image | File, blobs: Blobs, *, images: frozenset[str] = IMAGES) -> Media | str:
    """The media that a part names, or what is said in its place."""
    image = isinstance(part, Image)
    what = f"An image ({part.media_type})" if image else f"A file ({part.media_type})"
    allowed, most = (images, IMAGE_BYTES_MAX) if image else (DOCUMENTS, DOCUMENT_BYTES_MAX)
    if part.media_type not in allowed:
        return wording.left_out(what)
    data = blobs(part.blob)
    if not data or len(data) > most:
        return wording.left_out(what)
    media_type = sniff(data) or part.media_type
    if media_type not in allowed:
        return wording.left_out(what)
    name = part.name if isinstance(part, File) else None
    return Media(media_type, b64encode(data).decode(), name)


def sniff(data: bytes) -> str | None:
    """What the bytes are, whatever they are called: providers look, and refuse a wrong name."""
    for start, media_type in _STARTS:
        if data.startswith(start):
            return media_type
    return "image/webp" if data[:4] == b"RIFF" and data[8:12] == b"WEBP" else None
