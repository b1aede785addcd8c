"""The groups that `retouch serve --help` and docs/settings.md list the settings in."""

from __future__ import annotations

SETTING_GROUPS: dict[str, tuple[str, ...]] = {
    "Network": (
        "host",
        "port",
        "metrics_port",
        "grpc_port",
        "public_host",
        "public_url",
        "cors_origins",
        "page",
        "apis",
    ),
    "Access": ("keys_file", "allow_anonymous"),
    "Models and engines": (
        "models_dir",
        "models_url",
        "model_poll_s",
        "inpaint_model",
        "translate_model",
        "generate_model",
        "engine",
        "device",
        "engine_cache_dir",
        "trt_level",
        "allow_int8",
        "fake_batch_ms",
    ),
    "Processes and threads": ("workers", "engine_processes", "engine_threads", "codec_threads"),
    "Limits": (
        "max_batch_size",
        "max_queue_size",
        "max_memory_mb",
        "max_body_mb",
        "max_pixels",
        "request_timeout_s",
        "body_timeout_s",
        "hang_timeout_s",
    ),
    "Results": (
        "save",
        "results_dir",
        "results_url",
        "promise",
        "ledger_url",
        "s3_endpoint",
        "upload_timeout_s",
        "results_max_age_h",
        "results_max_gb",
        "spool_max_items",
        "cache_entries",
    ),
    "Webhooks": ("webhook_secret_file", "webhook_hosts", "webhook_private"),
    "Shutdown": ("drain_delay_s", "drain_timeout_s"),
    "Logs and traces": ("log_level", "otlp_endpoint", "trace_ratio"),
}
"""The names of the settings in each group; each setting is in exactly one."""

SERVER_ONLY: tuple[str, ...] = (
    *SETTING_GROUPS["Network"],
    *SETTING_GROUPS["Access"],
    *SETTING_GROUPS["Webhooks"],
    *("models_url", "results_url", "promise", "ledger_url"),
    *("results_max_age_h", "results_max_gb", "cache_entries", "otlp_endpoint"),
)
"""Settings that only a server uses, and not a command that runs the pipeline: network, keys, shared state."""
