import { DeviceList } from '../../../src/driver/devices/device-list.ts';
import { heldDevices } from '../../../src/driver/devices/held-devices.ts';
import { type NodeView, readNodeView } from '../../../src/driver/nodeview/index.ts';
import type { StoredCondition } from '../../../src/driver/state/index.ts';
import { systemClock } from '../../../src/lib/clock.ts';
import type { RtnlConnection } from '../../../src/node/netlink/index.ts';
import { RecordingLogger } from '../../../test/doubles/logger.ts';
import { cardNode } from './vfs.ts';

/**
 * What the driver shows of a node with so many VFs on two PFs, half of them held by claims with names as of pods of a
 * Deployment: as it is, and when the first PF has no carrier.
 */
export async function readViews(driver: string, count: number): Promise<{ up: NodeView; down: NodeView }> {
  using node = cardNode(count);
  const conditions: StoredCondition[] = [];
  const list = (claims: Parameters<typeof heldDevices>[0] = []) =>
    new DeviceList({
      ...{ driver, host: node.connection as unknown as RtnlConnection, clock: systemClock, sysfsRoot: node.root },
      ...{ logger: new RecordingLogger(), held: () => heldDevices(claims), unrestored: () => [] },
      store: {
        conditions: () => conditions,
        putCondition: (condition) => void conditions.push(condition),
        deleteCondition: () => {},
      },
    });
  const found = list();
  await found.scan();
  const claims = found.report.devices.slice(0, count / 2).map(({ name, pciAddress }, index) => ({
    identity: { uid: `uid-${index}`, namespace: 'packet-core', name: `upf-7d9c5b6f4-${index}-nic-x${index}z9q` },
    devices: [{ pciAddress, pool: 'node', name, request: 'vf', config: {} }],
  }));
  const read = async (devices = list(claims)) => {
    await devices.scan();
    const sources = { driver, version: '0.1.0', devices, slicesFailure: () => undefined };
    return readNodeView({ ...sources, store: { claims: () => claims } });
  };
  const up = await read();
  node.change('ens1f0np0', { carrier: false });
  return { up, down: await read() };
}
