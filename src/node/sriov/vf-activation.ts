import { pauseMs } from '../../lib/backoff.ts';
import { type Clock, resolvesWithin } from '../../lib/clock.ts';
import { poll } from '../../lib/poll.ts';
import { isRepresentor, type Link, type RtnlConnection } from '../netlink/index.ts';
import { SriovError } from './errors.ts';
import type { Pf, Sysfs } from './sysfs.ts';

/** Time for VFs to appear before the caller continues, ms: most cards need a few seconds. */
const waitMs = 10_000;
/** Time for the VFs to appear after the kernel has accepted their number. */
const appear = { forMs: 2_000, everyMs: 100 };
/** Each attempt can interrupt the card. */
const pauses = { firstMs: 30_000, longestMs: 1_800_000 };

/** A PF with its links on the host. */
export type LinkedPf = Pf & { links: Link[] };

/** The VFs of a PF, and why they are not those requested. */
export interface VfsOfPf {
  vfs: Pf['vfs'];
  problem?: SriovError;
}

export interface VfActivationOptions {
  sysfs: Pick<Sysfs, 'pf' | 'setNumVfs'>;
  /** Connection into the namespace that the PFs' interfaces are in. */
  connection: Pick<RtnlConnection, 'setLink'>;
  clock: Clock;
}

interface FailedAttempt {
  problem: SriovError;
  numVfs: number;
  /** Number of consecutive failures. */
  count: number;
  retryAtMs: number;
}

/**
 * Sets PFs up, switches their VFs on, and checks the effect. A card may take minutes, or hang: after some time the caller
 * continues without its VFs, and learns the outcome at a later call. A card that fails is left alone for a time that
 * doubles with each failure; its problem stays the same meanwhile.
 */
export class VfActivation {
  readonly #options: VfActivationOptions;
  /** PFs in progress, by PCI address, and whether they had VFs before. */
  readonly #pending = new Map<string, boolean>();
  /** Failures by PCI address. */
  readonly #failures = new Map<string, FailedAttempt>();

  constructor(options: VfActivationOptions) {
    this.#options = options;
  }

  /**
   * Ensures that a PF has VFs.
   * @param numVfs how many are switched on if it has none; 0: none are
   * @throws SriovError if the PF cannot be read
   */
  async ensure(pf: LinkedPf, numVfs: number): Promise<VfsOfPf> {
    const { sysfs, clock } = this.#options;
    const { pciAddress } = pf;
    const hadVfs = this.#pending.get(pciAddress);
    // VFs that are being switched on are there when all of them are.
    if (hadVfs !== undefined) return { vfs: hadVfs ? pf.vfs : [] };
    if (numVfs === 0 || (pf.vfs.length > 0 && downPorts(pf).length === 0)) {
      this.#failures.delete(pciAddress);
      return { vfs: pf.vfs };
    }
    const failure = this.#failures.get(pciAddress);
    if (failure?.numVfs === numVfs && clock.nowMs() < failure.retryAtMs)
      return { vfs: pf.vfs, problem: failure.problem };
    if (!(await resolvesWithin(clock, waitMs, this.#attempt(pf, numVfs)))) return { vfs: pf.vfs };
    const { vfs } = await sysfs.pf(pciAddress);
    const problem = this.#failures.get(pciAddress)?.problem;
    return problem === undefined ? { vfs } : { vfs, problem };
  }

  /** Never rejects: the caller may have gone on. */
  async #attempt(pf: LinkedPf, numVfs: number): Promise<void> {
    const { pciAddress } = pf;
    const count = (this.#failures.get(pciAddress)?.count ?? 0) + 1;
    this.#pending.set(pciAddress, pf.vfs.length > 0);
    try {
      await this.#switchOn(pf, numVfs);
      this.#failures.delete(pciAddress);
    } catch (error) {
      const message = `cannot set up ${subjectOf(pf)} for its VFs`;
      const problem = error instanceof SriovError ? error : incomplete(pf, message, { cause: error });
      const retryAtMs = this.#options.clock.nowMs() + pauseMs(count - 1, pauses);
      this.#failures.set(pciAddress, { problem, numVfs, count, retryAtMs });
    } finally {
      this.#pending.delete(pciAddress);
    }
  }

  async #switchOn(pf: LinkedPf, numVfs: number): Promise<void> {
    const { sysfs, connection } = this.#options;
    // Some drivers make no VFs while the PF is down, and VFs have no carrier then.
    for (const { index } of downPorts(pf)) await connection.setLink(index, { up: true });
    if (pf.vfs.length > 0) return;
    await sysfs.setNumVfs(pf, numVfs);
    const made = await this.#countVfs(pf, numVfs);
    if (made >= numVfs) return;
    throw incomplete(pf, `${subjectOf(pf)} has ${made} of ${numVfs} VFs, although the kernel accepted that number`, {
      hint: 'the kernel log may say why; some drivers need SR-IOV switched on in the firmware of the card',
    });
  }

  async #countVfs({ pciAddress }: Pf, wanted: number): Promise<number> {
    const { sysfs, clock } = this.#options;
    const count = async () => (await sysfs.pf(pciAddress)).vfs.length;
    return await poll(clock, appear, count, (made) => made >= wanted);
  }
}

function downPorts({ links }: LinkedPf): Link[] {
  return links.filter((link) => !link.up && !isRepresentor(link));
}

function subjectOf({ pciAddress, links }: LinkedPf): string {
  const port = links.find((link) => !isRepresentor(link));
  return port === undefined ? `PF ${pciAddress}` : `PF ${port.name} (${pciAddress})`;
}

function incomplete({ pciAddress }: Pf, message: string, more: { cause?: unknown; hint?: string }): SriovError {
  return new SriovError('vfs-incomplete', message, { device: pciAddress, retriable: true, ...more });
}
