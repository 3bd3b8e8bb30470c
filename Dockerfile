# znnpy in a container, as a user of its own. docs/how-to/install.md says how it is built and run.
FROM debian:trixie-slim AS build
RUN apt-get update && apt-get install --yes --no-install-recommends ca-certificates python3 python3-venv
RUN python3 -m venv /opt/znnpy
COPY . /source
RUN /opt/znnpy/bin/pip wheel --no-cache-dir --no-deps --wheel-dir /wheels /source
RUN /opt/znnpy/bin/pip install --no-cache-dir /wheels/*.whl && /opt/znnpy/bin/pip uninstall --yes pip

FROM debian:trixie-slim
RUN apt-get update && apt-get install --yes --no-install-recommends python3 && rm -rf /var/lib/apt/lists/*
COPY --from=build /opt/znnpy /opt/znnpy
# Any user may run it (docker run --user), so that files in /data belong to whoever asked for them.
RUN useradd --uid 1000 --create-home znnpy && install --directory --mode 1777 /cache /data
ENV PATH=/opt/znnpy/bin:$PATH ZNNPY_CACHE=/cache
WORKDIR /data
USER znnpy
ENTRYPOINT ["znnpy"]
CMD ["--help"]
