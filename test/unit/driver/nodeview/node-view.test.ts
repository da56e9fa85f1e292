import { describe, expect, it } from 'vitest';
import { DeviceList } from '../../../../src/driver/devices/device-list.ts';
import { heldDevices } from '../../../../src/driver/devices/held-devices.ts';
import type { StoredDevice } from '../../../../src/driver/model/index.ts';
import { readNodeView } from '../../../../src/driver/nodeview/index.ts';
import { schemaVersion } from '../../../../src/driver/state/index.ts';
import { systemClock } from '../../../../src/lib/clock.ts';
import { NetdraError } from '../../../../src/lib/errors.ts';
import type { RtnlConnection } from '../../../../src/node/netlink/index.ts';
import { RecordingLogger } from '../../../doubles/logger.ts';
import { testDriver, testNode } from '../../../doubles/objects.ts';
import { storedClaim, storedDevice } from '../../../doubles/stored-claims.ts';
import { findObject } from '../../deploy/manifest-objects.ts';
import { TestNode } from '../../node/sriov/test-node.ts';
import { igbTree } from '../../node/sriov/trees/igb.ts';
import { largestSources } from './sources.ts';

const deviceOf = (index: number) => {
  const place = { pciAddress: `0000:01:10.${index}`, pfAddress: `0000:01:00.${index % 2}`, vfIndex: index >> 1 };
  return storedDevice({ ...place, pool: testNode, name: `0000-01-10-${index}` });
};
const claimOf = (name: string, devices: StoredDevice[]) => {
  return storedClaim({ identity: { uid: name, namespace: 'apps', name }, devices });
};

/** Two PFs, of which the policy offers the first; its VFs are 0, 2 and 4, those of the second 1, 3 and 5. */
async function openView(fault?: NetdraError) {
  const node = new TestNode(igbTree);
  const claims = [claimOf('b', [deviceOf(2)]), claimOf('a', [deviceOf(0)])];
  const policy = { pfs: [{ select: { name: 'enp1s0f0' } }, { select: { name: 'ens9' } }] };
  let known = false;
  const devices = new DeviceList({
    driver: testDriver,
    host: node.connection as unknown as RtnlConnection,
    clock: systemClock,
    sysfsRoot: node.root,
    logger: new RecordingLogger(),
    held: () => heldDevices(claims),
    unrestored: () => [{ device: deviceOf(4), reason: 'the kernel said EBUSY' }],
    store: { conditions: () => [], putCondition: () => {}, deleteCondition: () => {} },
    policy: {
      follow: async (onChange) => {
        if (!known) onChange(policy, { source: '/etc/netdra/inventory-policy.yaml' });
        known = true;
        return fault;
      },
    },
  });
  await devices.scan();
  const sources = {
    driver: testDriver,
    version: '0.1.0',
    node: testNode,
    devices,
    slicesFailure: () => undefined,
  };
  return {
    view: readNodeView({ ...sources, store: { claims: () => claims } }),
    [Symbol.dispose]: () => node[Symbol.dispose](),
  };
}

/** Paths of all properties of a value, or of a schema. */
function pathsOf(value: unknown, path = ''): string[] {
  if (Array.isArray(value)) return value.flatMap((each) => pathsOf(each, path));
  if (typeof value !== 'object' || value === null) return [path];
  return Object.entries(value).flatMap(([key, inner]) => pathsOf(inner, `${path}.${key}`));
}
interface Schema {
  properties?: Record<string, Schema>;
  items?: Schema;
}
function schemaPaths({ properties, items }: Schema, path = ''): string[] {
  if (items !== undefined) return schemaPaths(items, path);
  if (properties === undefined) return [path];
  return Object.entries(properties).flatMap(([key, inner]) => schemaPaths(inner, `${path}.${key}`));
}

