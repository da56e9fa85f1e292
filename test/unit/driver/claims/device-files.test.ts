import { describe, expect, it } from 'vitest';
import { testDriver } from '../../../doubles/objects.ts';
import { allocated, fromClaim, fromClass } from './driver-bench.ts';
import { bench, cdiFiles, deviceNodes, refusal, useDriverBench } from './driver-hooks.ts';

useDriverBench();

describe('device files', () => {
  it.each(['vfio-pci', 'mlx5_vfio_pci'])(
    'are the vfio files if the VF has the driver %s, and prepare defers the metadata',
    async (driver) => {
      const claim = allocated('c', ['dev-1'], { config: [fromClass({ driver })] });
      const { uid } = claim.identity;
      const id = `${testDriver}/device=${uid}_dev-1`;
      expect(await bench.prepare(claim)).toEqual({
        devices: [
          { requests: ['vf'], poolName: 'node-1', deviceName: 'dev-1', cdiDeviceIds: [id], metadata: 'deferred' },
        ],
      });
      expect(deviceNodes(claim, 'dev-1')).toEqual([
        { path: '/dev/vfio/vfio', permissions: 'rw' },
        { path: '/dev/vfio/1', permissions: 'rw' },
      ]);
      expect(bench.store.claim(uid)?.devices).toMatchObject([
        { access: { driver, vfio: { device: '/dev/vfio/1', iommuGroup: '1' } } },
      ]);
      await bench.unprepare(claim);
      expect(cdiFiles()).toEqual([]);
    },
  );

  it('have the owner and the permissions that the class sets', async () => {
    const deviceFiles = { uid: 1000, gid: 107, mode: '0660' };
    const claim = allocated('c', ['dev-1'], { config: [fromClass({ driver: 'vfio-pci', deviceFiles })] });
    await bench.prepare(claim);
    expect(deviceNodes(claim, 'dev-1')).toEqual([
      { path: '/dev/vfio/vfio', permissions: 'rw', uid: 1000, gid: 107, fileMode: 0o660 },
      { path: '/dev/vfio/1', permissions: 'rw', uid: 1000, gid: 107, fileMode: 0o660 },
    ]);
  });

  it('include the vfio files of a VF that an administrator bound to vfio if the config sets no driver', async () => {
    bench.control.drivers.set('0000:00:00.1', 'vfio-pci');
    const claim = allocated('c', ['dev-1']);
    expect(await bench.prepare(claim)).toMatchObject({ devices: [{ cdiDeviceIds: [expect.any(String)] }] });
    expect(deviceNodes(claim, 'dev-1').map(({ path }) => path)).toEqual(['/dev/vfio/vfio', '/dev/vfio/1']);
    await bench.unprepare(claim);
    expect(bench.control.drivers.get('0000:00:00.1')).toBe('vfio-pci');
  });

  it('cannot be combined with a config that needs an interface, even if the VF is bound to vfio', async () => {
    bench.control.drivers.set('0000:00:00.1', 'vfio-pci');
    const config = [fromClaim({ routes: [{ destination: '198.51.100.0/24' }] })];
    expect(await bench.prepare(allocated('c', ['dev-1'], { config }))).toMatchObject(
      refusal('config-invalid', expect.stringContaining('routes: needs an interface, and vfio-pci gives none')),
    );
  });

  it('include vhost and RDMA files for kernel drivers; a request without device files gets no CDI device', async () => {
    const claim = allocated('c', [], {
      requests: [
        { name: 'verbs', devices: ['dev-1'] },
        { name: 'plain', devices: ['dev-2'] },
      ],
      config: [fromClass({ vhost: true, rdma: true }, ['verbs'])],
    });
    const result = await bench.prepare(claim);
    expect(result?.devices?.map(({ deviceName }) => deviceName)).toEqual(['dev-1']);
    expect(deviceNodes(claim, 'dev-1').map(({ path }) => path)).toEqual([
      '/dev/infiniband/uverbs3',
      '/dev/vhost-net',
      '/dev/net/tun',
    ]);
    expect(cdiFiles()).toHaveLength(1);
    // Neither changes the VF.
    expect(bench.control.count('apply 0000:00:00.1 {"vf":{}}')).toBe(1);
  });

  it('that are missing on the node make prepare fail, but not unprepare', async () => {
    const error = new Error('this node has no device file for vhost-net');
    bench.control.failures.set('access', error);
    const claim = allocated('c', ['dev-1'], { config: [fromClass({ vhost: true })] });
    expect(await bench.prepare(claim)).toEqual({ error });
    expect(bench.store.claim(claim.identity.uid)).toMatchObject({ state: 'preparing' });
    expect(await bench.unprepare(claim)).toBeUndefined();
    expect(bench.store.claims()).toEqual([]);
  });
});

