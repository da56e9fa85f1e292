# syntax=docker/dockerfile:1
# The driver as an image, for the processor that it is built for (--platform linux/amd64,linux/arm64):
#
#   docker build -t netdra:0.1.0 .
#
# What it holds besides its base: one file with the driver, its wire contracts, the binaries of two native packages for
# that processor, and `node`. `npm run bundle` makes and lists all of that but `node`.

# Runs on the machine that builds, whatever the image is for: nothing is compiled, and nothing is emulated.
FROM --platform=$BUILDPLATFORM node:24-bookworm-slim AS build
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
COPY scripts/bundle.ts scripts/bundle.ts
RUN node scripts/bundle.ts --arch "$TARGETARCH" --modules /target/node_modules --out /image

FROM node:24-bookworm-slim AS runtime

# The GNU C and C++ libraries that `node` needs, and no shell, package manager or other program.
FROM gcr.io/distroless/cc-debian12
COPY --from=runtime /usr/local/bin/node /usr/local/bin/node
COPY --from=build /image/ /
# What the program needs to start fast: deploy/image/layout.ts has the same.
ENV NODE_ENV=production NODE_COMPILE_CACHE=/opt/netdra/cache NODE_COMPILE_CACHE_PORTABLE=1
# Root, since the files of the kubelet, the runtime and sysfs are; the chart takes its capabilities away.
USER 0:0
ENTRYPOINT ["/usr/local/bin/node", "--max-semi-space-size=2", "--optimize-for-size", "--no-opt", "--no-maglev", "--no-concurrent-sparkplug", "/opt/netdra/lib/netdra.mjs"]
CMD ["run"]
