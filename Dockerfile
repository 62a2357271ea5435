# The image of all commands: Python, the package in /opt/kvstack, and a user without rights.
#
#   make image                                                   builds kvstack with its version
#   docker build -t kvstack .                                    the same, without a version label
#   docker build -t kvstack --build-arg NATIVE=without .         no Rust image needed: grpcio serves,
#                                                                slower and without TLS for clients
#   docker run -p 2379:2379 -v kvstore:/var/lib/kvstore kvstack  the store
#   docker run kvstack apiserver --help                          a command of kvstack, by its name
#   docker run kvstack kvstore-util snapshot status FILE         kvstack, kvstore or kvstore-util
#
# PACKAGES are installed in the image: nodes that run pods as processes need nftables, for Services, host
# ports and NetworkPolicies. PYTHON_IMAGE needs Python 3.11 to 3.14 with venv and pip, nothing else. BuildKit leaves out the
# stages that are not asked for; without it (DOCKER_BUILDKIT=0) all are built. The health check asks
# the page of the command that runs at its default address; KVSTACK_HEALTH_URL names another one.

ARG PYTHON_IMAGE=python:3.13-slim-bookworm
ARG RUST_IMAGE=rust:1-slim-bookworm
ARG NATIVE=with

# The native transport, against the stable ABI: no Python is needed to build it.
FROM ${RUST_IMAGE} AS crate-with
COPY kvstore/native /crate
COPY packaging/crate-licenses.sh /usr/local/bin/crate-licenses
WORKDIR /crate
RUN PYO3_NO_PYTHON=1 cargo build --release --locked \
    && mkdir /out \
    && cp target/release/libkvstore_native.so /out/_native.abi3.so \
    && crate-licenses > /out/THIRD-PARTY-LICENSES.txt

FROM ${PYTHON_IMAGE} AS crate-without
RUN mkdir /out

FROM crate-${NATIVE} AS crate

FROM ${PYTHON_IMAGE} AS package
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 KVSTORE_NATIVE=0
RUN python3 -m venv /opt/kvstack
WORKDIR /src
COPY requirements.lock ./
RUN /opt/kvstack/bin/pip install --require-hashes -r requirements.lock
COPY pyproject.toml setup.py MANIFEST.in README.md LICENSE NOTICE ./
COPY kvstore kvstore
COPY kvstack kvstack
COPY apiserver apiserver
COPY agents agents
COPY packaging/crate.py packaging/crate-licenses.sh packaging/
RUN /opt/kvstack/bin/pip install --no-deps . \
    && /opt/kvstack/bin/python -m compileall -q /opt/kvstack/lib
COPY --from=crate /out /out
WORKDIR /
RUN cp -r /out/. "$(/opt/kvstack/bin/python -c 'import kvstack.component as c; print(*c.__path__)')"

FROM ${PYTHON_IMAGE}
ARG VERSION=
LABEL org.opencontainers.image.title="kvstack" \
      org.opencontainers.image.description="A Kubernetes control plane and an etcd-compatible store" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.vendor="The kvstack authors" \
      org.opencontainers.image.version="${VERSION}"
ARG PACKAGES=
RUN test -z "${PACKAGES}" || { apt-get update \
    && apt-get install --yes --no-install-recommends ${PACKAGES} \
    && rm -rf /var/lib/apt/lists/*; }
RUN groupadd --system --gid 10001 kvstore \
    && useradd --system --uid 10001 --gid kvstore --no-create-home --home-dir /var/lib/kvstore kvstore \
    && install -d -o kvstore -g kvstore -m 0700 /var/lib/kvstore
COPY --from=package /opt/kvstack /opt/kvstack
COPY --from=package /src/LICENSE /src/NOTICE /usr/share/doc/kvstack/
COPY packaging/entrypoint.sh /usr/local/bin/kvstack-entrypoint
COPY packaging/healthcheck.py /usr/local/lib/kvstack-healthcheck.py
ENV PATH=/opt/kvstack/bin:$PATH
USER kvstore
VOLUME /var/lib/kvstore
EXPOSE 2379 2380 6443
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
    CMD ["/opt/kvstack/bin/python", "/usr/local/lib/kvstack-healthcheck.py"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["kvstack-entrypoint"]
CMD ["--data-dir=/var/lib/kvstore", "--listen-client-urls=http://0.0.0.0:2379", "--advertise-client-urls=http://localhost:2379"]
