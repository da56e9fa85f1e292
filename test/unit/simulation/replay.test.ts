import { describe, expect, it } from 'vitest';
import type { IncidentHeader, IncidentReason } from '../../../src/app/incidents/entry.ts';
import { IncidentRing, lineOf } from '../../../src/app/incidents/incident-ring.ts';
import { Recorder } from '../../../src/app/incidents/recorder.ts';
import { driverName } from '../../simulation/api-server.ts';
import type { Fault, Plan } from '../../simulation/plan.ts';
import { plantedBugs } from '../../simulation/planted/bugs.ts';
import { all, type Plant } from '../../simulation/planted/plant.ts';
import { parseRecording } from '../../simulation/replay/recording.ts';
import { replayRecording } from '../../simulation/replay/replay.ts';
import { Simulation } from '../../simulation/simulation.ts';

/** Runs a schedule with a driver that records, and returns the file that it would have written at its first incident. */
async function recordIncident(change: (plan: Plan) => Plan, planted?: string) {
  const incidents: { reason: IncidentReason; what: string }[] = [];
  let ring = new IncidentRing();
  const record: Plant = (ports) => {
    // Of a driver that was killed nothing is left.
    ring = new IncidentRing();
    const onIncident = (reason: IncidentReason, what: string) => void incidents.push({ reason, what });
    return new Recorder({ ring, driverName, clock: ports.clock, onIncident }).record(ports);
  };
  const plant = plantedBugs.find(({ name }) => name === planted)?.plant ?? ((ports) => ports);
  using simulation = new Simulation(all(record, plant));
  const outcome = await simulation.runPlan(change);
  const header: Omit<IncidentHeader, 'reason' | 'what'> = {
    ...{ incident: 1, version: '0', startedAt: '2026-01-01T00:00:00Z', dropped: ring.dropped },
    settings: { metadataLayouts: ['v1'], enableDeviceMetadata: true, liveUpdates: false },
    isGated: true,
  };
  return { outcome, incidents, text: `${lineOf({ ...header, ...incidents[0] })}${ring.text()}` };
}

const withFaults =
  (...faults: Fault[]) =>
  (plan: Plan): Plan => {
    const config = { mtu: 4000, vf: { vlan: 100 } };
    const pods = plan.pods.map((pod) => ({ ...pod, claims: pod.claims.map((claim) => ({ ...claim, config })) }));
    return { ...plan, pods, faults };
  };
const restartOfKubelet: Fault = { kind: 'restart kubelet', atMs: 10_000, forMs: 1_000, isStateLost: false };

