import { beforeEach, describe, expect, it } from 'vitest';
import type { NodeContext } from '../../../../src/driver/composition/node-context.ts';
import { type FactSources, nodeFacts } from '../../../../src/driver/composition/node-facts.ts';
import type { StoredClaim, StoredDevice } from '../../../../src/driver/model/index.ts';
import { TrafficReader } from '../../../../src/driver/vf/index.ts';
import type { NetworkNamespace, Networks } from '../../../../src/driver/vf/networks.ts';
import { MetadataError } from '../../../../src/framework/metadata/index.ts';
import { type Link, NetlinkError } from '../../../../src/node/netlink/index.ts';
import { RecordingLogger } from '../../../doubles/logger.ts';
import { ManualClock } from '../../../doubles/manual-clock.ts';
import { storedClaims, storedDevice } from '../../../doubles/stored-claims.ts';

const pf = '0000:3b:00.0';
const counters = { rxBytes: 1000, txBytes: 2000, rxPackets: 10, txPackets: 20, rxDropped: 1, txDropped: 2 };
const errors = { rxErrors: 3, txErrors: 4 };
const link = (name: string, parentDevice: string, more: Partial<Link> = {}) =>
  ({ index: 5, name, parentDevice, ...more }) as Link;

function vf(vfIndex: number, more: Partial<StoredDevice> = {}): StoredDevice {
  const pciAddress = `0000:3b:02.${vfIndex}`;
  const place = { podUid: 'p', podNamespace: 'apps', podName: 'web-0', sandboxId: 's', netnsPath: '/netns/s' };
  return storedDevice({ pciAddress, pfAddress: pf, vfIndex, name: `vf-${vfIndex}`, attachment: place, ...more });
}

const inUserSpace = (vfIndex: number) =>
  vf(vfIndex, { access: { vfio: { device: '/dev/vfio/7', iommuGroup: '7' }, nodes: [] } });

let devices: StoredDevice[];
let isSimulated: boolean;
let vfTraffic: () => Promise<object[]>;
let podLinks: Link[] | undefined;
let interfaceNameOf: (device: StoredDevice) => string | undefined;
const logger = new RecordingLogger();
beforeEach(() => {
  devices = [vf(0)];
  isSimulated = false;
  vfTraffic = async () => [
    { vfIndex: 0, ...counters },
    { vfIndex: 1, ...counters, rxBytes: 7 },
  ];
  podLinks = [link('renamed', vf(0).pciAddress)];
  interfaceNameOf = ({ access }) => (access === undefined ? 'net1' : undefined);
  logger.lines.length = 0;
});

const hostLinks = [link('rep', pf, { portName: 'pf0vf0', index: 4 }), link('ens1', pf, { index: 9 })];
const networks = {
  host: {
    connection: {
      links: async () => hostLinks,
      link: async (by: { index: number }) => hostLinks.find(({ index }) => index === by.index),
      vfTraffic: async (index: number) => (index === 9 ? await vfTraffic() : []),
    },
  },
  open: (): NetworkNamespace | undefined => {
    const links = podLinks;
    if (links === undefined) return undefined;
    const connection = {
      linkTable: async () => ({ all: () => links, candidates: () => links }),
      linkTraffic: async () => ({ ...counters, rxBytes: 5, ...errors }),
    };
    return { isHost: false, connection, [Symbol.dispose]: () => undefined } as unknown as NetworkNamespace;
  },
} as unknown as Networks;

const reader = () =>
  new TrafficReader({
    networks,
    logger,
    store: storedClaims(
      () => [{ identity: { namespace: 'apps', name: 'fast-net', uid: 'u' }, devices }] as unknown as StoredClaim[],
    ),
    vfs: {
      get isSimulated() {
        return isSimulated;
      },
      linkKey: (pciAddress) => ({ pciAddress }),
    },
    interfaceNameOf: (_claim, device) => interfaceNameOf(device),
  });
const labels = { device: 'vf-0', namespace: 'apps', pod: 'web-0', claim: 'fast-net', interface: 'net1' };
const none = { limit: 0, unreadable: 0 };