describe('readNodeView', () => {
  it('shows PFs with their VFs, the claims that hold VFs, and why VFs are withheld', async () => {
    using own = await openView();
    const { policy, ...view } = own.view;
    expect(view).toEqual({
      driver: { name: testDriver, version: '0.1.0', stateSchema: schemaVersion },
      devices: { offered: 3, inUse: 2, withheld: 4 },
      pfs: [0, 1].map((port) => ({
        name: `enp1s0f${port}`,
        pciAddress: `0000:01:00.${port}`,
        driver: 'igb',
        link: 'Up',
        speedMbps: 1_000,
        totalVfs: 7,
        numVfs: 3,
        vfs:
          port === 0 ? { offered: 3, inUse: 2, withheld: 1, hung: 0 } : { offered: 0, inUse: 0, withheld: 3, hung: 0 },
      })),
      claims: [
        { namespace: 'apps', name: 'a', devices: ['0000-01-10-0'] },
        { namespace: 'apps', name: 'b', devices: ['0000-01-10-2'] },
      ],
      withheld: [
        {
          pf: 'enp1s0f0',
          reason: 'unrestored',
          devices: ['0000-01-10-4'],
          message: expect.stringContaining('the kernel said EBUSY'),
        },
        {
          pf: 'enp1s0f1',
          reason: 'not-selected',
          message: 'no rule of the policy selects it',
          devices: ['0000-01-10-1', '0000-01-10-3', '0000-01-10-5'],
        },
      ],
      problems: [],
      conditions: [
        { type: 'PolicyAccepted', status: 'True', reason: 'Accepted', message: '' },
        { type: 'DevicesListed', status: 'True', reason: 'Listed', message: '' },
        { type: 'SlicesPublished', status: 'True', reason: 'Published', message: '' },
      ],
    });
    expect(policy).toEqual({
      source: '/etc/netdra/inventory-policy.yaml',
      digest: expect.stringMatching(/^[0-9a-f]{12}$/),
      warnings: [expect.stringContaining('pfs[1] of the inventory policy selects nothing: {"name":"ens9"}')],
    });
  });

  it.each([
    ['Up', { hasCarrier: true }],
    ['NoCarrier', { hasCarrier: false }],
    // The carrier of before it was set down is still on record.
    ['Down', { hasCarrier: false, isDown: true as const }],
    [undefined, {}],
  ])('shows the link of a PF as %s', (link, counted) => {
    const sources = largestSources();
    const { pfs, ...others } = sources.devices.counts();
    const [{ hasCarrier: _carrier, ...pf }] = pfs as [(typeof pfs)[number]];
    const counts = () => ({ ...others, pfs: [{ ...pf, ...counted }] });
    expect(readNodeView({ ...sources, devices: { ...sources.devices, counts } }).pfs[0]?.link).toBe(link);
  });

  it('shows a rejected policy, and the digest of the policy in force', async () => {
    using accepted = await openView();
    using refused = await openView(new NetdraError('policy-invalid', 'pfs[0].select: unknown field "nmae" (line 4)'));
    expect(refused.view.policy).toEqual(accepted.view.policy);
    expect(refused.view.conditions[0]).toEqual({
      type: 'PolicyAccepted',
      status: 'False',
      reason: 'Refused',
      message: 'the last valid policy stays in force: pfs[0].select: unknown field "nmae" (line 4)',
    });
  });

  it('stays below 400 KiB with 2,048 VFs with long names and errors, and counts all of them', () => {
    const view = readNodeView(largestSources());
    expect(JSON.stringify(view).length).toBeLessThan(400 * 1_024);
    expect(view).toMatchObject({ devices: { offered: 2_048, inUse: 2_048 } });
    expect(view.claims).toHaveLength(512);
  });

  it('has exactly the fields of the CustomResourceDefinition', () => {
    const definition = findObject('CustomResourceDefinition', 'nodenetworkdevices.netdra.dev') as unknown as {
      spec: { versions: { schema: { openAPIV3Schema: Schema } }[] };
    };
    const { status } = definition.spec.versions[0]?.schema.openAPIV3Schema.properties ?? {};
    const { conditions, ...view } = readNodeView(largestSources());
    view.pfs[0] = { ...view.pfs[0]!, speedMbps: 1 };
    Object.assign(view.policy, { name: 'racks', generation: 1 });
    const times = conditions.map((each) => ({ ...each, lastTransitionTime: '' }));
    expect([...new Set(pathsOf({ ...view, conditions: times }))].sort()).toEqual(schemaPaths(status!).sort());
  });
});