describe('an incident', () => {
  it.each<[string, string, Fault[]]>([
    ['prepare-starts-over', 'taken-away', [restartOfKubelet]],
    ['exception-in-an-event', 'crash', [{ kind: 'restart runtime', atMs: 5_000, forMs: 1_000 }]],
    ['attachment-stored-late', 'not-stored', []],
    ['interface-stays-down', 'not-configured', []],
    // The name is one that a VF has before its claim.
    ['alternative-names-stay', 'not-restored', []],
  ])('of %s is replayed to the same violation, and to none by other code', async (bug, rule, faults) => {
    const { outcome, text } = await recordIncident((plan) => {
      const found = new Map([['0000-01-02-0', { link: { altNames: ['enp1s2f1'] }, settings: { trust: true } }]]);
      return { ...withFaults(...faults)(plan), found };
    }, bug);
    expect(outcome.violation?.rule).toBe(rule);
    const again = await replayRecording(parseRecording(text), bug);
    expect(again.violation?.rule).toBe(rule);
    expect(again.differences).toEqual([]);
    expect((await replayRecording(parseRecording(text))).violation).toBeUndefined();
  });

  it.each<[string, Fault, IncidentReason?]>([
    ['a kubelet that restarts', restartOfKubelet],
    ['a runtime that restarts', { kind: 'restart runtime', atMs: 1_100, forMs: 2_000 }],
    ['a sandbox that is lost', { kind: 'lose sandbox', atMs: 5_000, forMs: 0, isDriverAway: false }],
    ['a driver that is killed', { kind: 'kill driver', atMs: 5_000, forMs: 1_000 }],
    ['a card that refuses changes', { kind: 'card refuses', atMs: 500, forMs: 5_000 }],
    ['an API server that is away', { kind: 'API server away', atMs: 500, forMs: 5_000 }],
    ['a store that fails', { kind: 'store error', atMs: 500, forMs: 5_000 }, 'claim-refused'],
  ])('is replayed to the same answers: %s', async (_, fault, reason) => {
    const { outcome, incidents, text } = await recordIncident(withFaults(fault));
    expect(incidents[0]?.reason).toBe(reason);
    expect(outcome.violation).toBeUndefined();
    const again = await replayRecording(parseRecording(text));
    expect(again.violation).toBeUndefined();
    expect(again.differences).toEqual([]);
    // The pauses between attempts to reach the API server are random.
    expect(again.unused.filter((call) => !call.startsWith('api request '))).toEqual([]);
  });

  it('is a VF that has left its pod, too: its PF was reset', async () => {
    const { incidents } = await recordIncident(withFaults({ kind: 'reset card', atMs: 5_000, forMs: 0 }));
    expect(incidents[0]).toEqual({
      reason: 'vf-taken-back',
      what: 'the metadata of claim default/claim-1 is withdrawn from sandbox pod-1-sandbox-1, which lives',
    });
  });

  const place = (id: string) => ({
    podUid: 'uid-of-a',
    podNamespace: 'apps',
    podName: 'a',
    id,
    netns: `/run/netns/${id}`,
  });
  const inSandbox = (id: string, is: string, call: number, more: object = {}) => ({
    is,
    call,
    sandbox: place(id),
    ...more,
  });
  const main = { id: 'c', name: 'main', state: 'created', cdiDevices: 1, cpus: '', shares: 2 };
  const claim = {
    ...{ uid: 'uid-of-claim', namespace: 'apps', name: 'claim', podUids: ['uid-of-a'] },
    results: [
      { request: 'one', device: '0000-3b-02-1' },
      { request: 'two', device: '0000-86-02-7' },
    ],
    config: [
      { source: 'FromClass', opaque: { driver: driverName, parameters: { kind: 'VFConfig', mtu: 1500 } } },
      { source: 'FromClaim', opaque: { driver: driverName, parameters: { kind: 'VFConfig', mtu: 4000 } } },
    ],
  };
  const devices = [
    { name: '0000-3b-02-1', pciAddress: '0000:3b:02.1', pfAddress: '0000:3b:00.0' },
    { name: '0000-86-02-7', pciAddress: '0000:86:02.7', pfAddress: '0000:86:00.0' },
  ];
  const stored = { is: 'stored', claim, podUids: claim.podUids, state: 'prepared', devices };
  const container = (id: string) => ({ container: { ...main, sandboxId: id } });
  const header = { incident: 1, reason: 'vf-taken-back', what: 'x', settings: {}, isGated: true };
  /** A pod whose sandbox was stopped and removed, while it had its VFs in the next one. */
  const ends = [
    [20_000, inSandbox('first', 'stopPodSandbox', 4)],
    [21_000, inSandbox('second', 'runPodSandbox', 5)],
    [21_500, inSandbox('second', 'createContainer', 6, container('second'))],
    [30_000, inSandbox('first', 'removePodSandbox', 7)],
  ] as const;
  const text = (dropped: number, entries: readonly (readonly [number, object])[]) =>
    [{ ...header, dropped }, ...entries.map(([atMs, entry]) => ({ atMs, ...entry }))]
      .map((line) => `${JSON.stringify(line)}\n`)
      .join('');
  it.each([
    [
      'from its start',
      text(0, [
        [1_000, { is: 'prepare', call: 1, claims: [claim] }],
        [1_010, stored],
        [2_000, inSandbox('first', 'runPodSandbox', 2)],
        [2_500, inSandbox('first', 'createContainer', 3, container('first'))],
        ...ends,
      ]),
    ],
    [
      'from the start of a driver that found the pod',
      text(0, [
        [0, { ...stored, devices: devices.map((device) => ({ ...device, config: { mtu: 4000 } })) }],
        [0, { is: 'placed', claimUid: claim.uid, pciAddress: '0000:3b:02.1', sandboxId: 'first' }],
        [9, { is: 'synchronize', call: 1, sandboxes: [place('first')], containers: [] }],
        ...ends,
      ]),
    ],
    [
      'without its beginning',
      text(700, [
        [1_000, { is: 'prepare', call: 1, claims: [claim] }],
        [1_010, stored],
        [2_010, { is: 'placed', claimUid: claim.uid, pciAddress: '0000:3b:02.1', sandboxId: 'first' }],
        [2_000, inSandbox('first', 'runPodSandbox', 2)],
        [19_000, { is: 'gap' }],
        ...ends,
      ]),
    ],
  ])('is replayed %s', async (_, recorded) => {
    const { story, violation } = await replayRecording(parseRecording(recorded), 'end-of-an-old-sandbox');
    expect(violation?.message).toMatch(
      /^taken-away: driver-\d takes 0000:01:02\.0 from the running pod in pod-1-sandbox-/,
    );
    expect([...story.devices]).toEqual([
      ['0000-3b-02-1', '0000-01-02-0'],
      ['0000-86-02-7', '0000-01-02-1'],
    ]);
    expect(story.left).toEqual([]);
    const other = await replayRecording(parseRecording(recorded));
    expect(other.violation).toBeUndefined();
    const mtu = other.trace.filter(([, , what]) => /"mtuBytes":4000/.test(what));
    expect(mtu.length).toBeGreaterThanOrEqual(2);
  });

  it('may have many pods, which get the VFs of earlier ones', { timeout: 60_000 }, async () => {
    const pods = Array.from({ length: 30 }, (_, number) => {
      const podUid = `uid-of-${number}`;
      const sandbox = { ...place(`sandbox-${number}`), podUid };
      const results = [{ request: 'vf', device: `device-${number % 10}` }];
      const own = { uid: `claim-${number}`, namespace: 'apps', name: `claim-${number}`, podUids: [podUid], results };
      const calls: [number, object][] = [
        [0, { is: 'prepare', claims: [{ ...own, config: [] }] }],
        [50, { is: 'runPodSandbox', sandbox }],
        [100, { is: 'createContainer', sandbox, ...container(sandbox.id) }],
        [3_000, { is: 'stopPodSandbox', sandbox }],
        [3_100, { is: 'unprepare', claims: [own] }],
      ];
      return calls.flatMap(([ms, entry], index) => {
        const call = 10 * number + index;
        const atMs = 1_000 + 400 * number + ms;
        return [[atMs, { call, ...entry }] as const, [atMs + 1, { is: 'answer', call, ms: 1 }] as const];
      });
    });
    const entries = pods.flat().sort(([one], [other]) => one - other);
    const again = await replayRecording(parseRecording(text(0, entries)));
    expect(again.violation).toBeUndefined();
    expect(again.differences).toEqual([]);
    expect(again.trace.filter(([, , what]) => /^container .* runs$/.test(what))).toHaveLength(30);
  });

  it('is refused if another format has it, or none', () => {
    expect(() => parseRecording('{"incident":99}\n')).toThrow('line 1 is not that of an incident of format 1');
    expect(() => parseRecording(`${JSON.stringify(header)}\n{"atMs":`)).toThrow('line 2 is not JSON');
  });
});