describe('TrafficReader', () => {
  it("reads traffic counters from the PF, and error counters from the VF's interface in the pod", async () => {
    devices = [vf(0), inUserSpace(1)];
    expect(await reader().read()).toEqual({
      samples: [
        { labels, counters: { ...counters, ...errors } },
        { labels: { ...labels, device: 'vf-1', interface: '' }, counters: { ...counters, rxBytes: 7 } },
      ],
      missing: none,
      failures: [],
    });
  });

  it('reads the counters of a simulated VF from its interface in the pod, not from the PF', async () => {
    podLinks = undefined;
    expect(await reader().read()).toEqual({ samples: [{ labels, counters }], missing: none, failures: [] });
    isSimulated = true;
    expect(await reader().read()).toEqual({ samples: [], missing: { limit: 0, unreadable: 1 }, failures: [] });
    podLinks = [link('net1', vf(0).pciAddress)];
    const { samples } = await reader().read();
    expect(samples).toEqual([{ labels, counters: { ...counters, rxBytes: 5, ...errors } }]);
  });

  const zeros = { rxBytes: 0, txBytes: 0, rxPackets: 0, txPackets: 0, rxDropped: 0, txDropped: 0 };

  it.each<[string, () => Promise<object[]>]>([
    ['reports zeros for all its VFs, as igb does', async () => [0, 1].map((vfIndex) => ({ vfIndex, ...zeros }))],
    ['omits the VF', async () => []],
    ['cannot list its VFs', async () => Promise.reject(new NetlinkError('netlink-refused', 'EMSGSIZE'))],
  ])('reads interface counters if the PF %s, but reads no counters of a VF in user space', async (_why, ofPf) => {
    vfTraffic = ofPf;
    devices = [vf(0), inUserSpace(1)];
    const { samples, missing } = await reader().read();
    expect(samples).toEqual([{ labels, counters: { ...counters, rxBytes: 5, ...errors } }]);
    expect(missing).toEqual({ limit: 0, unreadable: 1 });
  });

  it('reports zero counters of a VF if the PF counts the traffic of another VF', async () => {
    vfTraffic = async () => [
      { vfIndex: 0, ...counters },
      { vfIndex: 1, ...zeros },
    ];
    devices = [inUserSpace(1)];
    expect((await reader().read()).samples.map((sample) => sample.counters)).toEqual([zeros]);
  });

  it('ignores VFs outside of pods, reads at most 512 VFs, and counts the remaining ones', async () => {
    const { attachment: _attachment, ...free } = vf(0);
    devices = [free];
    expect(await reader().read()).toEqual({ samples: [], missing: none, failures: [] });
    devices = Array.from({ length: 600 }, () => vf(0));
    const { samples, missing } = await reader().read();
    expect([samples.length, missing]).toEqual([512, { limit: 88, unreadable: 0 }]);
  });

  it('counts VFs that their PF does not report, and logs that failure once', async () => {
    devices = [vf(0), vf(1), vf(2)];
    const own = reader();
    expect((await own.read()).missing).toEqual({ limit: 0, unreadable: 1 });
    const works = vfTraffic;
    vfTraffic = async () => {
      throw new NetlinkError('netlink-refused', 'cannot read the counters: EMSGSIZE', { errno: 'EMSGSIZE' });
    };
    const failures = ['cannot read the counters: EMSGSIZE'];
    // The first one has an interface that counts.
    for (const _ of [1, 2]) expect(await own.read()).toMatchObject({ missing: { limit: 0, unreadable: 2 }, failures });
    expect(logger.messages('warn')).toEqual(['cannot read traffic counters']);
    vfTraffic = works;
    await own.read();
    vfTraffic = async () => Promise.reject(new NetlinkError('netlink-refused', 'cannot read the counters: EMSGSIZE'));
    await own.read();
    expect(logger.messages('warn')).toHaveLength(2);
  });

  it('reads the counters of all VFs although the record of one claim is unreadable', async () => {
    devices = [vf(0, { config: { interfaceName: 'net7' } }), vf(1)];
    interfaceNameOf = ({ vfIndex }) => {
      if (vfIndex === 0) throw new MetadataError('metadata-version-unknown', 'the record is of a newer version');
      return 'net1';
    };
    const { samples } = await reader().read();
    expect(samples.map((sample) => sample.labels.interface)).toEqual(['net7', 'net1']);
  });
});

it('nodeFacts queries cards for VF traffic at most once a second, however often it is scraped', async () => {
  let reads = 0;
  const ofCard = vfTraffic;
  vfTraffic = async () => {
    reads++;
    return await ofCard();
  };
  const clock = new ManualClock();
  const claims = [{ identity: { namespace: 'apps', name: 'fast-net', uid: 'u' }, devices: [inUserSpace(0)] }];
  const settings = { vfTraffic: true };
  const context = { clock, logger, kernel: { networks }, disk: { store: { claims: () => claims } }, settings };
  const deviceList = { vfs: { isSimulated: false, linkKey: (pciAddress: string) => ({ pciAddress }) } };
  const sources = { devices: deviceList, metadata: { read: () => undefined } };
  const facts = nodeFacts(context as unknown as NodeContext, sources as unknown as FactSources);
  for (let count = 0; count < 3; count++) expect((await facts.vfTraffic?.())?.samples).toHaveLength(1);
  expect(reads).toBe(1);
  clock.advance(1_000);
  await facts.vfTraffic?.();
  expect(reads).toBe(2);
});
