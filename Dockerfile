# The server's image: Python, the package in /opt/kvstore, and a user without rights.
#
#   docker build -t kvstore .                                    with the native transport
#   docker build -t kvstore --build-arg NATIVE=without .         no Rust image needed: grpcio serves,
#                                                                slower and without TLS for clients
#   docker run -p 2379:2379 -v kvstore:/var/lib/kvstore kvstore
#
# PYTHON_IMAGE needs Python 3.11 to 3.14 with venv and pip, nothing else. BuildKit leaves out the
# stages that are not asked for; without it (DOCKER_BUILDKIT=0) all are built.

ARG PYTHON_IMAGE=python:3.13-slim-bookworm
ARG RUST_IMAGE=rust:1-slim-bookworm
ARG NATIVE=with

# The native transport, against the stable ABI: no Python is needed to build it.
FROM ${RUST_IMAGE} AS crate-with
COPY kvstore/native /crate
WORKDIR /crate
RUN PYO3_NO_PYTHON=1 cargo build --release --locked \
    && mkdir /out \
    && cp target/release/libkvstore_native.so /out/_native.abi3.so

FROM ${PYTHON_IMAGE} AS crate-without
RUN mkdir /out

FROM crate-${NATIVE} AS crate

FROM ${PYTHON_IMAGE} AS package
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 KVSTORE_NATIVE=0
RUN python3 -m venv /opt/kvstore
WORKDIR /src
COPY requirements.lock ./
RUN /opt/kvstore/bin/pip install --require-hashes -r requirements.lock
COPY pyproject.toml setup.py MANIFEST.in README.md ./
COPY kvstore kvstore
COPY kvstack kvstack
COPY apiserver apiserver
COPY agents agents
COPY packaging/crate.py packaging/crate.py
RUN /opt/kvstore/bin/pip install --no-deps . \
    && /opt/kvstore/bin/python -m compileall -q /opt/kvstore/lib
COPY --from=crate /out /out
WORKDIR /
RUN cp -r /out/. "$(/opt/kvstore/bin/python -c 'import kvstore.transport as t; print(*t.__path__)')"

FROM ${PYTHON_IMAGE}
RUN groupadd --system --gid 10001 kvstore \
    && useradd --system --uid 10001 --gid kvstore --no-create-home --home-dir /var/lib/kvstore kvstore \
    && install -d -o kvstore -g kvstore -m 0700 /var/lib/kvstore
COPY --from=package /opt/kvstore /opt/kvstore
ENV PATH=/opt/kvstore/bin:$PATH
USER kvstore
VOLUME /var/lib/kvstore
EXPOSE 2379 2380
STOPSIGNAL SIGTERM
ENTRYPOINT ["kvstore"]
CMD ["--data-dir=/var/lib/kvstore", "--listen-client-urls=http://0.0.0.0:2379", "--advertise-client-urls=http://localhost:2379"]
