"""The interactive documentation: Swagger UI, served from local files, to work offline and with a strict CSP."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from fastapi import APIRouter, Request
from fastapi.responses import FileResponse, HTMLResponse, JSONResponse, Response

from service.app import Service
from service.auth.links import LINK_PATH
from service.web.docs.example_models import example_models
from service.web.foreign_api import ForeignPaths
from service.web.openapi import complete_document

_ASSETS = {"swagger-ui-bundle.js": "text/javascript", "swagger-ui.css": "text/css"}
DOCS_PATHS = ("/docs", "/openapi.json", "/docs/start.js", *(f"/docs/{name}" for name in _ASSETS))
_CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""`unsafe-inline` is needed for styles, which Swagger UI sets on elements, but not for scripts."""
_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Retouch: HTTP API</title>
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
async def swagger_page() -> Response:
    """The page; its URLs are relative, so that it works behind a path prefix of a proxy."""
    return HTMLResponse(_PAGE, headers={"Content-Security-Policy": _CSP})


@router.get("/docs/start.js")
async def swagger_script() -> Response:
    """The script that starts Swagger UI; a file, because the CSP forbids inline scripts."""
    return Response(_START, media_type="text/javascript")


@router.get("/docs/swagger-ui-bundle.js")
@router.get("/docs/swagger-ui.css")
async def swagger_asset(request: Request) -> Response:
    """Files of Swagger UI from the package fastapi-offline."""
    name = Path(request.url.path).name
    path = Path(str(files("fastapi_offline"))) / "static" / name
    return FileResponse(path, media_type=_ASSETS[name], headers={"Cache-Control": "public, max-age=3600"})


@router.get("/openapi.json")
async def openapi_document(request: Request) -> Response:
    """The OpenAPI document."""
    service: Service = request.state.service
    models = example_models(service.settings, service.models.statuses())
    apis = request.app.state.foreign_apis
    paths = ForeignPaths(apis)
    public = {"/livez", "/readyz", LINK_PATH}.union(*(api.public for api in apis))

    def foreign(path: str) -> str:
        api = paths.api_of(path)
        return "" if api is None else api.name

    return JSONResponse(complete_document(request.app.openapi(), public, models, foreign))
