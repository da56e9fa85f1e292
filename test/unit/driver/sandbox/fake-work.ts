import type { StoredClaim, StoredDevice } from '../../../../src/driver/model/index.ts';
import type { ClaimSteps, ServeResult } from '../../../../src/driver/sandbox/claim-work.ts';
import type { ClaimIdentity } from '../../../../src/framework/metadata/index.ts';
import { storedClaim, storedDevice } from '../../../doubles/stored-claims.ts';

export const device = storedDevice({ pciAddress: '0000:01:10.0', name: 'dev' });
/** A prepared claim of the pod, with one device unless others are given. */
export const claim = (name: string, devices: StoredClaim['devices'] = [device]): StoredClaim =>
  storedClaim({ identity: { namespace: 'apps', name, uid: name }, podUids: ['pod'], devices });

/** Answers of the work on claims, and what was asked of it. */
export class FakeWork {
  readonly done: string[] = [];
  /** Thrown by `serve`, by name of the claim. */
  readonly failures = new Map<string, Error>();
  answer: ServeResult = 'ready';
  /** Thrown by `detach`, by name of the claim. */
  readonly detachFailures = new Map<string, Error>();
  endFailure: Error | undefined;
  /** Keeps `serve` from ending. */
  hold: Promise<void> | undefined;
  /** Keeps `serve` from ending, by name of the claim. */
  readonly holds = new Map<string, Promise<void>>();
  /** Names of claims that wait for routers once their VFs are attached. */
  readonly waiting = new Set<string>();
  /** What `serve` attaches one after the other, and how. */
  slow: { devices: StoredDevice[]; attach: () => Promise<void> } | undefined;

  podLinks = (_namespace: unknown, follow: () => void) => follow as never;

  async serve({ name }: ClaimIdentity, _place: unknown, follow: unknown, signal: AbortSignal, progress: ClaimSteps) {
    this.done.push(`serve ${name}`);
    (follow as () => void)();
    for (const device of this.slow?.devices ?? []) {
      progress.deviceBegins(device);
      await this.slow?.attach();
      progress.deviceReady();
    }
    if (this.waiting.has(name)) progress.waits();
    const aborted = new Promise<never>((_, reject) => signal.addEventListener('abort', () => reject(signal.reason)));
    aborted.catch(() => undefined);
    await Promise.race([this.holds.get(name) ?? this.hold, aborted]);
    const failure = this.failures.get(name);
    if (failure !== undefined) throw failure;
    return this.answer;
  }

  async serveWithoutVfs({ name }: ClaimIdentity): Promise<ServeResult> {
    this.done.push(`serve ${name}`);
    return 'ready';
  }

  async end({ name }: ClaimIdentity) {
    this.done.push(`end ${name}`);
    if (this.endFailure !== undefined) throw this.endFailure;
  }

  async detach({ name }: ClaimIdentity) {
    this.done.push(`detach ${name}`);
    const failure = this.detachFailures.get(name);
    if (failure !== undefined) throw failure;
    return 1;
  }
}
