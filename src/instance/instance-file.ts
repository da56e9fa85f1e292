import { existsSync, readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { join } from 'node:path';
import type { DeviceState } from '../driver/devices/device-state.ts';
import { NetdraError } from '../lib/errors.ts';
import type { Logger } from '../lib/logger.ts';
import { replaceFile } from '../lib/replace-file.ts';
import type { Settings } from './settings.ts';

/** Facts about an instance of the driver that do not change while it runs. */
interface StartFacts {
  settings: Partial<Settings>;
  /** Boot ID at the start, with which tools ignore facts of an earlier boot: a device that hung then no longer hangs. */
  bootId: string;
  /** ID of the mount namespace in which the paths of the settings are valid. */
  mounts: string;
  /** Start time: Unix time, ms. */
  startedAtMs: number;
}

/** Facts that the newest instance of the driver on this node writes for the tools. */
export interface InstanceFacts extends StartFacts, DeviceState {}

const fileName = 'instance.json';

function mountNamespace(): string {
  return readlinkSync('/proc/self/ns/mnt');
}

/** Writes the facts of an instance when they change. */
export class InstanceFile {
  readonly #path: string;
  readonly #facts: StartFacts;
  readonly #logger: Logger;
  #text: string | undefined;

  /** Creates the writer. @param dataDir the driver's directory below the kubelet's `plugins` */
  constructor(dataDir: string, { settings, bootId, logger }: { settings: Settings; bootId: string; logger: Logger }) {
    this.#path = join(dataDir, fileName);
    this.#facts = { settings, bootId, mounts: mountNamespace(), startedAtMs: Date.now() };
    this.#logger = logger;
  }

  /** Writes the facts, unless they are unchanged. A failure is only logged: the driver itself does not read the file. */
  write(state: DeviceState): void {
    const text = `${JSON.stringify({ ...this.#facts, ...state })}\n`;
    if (text === this.#text) return;
    // During a rolling update the file must describe the newer instance.
    if (this.#isNewer(readFactsIfGood(this.#path))) this.#text = text;
    else this.#replace(text);
  }

  /** Overwrites the facts of a newer instance that has ended before this one. */
  regain(): void {
    if (this.#text !== undefined) this.#replace(this.#text);
  }

  #replace(text: string): void {
    try {
      replaceFile(this.#path, text, 0o600, { flush: false });
      this.#text = text;
    } catch (error) {
      this.#logger.warn(
        { err: error },
        'cannot write the file from which tools on this node read the settings of the driver',
      );
    }
  }

  /**
   * Returns whether the facts are those of a newer instance. Ignores start times of other boots and in the future: clocks may
   * be wrong until they are set.
   */
  #isNewer(other: InstanceFacts | undefined): boolean {
    if (other?.bootId !== this.#facts.bootId) return false;
    return other.startedAtMs > this.#facts.startedAtMs && other.startedAtMs <= Date.now();
  }
}

/**
 * Reads the facts of the driver's instance on this node.
 * @param driverName name of the driver; absent: the driver of this node if there is only one
 * @returns `undefined` if no driver has run here
 * @throws NetdraError `instance-unreadable`
 */
export function readInstance(kubeletPluginsDir: string, driverName?: string): InstanceFacts | undefined {
  if (driverName !== undefined) return readFacts(join(kubeletPluginsDir, driverName, fileName));
  const names = existsSync(kubeletPluginsDir) ? readOrFail(kubeletPluginsDir, (dir) => readdirSync(dir)) : [];
  const paths = names.map((name) => join(kubeletPluginsDir, name, fileName)).filter((path) => existsSync(path));
  const [path, ...others] = paths;
  if (others.length > 0) {
    const message = `${paths.length} drivers have run on this node: ${paths.join(', ')}`;
    throw new NetdraError('instance-unreadable', message, { hint: 'select one with --driver-name' });
  }
  return path === undefined ? undefined : readFacts(path);
}

/**
 * Returns those settings of an instance that are valid for this process: some paths exist only in the instance's container.
 * Leaves out the policy file, since the policy in force may differ from it.
 */
export function settingsHere({ settings, mounts }: InstanceFacts): Partial<Settings> {
  const { inventoryPolicy: _policy, ...inContainer } = settings;
  const { procSysDir: _procSysDir, kubeconfig: _kubeconfig, ...anywhere } = inContainer;
  return mounts === mountNamespace() ? inContainer : anywhere;
}

/** Reads an instance file. @returns `undefined` for a missing or damaged file, which is then overwritten */
function readFactsIfGood(path: string): InstanceFacts | undefined {
  try {
    return readFacts(path);
  } catch {
    return undefined;
  }
}

function readFacts(path: string): InstanceFacts | undefined {
  if (!existsSync(path)) return undefined;
  return readOrFail(path, () => JSON.parse(readFileSync(path, 'utf8')));
}

function readOrFail<T>(path: string, read: (path: string) => T): T {
  try {
    return read(path);
  } catch (cause) {
    const hint = 'run this as root; if the file is damaged, remove it: the driver writes a new one when it starts';
    const message = `cannot read the settings of the driver from ${path}`;
    throw new NetdraError('instance-unreadable', message, { cause, path, hint });
  }
}
