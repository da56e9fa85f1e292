import { existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { fileURLToPath } from 'node:url';
import { pino } from 'pino';
import { systemClock } from '../../../src/lib/clock.ts';
import { testDriver } from '../../../test/doubles/objects.ts';
import { Bench } from '../bench.ts';
import type { DriverProcess } from '../driver-process.ts';

const preload = fileURLToPath(new URL('kill-points.ts', import.meta.url));
const startsWithinMs = 20_000;

/** A node whose driver can be killed at any of its kill points. */
export class FaultNode implements AsyncDisposable {
  readonly bench: Bench;
  readonly #armedPath: string;
  readonly #logPath: string;
  #driver: DriverProcess | undefined;

  private constructor(bench: Bench) {
    this.bench = bench;
    this.#armedPath = join(bench.dir, 'faults-armed');
    this.#logPath = join(bench.dir, 'faults-log');
  }

  static async start(): Promise<FaultNode> {
    const settings = { simulate: { pfs: 1, vfsPerPf: 4 } };
    return new FaultNode(await Bench.start({ version: '2.1', logger: pino({ level: 'silent' }), settings }));
  }

  /** @param killAt number of the point at which it is killed, from 1 */
  async startDriver(killAt?: number): Promise<void> {
    const env = {
      NETDRA_FAULTS_ARMED: this.#armedPath,
      NETDRA_FAULTS_LOG: this.#logPath,
      ...(killAt === undefined ? {} : { NETDRA_FAULTS_KILL: String(killAt) }),
    };
    this.#driver = await this.bench.startProcess({}, { execArgv: ['--import', preload], env });
    await this.bench.api.until(() => this.bench.api.objects('ResourceSlice').length > 0, startsWithinMs);
  }

  async stopDriver(): Promise<void> {
    await this.#driver?.stop('SIGKILL');
    this.#driver = undefined;
  }

  /**
   * Whether the driver is killed during a call, which may then itself wait for a driver, or shortly after it: some of
   * its work is done after the answer.
   */
  async wasKilledIn(call: Promise<unknown>): Promise<boolean> {
    let endsAt = Number.POSITIVE_INFINITY;
    const setEnd = () => {
      endsAt = performance.now() + 500;
    };
    call.then(setEnd, setEnd);
    for (; performance.now() < endsAt; await systemClock.sleep(20)) {
      if (this.#driver?.hasExited) return true;
    }
    return false;
  }

  arm(): void {
    writeFileSync(this.#logPath, '');
    writeFileSync(this.#armedPath, '');
  }

  /** @returns the points reached since `arm` */
  disarm(): string[] {
    rmSync(this.#armedPath, { force: true });
    if (!existsSync(this.#logPath)) return [];
    return readFileSync(this.#logPath, 'utf8')
      .split('\n')
      .filter((line) => line !== '');
  }

  /** Claims in the driver's store. */
  storedClaims(): number {
    using database = new DatabaseSync(join(this.bench.settings.kubeletPluginsDir, testDriver, 'state.db'));
    return Number(database.prepare('SELECT count(*) AS claims FROM claims').get()?.claims);
  }

  /** After a loss: gives the next pod a clean node as far as possible. */
  async recover(): Promise<void> {
    this.disarm();
    // Always a new instance: the current one may still be about to die at a point that it reached earlier.
    await this.stopDriver();
    await this.startDriver();
    await this.bench.endAllPods();
    await this.stopDriver();
  }

  async [Symbol.asyncDispose]() {
    await this.recover();
    await this.bench[Symbol.asyncDispose]();
  }
}
