"""The files of the page, as they are in the package: read once, checked by their hash."""

import hashlib
from importlib.resources import files
from typing import ClassVar, Final, NamedTuple

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

_MEDIA: Final = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
    "txt": "text/plain; charset=utf-8",
}


class _File(NamedTuple):
    data: bytes
    media: str
    tag: str


class Pages:
    """The page is one document for every address of it; its own code shows what was asked for."""

    PATHS: ClassVar = ("/", "/s/{session_id}", "/figures", "/assets/{name:path}")

    def __init__(self) -> None:
        self._files: dict[str, _File] = {}
        folder = files("killick.server").joinpath("page")
        for part in ("", "vendor"):
            for one in folder.joinpath(part).iterdir() if part else folder.iterdir():
                ending = one.name.rpartition(".")[2]
                if one.is_file() and ending in _MEDIA:
                    data = one.read_bytes()
                    tag = f'"{hashlib.sha256(data).hexdigest()[:32]}"'
                    name = f"{part}/{one.name}" if part else one.name
                    self._files[name] = _File(data, _MEDIA[ending], tag)

    async def serve(self, request: Request) -> Response:
        name = request.path_params.get("name", "index.html")
        file = self._files.get(name)
        if file is None:
            raise HTTPException(404, "There is no such file.")
        headers = {"ETag": file.tag, "Cache-Control": "no-cache"}
        if request.headers.get("if-none-match") == file.tag:
            return Response(status_code=304, headers=headers)
        return Response(file.data, headers=headers, media_type=file.media)
