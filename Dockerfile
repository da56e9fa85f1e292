# syntax=docker/dockerfile:1
# The driver as an image, for the processor that it is built for (--platform linux/amd64,linux/arm64):
#
#   docker build -t netdra:0.1.0 .
#
# What it holds besides its base: one file with the driver, its wire contracts, the binaries of two native packages and the
# start gate for that processor, and `node`. `npm run bundle` makes and lists all of that but `node`.
#
# npm packages are those of package-lock.json, by their hashes. Base images are by tag, which moves with their security updates; for a
# build that can be repeated, name them by digest:
#
#   docker build --build-arg NODE_IMAGE=node@sha256:... --build-arg DEBIAN_IMAGE=... --build-arg RUNTIME_IMAGE=... .
ARG DEBIAN_IMAGE=debian:bookworm-slim
ARG NODE_IMAGE=node:24-bookworm-slim
# Whose `node` becomes the image's; the other one runs the build.
ARG TARGET_NODE_IMAGE=${NODE_IMAGE}
# The GNU C and C++ libraries that `node` needs, and no shell, package manager or other program.
ARG RUNTIME_IMAGE=gcr.io/distroless/cc-debian12

# The program that the runtime runs on the node. The compiler is one of the machine that builds, whatever it compiles for.
FROM --platform=$BUILDPLATFORM ${DEBIAN_IMAGE} AS gate
ARG TARGETARCH
RUN case "$TARGETARCH" in \
      "$(dpkg --print-architecture)") packages='gcc libc6-dev' ;; \
      amd64) packages='gcc-x86-64-linux-gnu libc6-dev-amd64-cross' ;; \
      arm64) packages='gcc-aarch64-linux-gnu libc6-dev-arm64-cross' ;; \
      *) echo "no image for processor '$TARGETARCH'" >&2 && exit 1 ;; \
    esac \
 && apt-get update && apt-get install --yes --no-install-recommends make $packages
COPY programs/Makefile programs/Makefile
COPY programs/src programs/src
RUN case "$TARGETARCH" in amd64) machine=x86_64 ;; arm64) machine=aarch64 ;; esac \
 && make -C programs OUT=/out CC="$machine-linux-gnu-gcc" /out/netdra-gate

# Runs on the machine that builds, too: nothing is emulated.
FROM --platform=$BUILDPLATFORM ${NODE_IMAGE} AS build
ARG TARGETARCH
WORKDIR /src
COPY package.json package-lock.json ./
# The tools of this machine, then the native packages of the other one. No package's script runs.
RUN npm install --no-save --ignore-scripts --no-audit --no-fund
RUN mkdir /target && cp package.json package-lock.json /target/ && cd /target \
 && npm install --no-save --omit=dev --ignore-scripts --no-audit --no-fund \
      --os=linux --libc=glibc --cpu="$([ "$TARGETARCH" = amd64 ] && echo x64 || echo "$TARGETARCH")"
COPY LICENSE ./
COPY proto proto
COPY nri nri
COPY src src
COPY deploy/image deploy/image
COPY deploy/seccomp/netdra.json deploy/seccomp/netdra.json
COPY scripts/bundle.ts scripts/check-installed.ts scripts/
RUN node scripts/check-installed.ts . /target
COPY --from=gate /out/netdra-gate /target/netdra-gate
RUN node scripts/bundle.ts --arch "$TARGETARCH" --modules /target/node_modules --gate /target/netdra-gate --out /image

# Older Buildah keeps the platform of the stages above unless the next ones name theirs.
FROM --platform=$TARGETPLATFORM ${TARGET_NODE_IMAGE} AS runtime

FROM --platform=$TARGETPLATFORM ${RUNTIME_IMAGE}
COPY --from=runtime /usr/local/bin/node /usr/local/bin/node
COPY --from=build /image/ /
# What the program needs to start fast: deploy/image/layout.ts has the same.
ENV NODE_ENV=production NODE_COMPILE_CACHE=/opt/netdra/cache NODE_COMPILE_CACHE_PORTABLE=1
# Root, since the files of the kubelet, the runtime and sysfs are; the chart takes its capabilities away.
USER 0:0
ENTRYPOINT ["/usr/local/bin/node", "--optimize-for-size", "--heap-growing-percent=50", "--no-opt", "--no-maglev", "--no-concurrent-sparkplug", "/opt/netdra/lib/netdra.mjs"]
CMD ["run"]
