import { randomBytes } from 'node:crypto';
import {
  isKubeError,
  type KubeErrorCode,
  type KubeRequests,
  namespaceTerminating,
  retryPauseMs,
} from '../../framework/kube/index.ts';
import { Background } from '../../lib/background.ts';
import type { Clock } from '../../lib/clock.ts';
import { explain } from '../../lib/errors.ts';
import { KeyedMutex } from '../../lib/keyed-mutex.ts';
import type { Logger } from '../../lib/logger.ts';
import { RateLimit } from '../../lib/rate-limit.ts';
import { pauses } from '../../lib/waiting-times.ts';
import { type EventReport, type EventReporter, formatMicroTime, formatNote, type KubeEvent } from './event.ts';

/**
 * Time within which events with the same text become one event with a count, ms. Source: client-go `tools/events`,
 * `finishTime`.
 */
const seriesEndsMs = 360_000;
/** Minimum interval between two writes of an event's count, ms. */
const repeatMs = 30_000;
/** Limit for different events about one object: a burst, then one every five minutes. */
const perObject = { burst: 10, everyMs: 300_000 };
/** Maximum number of tracked events; more are dropped. */
const maxEvents = 500;
/** Number of tracked events up to which all namespaces share them without a limit. */
const unlimited = maxEvents / 2;
/** Maximum number of tracked events of one namespace beyond that: its tenant must not use up those of others. */
const maxOfNamespace = 100;
/** Number of tracked events that only events on cluster-scoped objects, such as the Node, can use. */
const reserved = 50;
const maxFailures = 6;
/** Codes of failures that a retry cannot mend. `api-not-found` refers to the namespace. */
const hopelessCodes: KubeErrorCode[] = ['api-forbidden', 'api-invalid', 'api-not-found', 'api-unserved'];
/** Length to which an object's name is cut in the name of an event, which can have 253 bytes. */
const maxObjectNameBytes = 200;
const maxInstanceBytes = 128;

export interface EventWriterOptions {
  /** Name of the driver: `reportingController`. */
  controller: string;
  /** Name of the node: `reportingInstance`. */
  instance: string;
  clock: Clock;
  logger: Logger;
  /** Receives each failure to write an event; all are already logged. */
  onError?: (error: unknown) => void;
}

interface EventEntry {
  event: KubeEvent;
  /** Number of occurrences, and the number of those that the API server knows. */
  count: number;
  toldCount: number;
  lastSeen: Date;
  lastSeenMs: number;
  lastToldMs: number;
}

/**
 * Reports problems with objects to users as Kubernetes Events. Calls return at once and events are written later. A failed
 * write is retried a few times and then given up, since an event is news and not state. An event that repeats within six
 * minutes becomes a series with a count; the number of different events about one object is limited.
 */
export class EventWriter implements EventReporter, AsyncDisposable {
  readonly #kube: KubeRequests;
  readonly #options: EventWriterOptions;
  readonly #entries = new Map<string, EventEntry>();
  readonly #limit: RateLimit;
  readonly #background = new Background();
  /** Lock for one request at a time: events come in bursts, often when the API server is busy. */
  readonly #turn = new KeyedMutex();
  /** Codes of failures that were logged. */
  readonly #logged = new Set<string>();

  constructor(kube: KubeRequests, options: EventWriterOptions) {
    this.#kube = kube;
    this.#options = options;
    this.#limit = new RateLimit({ ...perObject, clock: options.clock });
  }

  report(report: EventReport): boolean {
    if (this.#background.signal.aborted) return false;
    const nowMs = this.#options.clock.nowMs();
    this.#forgetOld(nowMs);
    const note = formatNote(report.note);
    const key = JSON.stringify([report.regarding.uid, report.related?.uid, report.type, report.reason, note]);
    const entry = this.#entries.get(key) ?? this.#begin(key, { ...report, note });
    if (entry === undefined) return false;
    entry.count++;
    entry.lastSeen = new Date();
    entry.lastSeenMs = nowMs;
    void this.#background.run(
      key,
      (signal) => this.#run(key, signal),
      () => this.#isDue(key),
    );
    return true;
  }

  /** Number of tracked events. */
  get size(): number {
    return this.#entries.size;
  }

  /** Drops events that were not written yet. */
  async [Symbol.asyncDispose]() {
    await this.#background[Symbol.asyncDispose]();
  }

