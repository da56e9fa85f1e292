import { describe, expect, it } from 'vitest';
import { formatTop, parseTraffic, ratesBetween, type TrafficView } from '../../../../src/app/tools/top.ts';
import { plainTerminal } from './plain-terminal.ts';

const labels = (pod: string, device = 'vf-0') => ({
  ...{ device, namespace: 'apps', pod, claim: 'fast-net', interface: 'net1' },
});
const missing = { limit: 0, unreadable: 0 };
const view = (atMs: number, samples: TrafficView['samples']): TrafficView => ({ atMs, samples, missing, failures: [] });
const size = { columns: 80, rows: 24 };

describe('ratesBetween', () => {
  it('has rates for each second, busiest first, and none for what began anew or is not known', () => {
    const before = view(1_000, [
      { labels: labels('web-0'), counters: { rxBytes: 100, txBytes: 0, rxDropped: 1, txDropped: 1 } },
      { labels: labels('web-1', 'vf-1'), counters: { rxBytes: 0, txBytes: 0 } },
      { labels: labels('old', 'vf-2'), counters: { rxBytes: 1, txBytes: 9 } },
    ]);
    const after = view(3_000, [
      { labels: labels('web-0'), counters: { rxBytes: 350, txBytes: 0, rxDropped: 5, txDropped: 1 } },
      { labels: labels('web-1', 'vf-1'), counters: { rxBytes: 5_000, txBytes: 5_000 } },
      // The next pod of a device, and counters that are smaller than before.
      { labels: labels('new', 'vf-2'), counters: { rxBytes: 1e9 } },
      { labels: labels('old', 'vf-2'), counters: { rxBytes: 0, txBytes: 9 } },
    ]);
    const rates = ratesBetween(before, after).map(({ labels: { pod }, ...rate }) => [pod, rate]);
    const none = { rxPackets: undefined, txPackets: undefined, dropped: undefined, errors: undefined };
    expect(rates).toEqual([
      ['web-1', { ...none, rxBits: 20_000, txBits: 20_000 }],
      ['web-0', { ...none, rxBits: 1_000, txBits: 0, dropped: 2 }],
      ['new', { ...none, rxBits: undefined, txBits: undefined }],
      ['old', { ...none, rxBits: undefined, txBits: 0 }],
    ]);
    expect(ratesBetween(undefined, after).every(({ rxBits }) => rxBits === undefined)).toBe(true);
    expect(ratesBetween(after, after).every(({ rxBits }) => rxBits === undefined)).toBe(true);
  });
});

describe('formatTop', () => {
  const at = (atMs: number, bytes: number) =>
    view(
      atMs,
      Array.from({ length: 40 }, (_, index) => ({
        labels: labels(`a-rather-long-name-of-a-pod-with-${index}`, `0000-3b-02-${index}`),
        counters: { rxBytes: bytes * index, txBytes: 0, rxPackets: 0, txPackets: 0 },
      })),
    );
  const rates = ratesBetween(at(0, 0), at(1_000, 1e9));

  it.each([20, 40, 80, 132, 200])('fits into %i columns', (columns) => {
    const lines = formatTop(plainTerminal, rates, view(0, []), { ...size, columns })
      .trimEnd()
      .split('\n');
    expect(lines).toHaveLength(24);
    expect(Math.max(...lines.map((line) => line.length))).toBeLessThanOrEqual(columns);
    expect(lines.at(-1)).toMatch(/^18 more /);
  });

  it('shows the busiest first, with units', () => {
    const [head, first] = formatTop(plainTerminal, rates, view(0, []), size).split('\n');
    expect(head).toBe('POD                            INTERFACE  RX BIT/S  TX BIT/S  RX PKT/S  TX PKT/S');
    expect(first).toBe('apps/a-rather-long-name-of-a…  net1       312G      0         0         0');
  });

  it('takes a terminal that does not tell its size, as a serial console, for one of the usual size', () => {
    const report = view(0, []);
    const shown = formatTop(plainTerminal, rates, report, { columns: 0, rows: 0 });
    expect(shown).toBe(formatTop(plainTerminal, rates, report, { columns: 80, rows: 24 }));
    expect(shown).toContain('RX BIT/S');
  });

  it('says what is not shown, and why', () => {
    const cut = { missing: { limit: 2, unreadable: 1 }, failures: ['EMSGSIZE'] };
    expect(formatTop(plainTerminal, [], cut)).toBe(
      'counters of 1 more cannot be read: EMSGSIZE\n2 more are not read\n',
    );
    expect(formatTop(plainTerminal, [], view(0, []))).toBe('no VF is in a pod\n');
  });
});

describe('parseTraffic', () => {
  it('passes on why a node has no answer', () => {
    const stderr = "netdra: error: unknown command 'top'\n";
    expect(() => parseTraffic({ stdout: '', stderr, exitCode: 2 })).toThrow(
      "netdra top ended with 2: error: unknown command 'top'",
    );
  });
});
