import { existsSync, type FSWatcher, mkdirSync, readdirSync, rmSync, watch } from 'node:fs';
import { basename, join } from 'node:path';
import type { Clock } from '../../lib/clock.ts';
import { isMissing } from '../../lib/is-missing.ts';
import type { Logger } from '../../lib/logger.ts';
import { RateLimit } from '../../lib/rate-limit.ts';
import { replaceFile } from '../../lib/replace-file.ts';
import type { IncidentHeader, IncidentReason } from './entry.ts';
import { type IncidentRing, lineOf } from './incident-ring.ts';

/** The newest ones stay. */
export const maxIncidents = 8;
/** After an incident, so that what follows from it is in its file, and not in one of its own. */
const aftermathMs = 2_000;
/** A tool makes this file to have what has happened lately written, and the driver removes it when that is done. */
export const requestName = 'request';
const limit = { burst: 4, everyMs: 600_000 };

export interface IncidentFilesOptions {
  /** The driver's directory below the kubelet's `plugins`. */
  dataDir: string;
  ring: IncidentRing;
  header: Omit<IncidentHeader, 'reason' | 'what' | 'dropped'>;
  clock: Clock;
  logger: Logger;
}

/** Writes what was recorded to disk when something went wrong: a file for each incident, and not too many. */
export class IncidentFiles implements Disposable {
  readonly #options: IncidentFilesOptions;
  readonly #limit: RateLimit;
  readonly #stop = new AbortController();
  readonly #requests: FSWatcher | undefined;
  #count = 0;
  #due: { reason: IncidentReason; what: string } | undefined;

  constructor(options: IncidentFilesOptions) {
    this.#options = options;
    this.#limit = new RateLimit({ ...limit, clock: options.clock });
    this.#requests = this.#watchRequests();
  }

  /** Something went wrong. What goes wrong soon afterwards is in the same file. */
  request(reason: IncidentReason, what: string): void {
    if (this.#due !== undefined || !this.#limit.take('all')) return;
    this.#due = { reason, what };
    const write = () => this.#writeDue();
    this.#options.clock.sleep(aftermathMs, this.#stop.signal).then(write, write);
  }

  /** What is due is written at once. */
  [Symbol.dispose](): void {
    this.#requests?.close();
    this.#writeDue();
    this.#stop.abort();
  }

  #watchRequests(): FSWatcher | undefined {
    const { dataDir, logger } = this.#options;
    const dir = incidentDir(dataDir);
    const fail = (err: unknown) => logger.warn({ err, dir }, 'incidents are not recorded when a tool asks for it');
    try {
      mkdirSync(dir, { recursive: true, mode: 0o700 });
      const request = join(dir, requestName);
      const watcher = watch(dir, { persistent: false }, () => {
        if (!existsSync(request)) return;
        this.#write('requested', 'what has happened lately');
        rmSync(request, { force: true });
      });
      return watcher.on('error', fail);
    } catch (error) {
      fail(error);
      return undefined;
    }
  }

  #writeDue(): void {
    if (this.#due === undefined) return;
    const { reason, what } = this.#due;
    this.#due = undefined;
    this.#write(reason, what);
  }

  #write(reason: IncidentReason, what: string): void {
    const { dataDir, ring, header, logger } = this.#options;
    const dir = incidentDir(dataDir);
    const time = new Date().toISOString().replaceAll(':', '-');
    const file = join(dir, `${time}-${++this.#count}-${reason}.jsonl`);
    try {
      const entries = ring.text();
      const { dropped } = ring;
      const text = `${lineOf({ ...header, reason, what, dropped } satisfies IncidentHeader)}${entries}`;
      mkdirSync(dir, { recursive: true, mode: 0o700 });
      replaceFile(file, text, 0o600);
      removeOld(dir, basename(file), listIncidents(dataDir));
      logger.warn({ file, reason, what }, 'incident recorded: kubectl netdra bundle collects the file');
    } catch (err) {
      logger.warn({ err, file, reason, what }, 'an incident is not recorded');
    }
  }
}

/** Files that are dated later than the newest one, since the clock was set back, are the first to go. */
function removeOld(dir: string, newest: string, names: readonly string[]): void {
  const others = [...names.filter((name) => name > newest), ...names.filter((name) => name < newest)];
  for (const old of others.slice(0, 1 - maxIncidents)) rmSync(join(dir, old), { force: true });
}

/** @param dataDir the driver's directory below the kubelet's `plugins` */
export function incidentDir(dataDir: string): string {
  return join(dataDir, 'incidents');
}

/** Names of the files, the oldest one first. */
export function listIncidents(dataDir: string): string[] {
  const dir = incidentDir(dataDir);
  const names = isMissing(dir) ? [] : readdirSync(dir);
  return names.filter((name) => /^\d.*\.jsonl$/.test(name)).sort();
}
