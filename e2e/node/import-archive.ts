import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { NetdraError } from '../../src/lib/errors.ts';
import type { Containerd } from './containerd.ts';

const timeoutMs = 20_000;

/**
 * Imports the images of an OCI archive into a containerd and waits until the CRI side, which learns of them by an
 * event, knows them.
 * @param images names with tags
 * @throws CommandError, NetdraError `image-missing`
 */
export async function importArchive(containerd: Containerd, path: string, images: readonly string[]): Promise<void> {
  const config = readFileSync(join(containerd.dir, 'config.toml'), 'utf8');
  const [, snapshotter = ''] = /^snapshotter = "(\w+)"$/m.exec(config) ?? [];
  await containerd.ctr('images', 'import', '--local', '--snapshotter', snapshotter, path);
  for (const endsAt = performance.now() + timeoutMs; ; await sleep(20)) {
    const asked = images.map(async (image) => (await containerd.cri.call('ImageStatus', { image: { image } })).image);
    const known = await Promise.all(asked);
    if (known.every((each) => each !== null)) return;
    if (performance.now() < endsAt) continue;
    throw new NetdraError('image-missing', `containerd does not know ${images.join(', ')} after the import`, { path });
  }
}
