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
  it('is replayed to the same violation by the code that had it, and to none by other code', async () => {
    const { outcome, text } = await recordIncident(withFaults(restartOfKubelet), 'prepare-starts-over');
    expect(outcome.violation?.rule).toBe('taken-away');
    const again = await replayRecording(parseRecording(text), 'prepare-starts-over');
    expect(again.violation?.rule).toBe('taken-away');
    expect(again.differences).toEqual([]);
    expect((await replayRecording(parseRecording(text))).violation).toBeUndefined();
  });

  it.each<[string, Fault]>([
    ['a kubelet that restarts', restartOfKubelet],
    ['a runtime that restarts', { kind: 'restart runtime', atMs: 1_100, forMs: 2_000 }],
    ['a sandbox that is lost', { kind: 'lose sandbox', atMs: 5_000, forMs: 0, isDriverAway: false }],
    ['a driver that is killed', { kind: 'kill driver', atMs: 5_000, forMs: 1_000 }],
    ['a card that refuses changes', { kind: 'card refuses', atMs: 500, forMs: 5_000 }],
    ['an API server that is away', { kind: 'API server away', atMs: 500, forMs: 5_000 }],
    ['a store that fails', { kind: 'store error', atMs: 500, forMs: 5_000 }],
  ])('is replayed to the same answers: %s', async (_, fault) => {
    const { outcome, text } = await recordIncident(withFaults(fault));
    expect(outcome.violation).toBeUndefined();
    const again = await replayRecording(parseRecording(text));
    expect(again.violation).toBeUndefined();
    expect(again.differences).toEqual([]);
    expect(again.unused).toEqual([]);
  });
});
