"""Every setting of the server. Each has a flag (`--max-batch-size`) and a variable (`RETOUCH_MAX_BATCH_SIZE`).

Order of precedence: flag, environment, `--config` file (TOML), default. A misspelt or unknown name stops the start; a
setting removed in this version is accepted with a warning (retired_settings.py).
"""

from __future__ import annotations

import math
import os
import re
import sys
import warnings
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, field_validator

from engines.engine_names import DeviceChoice, EngineChoice
from engines.errors import RetouchError
from engines.manifest import Task
from engines.validation import unknown_name, validation_message
from service.core.addresses import without_brackets
from service.core.lists_and_folders import Folder, listed
from service.core.retired_settings import RETIRED, without_retired_settings

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PREFIX = "RETOUCH_"
CONFIG_VARIABLE = PREFIX + "CONFIG"
CLIENT_VARIABLES = (PREFIX + "API_KEY", PREFIX + "API_KEY_FILE")
"""Variables of the client, not settings of the server; both may be set on one machine."""
INSTALL_VARIABLES = (PREFIX + "NVIDIA_INDEX",)
"""Variables of `retouch install-gpu`, which `make serve` runs before the server."""
FOREIGN_APIS = ("openai", "iopaint", "open-inference", "automatic1111")
"""Names of the foreign APIs; service/compat has a room for each."""
_MIB_PER_UPLOAD = 4
_FEWEST_UPLOADS = 64
_MIB_PER_RESULT = 0.25
_SERVICE_LINK = re.compile(PREFIX + r"(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_\w+)?)")
"""Variables that Kubernetes sets in every pod for a Service named retouch or retouch-…, besides RETOUCH_PORT=tcp://…"""


class SettingsInvalid(RetouchError):
    """A setting is unknown, misspelt or out of range; the server does not start."""

    exit_status = 2


