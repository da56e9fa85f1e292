import type { DecodeOptions } from './decoded-fields.ts';
import { OptionError } from './errors.ts';
import { eventNames } from './events.ts';
import type { PluginHandlers } from './handlers.ts';
import { type Logger, silentLogger } from './logger.ts';
import { defaultRegistrationTimeoutMs } from './runtime-info.ts';

export const defaultSocketPath = '/var/run/nri/nri.sock';

export interface PluginOptions {
  /** Name under which the runtime knows the plugin: letters, digits and `_.+-`. Default: `NRI_PLUGIN_NAME` of `env`. */
  name?: string;
  /** Position among the runtime's plugins, two digits; lower ones are called first. Default: `NRI_PLUGIN_IDX` of `env`. */
  index?: string;
  handlers: PluginHandlers;
  /**
   * Parts of pods and containers that are decoded. Default: everything. Whoever may create pods can give a container tens of
   * thousands of variables or arguments, and a runtime drops a plugin that takes more than 2 s to decode the containers of its
   * node. Skipping a field costs a tenth of decoding it.
   */
  decode?: DecodeOptions;
  /** The runtime's socket. Default `/var/run/nri/nri.sock`. It is recreated when the runtime starts. */
  socketPath?: string;
  /**
   * Environment variables, e.g. `process.env`. Absent: ignored. A runtime that starts the plugin itself passes the
   * descriptor of an open socket in `NRI_PLUGIN_SOCKET`: the plugin then uses that socket instead of `socketPath` and does
   * not reconnect. `NRI_PLUGIN_NAME` and `NRI_PLUGIN_IDX` set name and index.
   */
  env?: Readonly<Record<string, string | undefined>>;
  logger?: Logger;
  backoff?: BackoffOptions;
  /** How long the runtime may take to answer the registration, ms. Default 5000. */
  registrationTimeoutMs?: number;
  /**
   * Time after the registration in which the runtime should send its pods, ms. Default 10000. Then a warning is logged, and the
   * plugin keeps waiting.
   */
  syncPatienceMs?: number;
  /**
   * How long before the runtime's time limit the library refuses an event whose handler has not finished, ms (at half of the
   * limit if that is later). Default 100. Without an answer at the limit, the runtime would drop the plugin and continue with
   * the pod as if the handler had agreed.
   */
  answerBeforeDeadlineMs?: number;
  /** Reaction of the runtime to an event that is not answered in time. Default: both fields are false. */
  failurePolicy?: FailurePolicy;
  /**
   * How long disposing waits for handlers to answer, ms, and then once more for the remaining handlers to react to their
   * aborted signal. Default 2000.
   */
  disposeTimeoutMs?: number;
  /** Directory of `ttrpc.proto` and `nri.proto`. Required where this code is bundled. */
  protoDir?: string;
}

/**
 * Reaction of the runtime to an event that the plugin does not answer in time, for example because its event loop was blocked.
 * Applies to all events that the plugin is subscribed to, including those that end a pod. Supported by NRI v0.12.4 and later;
 * older runtimes ignore it.
 */
export interface FailurePolicy {
  /**
   * Whether the runtime refuses the event, also when the connection is lost while it waits. Default `false`: the runtime
   * proceeds without the answer.
   */
  failRequest?: boolean;
  /** Whether the plugin stays connected for the next event. Default `false`: the runtime closes its connection. */
  keepConnected?: boolean;
}

/** Delays before reconnecting. Each delay is random, between half of its bound and the bound. */
export interface BackoffOptions {
  /** Bound of the first delay, ms. Default 250. The bound doubles with each attempt. */
  initialMs?: number;
  /** Bound of delays after a connection that was refused or lost, ms. Default 30000. */
  maxMs?: number;
  /**
   * Longest delay while nothing listens on the socket, ms. Shorter than `maxMs`, since these attempts disturb no runtime.
   * Default 2000.
   */
  dialMaxMs?: number;
  /** Time for which a connection must receive events to reset the delays to the first one, ms. Default 10000. */
  stableAfterMs?: number;
  /** A number from 0 up to, but not including, 1. Default `Math.random`. */
  random?: () => number;
}

