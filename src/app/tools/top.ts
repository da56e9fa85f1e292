import type { TrafficReport, TrafficSample } from '../../driver/vf/index.ts';
import { claimName } from '../../framework/metadata/index.ts';
import type { Clock } from '../../lib/clock.ts';
import { NetdraError } from '../../lib/errors.ts';
import { printable } from '../../lib/printable.ts';
import type { LinkTraffic } from '../../node/netlink/index.ts';
import type { ExecResult } from './cluster/pod-exec.ts';
import { type OutputOptions, writeOutput } from './run-tool.ts';
import { clip, columnGap, formatTable, openTerminal, Screen, type Terminal } from './terminal.ts';

/** The counters of the VFs that are in pods of a node, at one time. */
export interface TrafficView extends TrafficReport {
  /** Milliseconds since the epoch. */
  atMs: number;
}

/** What `netdra top -o json` has printed. @throws NetdraError `exec-failed` with what it says instead */
export function parseTraffic({ stdout, stderr, exitCode }: ExecResult): TrafficView {
  if (exitCode === 0) return JSON.parse(stdout) as TrafficView;
  throw new NetdraError('exec-failed', `netdra top ended with ${exitCode}: ${stderr.trim().replace(/^netdra: /, '')}`, {
    hint: 'the driver of the node may be older than this command: netdra --version there shows it',
  });
}

/** Traffic of a VF between two views. `undefined`: it is not in both of them, its counters began anew, or they are not known. */
export interface TrafficRate {
  labels: TrafficSample['labels'];
  rxBits: number | undefined;
  txBits: number | undefined;
  rxPackets: number | undefined;
  txPackets: number | undefined;
  dropped: number | undefined;
  errors: number | undefined;
}

/** Rates per second, the busiest VF first. */
export function ratesBetween(earlier: TrafficView | undefined, later: TrafficView): TrafficRate[] {
  const before = new Map(earlier?.samples.map(({ labels, counters }) => [keyOf(labels), counters]));
  const seconds = (later.atMs - (earlier?.atMs ?? later.atMs)) / 1_000;
  const rates = later.samples.map(({ labels, counters }): TrafficRate => {
    const old = before.get(keyOf(labels));
    /** The sum of what is known of some counters. */
    const rate = (...names: (keyof LinkTraffic)[]) => {
      const changes = names.flatMap((name) => {
        const [from, to] = [old?.[name], counters[name]];
        return from === undefined || to === undefined || to < from || seconds <= 0 ? [] : [to - from];
      });
      return changes.length === 0 ? undefined : changes.reduce((sum, change) => sum + change, 0) / seconds;
    };
    const bits = (name: keyof LinkTraffic) => {
      const bytes = rate(name);
      return bytes === undefined ? undefined : 8 * bytes;
    };
    return {
      labels,
      rxBits: bits('rxBytes'),
      txBits: bits('txBytes'),
      rxPackets: rate('rxPackets'),
      txPackets: rate('txPackets'),
      dropped: rate('rxDropped', 'txDropped'),
      errors: rate('rxErrors', 'txErrors'),
    };
  });
  const busy = ({ rxBits = 0, txBits = 0 }: TrafficRate) => rxBits + txBits;
  return rates.sort((a, b) => busy(b) - busy(a) || keyOf(a.labels).localeCompare(keyOf(b.labels)));
}

/** A device that goes to the next pod is another line. */
function keyOf({ namespace, pod, claim, device }: TrafficSample['labels']): string {
  return `${namespace}/${pod} ${claim} ${device}`;
}

interface Column {
  head: string;
  cell: (rate: TrafficRate) => string;
}

/** Beside that of the pod, the most important one first: what a narrow terminal has no room for is left out. */
const columns: Column[] = [
  { head: 'INTERFACE', cell: ({ labels }) => labels.interface },
  { head: 'RX BIT/S', cell: ({ rxBits }) => scaled(rxBits) },
  { head: 'TX BIT/S', cell: ({ txBits }) => scaled(txBits) },
  { head: 'RX PKT/S', cell: ({ rxPackets }) => scaled(rxPackets) },
  { head: 'TX PKT/S', cell: ({ txPackets }) => scaled(txPackets) },
  { head: 'DROP/S', cell: ({ dropped }) => scaled(dropped) },
  { head: 'ERR/S', cell: ({ errors }) => scaled(errors) },
  { head: 'DEVICE', cell: ({ labels }) => labels.device },
  { head: 'CLAIM', cell: ({ labels }) => labels.claim },
];
/** Characters of a pod's name that are shown on any terminal. */
const minPodWidth = 24;

