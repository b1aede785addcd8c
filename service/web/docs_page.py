"""The interactive documentation: Swagger UI from files of ours, so that it works without a network and under a CSP."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from fastapi import APIRouter, Request
from fastapi.responses import FileResponse, HTMLResponse, JSONResponse, Response

from service.app import Service
from service.web.example_models import example_models
from service.web.openapi import completed

_ASSETS = {"swagger-ui-bundle.js": "text/javascript", "swagger-ui.css": "text/css"}
DOCS_PATHS = ("/docs", "/openapi.json", "/docs/start.js", *(f"/docs/{name}" for name in _ASSETS))
_CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Swagger UI sets styles on elements; its scripts need no exception."""
_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Retouch</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="docs/swagger-ui.css">
</head>
<body>
<div id="swagger-ui"></div>
<script src="docs/swagger-ui-bundle.js"></script>
<script src="docs/start.js"></script>
</body>
</html>
"""
_START = 'SwaggerUIBundle({url: "openapi.json", dom_id: "#swagger-ui", deepLinking: true});\n'

router = APIRouter(include_in_schema=False)


@router.get("/docs")
async def docs() -> Response:
    """The page; its addresses are relative, so that it works behind a proxy's prefix."""
    return HTMLResponse(_PAGE, headers={"Content-Security-Policy": _CSP})


@router.get("/docs/start.js")
async def start() -> Response:
    """A file, because the page's CSP allows no script in the page itself."""
    return Response(_START, media_type="text/javascript")


@router.get("/docs/swagger-ui-bundle.js")
@router.get("/docs/swagger-ui.css")
async def asset(request: Request) -> Response:
    """Swagger UI, as the package fastapi-offline ships it."""
    name = Path(request.url.path).name
    path = Path(str(files("fastapi_offline"))) / "static" / name
    return FileResponse(path, media_type=_ASSETS[name], headers={"Cache-Control": "public, max-age=3600"})


@router.get("/openapi.json")
async def openapi(request: Request) -> Response:
    """The machine-readable document."""
    service: Service = request.state.service
    models = example_models(service.settings, service.models.statuses())
    return JSONResponse(completed(request.app.openapi(), ("/livez", "/readyz"), models))