/** Settings that decide how events are answered. */
export interface ServiceSettings {
  handlers: PluginHandlers;
  decode?: DecodeOptions;
  logger: Logger;
  failurePolicy?: FailurePolicy;
}

/** Settings of one connection to a runtime. */
export interface SessionSettings extends ServiceSettings {
  name: string;
  index: string;
  registrationTimeoutMs: number;
  syncPatienceMs: number;
  answerBeforeDeadlineMs: number;
}

/** The options, with defaults applied. */
export interface ResolvedOptions extends SessionSettings {
  socketPath: string;
  backoff: Required<BackoffOptions>;
  disposeTimeoutMs: number;
  /** Descriptor of the socket that the runtime handed over. */
  fd: number | undefined;
  protoDir: string | undefined;
}

export function resolveOptions(options: PluginOptions): ResolvedOptions {
  const { env = {}, handlers, backoff = {} } = options;
  const { name = env.NRI_PLUGIN_NAME ?? '', index = env.NRI_PLUGIN_IDX ?? '' } = options;
  if (!/^[A-Za-z0-9_.+-]+$/.test(name)) {
    throw new OptionError('name', `"${name}" is not a plugin name`, {
      hint: 'letters, digits and _ . + - only; or set NRI_PLUGIN_NAME and pass env',
    });
  }
  if (!/^[0-9]{2}$/.test(index)) {
    throw new OptionError('index', `"${index}" is not a plugin index`, {
      hint: 'exactly two digits, e.g. "10"; or set NRI_PLUGIN_IDX and pass env',
    });
  }
  checkHandlers(handlers);
  return {
    name,
    index,
    handlers,
    socketPath: options.socketPath ?? defaultSocketPath,
    fd: parseDescriptor(env.NRI_PLUGIN_SOCKET),
    logger: options.logger ?? silentLogger,
    backoff: {
      initialMs: backoff.initialMs ?? 250,
      maxMs: backoff.maxMs ?? 30_000,
      dialMaxMs: backoff.dialMaxMs ?? 2_000,
      stableAfterMs: backoff.stableAfterMs ?? 10_000,
      random: backoff.random ?? Math.random,
    },
    registrationTimeoutMs: options.registrationTimeoutMs ?? defaultRegistrationTimeoutMs,
    syncPatienceMs: options.syncPatienceMs ?? 10_000,
    answerBeforeDeadlineMs: options.answerBeforeDeadlineMs ?? 100,
    disposeTimeoutMs: options.disposeTimeoutMs ?? 2_000,
    protoDir: options.protoDir,
    ...(options.decode && { decode: options.decode }),
    ...(options.failurePolicy && { failurePolicy: options.failurePolicy }),
  };
}

const handlerNames: readonly string[] = ['configure', 'synchronize', ...eventNames, 'connected', 'disconnected'];

/**
 * Checks that each handler is a function with the name of an event: a misspelled one would never be called.
 * @throws OptionError
 */
function checkHandlers(handlers: PluginHandlers): void {
  if (typeof handlers !== 'object' || handlers === null) throw new OptionError('handlers', 'is not an object');
  // Instances of classes may have properties of their own.
  const isPlain = [Object.prototype, null].includes(Object.getPrototypeOf(handlers));
  const unknown = isPlain ? Object.keys(handlers).find((name) => !handlerNames.includes(name)) : undefined;
  if (unknown !== undefined)
    throw new OptionError('handlers', `"${unknown}" is not an event`, { hint: `use ${handlerNames.join(', ')}` });
  const wrong = handlerNames.find((name) => !['function', 'undefined'].includes(typeof handlers[name as 'configure']));
  if (wrong !== undefined) throw new OptionError('handlers', `${wrong} is not a function`);
}

function parseDescriptor(text: string | undefined): number | undefined {
  if (text === undefined || text === '') return undefined;
  if (!/^[0-9]{1,6}$/.test(text)) {
    throw new OptionError('env', `NRI_PLUGIN_SOCKET is "${text}", not the number of a file descriptor`);
  }
  return Number(text);
}
