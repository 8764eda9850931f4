# sqlbrain on nothing: one static binary, the certificates of public authorities, no shell, no root. Needs BuildKit,
# which is what `docker build` and `docker compose build` use.
#
#   docker build --tag sqlbrain .
#   docker run --publish 2379:2379 --volume sqlbrain:/data sqlbrain
#   docker run --publish 2379:2379 --env SQLBRAIN_DATASTORE=mysql://… sqlbrain
#
# Settings are best given as variables, SQLBRAIN_…: the health check has them too, a command line it does not see.
#
# The only base image is the toolchain's. Name it by digest for what others are to run: tags move. PINNED=1 refuses others.
#
#   docker buildx imagetools inspect golang:1.26 --format '{{.Manifest.Digest}}'
#   docker build --build-arg PINNED=1 --build-arg GO_IMAGE=golang:1.26@sha256:… --tag sqlbrain .
#
# The target kine is an image in the place of kine's: /bin/kine is the entry point, and it has the shell of its base image,
# KINE_BASE, which PINNED=1 also demands by digest.
#
#   docker build --target kine --tag sqlbrain-kine .
ARG GO_IMAGE=golang:1.26
ARG KINE_BASE=alpine:3.22
# The toolchain runs on the builder's own platform and compiles for the one that is asked for.
FROM --platform=$BUILDPLATFORM ${GO_IMAGE} AS build
ARG GO_IMAGE
ARG PINNED=
RUN test -z "$PINNED" || echo "$GO_IMAGE" | grep -qE '@sha256:[0-9a-f]{64}$' || { echo "GO_IMAGE=$GO_IMAGE names no digest"; exit 1; }
WORKDIR /src
COPY . .
ARG TARGETOS TARGETARCH
ARG VERSION=devel
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH \
    go build -trimpath -ldflags "-s -w -X main.version=$VERSION" -o /sqlbrain ./cmd/sqlbrain
WORKDIR /data

FROM build AS kine-files
ARG KINE_BASE
ARG PINNED=
RUN test -z "$PINNED" || echo "$KINE_BASE" | grep -qE '@sha256:[0-9a-f]{64}$' || { echo "KINE_BASE=$KINE_BASE names no digest"; exit 1; }
WORKDIR /db

FROM ${KINE_BASE} AS kine
ARG VERSION=devel
LABEL org.opencontainers.image.title="sqlbrain in kine's place" \
      org.opencontainers.image.description="sqlbrain, an etcd v3 server on SQL, with the command line of kine" \
      org.opencontainers.image.source="https://github.com/sqlbrain/sqlbrain" \
      org.opencontainers.image.documentation="https://github.com/sqlbrain/sqlbrain/blob/main/docs/operate/kine.md" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="$VERSION"
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /sqlbrain /bin/
# A symbolic link, kine, to sqlbrain.
COPY deploy/image/bin/ /bin/
COPY LICENSE /
# As in kine's image: the SQLite file is ./db/state.db, and the process is nobody's.
COPY --from=kine-files --chown=65534:65534 /db /db
WORKDIR /
VOLUME /db
EXPOSE 2379
USER 65534:65534
ENTRYPOINT ["/bin/kine"]

FROM scratch
ARG VERSION=devel
LABEL org.opencontainers.image.title="sqlbrain" \
      org.opencontainers.image.description="An etcd v3 server whose data lives in one SQL table" \
      org.opencontainers.image.source="https://github.com/sqlbrain/sqlbrain" \
      org.opencontainers.image.documentation="https://github.com/sqlbrain/sqlbrain/blob/main/README.md" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="$VERSION"
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /sqlbrain /sqlbrain
COPY LICENSE /
# Where the SQLite file is without --datastore. A volume that is mounted here takes over the owner.
COPY --from=build --chown=65532:65532 /data /data
WORKDIR /data
USER 65532:65532
ENV SQLBRAIN_LISTEN_CLIENT_URLS=http://0.0.0.0:2379
# Clients and, of a cluster, the other members.
EXPOSE 2379 2380
HEALTHCHECK --interval=10s --timeout=10s --start-period=30s CMD ["/sqlbrain", "health"]
ENTRYPOINT ["/sqlbrain"]
