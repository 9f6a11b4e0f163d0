"""Images and files for a provider, or the sentence that stands where one is left out."""

from base64 import b64encode
from collections.abc import Callable
from typing import Final

import msgspec

from killick.model.messages import File, Image
from killick.views import phrases

Blobs = Callable[[str], bytes | None]
"""The bytes of a blob, by its name; None when there is none."""

IMAGES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
IMAGE_BYTES_MAX: Final = 5 * 1024 * 1024 * 3 // 4
"""What every provider takes: five megabytes once it is encoded."""

IMAGE_SIDE_MAX: Final = 8000
"""Pixels that the strictest provider takes on a side."""

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
        return phrases.left_out(what)
    data = blobs(part.blob)
    if not data or len(data) > most:
        return phrases.left_out(what)
    media_type = sniff(data) or (None if image else part.media_type)
    if media_type not in allowed or (image and longest_side(data) > IMAGE_SIDE_MAX):
        return phrases.left_out(what)  # providers refuse a whole request for one bad image
    name = part.name if isinstance(part, File) else None
    return Media(media_type, b64encode(data).decode(), name)


def sniff(data: bytes) -> str | None:
    """What the bytes are, whatever they are called: providers look, and refuse a wrong name."""
    for start, media_type in _STARTS:
        if data.startswith(start):
            return media_type
    return "image/webp" if data[:4] == b"RIFF" and data[8:12] == b"WEBP" else None


def longest_side(data: bytes) -> int:
    """How many pixels the longer side of an image has; 0 where its head does not say."""
    match sniff(data):
        case "image/png":
            sides = _big(data[16:20]), _big(data[20:24])
        case "image/gif":
            sides = _little(data[6:8]), _little(data[8:10])
        case "image/jpeg":
            sides = _jpeg_sides(data)
        case "image/webp":
            sides = _webp_sides(data)
        case _:
            sides = 0, 0
    return max(sides)


def _jpeg_sides(data: bytes) -> tuple[int, int]:
    """From the frame header; the segments before it say how long they are."""
    at = 2
    while at + 9 <= len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            return _big(data[at + 7 : at + 9]), _big(data[at + 5 : at + 7])
        at += 2 + max(_big(data[at + 2 : at + 4]), 2)
    return 0, 0


def _webp_sides(data: bytes) -> tuple[int, int]:
    match data[12:16]:
        case b"VP8X":
            return _little(data[24:27]) + 1, _little(data[27:30]) + 1
        case b"VP8L":
            bits = _little(data[21:25])
            return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        case _:
            return _little(data[26:28]) & 0x3FFF, _little(data[28:30]) & 0x3FFF


def _big(raw: bytes) -> int:
    return int.from_bytes(raw, "big")


def _little(raw: bytes) -> int:
    return int.from_bytes(raw, "little")
