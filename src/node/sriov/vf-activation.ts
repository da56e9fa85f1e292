import { pauseMs } from '../../lib/backoff.ts';
import { type Clock, resolvesWithin } from '../../lib/clock.ts';
import { poll } from '../../lib/poll.ts';
import { isRepresentor, type Link, type RtnlConnection } from '../netlink/index.ts';
import { SriovError } from './errors.ts';
import type { Pf, Sysfs } from './sysfs.ts';

/** How long the caller waits for VFs to appear before it continues, ms: most cards need a few seconds. */
const waitMs = 10_000;
/** Time for the VFs to appear after the kernel has accepted their number, and interval of checks, ms. */
const appear = { forMs: 2_000, everyMs: 100 };
/** Pauses between attempts, ms: each attempt can interrupt the card. */
const pauses = { firstMs: 30_000, longestMs: 1_800_000 };

/** A PF with its links on the host. */
export type LinkedPf = Pf & { links: Link[] };

/** VFs of a PF, and the reason why they are not the requested ones. */
export interface VfsOfPf {
  vfs: Pf['vfs'];
  problem?: SriovError;
}

export interface VfActivationOptions {
  sysfs: Pick<Sysfs, 'pf' | 'setNumVfs'>;
  /** Netlink connection in the namespace that the PFs' interfaces are in. */
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
 * Sets PFs up, enables their VFs, and checks the result. A card may take minutes, or hang: after some time the caller
 * continues without its VFs, and gets the result at a later call. After a failure, a card is left alone for a time that
 * doubles with each failure; until then, calls return the same problem.
 */
export class VfActivation {
  readonly #options: VfActivationOptions;
  /** Whether a PF with a running attempt had VFs before the attempt, by PCI address. */
  readonly #pending = new Map<string, boolean>();
  /** Failures by PCI address. */
  readonly #failures = new Map<string, FailedAttempt>();

  constructor(options: VfActivationOptions) {
    this.#options = options;
  }

  /**
   * Makes sure that a PF has VFs.
   * @param numVfs number of VFs to enable if the PF has none; 0: none
   * @throws SriovError if the PF cannot be read
   */
  async ensure(pf: LinkedPf, numVfs: number): Promise<VfsOfPf> {
    const { sysfs, clock } = this.#options;
    const { pciAddress } = pf;
    const hadVfs = this.#pending.get(pciAddress);
    // VFs that are being enabled do not count until all of them are there.
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

  /** Sets up a PF and enables its VFs. Never rejects: the caller may no longer wait for it. */
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
    // While the PF is down, some drivers create no VFs, and VFs have no carrier.
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
