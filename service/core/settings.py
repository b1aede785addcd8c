"""Every setting of the server. Each has a flag (`--max-batch-size`) and a variable (`RETOUCH_MAX_BATCH_SIZE`).

Order of precedence: flag, environment, `--config` file (TOML), default. A misspelt or unknown name stops the start; a
setting removed in this version is accepted with a warning (retired_settings.py).
"""

from __future__ import annotations

import math
import os
import re
import warnings
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator

from engines.engine_names import DeviceChoice, EngineChoice
from engines.errors import RetouchError
from engines.files.named_paths import named_path
from engines.files.toml_text import parse_toml
from engines.manifest import Task
from engines.validation import unknown_name, validation_message
from service.core.addresses import without_brackets
from service.core.lists_and_folders import File, Folder, listed
from service.core.retired_settings import RETIRED, without_retired_settings

PREFIX = "RETOUCH_"
CONFIG_VARIABLE = PREFIX + "CONFIG"
CLIENT_VARIABLES = (PREFIX + "API_KEY", PREFIX + "API_KEY_FILE")
"""Variables of the client, not settings of the server; both may be set on one machine."""
INSTALL_VARIABLES = (PREFIX + "NVIDIA_INDEX",)
"""Variables of `retouch install-gpu`, which `make serve` runs before the server."""
FOREIGN_APIS = ("openai", "iopaint", "open-inference", "automatic1111")
"""Names of the foreign APIs; service/compat has a room for each."""
_MIB_PER_UPLOAD = 4
_MIN_UPLOADS = 64
_MIB_PER_RESULT = 0.25
_MAX_SIZE = 1e12
"""The largest value in MiB or GiB: as bytes it is still finite."""
_SERVICE_LINK = re.compile(PREFIX + r"(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_\w+)?)")
"""Variables that Kubernetes sets in every pod for a Service named retouch or retouch-…, besides RETOUCH_PORT=tcp://…"""


class SettingsInvalid(RetouchError):
    """A setting is unknown, misspelt or out of range; the server does not start."""

    exit_status = 2


class Settings(BaseModel):
    """The server's configuration; immutable once loaded. Each setting is described in setting_groups.py."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    host: Annotated[str, AfterValidator(without_brackets)] = "127.0.0.1"
    port: int = Field(8000, ge=0, le=65535)
    workers: Annotated[int, Field(ge=0, le=256)] | Literal["auto"] = "auto"
    engine_processes: int = Field(0, ge=0, le=64)
    metrics_port: int = Field(0, ge=0, le=65535)
    grpc_port: int = Field(0, ge=0, le=65535)

    page: bool = True

    keys_file: File = ""
    allow_anonymous: bool = False
    public_host: str = ""
    public_url: str = ""
    cors_origins: str = ""
    apis: str = ",".join(FOREIGN_APIS)

    models_dir: Folder = Path("models")
    models_url: str = ""
    model_poll_s: float = Field(2.0, gt=0)
    inpaint_model: str = "photos"
    translate_model: str = "facades"
    generate_model: str = "housefronts"

    engine: EngineChoice = "auto"
    device: DeviceChoice = "auto"
    engine_cache_dir: Folder = Path("cache")
    engine_threads: int = Field(0, ge=0)
    trt_level: int = Field(3, ge=0, le=5)
    allow_int8: bool = True
    fake_batch_ms: float = Field(0.0, ge=0)

    max_batch_size: int = Field(8, ge=1, le=256)
    max_queue_size: int = Field(256, ge=1)
    request_timeout_s: float = Field(60.0, gt=0)
    body_timeout_s: float = Field(30.0, gt=0)
    max_memory_mb: float = Field(4096.0, gt=0, le=_MAX_SIZE)
    hang_timeout_s: float = Field(60.0, gt=0)
    codec_threads: int = Field(0, ge=0)

    max_body_mb: float = Field(64.0, gt=0, le=_MAX_SIZE)
    max_pixels: int = Field(50_000_000, ge=1, le=2**30)

    save: bool = True
    results_dir: Folder = Path("results")
    results_url: str = ""
    promise: Literal["spool", "store"] = "spool"
    ledger_url: str = ""
    s3_endpoint: str = ""
    upload_timeout_s: float = Field(30.0, gt=0)
    results_max_age_h: float = Field(0.0, ge=0)
    results_max_gb: float = Field(0.0, ge=0, le=_MAX_SIZE)
    spool_max_items: int = Field(4096, ge=1)

    cache_entries: int = Field(0, ge=0)

    webhook_secret_file: File = ""
    webhook_hosts: str = ""
    webhook_private: bool = False

    drain_delay_s: float = Field(0.0, ge=0, le=1e7)
    drain_timeout_s: float = Field(60.0, gt=0, le=1e7)

    otlp_endpoint: str = ""
    trace_ratio: float = Field(0.1, ge=0, le=1)

    log_level: Literal["debug", "info", "warning", "error"] = "info"

    @field_validator("*", mode="before")
    @classmethod
    def _refuse_empty(cls, value: object, info: ValidationInfo) -> object:
        if value == "" and cls.model_fields[str(info.field_name)].annotation is not str:
            # as from an unset variable of a script; Path("") would be the current folder
            raise ValueError("it is empty; give it a value, or leave it out for the default")
        return value

    @field_validator("apis")
    @classmethod
    def _check_apis(cls, apis: str) -> str:
        unknown = [name for name in listed(apis) if name not in FOREIGN_APIS]
        if unknown:
            raise ValueError(f"{unknown[0]!r} is not one of {', '.join(FOREIGN_APIS)}")
        return apis

    @field_validator("public_url")
    @classmethod
    def _check_public_url(cls, url: str) -> str:
        parts = urlsplit(url)  # raises ValueError if the address is malformed
        extra = parts.query or parts.fragment or "@" in parts.netloc or re.search(r"[^!-~]", url)
        if url and (parts.scheme not in ("http", "https") or not parts.hostname or extra or parts.port == 0):
            raise ValueError("it is not an address like https://images.example.com/PREFIX")
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
        return max(_MIN_UPLOADS, math.ceil(self.max_memory_mb / _MIB_PER_UPLOAD))

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
        values = parse_toml(named_path(path).read_text("utf-8-sig"))
    except OSError as error:
        raise SettingsInvalid(f"{file} cannot be read: {error.strerror}; check --config and RETOUCH_CONFIG") from error
    except ValueError as error:  # of UTF-8 and of TOML
        raise SettingsInvalid(f"{file}: {error}") from error
    if unknown := [name for name in values if name not in fields and name not in RETIRED]:
        raise SettingsInvalid(f"{file}: {_unknown_names_message('setting', unknown, fields)}")
    for name, value in values.items():  # pydantic takes true for 1
        if isinstance(value, bool) and name in fields and "bool" not in str(fields[name].annotation):
            raise SettingsInvalid(f"{file}: {name}: {str(value).lower()} is neither a number nor text")
    return values


def _unknown_names_message(what: str, names: Sequence[str], known: Collection[str]) -> str:
    return f"{'; '.join(unknown_name(what, name, known) for name in names)} (`retouch serve --help` lists all)"
