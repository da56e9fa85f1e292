import { isDeepStrictEqual } from 'node:util';
import type { Device } from '../../framework/resourceslice/index.ts';
import type { Logger } from '../../lib/logger.ts';
import type { InventoryReport } from '../../node/inventory/index.ts';

/** Results of the last scan: compared with those of the next one, and logged when they change. */
export class ScanReport {
  readonly #logger: Logger;
  #offered: Device[] = [];
  #logged = '';

  constructor(logger: Logger) {
    this.#logger = logger;
  }

  /**
   * Logs why devices are not offered, unless that was logged after the last scan already.
   * @returns whether it was logged
   */
  log({ excluded, problems }: Pick<InventoryReport, 'excluded' | 'problems'>): boolean {
    const text = JSON.stringify([excluded, problems.map(({ message }) => message)]);
    if (text === this.#logged) return false;
    this.#logged = text;
    for (const exclusion of excluded) this.#logger.info({ ...exclusion }, 'device not offered');
    for (const problem of problems) this.#logger.warn({ err: problem }, 'device cannot be read');
    return true;
  }

  /** @returns whether the devices differ from those of the last scan */
  setOffered(offered: Device[]): boolean {
    const isChanged = !isDeepStrictEqual(offered, this.#offered);
    this.#offered = offered;
    return isChanged;
  }
}
