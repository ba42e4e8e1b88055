# docker build -t weir .                      the program and nothing else
# docker build -t weir-shipper --target shipper .   the same beside a shell and tail, for deploy/shipper
#
# --build-arg VERSION=$(git describe --tags --always --dirty) tells weir version and weir_build_info which one it is.

FROM golang:1.26.8-bookworm AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION
RUN CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags "-s -w -X main.linkedVersion=$VERSION" -o /out/weir ./cmd/weir

FROM busybox:1.36.1 AS shipper
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /out/weir /bin/weir
USER 65532:65532
ENTRYPOINT []

FROM scratch AS weir
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /out/weir /bin/weir
USER 65532:65532
ENTRYPOINT ["/bin/weir"]
