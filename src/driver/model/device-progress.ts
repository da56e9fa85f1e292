import { type ClaimIdentity, claimName } from '../../framework/metadata/document/document.ts';
import type { Clock } from '../../lib/clock.ts';
import type { StoredDevice } from './stored.ts';

/** Time after which work counts as slow, ms. More than the 2 s that a CNI plugin waits for IPv6 duplicate address detection. */
const patienceMs = 3_000;

export interface DeviceProgressOptions<Claim> {
  /** Kind of work. */
  work: 'attached' | 'prepared';
  /** Number of devices. */
  total: number;
  clock: Clock;
  /** Called once after 3 s, unless disposed before. @param progress progress of the work, with the current device */
  onSlow: (claim: Claim, progress: string) => void;
}

/** Progress of work on the devices of a pod, one after the other. Must be disposed when the work ends. */
export class DeviceProgress<Claim extends { identity: ClaimIdentity }> implements Disposable {
  readonly #options: DeviceProgressOptions<Claim>;
  readonly #end = new AbortController();
  #ready = 0;
  #claim: Claim | undefined;
  /** Current step of the work on the current claim. */
  #step: 'before devices' | StoredDevice | 'after devices' = 'before devices';
  /** Claims whose devices are attached and that only wait for routers, while the work goes on with other claims. */
  readonly #waiting = new Set<Claim>();

  constructor(options: DeviceProgressOptions<Claim>) {
    this.#options = options;
    // A claim that has only devices with `adminAccess` waits for none.
    if (options.total === 0) return;
    options.clock.sleep(patienceMs, this.#end.signal).then(
      () => this.#reportSlow(),
      () => undefined,
    );
  }

  #reportSlow(): void {
    // The claim that is being attached delays the others, so it is reported. Otherwise a claim that waits for a router is.
    const isAttaching = this.#claim !== undefined && this.#step !== 'after devices';
    const [waiting] = isAttaching ? [] : this.#waiting;
    const claim = waiting ?? this.#claim;
    if (claim !== undefined) this.#options.onSlow(claim, this.#describe(claim));
  }

  claimBegins(claim: Claim): void {
    this.#claim = claim;
    this.#step = 'before devices';
  }

  /** Records that the devices of a claim are attached, and that it only waits for routers. */
  claimWaits(claim: Claim): void {
    this.#waiting.add(claim);
  }

  claimEnds(claim: Claim): void {
    this.#waiting.delete(claim);
    if (this.#claim === claim) this.#claim = undefined;
  }

  deviceBegins(device: StoredDevice): void {
    this.#step = device;
  }

  deviceReady(): void {
    this.#ready++;
    this.#step = 'after devices';
  }

  [Symbol.dispose](): void {
    // Without a reason, `abort()` would create an error with a stack, which costs time.
    this.#end.abort(isOver);
  }

  #describe(claim: Claim): string {
    const { work, total } = this.#options;
    const count = `${this.#ready} of ${total} devices are ${work} after ${patienceMs / 1_000} s`;
    const name = `claim ${claimName(claim.identity)}`;
    if (this.#waiting.has(claim)) return `${count}; ${name} waits for an IPv6 address from a router`;
    if (this.#step === 'before devices') return `${count}; ${name} ${beforeDevices[work]}`;
    if (this.#step === 'after devices') return `${count}; now the driver records ${name} and its metadata`;
    const { name: device, pciAddress } = this.#step;
    return `${count}; now device ${device} (${pciAddress}) of ${name}${helpOf[work](this.#step)}`;
  }
}

/** Reason of the aborted signal. No code reads it. */
const isOver = 'over';

/** Texts for a claim whose devices are not being worked on yet. */
const beforeDevices = {
  attached: 'waits until other work on the claim has ended',
  prepared: 'waits for the API server, or until devices that it had before are restored',
};

/** Texts about other components that take part in the work on a device. */
const helpOf: Record<DeviceProgressOptions<never>['work'], (device: StoredDevice) => string> = {
  attached: ({ config: { attach, ipam } }) => {
    if (attach === 'cni') return ', with the CNI plugins of its claim';
    return ipam === undefined ? '' : `, with IPAM plugin ${ipam.type}`;
  },
  prepared: ({ config: { driver = 'default' } }) =>
    driver === 'default' ? '' : `, which is bound to ${driver === 'kernel' ? 'its kernel driver' : `driver ${driver}`}`,
};
