# What the containers of the tests run: a shell, iproute2, DPDK's testpmd with the drivers of all NICs, and the tool.
#
#   docker build --tag localhost/netdra/consumer:e2e --file e2e/kind/consumer.Dockerfile programs
FROM debian:bookworm-slim AS build
RUN apt-get update && apt-get install --yes --no-install-recommends gcc make musl-tools
COPY Makefile /programs/Makefile
COPY src /programs/src
RUN make -C /programs CC=musl-gcc OUT=/out VERSION=e2e

FROM debian:bookworm-slim
RUN apt-get update \
 && apt-get install --yes --no-install-recommends dpdk-dev librte-meta-net librte-meta-mempool iproute2 iputils-ping \
 && rm -rf /var/lib/apt/lists/*
COPY --from=build /out/netdra-metadata /usr/local/bin/netdra-metadata
