# The driver as an image: Node.js 24, the sources as they are (types are stripped when they are loaded), no build step.
# netlink and koffi come with prebuilt binaries, so no install script has to run.
FROM node:24-bookworm-slim AS packages
WORKDIR /opt/netdra
COPY package.json package-lock.json ./
RUN npm install --no-save --omit=dev --ignore-scripts --no-audit --no-fund

FROM node:24-bookworm-slim
WORKDIR /opt/netdra
COPY --from=packages /opt/netdra/node_modules node_modules
COPY package.json ./
COPY proto proto
COPY nri nri
COPY src src
ENV NODE_ENV=production
ENTRYPOINT ["node", "src/main.ts"]
CMD ["run"]
