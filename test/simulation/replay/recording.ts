import { readdirSync, readFileSync, statSync } from 'node:fs';
import { basename, join } from 'node:path';
import { type IncidentEntry, type IncidentHeader, incidentFormat } from '../../../src/app/incidents/entry.ts';

/** What a driver has recorded before and in an incident. */
export interface Recording {
  header: IncidentHeader;
  /** What existed when the rest begins. */
  before: IncidentEntry[];
  entries: IncidentEntry[];
  /** When the rest begins. */
  beginMs: number;
}

/**
 * Finds the file of an incident.
 * @param path the file; or a bundle, or any folder: the newest incident in it, before what was recorded only for the bundle
 * @throws Error if the folder has no incident
 */
export function findRecording(path: string): string {
  if (!statSync(path).isDirectory()) return path;
  const files = readdirSync(path, { recursive: true, encoding: 'utf8' }).filter((file) => file.endsWith('.jsonl'));
  // Their names begin with the time, and end with the reason.
  const ordered = files.sort((a, b) => basename(b).localeCompare(basename(a)));
  const newest = ordered.find((file) => !file.endsWith('-requested.jsonl')) ?? ordered[0];
  if (newest === undefined) throw new Error(`there is no incident in ${path}`);
  return join(path, newest);
}

/** @throws Error that names a line which no driver writes */
export function readRecording(path: string): Recording {
  return parseRecording(readFileSync(path, 'utf8'));
}

export function parseRecording(text: string): Recording {
  const [header, ...entries] = parseLines(text) as [IncidentHeader, ...IncidentEntry[]];
  if (header?.incident !== incidentFormat) {
    throw new Error(`line 1 is not that of an incident of format ${incidentFormat}: has another version recorded it?`);
  }
  const gap = entries.findIndex(({ is }) => is === 'gap');
  // A driver that starts first records what it has stored.
  const first = gap === -1 ? entries.findIndex(({ is }) => is !== 'stored' && is !== 'placed') : gap + 1;
  const count = first === -1 ? entries.length : first;
  const beginMs = gap === -1 ? 0 : (entries[gap]?.atMs ?? 0);
  return { header, before: entries.slice(0, count), entries: entries.slice(count), beginMs };
}

/** Without the header. */
export function parseEntries(text: string): IncidentEntry[] {
  return parseLines(text) as IncidentEntry[];
}

function parseLines(text: string): unknown[] {
  return text
    .split('\n')
    .filter((line) => line !== '')
    .map(parseLine);
}

function parseLine(line: string, index: number): unknown {
  try {
    return JSON.parse(line);
  } catch (cause) {
    throw new Error(`line ${index + 1} is not JSON`, { cause });
  }
}
