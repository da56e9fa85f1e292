import { readdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { CniCache } from '../../../src/node/cni/cache.ts';
import { parseCniNetwork } from '../../../src/node/cni/index.ts';
import { scratchDir } from '../scratch.ts';
import { expectThat, type FuzzTarget, jsonSeeds } from '../target.ts';

const attachment = {
  network: parseCniNetwork({ cniVersion: '1.0.0', name: 'fast', plugins: [{ type: 'sriov' }] }, 'claim ns/c'),
  containerId: 'c1',
  netnsPath: '/run/netns/a',
  ifName: 'net1',
  args: { K8S_POD_NAME: 'app' },
};

/** Any bytes in a file of the cache of attachments: an entry, or a reported problem. */
export const target: FuzzTarget = {
  name: 'cni-cache',
  errors: [],
  shape: 'json',
  seeds: () =>
    jsonSeeds(
      { version: 1, kind: 'chain', attachment },
      {
        version: 1,
        kind: 'chain',
        attachment: { ...attachment, capabilities: { mac: '02:00:00:00:00:01' }, deviceId: '0000:3b:02.1' },
        result: { cniVersion: '1.0.0', ips: [] },
        deleting: true,
      },
    ),
  async run(input) {
    const dir = join(scratchDir(), 'cache');
    const cache = new CniCache(dir);
    await cache.write({ kind: 'chain', attachment });
    const [file = ''] = readdirSync(dir);
    writeFileSync(join(dir, file), input);
    const { entries, problems } = await cache.list();
    expectThat(entries.length + problems.length === 1, `${entries.length} entries and ${problems.length} problems`);
    for (const entry of entries) await cache.write(entry);
    await cache.remove({ kind: 'chain', attachment });
    expectThat(readdirSync(dir).length === 0, 'an entry was not removed');
    rmSync(dir, { recursive: true });
  },
};
