/** Requests for a table, or with a large answer, are sent alone. */
const alone = new Set<unknown>([
  'addresses',
  'defaultRoutes',
  'findRoutes',
  'linkTable',
  'links',
  'neighbors',
  'reachableAddresses',
  'rules',
  'vfInfos',
]);

interface Request {
  isAlone: boolean;
  done: Promise<unknown>;
}

/** Counts the trips to a thread that the requests of a connection take: those that wait share one, as in `RequestSocket`. */
export class NetlinkTrips {
  readonly #count: () => void;
  readonly #waiting: Request[] = [];
  #isBusy = false;

  constructor(count: () => void) {
    this.#count = count;
  }

  add(method: unknown, done: Promise<unknown>): void {
    this.#waiting.push({ isAlone: alone.has(method), done });
    if (this.#isBusy) return;
    this.#isBusy = true;
    queueMicrotask(() => void this.#send());
  }

  async #send(): Promise<void> {
    while (this.#waiting.length > 0) {
      const next = this.#waiting.findIndex(({ isAlone }) => isAlone);
      const together = this.#waiting.splice(0, next === -1 ? this.#waiting.length : Math.max(1, next));
      this.#count();
      await Promise.allSettled(together.map(({ done }) => done));
    }
    this.#isBusy = false;
  }
}
