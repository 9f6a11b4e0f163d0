"""Files of others, opened for reading only, plain or compressed.

What is compressed is bounded: a few bytes can stand for more than any disk holds. When the bound is
met, or the data is damaged, the file ends there and says why (`problem`).
"""

import io
import sys
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

ZSTD: Final = b"\x28\xb5\x2f\xfd"

_PLAIN_BYTES: Final = 256 * 1024 * 1024
_RATIO_MAX: Final = 250
"""Text compresses to a tenth, with much repetition to a hundredth; more is no text."""

_WINDOW_LOG_MAX: Final = 27
_PIECE: Final = 64 * 1024
_BUFFER: Final = 256 * 1024


def open_file(path: Path) -> BinaryIO:
    """The bytes of a file. Raises OSError, also when it needs a library that is not installed."""
    file = path.open("rb")
    try:
        if file.peek(len(ZSTD))[: len(ZSTD)] != ZSTD:
            return file
        size = path.stat().st_size
        raw = _Unpacked(file, _zstd(), _PLAIN_BYTES + size * _RATIO_MAX)
    except BaseException:
        file.close()
        raise
    return cast("BinaryIO", _Reading(raw, _BUFFER))


def problem_of(file: BinaryIO) -> str | None:
    """Why a file ended before its end, if it did."""
    return file.raw.problem if isinstance(file, _Reading) else None


def _zstd() -> Any:
    name = "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"
    try:
        return import_module(name)
    except ImportError as error:
        raise OSError(
            "it is compressed with zstd, which needs one more package: pip install 'killick[zstd]'"
        ) from error


class _Unpacked(io.RawIOBase):
    """What a compressed file holds, piece by piece, never more than a bound."""

    def __init__(self, packed: BinaryIO, zstd: Any, most: int) -> None:
        self.problem: str | None = None
        self._packed = packed
        self._zstd = zstd
        self._left = most
        self._most = most
        self._unpacker = self._fresh()

    def _fresh(self) -> Any:
        options = {self._zstd.DecompressionParameter.window_log_max: _WINDOW_LOG_MAX}
        return self._zstd.ZstdDecompressor(options=options)

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self._packed.close()
        super().close()

    def readinto(self, buffer: Any, /) -> int:
        if self.problem is not None:
            return 0
        try:
            data = self._next(len(buffer))
        except (self._zstd.ZstdError, ValueError) as error:
            self.problem = f"what follows cannot be unpacked: {error}"
            return 0
        self._left -= len(data)
        if self._left < 0:
            self.problem = f"it unpacks to more than {self._most} bytes; the rest was left out"
            return 0
        buffer[: len(data)] = data
        return len(data)

    def _next(self, most: int) -> bytes:
        """The next bytes; none at the end. A file may be several frames, one behind the other."""
        while True:
            if self._unpacker.eof:
                rest = self._unpacker.unused_data or self._packed.read(_PIECE)
                if not rest:
                    return b""
                self._unpacker = self._fresh()
            elif self._unpacker.needs_input:
                rest = self._packed.read(_PIECE)
                if not rest:
                    self.problem = "the compressed data is cut off"
                    return b""
            else:
                rest = b""
            data: bytes = self._unpacker.decompress(rest, max_length=most)
            if data:
                return data


class _Reading(io.BufferedReader):
    raw: _Unpacked
