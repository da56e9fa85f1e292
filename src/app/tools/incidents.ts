import { existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { type Clock, systemClock } from '../../lib/clock.ts';
import { NetdraError } from '../../lib/errors.ts';
import { poll } from '../../lib/poll.ts';
import type { IncidentHeader } from '../incidents/entry.ts';
import { incidentDir, listIncidents, requestName } from '../incidents/incident-files.ts';
import { formatTable, type Terminal } from './terminal.ts';

/** An incident that the driver of this node has recorded. */
export interface IncidentView {
  /** Of its file; begins with the time. */
  name: string;
  header: IncidentHeader;
}

/**
 * The oldest one first.
 * @param dataDir the driver's directory below the kubelet's `plugins`
 * @throws Error of a file that cannot be read
 */
export function viewIncidents(dataDir: string): IncidentView[] {
  return listIncidents(dataDir).map((name) => {
    const [line = ''] = readIncident(dataDir, name).split('\n', 1);
    return { name, header: JSON.parse(line) };
  });
}

/** @returns lines of JSON @throws NetdraError `incident-missing` */
export function readIncident(dataDir: string, name: string): string {
  const path = join(incidentDir(dataDir), basename(name));
  if (existsSync(path)) return readFileSync(path, 'utf8');
  throw new NetdraError('incident-missing', `there is no incident ${name}`, {
    hint: 'netdra incidents lists those of this node: only the newest ones are kept',
  });
}

const patienceMs = 5_000;
const pollMs = 50;

/**
 * Has the driver write what has happened lately.
 * @throws NetdraError `incident-not-recorded` if it does not
 */
export async function requestIncident(dataDir: string, clock: Clock = systemClock): Promise<void> {
  const request = join(incidentDir(dataDir), requestName);
  try {
    writeFileSync(request, '');
    const times = { forMs: patienceMs, everyMs: pollMs };
    if (await poll(clock, times, async () => !existsSync(request))) return;
    throw new Error(`the driver has not answered within ${patienceMs / 1_000} s`);
  } catch (cause) {
    rmSync(request, { force: true });
    throw new NetdraError('incident-not-recorded', 'what has happened lately is not recorded', {
      ...{ cause, hint: 'the driver has to run, without --record-incidents=false' },
    });
  }
}

export function formatIncidents(terminal: Terminal, incidents: readonly IncidentView[]): string {
  if (incidents.length === 0) return 'the driver has recorded nothing that went wrong\n';
  const rows = incidents.map(({ name, header }) => [name, header.what]);
  return formatTable(terminal, ['FILE', 'WHAT'], rows);
}