  #begin(key: string, report: EventReport): EventEntry | undefined {
    const { logger, controller, instance } = this.#options;
    if (this.#isFull(report.regarding.namespace) || !this.#limit.take(report.regarding.uid)) {
      logger.debug({ ...report }, 'dropped an event: too many are waiting');
      return undefined;
    }
    const { namespace = 'default' } = report.regarding;
    const event: KubeEvent = {
      apiVersion: 'events.k8s.io/v1',
      kind: 'Event',
      metadata: { namespace, name: newEventName(report) },
      eventTime: formatMicroTime(new Date()),
      reportingController: controller,
      reportingInstance: instance.slice(0, maxInstanceBytes),
      ...report,
    };
    const counts = { count: 0, toldCount: 0, lastSeen: new Date(), lastSeenMs: 0, lastToldMs: 0 };
    const entry: EventEntry = { event, ...counts };
    this.#entries.set(key, entry);
    return entry;
  }

  #isFull(namespace: string | undefined): boolean {
    if (namespace === undefined) return this.#entries.size >= maxEvents;
    if (this.#entries.size < unlimited) return false;
    if (this.#entries.size >= maxEvents - reserved) return true;
    const own = [...this.#entries.values()].filter(({ event }) => event.regarding.namespace === namespace);
    return own.length >= maxOfNamespace;
  }

  #isDue(key: string): boolean {
    const entry = this.#entries.get(key);
    return entry !== undefined && entry.toldCount < entry.count;
  }

  async #run(key: string, signal: AbortSignal): Promise<void> {
    const { clock } = this.#options;
    const entry = this.#entries.get(key);
    if (entry === undefined) return;
    for (let failures = 0; entry.toldCount < entry.count; ) {
      const isAgain = entry.toldCount > 0 && failures === 0;
      if (isAgain) await clock.sleep(Math.max(0, entry.lastToldMs + repeatMs - clock.nowMs()), signal);
      signal.throwIfAborted();
      try {
        await this.#turn.run('', () => this.#tell(entry, signal));
        failures = 0;
      } catch (error) {
        signal.throwIfAborted();
        const delayMs = this.#retryDelay(error, failures++);
        if (delayMs === undefined) {
          this.#entries.delete(key);
          return;
        }
        await clock.sleep(delayMs, signal);
      }
    }
  }

  async #tell(entry: EventEntry, signal: AbortSignal): Promise<void> {
    if (entry.toldCount === 0) {
      await this.#create(entry.event, signal);
      entry.toldCount = 1;
    }
    // Repetitions since the report are written right away, together with the first occurrence.
    if (entry.count > entry.toldCount) await this.#repeat(entry, signal);
    entry.lastToldMs = this.#options.clock.nowMs();
    this.#logged.clear();
    const { regarding, reason } = entry.event;
    this.#options.logger.debug({ kind: regarding.kind, name: regarding.name, reason }, 'event written');
  }

  async #create(event: KubeEvent, signal: AbortSignal): Promise<void> {
    try {
      await this.#kube.request({ method: 'POST', path: pathOf(event), body: event, signal });
    } catch (error) {
      // An earlier attempt created the event, but its response was lost.
      if (!isKubeError(error, 'api-conflict')) throw error;
    }
  }

  async #repeat(entry: EventEntry, signal: AbortSignal): Promise<void> {
    const { event, count, lastSeen } = entry;
    try {
      await this.#kube.request({
        method: 'PATCH',
        path: `${pathOf(event)}/${event.metadata.name}`,
        signal,
        contentType: 'application/merge-patch+json',
        body: { series: { count, lastObservedTime: formatMicroTime(lastSeen) } },
      });
      entry.toldCount = count;
    } catch (error) {
      if (!isKubeError(error, 'api-not-found')) throw error;
      // The API server keeps events for an hour only: a new event begins with the occurrences that are not written yet.
      const metadata = { ...event.metadata, name: newEventName(event) };
      entry.event = { ...event, metadata, eventTime: formatMicroTime(lastSeen) };
      entry.count -= entry.toldCount;
      entry.toldCount = 0;
    }
  }

  /** Logs a failed write. @returns the pause before the next attempt, ms; `undefined` to give up */
  #retryDelay(error: unknown, failures: number): number | undefined {
    const { logger, onError } = this.#options;
    // A namespace that is being deleted accepts no new objects, and its events are deleted with it.
    if (isKubeError(error) && error.reason === namespaceTerminating) return undefined;
    onError?.(error);
    const code = isKubeError(error) ? error.code : 'other';
    const level = this.#logged.has(code) ? 'debug' : 'warn';
    this.#logged.add(code);
    logger[level]({ err: error, reason: explain(error) }, 'cannot write event');
    if (!isKubeError(error) || hopelessCodes.includes(error.code) || failures + 1 >= maxFailures) return undefined;
    return retryPauseMs(error, failures, pauses.event);
  }

  #forgetOld(nowMs: number): void {
    for (const [key, entry] of this.#entries) {
      if (!this.#background.isRunning(key) && nowMs - entry.lastSeenMs > seriesEndsMs) this.#entries.delete(key);
    }
  }
}

function pathOf({ metadata: { namespace } }: KubeEvent): string {
  return `/apis/events.k8s.io/v1/namespaces/${namespace}/events`;
}

/** Returns an event name: the object's name and a random suffix, as other controllers do. */
function newEventName({ regarding }: EventReport): string {
  const name = regarding.name.slice(0, maxObjectNameBytes).replace(/[^a-z0-9]+$/, '');
  return `${name}.${randomBytes(8).toString('hex')}`;
}