describe('an IOMMU group', () => {
  const vfio = { config: [fromClass({ driver: 'vfio-pci' })] };

  it('is not split between two claims, and the error names both claims', async () => {
    bench.control.groups.push(['0000:00:00.1', '0000:00:00.2']);
    expect(await bench.prepare(allocated('first', ['dev-1'], vfio))).toMatchObject({ devices: [{}] });
    expect(await bench.prepare(allocated('second', ['dev-2'], vfio))).toMatchObject(
      refusal(
        'device-in-use',
        'device dev-2 cannot go to user space for claim default/second: it shares its IOMMU group with 0000:00:00.1, which is prepared for claim default/first',
      ),
    );
    expect(bench.control.count('apply 0000:00:00.2')).toBe(0);
    expect(await bench.prepare(allocated('third', ['dev-3'], vfio))).toMatchObject({ devices: [{}] });
  });

  it('is not split between two claims even if an administrator, not netdra, bound its devices to vfio-pci', async () => {
    bench.control.groups.push(['0000:00:00.1', '0000:00:00.2']);
    for (const pciAddress of bench.control.groups.flat()) bench.control.drivers.set(pciAddress, 'vfio-pci');
    const first = allocated('first', ['dev-1']);
    expect(await bench.prepare(first)).toMatchObject({ devices: [{}] });
    const second = allocated('second', ['dev-2']);
    expect(await bench.prepare(second)).toMatchObject(refusal('device-in-use'));
    // The kubelet goes on trying with the second one; that takes nothing from the first.
    expect(await bench.prepare(first)).toMatchObject({ devices: [{}] });
  });

  it('is not split by a claim that needs an interface, unless its device already has an interface', async () => {
    bench.control.groups.push(['0000:00:00.1', '0000:00:00.2', '0000:00:00.3']);
    bench.control.drivers.set('0000:00:00.2', 'vfio-pci');
    const first = allocated('first', ['dev-1'], vfio);
    await bench.prepare(first);
    const second = allocated('second', ['dev-2'], { config: [fromClass({ driver: 'kernel' })] });
    expect(await bench.prepare(second)).toMatchObject(
      refusal(
        'device-in-use',
        'device dev-2 cannot have an interface for claim default/second: it shares its IOMMU group with 0000:00:00.1, which is in user space for claim default/first',
      ),
    );
    expect(bench.control.count('apply 0000:00:00.2')).toBe(0);
    await bench.unprepare(first);
    expect(await bench.prepare(second)).toEqual({ devices: [] });
    const third = allocated('third', ['dev-3'], { config: [fromClass({ driver: 'kernel' })] });
    expect(await bench.prepare(third)).toEqual({ devices: [] });
  });

  it('goes to only one of two claims that are prepared concurrently', async () => {
    bench.control.groups.push(['0000:00:00.1', '0000:00:00.2']);
    bench.control.onCall = () => new Promise((resolve) => setImmediate(resolve));
    const claims = [allocated('first', ['dev-1'], vfio), allocated('second', ['dev-2'], vfio)];
    const results = (await Promise.all(claims.map((claim) => bench.prepare(claim)))) as object[];
    expect(results.filter((result) => 'devices' in result)).toHaveLength(1);
    expect(results.filter((result) => 'error' in result)).toMatchObject([refusal('device-in-use')]);
  });

  it('goes to only one of two claims in the same call', async () => {
    bench.control.groups.push(['0000:00:00.1', '0000:00:00.2']);
    const claims = [allocated('first', ['dev-1'], vfio), allocated('second', ['dev-2'], vfio)];
    const results = await bench.prepareAll(claims);
    expect([...results.values()]).toMatchObject([{ devices: [{}] }, refusal('device-in-use')]);
    expect(bench.store.claims().map(({ state }) => state)).toEqual(['prepared', 'preparing']);
  });

  it('can be allocated to one claim as a whole', async () => {
    bench.control.groups.push(['0000:00:00.1', '0000:00:00.2']);
    expect(await bench.prepare(allocated('both', ['dev-1', 'dev-2'], vfio))).toMatchObject({ devices: [{}, {}] });
  });
});
