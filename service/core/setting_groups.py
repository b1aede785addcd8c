"""The settings in the groups of `retouch serve --help` and docs/settings.md, with a description of each."""

from __future__ import annotations

SETTING_GROUPS: dict[str, dict[str, str]] = {
    "Network": {
        "host": (
            "Address to listen on: 127.0.0.1 for programs on this machine only, 0.0.0.0 for all networks (IPv4), :: "
            "for IPv6 too."
        ),
        "port": "TCP port to listen on. 0 picks a free one, which the log names.",
        "metrics_port": (
            "Serve /metrics on this port instead, without keys; keep it inside your network. 0 serves it on the main "
            "port."
        ),
        "grpc_port": "Also serve the Open Inference Protocol over gRPC, on this port. 0 turns gRPC off.",
        "public_host": (
            "Host names by which clients reach the server, separated by commas, such as "
            "`images.example.com,*.example.org`. Requests with another name in `Host` get 421; `localhost`, IP "
            "addresses and the name in `--host` are always accepted, and `*` accepts every name."
        ),
        "public_url": (
            "Address by which clients reach the server, such as `https://images.example.com/PREFIX`. It is needed to "
            "issue links to results, and its host name counts as one of `--public-host`."
        ),
        "cors_origins": (
            "Origins whose web pages may call the API from a browser (CORS), separated by commas, such as "
            "`https://app.example`. Empty: only the server's own page."
        ),
        "page": "Serve the web page, on which one paints masks, at /.",
        "apis": "Compatible APIs of other servers to offer besides the server's own, separated by commas. Empty: none.",
    },
    "Access": {
        "keys_file": (
            "File of API keys, written by `retouch keys create`. Clients then need a key. Empty: no key is needed."
        ),
        "allow_anonymous": (
            "Start without API keys even if `--host` can be reached from other machines; by default the start is "
            "refused."
        ),
    },
    "Models and engines": {
        "models_dir": (
            "Model repository: a folder that holds NAME/VERSION/manifest.json and model.onnx for each version of a "
            "model."
        ),
        "models_url": (
            "Bucket from which model versions are copied into `--models-dir`, as `s3://BUCKET/PREFIX`. With "
            "`--ledger-url` a new version is served once all processes of all hosts have it; `?share=0.5` at the end "
            "of the address waits for half of them, `?share=0` for none. Empty: no bucket."
        ),
        "model_poll_s": (
            "Seconds between two checks for new or removed model versions, and for changes of the key file."
        ),
        "inpaint_model": (
            "Model that `/v1/inpaint` uses if the request names none: NAME for its newest version, or NAME/VERSION."
        ),
        "translate_model": "Model that `/v1/translate` uses if the request names none: NAME or NAME/VERSION.",
        "generate_model": "Model that `/v1/generate` uses if the request names none: NAME or NAME/VERSION.",
        "engine": (
            "Runtime that computes the models: trt (TensorRT), inductor (PyTorch) and onnxrt-cuda need an NVIDIA GPU; "
            "openvino and onnxrt compute on the CPU; fake computes nothing, for tests. auto takes the best that works "
            "here, or the one that `retouch build` measured to be faster."
        ),
        "device": "auto uses an NVIDIA GPU if there is one; cpu never does.",
        "engine_cache_dir": (
            "Folder for compiled engines and for what was measured when they were chosen; without it they are compiled "
            "at each start."
        ),
        "trt_level": (
            "Optimisation level of TensorRT's builder, 0 to 5: a lower one builds plans faster, a higher one may give "
            "faster plans."
        ),
        "allow_int8": (
            "Serve models whose precision is INT8. Otherwise the newest version with another precision is served."
        ),
        "fake_batch_ms": "Milliseconds that the fake engine takes for a batch, in load tests.",
    },
    "Processes and threads": {
        "workers": (
            "Number of front-end processes, which handle HTTP and images; engine processes then run the models. 0 does "
            "everything in one process. auto starts front ends only if a GPU is used, one for each core, 16 at most."
        ),
        "engine_processes": (
            "Number of engine processes, if `--workers` starts front ends. 0: one for each GPU, or one if there is no "
            "GPU."
        ),
        "engine_threads": "CPU threads that compute a model. 0: as many as there are cores.",
        "codec_threads": "Threads that decode, prepare and encode images. 0: one for each core.",
    },
    "Limits": {
        "max_batch_size": "Largest number of samples that are computed together. A model's own limit applies too.",
        "max_queue_size": (
            "Largest number of requests that wait or are computed at the same time. Further ones get 503 with "
            "`Retry-After`."
        ),
        "max_memory_mb": (
            "Memory for requests in MiB, in two halves. One is for request bodies: a request whose body does not fit "
            "gets 503. The other is for decoded images: a request that does not fit waits."
        ),
        "max_body_mb": "Largest request body in MiB. A larger one gets 413.",
        "max_pixels": (
            "Largest image in pixels (width × height), read from its header before it is decoded. A larger one gets "
            "413."
        ),
        "request_timeout_s": (
            "Deadline in seconds of a request without `X-Request-Timeout-Ms`. A request that cannot meet it gets 503 "
            "before it is computed, or else 504."
        ),
        "body_timeout_s": "Longest time in seconds for a request's body to arrive.",
        "hang_timeout_s": (
            "Seconds after which a batch in progress counts as hung, and its engine is replaced. It must be longer "
            "than the slowest batch."
        ),
    },
    "Results": {
        "save": (
            "Store results, unless a request says `save=false`. With `--no-save` only requests that say `save=true` "
            "are stored."
        ),
        "results_dir": (
            "Folder for stored results, each an image with a JSON file that describes it; with `--results-url` for "
            "results that wait for the upload."
        ),
        "results_url": "Bucket for stored results, as `s3://BUCKET/PREFIX`. Empty: they stay in `--results-dir`.",
        "promise": (
            "When a reply is sent. spool: as soon as its result is on this host's disk. store: only when it is in the "
            "bucket of `--results-url`, so that it survives the loss of this host."
        ),
        "ledger_url": (
            "PostgreSQL database in which several hosts share jobs, idempotency keys and the list of results, as "
            "`postgresql://USER:PASSWORD@HOST:PORT/NAME`. It needs `--results-url`. Empty: an SQLite file in "
            "`--results-dir`, for one host."
        ),
        "s3_endpoint": "Address of S3-compatible storage, as `https://HOST:PORT`. Empty: AWS.",
        "upload_timeout_s": (
            "Longest time in seconds of one attempt to send a result to the bucket, or to fetch it; failed uploads are "
            "repeated."
        ),
        "results_max_age_h": "Delete stored results after this many hours. 0: never.",
        "results_max_gb": (
            "Delete the oldest stored results when all of them together take more than this many GiB. 0: no limit."
        ),
        "spool_max_items": (
            "Largest number of results that wait to be stored, and 256 KiB for each of them. When either is exceeded, "
            "requests that would be stored get 503."
        ),
        "cache_entries": (
            "Number of stored results with which the server answers identical requests again instead of computing "
            "them. 0: every request is computed."
        ),
    },
    "Webhooks": {
        "webhook_secret_file": (
            "File of the secrets that sign the webhooks of jobs, one on each line, as whsec_BASE64. Empty: no webhooks."
        ),
        "webhook_hosts": (
            "Hosts to which webhooks may be sent, separated by commas, such as `a.example.com,*.example.org`. Empty: "
            "any host with a public address."
        ),
        "webhook_private": "Allow webhooks to private addresses, and over http://, for receivers in your own network.",
    },
    "Shutdown": {
        "drain_delay_s": (
            "Seconds after SIGTERM in which new requests are still accepted while /readyz answers 503, so that load "
            "balancers notice."
        ),
        "drain_timeout_s": (
            "Longest time in seconds, after that delay, to finish requests and to store results. Requests that are "
            "unanswered by then get 503."
        ),
    },
    "Logs and traces": {
        "log_level": "Least severe level of messages that are logged: debug, info, warning or error.",
        "otlp_endpoint": (
            "OpenTelemetry collector that receives traces (OTLP over HTTP), such as `http://HOST:4318`. Empty: no "
            "traces."
        ),
        "trace_ratio": "Fraction, 0 to 1, of the requests without the header `traceparent` that are traced.",
    },
}
"""The name and the description of each setting, by group, in Markdown; each setting is in exactly one group."""

SERVER_ONLY: tuple[str, ...] = (
    *SETTING_GROUPS["Network"],
    *SETTING_GROUPS["Access"],
    *SETTING_GROUPS["Webhooks"],
    *("models_url", "results_url", "promise", "ledger_url"),
    *("results_max_age_h", "results_max_gb", "cache_entries", "otlp_endpoint"),
)
"""Settings that only a server uses, and not a command that runs the pipeline: network, keys, shared state."""
