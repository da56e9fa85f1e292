import { IncidentRing } from '../../../src/app/incidents/incident-ring.ts';
import { Recorder } from '../../../src/app/incidents/recorder.ts';
import { driverName } from '../api-server.ts';
import { plantedBugs } from '../planted/bugs.ts';
import { all, type Plant } from '../planted/plant.ts';
import type { Outcome } from '../schedule.ts';
import { Simulation } from '../simulation.ts';
import { answersOf, differences } from './compare.ts';
import { Injected } from './injected.ts';
import { RecordedKubelet } from './recorded-kubelet.ts';
import { parseEntries, type Recording } from './recording.ts';
import { type Story, tell } from './story.ts';

/** What a replay shows. */
export interface Replay extends Outcome {
  story: Story;
  /** What the driver has answered or done otherwise than in the recording, for people. */
  differences: string[];
  /** Failures that were recorded and that nothing in the replay met. */
  unused: string[];
}

/**
 * Plays a recording to the driver's code on a simulated node.
 * @param planted name of a bug that the driver has
 */
export async function replayRecording(recording: Recording, planted?: string): Promise<Replay> {
  const bug = plantedBugs.find(({ name }) => name === planted);
  if (planted !== undefined && bug === undefined) throw new Error(`there is no planted bug ${planted}`);
  const story = tell(recording);
  const injected = new Injected(story, recording.entries, recording.beginMs);
  let kubelet: RecordedKubelet | undefined;
  const recorded: { startMs: number; ring: IncidentRing }[] = [];
  const record: Plant = (ports) => {
    const ring = new IncidentRing();
    recorded.push({ startMs: ports.clock.nowMs(), ring });
    return new Recorder({ ring, driverName, clock: ports.clock, onIncident: () => undefined }).record(ports);
  };
  using simulation = new Simulation(
    all(
      injected.plant(() => kubelet),
      record,
      bug?.plant ?? ((ports) => ports),
    ),
  );
  const outcome = await simulation.runPlan((usual) => ({
    ...story.plan(usual),
    kubelet: (node) => {
      kubelet = new RecordedKubelet(node, story);
      return kubelet;
    },
  }));
  const entries = recorded.flatMap(({ startMs, ring }) => {
    const all = parseEntries(ring.text());
    return all.map((entry) => ({ ...entry, atMs: entry.atMs + startMs }));
  });
  const { beginMs, endMs } = story;
  const played = entries.filter(({ is, atMs }) => (atMs >= beginMs || is === 'placed') && atMs < endMs);
  const { before } = recording;
  const names = kubelet === undefined ? new Map<string, string>() : kubelet.names();
  const isWhole = outcome.violation === undefined;
  return {
    ...{ ...outcome, story, unused: injected.left },
    // What comes after a violation was not played.
    differences: differences(
      answersOf([...before, ...recording.entries], new Map()),
      answersOf(played, names),
      story.claimUids.flat(),
      isWhole,
    ),
  };
}

/** A replay as lines for people. */
export function describeReplay({ story, trace, violation, differences, unused }: Replay): string[] {
  const named = [...story.devices].map(([before, now]) => `${now} stands for ${before}`);
  return [
    ...named,
    ...story.left.map((what) => `not played: ${what}`),
    ...trace.map(([atMs, who, what]) => `${(atMs / 1_000).toFixed(4).padStart(9)} s  ${who.padEnd(12)} ${what}`),
    ...unused.map((what) => `recorded, and not met: ${what}`),
    ...differences.map((what) => `otherwise than recorded: ${what}`),
    violation === undefined ? 'no rule is broken' : `broken: ${violation.message}`,
  ];
}
