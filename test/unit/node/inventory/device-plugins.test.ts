import { mkdirSync, renameSync, rmSync, symlinkSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { systemClock } from '../../../../src/lib/clock.ts';
import { DevicePlugins, explainExclusion, Inventory } from '../../../../src/node/inventory/index.ts';
import { Sysfs, VfActivation } from '../../../../src/node/sriov/index.ts';
import { tempDir } from '../../../doubles/temp-dir.ts';
import { a0, a1, addresses, b0, node, pfA, useTwoCards } from './two-cards.ts';

const resource = 'intel.com/sriov';

/** As the kubelet of Kubernetes 1.20 or newer writes it. */
const checkpointOf = (registered: Record<string, string[]>, inUse: Record<string, string[]> = {}) =>
  JSON.stringify({
    Data: {
      PodDeviceEntries: Object.entries(inUse).map(([ResourceName, ids]) => {
        return { PodUID: 'p', ContainerName: 'c', ResourceName, DeviceIDs: { '-1': ids }, AllocResp: 'AA==' };
      }),
      RegisteredDevices: registered,
    },
    Checksum: 1,
  });

let dir: ReturnType<typeof tempDir>;
let path: string;
beforeEach(() => {
  dir = tempDir();
  path = join(dir.path, 'kubelet_internal_checkpoint');
});
afterEach(() => dir[Symbol.dispose]());

describe('DevicePlugins', () => {
  it('reads devices that plugins offer, and devices that containers still hold', async () => {
    writeFileSync(
      path,
      checkpointOf({ [resource]: [a0], 'gpu.example.com/gpu': ['GPU-7'] }, { [resource]: [a1], 'intel.com/old': [b0] }),
    );
    const { givenOut, problem } = await new DevicePlugins(path).read();
    // The kubelet keeps entries of pods that are gone, until another pod asks for the resource.
    expect([...(givenOut ?? [])]).toEqual([
      [a0, resource],
      [a1, resource],
    ]);
    expect(problem).toBeUndefined();
  });

  it('keeps the devices of a resource whose list becomes empty until its plugin registers again', async () => {
    const plugins = new DevicePlugins(path);
    const given = async (registered: Record<string, string[]>) => {
      writeFileSync(path, checkpointOf(registered));
      return [...((await plugins.read()).givenOut ?? []).keys()];
    };
    expect(await given({ [resource]: [a0, a1], other: [b0] })).toEqual([a0, a1, b0]);
    expect(await given({ [resource]: [], other: [b0] })).toEqual([a0, a1, b0]);
    expect(await given({ [resource]: [a1], other: [], third: [] })).toEqual([a1, b0]);
    expect(await given({ other: [b0] })).toEqual([b0]);
  });

  it('parses lists of devices without NUMA nodes, as older kubelets write them', async () => {
    const entry = { ResourceName: resource, DeviceIDs: [a0] };
    const data = { PodDeviceEntries: [entry], RegisteredDevices: { [resource]: [] } };
    writeFileSync(path, JSON.stringify({ Data: data }));
    expect([...((await new DevicePlugins(path).read()).givenOut ?? [])]).toEqual([[a0, resource]]);
  });

  it('follows changes and removal of the file', async () => {
    const plugins = new DevicePlugins(path);
    expect((await plugins.read()).givenOut?.size).toBe(0);
    writeFileSync(path, checkpointOf({ [resource]: [a0] }));
    expect((await plugins.read()).givenOut?.size).toBe(1);
    writeFileSync(path, checkpointOf({ [resource]: [a0, a1] }));
    expect((await plugins.read()).givenOut?.size).toBe(2);
    // As large as before, in another file, as the kubelet replaces it.
    writeFileSync(`${path}.new`, checkpointOf({ [resource]: [a1, b0] }));
    renameSync(`${path}.new`, path);
    expect([...((await plugins.read()).givenOut ?? []).keys()]).toEqual([a1, b0]);
    rmSync(path);
    expect(await plugins.read()).toEqual({ givenOut: new Map() });
  });

  it('parses a damaged file only once until it changes', async () => {
    const plugins = new DevicePlugins(path);
    const damaged = '{"Data":';
    writeFileSync(path, damaged);
    using parse = vi.spyOn(JSON, 'parse');
    const first = await plugins.read();
    expect(await plugins.read()).toEqual(first);
    expect(first.problem).toContain(`${path} cannot be read`);
    expect(parse.mock.calls.filter(([text]) => text === damaged)).toHaveLength(1);
    writeFileSync(path, checkpointOf({ [resource]: [a0] }));
    expect((await plugins.read()).givenOut?.size).toBe(1);
  });

  const damages: [string, () => void][] = [
    ['not JSON', () => writeFileSync(path, '{"Data":')],
    ['JSON that is nested too deeply', () => writeFileSync(path, `${'['.repeat(9_000)}${']'.repeat(9_000)}`)],
    [
      'larger than its limit',
      () => {
        writeFileSync(path, '');
        truncateSync(path, 17 << 20);
      },
    ],
    ['a directory', () => mkdirSync(path)],
    ['a link', () => symlinkSync('/dev/zero', path)],
  ];

  it.each(damages)('keeps its last state, and reports the problem, if the file is %s', async (_, damage) => {
    const plugins = new DevicePlugins(path);
    writeFileSync(path, checkpointOf({ [resource]: [a0] }));
    await plugins.read();
    rmSync(path);
    damage();
    const { givenOut, problem } = await plugins.read();
    expect([...(givenOut ?? [])]).toEqual([[a0, resource]]);
    expect(problem).toContain(`${path} cannot be read`);
  });

  it.each(damages)(
    'knows no devices, and reports the problem, if the file was %s from the beginning',
    async (_, damage) => {
      damage();
      const plugins = new DevicePlugins(path);
      const { givenOut, problem } = await plugins.read();
      expect(givenOut).toBeUndefined();
      expect(problem).toContain('no device is offered until it can be');
      rmSync(path, { recursive: true });
      expect(await plugins.read()).toEqual({ givenOut: new Map() });
    },
  );

  it.each([
    '7',
    'null',
    '{"Data":{"RegisteredDevices":[[7]],"PodDeviceEntries":{"length":9}}}',
    `{"Data":{"RegisteredDevices":{"x":"${a0}","y":[{}],"__proto__":["${a0}"]},"PodDeviceEntries":[null,7,{"DeviceIDs":7}]}}`,
  ])('takes only PCI addresses from %s', async (text) => {
    writeFileSync(path, text);
    const { givenOut } = await new DevicePlugins(path).read();
    expect([...(givenOut?.keys() ?? [])].every((each) => each === a0)).toBe(true);
  });
});

describe('Inventory with device plugins', () => {
  useTwoCards();

  const inventoryOf = () => {
    const sysfs = new Sysfs(node.root);
    const vfSwitch = new VfActivation({ sysfs, connection: node.connection, clock: systemClock });
    const devicePlugins = new DevicePlugins(path);
    return new Inventory({
      sysfs,
      connection: node.connection,
      simulated: false,
      policy: () => ({}),
      vfSwitch,
      devicePlugins,
    });
  };

  it('does not offer a VF of a device plugin, and names the resource', async () => {
    writeFileSync(path, checkpointOf({ [resource]: [a0] }));
    const report = await inventoryOf().scan();
    expect(addresses(report)).toEqual([a1, b0]);
    expect(report.excluded).toEqual([
      { pciAddress: a0, pfAddress: pfA, reason: 'device-plugin', resourceName: resource },
    ]);
    const explained = 'a device plugin offers it; let only one of the two offer it: intel.com/sriov';
    expect(report.excluded.map(explainExclusion)).toEqual([explained]);
  });

  it('keeps offering a VF that a claim holds, even if a device plugin also offers it', async () => {
    writeFileSync(path, checkpointOf({ [resource]: [a0] }));
    expect(addresses(await inventoryOf().scan(new Map([[a0, {}]])))).toContain(a0);
  });

  it('offers only allocated VFs while it cannot tell which devices plugins give out', async () => {
    writeFileSync(path, '{');
    const inventory = inventoryOf();
    const report = await inventory.scan(new Map([[a1, {}]]));
    expect(report.warnings).toEqual([expect.stringContaining('no device is offered until it can be')]);
    expect(addresses(report)).toEqual([a1]);
    expect(report.excluded.map(({ pciAddress, reason }) => [pciAddress, reason])).toEqual([
      [a0, 'device-plugin-unknown'],
      [b0, 'device-plugin-unknown'],
    ]);
    rmSync(path);
    expect(addresses(await inventory.scan())).toEqual([a0, a1, b0]);
  });
});
