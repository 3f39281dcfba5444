"""The dashboard: one page at `/dashboard/`, live, that needs nothing but this server.

The page is plain HTML, CSS and ECMAScript modules, served as they lie in `static/`: no build step,
nothing from another host. It reads the same REST interface as all other clients. Its own files are
served without a token; its requests need one.
"""

from pathlib import Path

from fastapi import FastAPI, Request, Response
from fastapi.responses import FileResponse, RedirectResponse
from starlette.exceptions import HTTPException

PATH = "/dashboard/"
STATIC = Path(__file__).with_name("static")

_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}

HEADERS = {
    # Everything comes from this server; nothing is inlined, framed or sent elsewhere.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    # Browsers ask again each time, and get a 304, so that a new version is seen at once.
    "Cache-Control": "no-cache",
}


def mount(app: FastAPI) -> None:
    """Serve the dashboard at `/dashboard/`, and lead `/` there."""
    # A list made now, so that no request can name a file that is not one of them.
    files = {file.name: file for file in STATIC.iterdir() if file.suffix in _TYPES}

    @app.get("/", include_in_schema=False)
    @app.get(PATH.rstrip("/"), include_in_schema=False)
    async def root() -> RedirectResponse:
        return RedirectResponse(PATH)

    @app.get(PATH, include_in_schema=False)
    async def page(request: Request) -> Response:
        return _answer(request, files["index.html"])

    @app.get(PATH + "{name}", include_in_schema=False)
    async def file(request: Request, name: str) -> Response:
        found = files.get(name)
        if found is None:
            raise HTTPException(404)
        return _answer(request, found)


def _answer(request: Request, file: Path) -> Response:
    stat = file.stat()
    # The file itself says which version it is, not the process: it may change under a server.
    headers = {**HEADERS, "ETag": f'"{stat.st_mtime_ns:x}-{stat.st_size:x}"'}
    if request.headers.get("if-none-match") == headers["ETag"]:
        return Response(status_code=304, headers=headers)
    return FileResponse(file, media_type=_TYPES[file.suffix], headers=headers, stat_result=stat)
