FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=devel
RUN CGO_ENABLED=0 go build -trimpath -ldflags "-X main.version=${VERSION}" -o /sqlbrain ./cmd/sqlbrain && mkdir /data

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /sqlbrain /sqlbrain
COPY --from=build --chown=65532:65532 /data /data
USER 65532:65532
VOLUME /data
EXPOSE 2379
ENTRYPOINT ["/sqlbrain"]
CMD ["--listen-client-urls", "http://0.0.0.0:2379", "--data-dir", "/data"]