/** A number with three digits and a prefix: 1.23G. */
function scaled(value: number | undefined): string {
  if (value === undefined) return '';
  const power = Math.min(4, Math.max(0, Math.floor(Math.log10(Math.max(value, 1)) / 3)));
  const digits = value / 1_000 ** power;
  return `${power === 0 ? Math.round(digits) : Number(digits.toPrecision(3))}${['', 'k', 'M', 'G', 'T'][power]}`;
}

/** Characters and lines of a terminal. */
export interface Size {
  columns: number;
  rows: number;
}

/** Assumed for a terminal that reports no size, such as a serial console, which reports 0. */
const usualSize: Size = { columns: 80, rows: 24 };

/** @param reported size of the terminal; absent: all columns and all VFs are shown */
export function formatTop(
  terminal: Terminal,
  rates: readonly TrafficRate[],
  { missing: { limit, unreadable }, failures }: Pick<TrafficReport, 'missing' | 'failures'>,
  reported: Size = { columns: Number.POSITIVE_INFINITY, rows: Number.POSITIVE_INFINITY },
): string {
  const size = { columns: reported.columns || usualSize.columns, rows: reported.rows || usualSize.rows };
  const notes: string[] = [];
  if (unreadable > 0) notes.push(`counters of ${unreadable} more cannot be read: ${failures.join('; ')}`);
  if (limit > 0) notes.push(`${limit} more are not read`);
  if (rates.length + limit + unreadable === 0) notes.push('no VF is in a pod');
  // The head, and a line for what has no room.
  const shown = rates.slice(0, Math.max(1, size.rows - 2 - notes.length));
  if (shown.length < rates.length) notes.push(`${rates.length - shown.length} more with less traffic`);
  const lines = notes.map((note) => `${clip(note, size.columns)}\n`).join('');
  if (rates.length === 0) return lines;
  let podWidth = size.columns;
  const fitting = columns.filter(({ head, cell }) => {
    const width = Math.max(head.length, ...shown.map((rate) => printable(cell(rate)).length));
    if (podWidth - columnGap - width < minPodWidth) return false;
    podWidth -= columnGap + width;
    return true;
  });
  const rows = shown.map((rate) => {
    const pod = claimName({ ...rate.labels, name: rate.labels.pod });
    return [clip(pod, podWidth), ...fitting.map(({ cell }) => cell(rate))];
  });
  return `${formatTable(terminal, ['POD', ...fitting.map(({ head }) => head)], rows)}${lines}`;
}

export interface TopOptions extends OutputOptions {
  read(): Promise<TrafficView>;
  intervalMs: number;
  clock: Clock;
}

/**
 * Shows the traffic in a terminal until the user presses q; once where the output is no terminal; and one view as JSON, in which
 * there are no rates yet.
 * @throws what `read` does
 */
export async function showTop({ read, intervalMs, clock, output }: TopOptions): Promise<void> {
  const { stdout, stdin } = process;
  let earlier = await read();
  if (output === 'json' || !stdout.isTTY) {
    if (output === 'table') await clock.sleep(intervalMs);
    const later = output === 'table' ? await read() : earlier;
    writeOutput({ output }, later, (terminal) => formatTop(terminal, ratesBetween(earlier, later), later));
    return;
  }
  const terminal = openTerminal(stdout);
  const ended = new AbortController();
  using screen = new Screen(stdout, stdin, () => ended.abort('ended'));
  const show = (rates: TrafficRate[]) => screen.show(formatTop(terminal, rates, earlier, stdout));
  show(ratesBetween(undefined, earlier));
  try {
    for (;;) {
      await clock.sleep(intervalMs, ended.signal);
      const later = await read();
      show(ratesBetween(earlier, later));
      earlier = later;
    }
  } catch (error) {
    if (!ended.signal.aborted) throw error;
  }
}
