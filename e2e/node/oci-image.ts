import { createHash } from 'node:crypto';
import { encodeTar, type TarEntry } from './tar.ts';

/** An image with one layer. */
export interface ImageContent {
  /** Full name with tag, e.g. `localhost/netdra/busybox:1`. */
  name: string;
  files: readonly TarEntry[];
  entrypoint?: string[];
  cmd?: string[];
  env?: string[];
}

const architectures: Partial<Record<NodeJS.Architecture, string>> = { x64: 'amd64', arm64: 'arm64', arm: 'arm' };

/**
 * Encodes images as one OCI archive, as accepted by `ctr images import`. Layers are not compressed: they only go from
 * this process to a containerd beside it. Source: OCI image layout and image specification 1.1.
 */
export function encodeOciArchive(images: readonly ImageContent[], arch: NodeJS.Architecture = process.arch): Buffer {
  const blobs = new Map<string, Buffer>();
  const add = (mediaType: string, data: Buffer) => {
    const hash = createHash('sha256').update(data).digest('hex');
    blobs.set(hash, data);
    return { mediaType, digest: `sha256:${hash}`, size: data.length };
  };
  const architecture = architectures[arch] ?? arch;
  const manifests = images.map((image) => ({
    ...addManifest(image, architecture, add),
    annotations: { 'io.containerd.image.name': image.name },
    platform: { architecture, os: 'linux' },
  }));
  const index = { schemaVersion: 2, mediaType: 'application/vnd.oci.image.index.v1+json', manifests };
  return encodeTar([
    { type: 'file', path: 'oci-layout', data: encodeJson({ imageLayoutVersion: '1.0.0' }) },
    { type: 'file', path: 'index.json', data: encodeJson(index) },
    ...[...blobs].map(([hash, data]): TarEntry => ({ type: 'file', path: `blobs/sha256/${hash}`, data })),
  ]);
}

type Descriptor = { mediaType: string; digest: string; size: number };

function addManifest(
  image: ImageContent,
  architecture: string,
  add: (mediaType: string, data: Buffer) => Descriptor,
): Descriptor {
  const layer = add('application/vnd.oci.image.layer.v1.tar', encodeTar(image.files));
  const settings = {
    ...(image.entrypoint === undefined ? {} : { Entrypoint: image.entrypoint }),
    ...(image.cmd === undefined ? {} : { Cmd: image.cmd }),
    Env: image.env ?? ['PATH=/bin'],
  };
  const config = {
    architecture,
    os: 'linux',
    config: settings,
    // An uncompressed layer has the digest of its content.
    rootfs: { type: 'layers', diff_ids: [layer.digest] },
  };
  const manifest = {
    schemaVersion: 2,
    mediaType: 'application/vnd.oci.image.manifest.v1+json',
    config: add('application/vnd.oci.image.config.v1+json', encodeJson(config)),
    layers: [layer],
  };
  return add(manifest.mediaType, encodeJson(manifest));
}

function encodeJson(value: object): Buffer {
  return Buffer.from(JSON.stringify(value));
}
