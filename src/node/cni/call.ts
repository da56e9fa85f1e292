import { constants } from 'node:fs';
import { access, stat } from 'node:fs/promises';
import { join } from 'node:path';
import type { Clock } from '../../lib/clock.ts';
import { KeyedMutex } from '../../lib/keyed-mutex.ts';
import type { Logger } from '../../lib/logger.ts';
import { type CniAttachment, describeAttachment } from './attachment.ts';
import { type CniCommand, CniError } from './errors.ts';
import type { Exec } from './exec.ts';
import { findFailure, startFailure, timeoutFailure } from './failure.ts';
import type { CniPluginConfig } from './network.ts';
import { createEnvironment, formatRequest } from './request.ts';
import type { RawCniResult } from './result.ts';

/** Directories and environment for plugins: see `CniRunnerOptions`. */
export interface PluginCallerOptions {
  binDirs: string[];
  searchPath: string;
  exec: Exec;
  clock: Clock;
  logger: Logger;
}

/** One call of one plugin. */
export interface PluginCall {
  command: CniCommand;
  plugin: CniPluginConfig;
  attachment: CniAttachment;
  /** Path of the network namespace; empty if it no longer exists. */
  netnsPath: string;
  prevResult?: RawCniResult | undefined;
}

/**
 * Maximum number of concurrent runs of one plugin for one command. Their memory counts towards the limit of the driver's
 * container, and a hundred pods may start at once, for example after a reboot.
 */
const runsAtOnce = 16;

/** Finds plugins and runs them. */
export class PluginCaller {
  readonly #options: PluginCallerOptions;
  /** Locks by plugin and command: no call waits for another plugin that hangs, and no DEL for an ADD. */
  readonly #turns = new KeyedMutex(runsAtOnce);

  constructor(options: PluginCallerOptions) {
    this.#options = options;
  }

  /**
   * Returns the path of a plugin's executable.
   * @throws CniError `cni-plugin-missing`
   */
  async find(type: string, network: string): Promise<string> {
    const { binDirs } = this.#options;
    for (const dir of binDirs) {
      const path = join(dir, type);
      if (await isProgram(path)) return path;
    }
    const message = `CNI network ${network} needs the plugin ${type}, which is not installed`;
    const hint = `install it into ${binDirs.join(' or ')}`;
    throw new CniError('cni-plugin-missing', message, { network, plugin: type, hint });
  }

  /**
   * Runs a plugin and returns its output. When the signal fires, kills the plugin and its whole process group.
   * @throws CniError `cni-plugin-missing`, `cni-plugin-failed`, `cni-output-invalid` for too much output, `cni-timeout` if
   * the signal has fired
   */
  async call(request: PluginCall, signal: AbortSignal): Promise<string> {
    const { exec, clock, logger, binDirs, searchPath } = this.#options;
    const { command, plugin, attachment, netnsPath, prevResult } = request;
    const network = attachment.network.name;
    const path = await this.find(plugin.type, network);
    const subject = { network, plugin: plugin.type, command, path, target: describeAttachment(attachment) };
    using _ = await this.#turns.acquire(`${command} ${plugin.type}`, signal).catch((cause) => {
      throw timeoutFailure(subject, { cause });
    });
    const startedMs = clock.nowMs();
    const outcome = await exec({
      path,
      env: createEnvironment(attachment, { command, netnsPath, binDirs, searchPath }),
      stdin: formatRequest(plugin, attachment, prevResult),
      signal,
    }).catch((cause: unknown) => {
      throw startFailure(subject, cause);
    });
    const waitedMs = clock.nowMs() - startedMs;
    const { containerId, ifName } = attachment;
    const fields = { network, plugin: plugin.type, command, containerId, ifName, ms: Math.round(waitedMs) };
    logger.debug(fields, 'called a CNI plugin');
    if (signal.aborted && outcome.exitCode === null) {
      throw timeoutFailure(subject, { waitedMs, stderr: outcome.stderr, cause: signal.reason });
    }
    const failure = findFailure(outcome, subject);
    if (failure !== undefined) throw failure;
    return outcome.stdout;
  }
}

async function isProgram(path: string): Promise<boolean> {
  try {
    await access(path, constants.X_OK);
    return (await stat(path)).isFile();
  } catch {
    return false;
  }
}
