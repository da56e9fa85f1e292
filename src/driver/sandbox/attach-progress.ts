import { type ClaimIdentity, claimName } from '../../framework/metadata/index.ts';
import type { Clock } from '../../lib/clock.ts';
import type { StoredClaim, StoredDevice } from '../state/index.ts';

/** A CNI plugin that waits for IPv6 duplicate address detection takes up to 2 s, and is not slow. */
const patienceMs = 3_000;

export interface AttachProgressOptions {
  /** The claims whose devices are attached. */
  claims: readonly StoredClaim[];
  clock: Clock;
  /** Called after 3 s, unless it was disposed of. @param progress how far the work is, and with which device */
  onSlow: (claim: ClaimIdentity, progress: string) => void;
}

/** How far a pass is with the devices of a pod, which are attached one after the other. To be disposed of when the pass ends. */
export class AttachProgress implements Disposable {
  readonly #total: number;
  readonly #end = new AbortController();
  #ready = 0;
  #claim: ClaimIdentity | undefined;
  #device: StoredDevice | undefined;

  constructor({ claims, clock, onSlow }: AttachProgressOptions) {
    this.#total = claims.flatMap(({ devices }) => devices).length;
    clock.sleep(patienceMs, this.#end.signal).then(
      () => this.#claim && onSlow(this.#claim, this.#describe(this.#claim)),
      () => undefined,
    );
  }

  claimBegins(claim: ClaimIdentity): void {
    this.#claim = claim;
    this.#device = undefined;
  }

  deviceBegins(device: StoredDevice): void {
    this.#device = device;
  }

  deviceReady(): void {
    this.#ready++;
  }

  [Symbol.dispose](): void {
    this.#end.abort();
  }

  #describe(claim: ClaimIdentity): string {
    const count = `${this.#ready} of ${this.#total} devices are attached after ${patienceMs / 1_000} s`;
    const name = `claim ${claimName(claim)}`;
    if (this.#device === undefined) return `${count}; ${name} waits for other work on it`;
    const { name: device, pciAddress } = this.#device;
    return `${count}; now device ${device} (${pciAddress}) of ${name}${helpOf(this.#device)}`;
  }
}

/** Who attaches a device besides the kernel. */
function helpOf({ config: { attach, ipam } }: StoredDevice): string {
  if (attach === 'cni') return ', with the CNI plugins of its claim';
  return ipam === undefined ? '' : `, with IPAM plugin ${ipam.type}`;
}
