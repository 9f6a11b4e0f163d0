"""Images and files inside a request: what a provider takes, and what can be seen from the data.

It reads heads of images as `views.media` does, and shares nothing with it: this checks what that
has let through, and a mistake must not be made on both sides.
"""

import base64
import binascii
import re

import msgspec

HEAD = 64 * 1024
"""Characters of base64 that are decoded to find an image's type and size."""

_STANDARD = re.compile(r"[A-Za-z0-9+/]+={0,2}")
_URLSAFE = re.compile(r"[A-Za-z0-9_-]+={0,2}")
_DATA_URL = re.compile(r"data:([^;,]*)((?:;[^;,]+)*),", re.ASCII)


class Media(msgspec.Struct, frozen=True):
    """What a provider takes: exact types, prefixes of types, base64 characters, pixels a side."""

    types: frozenset[str]
    characters: int
    prefixes: tuple[str, ...] = ()
    pixels: int = 0
    urlsafe: bool = False

    def takes(self, media_type: str) -> bool:
        return media_type in self.types or media_type.startswith(self.prefixes)


class Seen(msgspec.Struct, frozen=True):
    """What the first bytes of an image say; a side of 0 is unknown."""

    media_type: str
    width: int
    height: int


def is_base64(data: str, *, urlsafe: bool = False) -> bool:
    """Non-empty, of whole groups of four, in one alphabet."""
    if len(data) % 4:
        return False
    if _STANDARD.fullmatch(data):
        return True
    return urlsafe and _URLSAFE.fullmatch(data) is not None


def data_url(url: str) -> tuple[str, str] | None:
    """The media type and the base64 data of a data URL, or None when it is none of this kind."""
    head = _DATA_URL.match(url)
    if head is None or not head[2].endswith(";base64"):
        return None
    return head[1], url[head.end() :]


def seen(data: str) -> Seen | None:
    """What an image is by its first bytes; None for what is not recognised, which is not judged."""
    try:
        head = base64.b64decode(data[:HEAD].translate({45: 43, 95: 47}), validate=True)
    except (binascii.Error, ValueError):
        return None
    if head.startswith(b"\x89PNG\r\n\x1a\n") and len(head) >= 24:
        return Seen("image/png", _big(head[16:20]), _big(head[20:24]))
    if head[:6] in (b"GIF87a", b"GIF89a") and len(head) >= 10:
        return Seen("image/gif", _little(head[6:8]), _little(head[8:10]))
    if head.startswith(b"\xff\xd8\xff"):
        return Seen("image/jpeg", *_jpeg(head))
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return Seen("image/webp", 0, 0)
    return None


def _jpeg(head: bytes) -> tuple[int, int]:
    """Width and height from the frame header, if it is among the first segments."""
    at = 2
    while at + 9 <= len(head) and head[at] == 0xFF:
        marker = head[at + 1]
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            return _big(head[at + 7 : at + 9]), _big(head[at + 5 : at + 7])
        at += 2 + max(_big(head[at + 2 : at + 4]), 2)
    return 0, 0


def _big(raw: bytes) -> int:
    return int.from_bytes(raw, "big")


def _little(raw: bytes) -> int:
    return int.from_bytes(raw, "little")
