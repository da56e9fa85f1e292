import { Activity } from './activity.ts';
import { DraClient } from './kubelet-dra-client.ts';
import { HealthWatch } from './kubelet-health.ts';
import {
  PluginRegistry,
  type Refusal,
  type Registration,
  type RegistrationAttempt,
  type RegistryTimes,
} from './kubelet-registry.ts';

/** A driver instance that the kubelet can call. */
export interface Plugin extends Registration {
  client: DraClient;
  isConnected: boolean;
  /** Absent if the feature gate is off. */
  health?: HealthWatch;
}

export interface KubeletPluginsOptions extends RegistryTimes {
  /** The directory of drivers' registration sockets. */
  registryDir: string;
  /** Refuses well-formed plugins. */
  refuse?: Refusal;
  /** Gate `ResourceHealthStatus`: watches the health of devices. Default false. */
  watchHealth?: boolean;
  /** Pause before a health stream that ended is reopened. Default 5 s. */
  healthReconnectMs?: number;
}

/** The drivers known to one kubelet process. */
export class KubeletPlugins implements Disposable {
  readonly attempts: RegistrationAttempt[] = [];
  readonly #options: KubeletPluginsOptions;
  readonly #registry: PluginRegistry;
  readonly #activity = new Activity('kubelet');
  #plugins: Plugin[] = [];

  constructor(options: KubeletPluginsOptions) {
    this.#options = options;
    this.#registry = new PluginRegistry({
      ...options,
      dir: options.registryDir,
      onRegister: (registration) => this.#add(registration),
      onDeregister: (registration) => this.#remove(registration),
      onAttempt: (attempt) => {
        this.attempts.push(attempt);
        this.#activity.wake();
      },
    });
  }

  /** @throws if the registry directory does not exist */
  async start(): Promise<void> {
    await this.#registry.start();
  }

  /** Instances of one driver, or of all, oldest first. */
  list(driver?: string): Plugin[] {
    return this.#plugins.filter((plugin) => driver === undefined || plugin.driver === driver);
  }

  /** The most recently registered instance that is connected, else the most recent one. @throws Error if there is none */
  get(driver: string): Plugin {
    const plugins = this.list(driver);
    const plugin = plugins.findLast(({ isConnected }) => isConnected) ?? plugins.at(-1);
    if (plugin === undefined) throw new Error(`DRA driver ${driver} is not registered`);
    return plugin;
  }

  until<T>(condition: () => T | undefined | false, timeoutMs: number): Promise<T> {
    return this.#activity.until(condition, timeoutMs, () => `(last attempt: ${JSON.stringify(this.attempts.at(-1))})`);
  }

  [Symbol.dispose](): void {
    this.#registry[Symbol.dispose]();
    for (const plugin of this.#plugins) close(plugin);
    this.#plugins = [];
  }

  #add(registration: Registration): void {
    const { driver, endpoint, service } = registration;
    if (this.list(driver).some((plugin) => plugin.endpoint === endpoint)) {
      const why = `endpoint ${endpoint} already registered for plugin name ${driver}`;
      throw new Error(`RegisterPlugin error -- plugin registration failed with err: ${why}`);
    }
    const client = new DraClient(endpoint, service);
    const plugin: Plugin = { ...registration, client, isConnected: false };
    const { watchHealth = false, healthReconnectMs: reconnectMs = 5_000 } = this.#options;
    if (watchHealth) {
      const onChange = () => this.#activity.wake();
      plugin.health = new HealthWatch({ endpoint, services: registration.services, reconnectMs, onChange });
    }
    this.#plugins.push(plugin);
    client.watchConnection((isConnected) => {
      plugin.isConnected = isConnected;
      this.#activity.wake();
    });
  }

  #remove({ driver, endpoint }: Registration): void {
    const isGone = (plugin: Plugin) => plugin.driver === driver && plugin.endpoint === endpoint;
    for (const plugin of this.#plugins.filter(isGone)) close(plugin);
    this.#plugins = this.#plugins.filter((plugin) => !isGone(plugin));
    this.#activity.wake();
  }
}

function close({ client, health }: Plugin): void {
  health?.[Symbol.dispose]();
  client[Symbol.dispose]();
}
