import { readFileSync } from 'node:fs';
import { beforeAll, describe, expect, it } from 'vitest';
import { type Outcome, playScenarios, type ScenarioName, scenarios } from '../../scale/scenarios.ts';
import { seededRandom } from '../../scale/seeded-random.ts';

const page = readFileSync(new URL('../../../docs/scale.md', import.meta.url), 'utf8');
const nodes = 4;

/** Rows of the page's table of costs: scenario, requests of a node, kB of a node in and out, kB to each watcher. */
const rows = [...page.matchAll(/^\| `([a-z ]+)` \| (.*?) \| (.*?) \| (.*?) \| (.*?) \| (.*?) \|$/gm)].map(
  ([, name = '', , requests = '', ...kilobytes]) => ({ name, requests, kilobytes: kilobytes.slice(0, 3).map(Number) }),
);

describe('what nodes cost the API server', { timeout: 60_000 }, () => {
  let outcomes: Outcome[];
  beforeAll(async () => {
    outcomes = await playScenarios({ nodes, vfsPerNode: 64, random: seededRandom(1) });
  }, 60_000);

  const outcomeOf = (name: ScenarioName) => outcomes.find((outcome) => outcome.name === name) as Outcome;
  const callsOf = (name: ScenarioName) =>
    Object.fromEntries([...outcomeOf(name).perNode].map(([kind, { calls }]) => [kind, calls]));

  it('is a handful of requests at a start, and three for a change, with one slice for 64 VFs', () => {
    expect(callsOf('start')).toEqual({
      ...{ 'list resourceslices': 1, 'watch resourceslices': 1, 'get nodes': 1, 'create resourceslices': 1 },
    });
    expect(callsOf('change')).toEqual({ 'list resourceslices': 1, 'get nodes': 1, 'replace resourceslices': 1 });
  });

  it('is two requests when a pod with one VF starts, one read when it ends, and no write to slices', () => {
    expect(callsOf('pod start')).toEqual({ 'get resourceclaims': 1, 'patch resourceclaims/status': 1 });
    expect(callsOf('pod end')).toEqual({ 'get resourceclaims': 1 });
  });

  it('is a look every five to six minutes when nothing happens, and no write', () => {
    const { 'list resourceslices': lists = 0, 'watch resourceslices': watches, ...others } = callsOf('hour');
    expect(others).toEqual({});
    expect(lists).toBeGreaterThanOrEqual(60 / 6);
    expect(lists).toBeLessThanOrEqual(60 / 5);
    expect(watches).toBe(1);
  });

  it('is asked less and less in an outage, and nothing is written again after it', () => {
    const { 'list resourceslices': lists = 0, 'watch resourceslices': watches = 0, ...others } = callsOf('outage');
    expect(others).toEqual({});
    // A client that asks every second would come to 60 of each.
    expect(lists).toBeLessThan(12);
    expect(watches).toBeLessThan(12);
  });

  it('is spread over time where nodes would all come at once', async () => {
    const peaks = async (random: () => number) => {
      const played = await playScenarios({ nodes: 30, vfsPerNode: 2, random });
      const peakOf = (wanted: ScenarioName) => played.find(({ name }) => name === wanted)?.peakPerSecond ?? 0;
      return { hour: peakOf('hour'), outage: peakOf('outage') };
    };
    const together = await peaks(() => 0);
    const apart = await peaks(seededRandom(1));
    // All look at once when they started at once, and all come back at once.
    expect(together.hour).toBeGreaterThanOrEqual(30);
    expect(together.outage).toBeGreaterThanOrEqual(30);
    expect(apart.hour).toBeLessThan(together.hour / 2);
    expect(apart.outage).toBeLessThan(0.8 * together.outage);
  });

  it('is what docs/scale.md says', () => {
    expect(rows.map(({ name }) => name).sort()).toEqual(Object.keys(scenarios).sort());
    for (const { name, requests, kilobytes } of rows) {
      const { perNode, eventBytesPerNode, watchedBytesPerNode } = outcomeOf(name as ScenarioName);
      const costs = [...perNode.values()];
      const calls = costs.reduce((sum, each) => sum + each.calls, 0);
      // Only what chance has no part in is exact. With four nodes one list more is a sixth of all bytes.
      const isByChance = name === 'hour' || name === 'outage';
      const tolerance = isByChance ? 0.15 : 0;
      expect(Math.abs(Number(requests) - calls), `${name}: ${calls} requests`).toBeLessThanOrEqual(tolerance * calls);
      const kB = (bytes: number) => Math.round(bytes / 100) / 10;
      const received = costs.reduce((sum, each) => sum + each.receivedBytes, 0);
      const sent = costs.reduce((sum, each) => sum + each.sentBytes, 0) + eventBytesPerNode;
      for (const [index, bytes] of [received, sent, watchedBytesPerNode].entries()) {
        const difference = Math.abs((kilobytes[index] ?? NaN) - kB(bytes));
        expect(difference, `${name}: ${kB(bytes)} kB`).toBeLessThanOrEqual(
          0.2 + (isByChance ? 0.35 : 0.15) * kB(bytes),
        );
      }
    }
  });
});
