# Retouch on a CPU: no compiler, no torch, nothing from NVIDIA.
#
#   docker build -f docker/cpu.Dockerfile -t retouch:cpu .
#   docker build -f docker/cpu.Dockerfile --target export -t retouch-export:cpu .   # with torch: checkpoint -> model
#
# requirements/constraints.txt pins Python packages. For reproducible builds pin the base image too, by digest:
#   --build-arg BASE=docker.io/library/debian:bookworm-slim@sha256:...
ARG BASE=docker.io/library/debian:bookworm-slim

# Our own wheel and the list of its dependencies. The compiler for the extensions stays in this stage.
FROM ${BASE} AS wheel
# Debian keeps only the newest security fix of a package: a pinned version would soon fail to install.
# hadolint ignore=DL3008,DL3009
RUN apt-get update && apt-get install --yes --no-install-recommends g++ python3-pip python3-setuptools
WORKDIR /source
COPY . .
# Extras of pyproject.toml; with gRPC: --build-arg EXTRAS="serve s3 grpc", 20 MB more
ARG EXTRAS="serve s3"
RUN python3 -c "import os, tomllib; project = tomllib.load(open('pyproject.toml', 'rb'))['project']; \
      extras = project['optional-dependencies']; \
      needed = project['dependencies'] + [line for name in os.environ['EXTRAS'].split() for line in extras[name]]; \
      print('\n'.join(line for line in needed if not line.startswith('retouch[')))" > dependencies.txt \
    && pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM ${BASE} AS python
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends python3 tini \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/log/apt /var/log/dpkg.log

FROM python AS packages
# hadolint ignore=DL3008,DL3009
RUN apt-get update && apt-get install --yes --no-install-recommends python3-venv && python3 -m venv /opt/retouch
WORKDIR /source
# Dependencies change seldom, our own code often: separate steps keep the first one cached.
COPY --from=wheel /source/dependencies.txt ./
COPY requirements/constraints.txt ./
RUN /opt/retouch/bin/pip install --no-cache-dir --constraint constraints.txt --requirement dependencies.txt

FROM packages AS export
ARG TORCH_WHEELS=https://download.pytorch.org/whl/cpu/torch/
RUN /opt/retouch/bin/pip install --no-cache-dir --constraint constraints.txt --find-links "${TORCH_WHEELS}" \
      torch onnx safetensors
COPY . .
RUN /opt/retouch/bin/pip install --no-cache-dir --no-deps .
# The same content as in the server's image, because the container that starts first fills the volumes.
COPY --chown=65532:65532 models /models
RUN install --directory --owner=65532 --group=65532 /cache
USER 65532:65532
ENV PATH=/opt/retouch/bin:$PATH HOME=/tmp RETOUCH_MODELS_DIR=/models RETOUCH_ENGINE_CACHE_DIR=/cache
ENTRYPOINT ["tini", "--", "/source/docker/export.sh"]

FROM packages AS installed
COPY --from=wheel /wheels /wheels
# Removes 90 MB that this image cannot use: OpenVINO's plugins for Intel GPUs and NPUs, packages' tests, and pip.
RUN /opt/retouch/bin/pip install --no-cache-dir --no-deps /wheels/*.whl \
    && libs=$(echo /opt/retouch/lib/python3*/site-packages/openvino/libs) \
    && rm "$libs"/libopenvino_intel_gpu_plugin.so "$libs"/libopenvino_intel_npu_plugin.so "$libs"/cache.json \
    && find /opt/retouch/lib -type d -name tests -prune -exec rm -r {} + \
    && /opt/retouch/bin/pip uninstall --yes pip setuptools

FROM python AS serve
ARG VERSION=0.3.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="Retouch" \
      org.opencontainers.image.description="Fills holes in images and translates images with trained generators, over HTTP" \
      org.opencontainers.image.version=${VERSION} \
      org.opencontainers.image.revision=${REVISION}
COPY --from=installed /opt/retouch /opt/retouch
COPY --chown=65532:65532 models /models
# An empty volume mounted on one of these folders takes over its owner.
# pip succeeds even if the C++ extensions fail to compile: in an image they must exist and load.
RUN install --directory --owner=65532 --group=65532 /results /cache \
    && /opt/retouch/bin/python -IBc "from service.devices import planes_kernel; \
      from service.imaging.files import scanlines; \
      from service.imaging.pasting import kernel; \
      from service.imaging.texture import patch_match; \
      kernels = [each.installed_kernel() for each in (planes_kernel, scanlines, kernel, patch_match)]; \
      assert all(kernels), 'what is compiled from C++ is missing'"
ENV PATH=/opt/retouch/bin:$PATH \
    HOME=/tmp \
    MPLCONFIGDIR=/tmp \
    PYTHONDONTWRITEBYTECODE=1 \
    RETOUCH_HOST=0.0.0.0 \
    RETOUCH_MODELS_DIR=/models \
    RETOUCH_RESULTS_DIR=/results \
    RETOUCH_ENGINE_CACHE_DIR=/cache
USER 65532:65532
WORKDIR /tmp
EXPOSE 8000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=120s --retries=3 \
    CMD ["python3", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8000/readyz', timeout=4)"]
ENTRYPOINT ["tini", "--", "retouch"]
CMD ["serve"]