class Settings(BaseModel):
    """The server's configuration; immutable once loaded."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    host: Annotated[str, AfterValidator(without_brackets)] = Field("127.0.0.1", description="address to listen on")
    port: int = Field(8000, ge=0, le=65535, description="port to listen on; 0 picks a free one")
    workers: Annotated[int, Field(ge=0, le=256)] | Literal["auto"] = Field(
        "auto",
        description="front-end processes for HTTP and pictures; 0 runs everything in one process; auto decides by "
        "device and cores",
    )
    engine_processes: int = Field(
        0, ge=0, le=64, description="with workers: engine processes; 0 means one for each GPU, or one without GPUs"
    )
    metrics_port: int = Field(
        0, ge=0, le=65535, description="serve /metrics on this port instead; 0 keeps it on the main one"
    )
    grpc_port: int = Field(
        0, ge=0, le=65535, description="serve the Open Inference Protocol over gRPC on this port, too; 0: no gRPC"
    )

    page: bool = Field(True, description="serve the web page at /")

    keys_file: str = Field("", description="file of API keys, as `retouch keys` writes it; empty: no key is needed")
    allow_anonymous: bool = Field(False, description="allow a public address although no key is needed")
    public_host: str = Field(
        "",
        description="names that clients reach the server by, besides localhost and addresses, separated by commas: "
        "images.example.com,*.example.org; *: any",
    )
    public_url: str = Field(
        "", description="address of this server for clients, for links to results: https://images.example.com/PREFIX"
    )
    cors_origins: str = Field("", description="origins whose pages may call the API, separated by commas; empty: none")
    apis: str = Field(
        ",".join(FOREIGN_APIS), description="APIs of other servers to offer, too, separated by commas; empty: none"
    )

    models_dir: Folder = Field(Path("models"), description="model repository: NAME/VERSION/{manifest.json, model.onnx}")
    models_url: str = Field(
        "",
        description="s3://BUCKET/PREFIX: fetch model versions from there into models_dir; with a ledger_url they are "
        "served once all hosts have them, or a share of them: ?share=0.5; 0: at once",
    )
    model_poll_s: float = Field(2.0, gt=0, description="seconds between checks for new model versions")
    inpaint_model: str = Field("photos", description="model of /v1/inpaint when the request names none")
    translate_model: str = Field("facades", description="model of /v1/translate when the request names none")
    generate_model: str = Field("housefronts", description="model of /v1/generate when the request names none")

    engine: EngineChoice = Field("auto", description="runtime of the models; auto picks the best one available")
    device: DeviceChoice = Field("auto", description="auto uses an NVIDIA GPU if there is one; cpu never does")
    engine_cache_dir: Folder = Field(Path("cache"), description="folder of compiled engines and precision decisions")
    engine_threads: int = Field(0, ge=0, description="CPU threads of the engine; 0 means all cores")
    trt_level: int = Field(
        3, ge=0, le=5, description="TensorRT's builder optimisation level: lower builds faster, higher may run faster"
    )
    allow_int8: bool = Field(True, description="serve models of precision int8; if not, an older version is served")
    fake_batch_ms: float = Field(0.0, ge=0, description="time that the fake engine takes for a batch, in milliseconds")

    max_batch_size: int = Field(8, ge=1, le=256, description="most samples in a batch; a model's own limit applies too")
    max_queue_size: int = Field(
        256, ge=1, description="most requests admitted at once; further ones are refused with 503"
    )
    request_timeout_s: float = Field(60.0, gt=0, description="deadline of a request that sets none")
    body_timeout_s: float = Field(30.0, gt=0, description="longest time for a request's body to arrive")
    max_memory_mb: float = Field(
        4096.0,
        gt=0,
        description="memory for requests in MiB: half for bodies (refused if full), half for pictures (wait if full)",
    )
    hang_timeout_s: float = Field(
        60.0, gt=0, description="time after which a running batch counts as hung and the worker is replaced"
    )
    codec_threads: int = Field(0, ge=0, description="threads that decode, prepare and encode; 0 means one per core")

    max_body_mb: float = Field(64.0, gt=0, description="largest request body in MiB")
    max_pixels: int = Field(50_000_000, ge=1, le=2**30, description="largest image in pixels, read from its header")

    save: bool = Field(True, description="save results unless a request says save=false")
    results_dir: Folder = Field(Path("results"), description="folder of results and their JSON sidecars, or of a spool")
    results_url: str = Field(
        "",
        description="s3://BUCKET/PREFIX: upload results there through results_dir; empty: keep them in results_dir",
    )
    promise: Literal["spool", "store"] = Field(
        "spool",
        description="what a reply promises: its result is in the spool of this host, or (store) already in results_url",
    )
    ledger_url: str = Field(
        "",
        description="postgresql://USER:PASSWORD@HOST:PORT/NAME: database of jobs, keys and results that several hosts "
        "share; needs results_url; empty: a file in results_dir",
    )
    s3_endpoint: str = Field("", description="address of S3-compatible storage other than AWS: http(s)://HOST:PORT")
    upload_timeout_s: float = Field(30.0, gt=0, description="longest time of one attempt to send or fetch a result")
    results_max_age_h: float = Field(0.0, ge=0, description="delete stored results after that many hours; 0: never")
    results_max_gb: float = Field(
        0.0, ge=0, description="delete the oldest stored results over that many GiB; 0: no limit"
    )
    spool_max_items: int = Field(
        4096,
        ge=1,
        description="most results waiting to be saved, of 256 KiB each on average; when full, new work is refused",
    )

    cache_entries: int = Field(
        0, ge=0, description="entries of the cache that answers identical requests with saved results; 0: no cache"
    )

    webhook_secret_file: str = Field(
        "", description="file of secrets (whsec_BASE64, one a line) that sign the webhooks of jobs; empty: no webhooks"
    )
    webhook_hosts: str = Field(
        "", description="hosts that webhooks may go to: a.example.com,*.example.org; empty: any public host"
    )
    webhook_private: bool = Field(False, description="allow webhooks to private addresses and over http://")

    drain_delay_s: float = Field(
        0.0, ge=0, le=1e7, description="after SIGTERM: seconds for which /readyz answers 503 before new work is refused"
    )
    drain_timeout_s: float = Field(
        60.0, gt=0, le=1e7, description="after SIGTERM and its delay: longest wait for requests and saves in flight"
    )

    otlp_endpoint: str = Field(
        "", description="OpenTelemetry collector that traces go to (OTLP over HTTP): http://HOST:4318; empty: no traces"
    )
    trace_ratio: float = Field(
        0.1, ge=0, le=1, description="share of the requests without `traceparent` that are traced"
    )

    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="least severe level that is logged"
    )

    @field_validator("apis")
    @classmethod
    def _check_apis(cls, apis: str) -> str:
        unknown = [name for name in listed(apis) if name not in FOREIGN_APIS]
        if unknown:
            raise ValueError(f"{unknown[0]!r} is none of {', '.join(FOREIGN_APIS)}")
        return apis

    @field_validator("public_url")
    @classmethod
    def _check_public_url(cls, url: str) -> str:
        parts = urlsplit(url)  # raises ValueError if the address is malformed
        extra = parts.query or parts.fragment or "@" in parts.netloc or re.search(r"[^!-~]", url)
        if url and (parts.scheme not in ("http", "https") or not parts.hostname or extra or parts.port == 0):
            raise ValueError("it is no address like https://images.example.com/PREFIX")
        return url.rstrip("/")

    @property
    def default_models(self) -> dict[Task, str]:
        """The default model of each task, for requests that name none, as `name` or `name/version`."""
        return {"inpaint": self.inpaint_model, "translate": self.translate_model, "generate": self.generate_model}

    @property
    def api_names(self) -> frozenset[str]:
        """The foreign APIs that are on."""
        return frozenset(listed(self.apis))

    @property
    def max_bodies_mb(self) -> float:
        """Memory for request bodies in MiB; a body that does not fit is refused."""
        return self.max_memory_mb / 2

    @property
    def max_decoded_mb(self) -> float:
        """Memory for decoded pictures in MiB; a request that does not fit waits."""
        return self.max_memory_mb / 2

    @property
    def max_uploads(self) -> int:
        """The maximum number of request bodies that are read at the same time; further requests are refused."""
        return max(_FEWEST_UPLOADS, math.ceil(self.max_memory_mb / _MIB_PER_UPLOAD))

    @property
    def spool_max_mb(self) -> float:
        """The maximum size of the results that wait to be saved, in MiB."""
        return float(self.spool_max_items * _MIB_PER_RESULT)


def load_settings(
    flags: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] = os.environ,
    config: Path | None = None,
) -> Settings:
    """Load the settings from flags, environment and config file, in that order of precedence.

    Each retired setting among them causes a FutureWarning, which Python prints once.

    Raises:
        SettingsInvalid: an unknown or misspelt name in any of them, or a value out of range.
    """
    path = config or (Path(named) if (named := environ.get(CONFIG_VARIABLE, "").strip()) else None)
    merged: dict[str, Any] = {}
    for layer in (_read_config(path) if path else {}, _read_environment(environ), flags or {}):
        try:
            values, advice = without_retired_settings(layer)
        except ValueError as error:
            raise SettingsInvalid(f"settings: {error}") from error
        merged |= values
        for line in advice:
            warnings.warn(line, FutureWarning, stacklevel=2)
    try:
        return Settings.model_validate(merged)
    except ValidationError as error:
        raise SettingsInvalid(f"settings: {validation_message(error, 'setting', Settings.model_fields)}") from error


def _read_environment(environ: Mapping[str, str]) -> dict[str, str]:
    known = {PREFIX + name.upper(): name for name in (*Settings.model_fields, *RETIRED)}
    expected = {*known, CONFIG_VARIABLE, *CLIENT_VARIABLES, *INSTALL_VARIABLES}
    unknown = sorted(name for name in environ if name.startswith(PREFIX) and name not in expected)
    links = [name for name in unknown if _SERVICE_LINK.fullmatch(name)]
    links += [name for name in known if environ.get(name, "").startswith(("tcp://", "udp://", "sctp://"))]
    if links:
        raise SettingsInvalid(
            f"Kubernetes sets {', '.join(links)} for a Service whose name begins with retouch; "
            "set enableServiceLinks: false in the pod's spec"
        )
    if unknown:
        raise SettingsInvalid(
            _unknown_names_message("environment setting", unknown, [PREFIX + n.upper() for n in Settings.model_fields])
        )
    return {known[name]: value.strip() for name, value in environ.items() if name in known}


def _read_config(path: Path) -> dict[str, Any]:
    file, fields = f"config file {path}", Settings.model_fields
    try:
        values: dict[str, Any] = tomllib.loads(path.read_text("utf-8-sig"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SettingsInvalid(f"{file}: {error}") from error
    if unknown := [name for name in values if name not in fields and name not in RETIRED]:
        raise SettingsInvalid(f"{file}: {_unknown_names_message('setting', unknown, fields)}")
    for name, value in values.items():  # pydantic takes true for 1
        if isinstance(value, bool) and name in fields and "bool" not in str(fields[name].annotation):
            raise SettingsInvalid(f"{file}: {name}: {str(value).lower()} is no number and no text")
    return values


def _unknown_names_message(what: str, names: Sequence[str], known: Collection[str]) -> str:
    return f"{'; '.join(unknown_name(what, name, known) for name in names)} (`retouch serve --help` lists all)"
