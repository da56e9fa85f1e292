import { appendFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import {
  type ClaimMetadata,
  type DeviceMetadata,
  decodeMetadata,
} from '../../../../../src/framework/metadata/index.ts';
import { Bench } from '../bench.ts';
import { claim, driver } from '../samples.ts';

const shareOf = (shareId: string) => ({ pool: 'node-1', name: 'nic', shareId });
const inPod = (shareId: string, interfaceName: string): DeviceMetadata => {
  return { driver, ...shareOf(shareId), networkData: { interfaceName } };
};

describe('ClaimMetadata with two shares of one device in a request', () => {
  let bench: Bench;
  let metadata: ClaimMetadata;
  beforeEach(() => {
    bench = new Bench();
    metadata = bench.start({ layouts: ['v1'] });
  });
  afterEach(() => bench[Symbol.dispose]());

  const prepare = (shares: string[], known: DeviceMetadata[] | 'deferred' = 'deferred') => {
    const requests = { nics: { name: 'nics', devices: shares.map(shareOf) } };
    return metadata.prepare({ claim, requests }, new Map([['nics', known]]));
  };
  const inFile = () => {
    const text = bench.read('data/dra-device-metadata/default_fast-net/nics/metadata.json');
    return decodeMetadata(text).requests[0]?.devices;
  };

  it('writes an entry for each share, and keeps the shares apart when the claim is prepared again', async () => {
    await prepare(['a', 'b']);
    await metadata.update(claim, 'nics', [inPod('a', 'net1'), inPod('b', 'net2')], 's1');
    // A text that was not read before: the record is parsed.
    appendFileSync(join(bench.dataDir, 'dra-device-metadata/default_fast-net/claim.json'), '\n');
    // The driver knows no network data yet.
    const bare = ['a', 'b'].map((shareId) => ({ driver, ...shareOf(shareId) }));
    await prepare(['a', 'b'], bare);
    expect(metadata.read(claim, 'nics')).toMatchObject({
      generation: 1,
      devices: [inPod('a', 'net1'), inPod('b', 'net2')],
    });
    const entry = { driver, pool: 'node-1', name: 'nic' };
    expect(inFile()).toEqual([
      { ...entry, networkData: { interfaceName: 'net1' } },
      { ...entry, networkData: { interfaceName: 'net2' } },
    ]);
  });

  it('rejects an update of a share that is not prepared', async () => {
    await prepare(['a', 'b']);
    await expect(metadata.update(claim, 'nics', [inPod('a', 'net1'), inPod('c', 'net2')])).rejects.toThrow(
      'device sriov.netdra.dev/node-1/nic@c is not prepared for request nics',
    );
  });

  it('withdraws the metadata of a share when the claim is allocated another share', async () => {
    await prepare(['a', 'b']);
    await metadata.update(claim, 'nics', [inPod('a', 'net1'), inPod('b', 'net2')], 's1');
    await prepare(['a', 'c']);
    expect(metadata.read(claim, 'nics')).toBeUndefined();
  });
});
