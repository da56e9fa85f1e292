import type { ViewSources } from '../../../../src/driver/nodeview/index.ts';
import { NetdraError } from '../../../../src/lib/errors.ts';
import { SriovError } from '../../../../src/node/sriov/index.ts';
import { testDriver, testNode } from '../../../doubles/objects.ts';
import { storedDevice } from '../../../doubles/stored-claims.ts';

/** A node as its view may be largest: 16 PFs with 128 VFs each, all of which are held, unrestored for reasons of their own, or hidden by the policy. */
export function largestSources(): ViewSources {
  const names = Array.from(
    { length: 2_048 },
    (_, index) => `0000-${(index >> 7).toString(16).padStart(2, '0')}-${index}`,
  );
  const pfs = Array.from({ length: 16 }, (_, index) => `0000:${index.toString(16).padStart(2, '0')}:00.0`);
  const long = 'x'.repeat(2_000);
  const condition = (message: string) => ({ name: 'unrestored' as const, effect: 'NoSchedule' as const, message });
  const fault = new NetdraError('policy-invalid', long);
  return {
    driver: testDriver,
    version: '0.1.0',
    devices: {
      isListed: true,
      failure: fault,
      policyFault: fault,
      state: {
        policy: { pfs: [{ select: {} }] },
        policyOrigin: { source: '/etc/netdra/inventory-policy.yaml' },
        hungWrites: [],
        keepsTaints: true,
        conditions: [],
      },
      report: {
        devices: [],
        knowsOtherDrivers: true,
        readings: [],
        excluded: names.map((name, index) => ({
          pciAddress: `0000:ff:${index}.0`,
          pfAddress: pfs[index >> 7] ?? '',
          reason: 'not-selected',
          interfaceName: name,
        })),
        problems: names.map((device) => new SriovError('sysfs-unreadable', `${device}: ${long}`)),
        warnings: names.map((name) => `${name}: ${long}`),
        pfs: pfs.map((pciAddress) => ({
          pciAddress,
          names: ['ens1f0'],
          totalVfs: 128,
          numVfs: 128,
          driver: 'mlx5_core',
        })),
      },
      offered: () => names.map((name) => ({ name })),
      unhealthy: () => new Map(names.map((name) => [name, [condition(`${name}: ${long}`)]])),
      find: (name) => ({ kind: 'vf', name, pfAddress: pfs[0] }) as ReturnType<ViewSources['devices']['find']>,
      counts: () => ({
        withheld: {},
        inCondition: {},
        free: 0,
        pfs: pfs.map((pciAddress) => ({
          pf: 'ens1f0',
          pciAddress,
          hasCarrier: true,
          vfs: { offered: 128, used: 128, free: 0, withheld: 128, hung: 0 },
        })),
      }),
    },
    store: {
      claims: () =>
        names.map((name, index) => ({
          identity: { uid: name, namespace: `${index}-`.padEnd(63, 'n'), name: `${index}-`.padEnd(253, 'n') },
          podUids: [],
          devices: [storedDevice({ pciAddress: name, pool: testNode, name })],
        })),
    },
    slicesFailure: () => long,
  };
}
