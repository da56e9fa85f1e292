import { createPlugin, type RuntimeInfo } from '../../nri/index.ts';
import { systemClock } from '../lib/clock.ts';
import { errnoCode, NetdraError } from '../lib/errors.ts';

/** Time limit for the registration and the first list, ms; a runtime with many pods needs some of it. */
const timeoutMs = 10_000;
const hopelessCodes = ['ENOENT', 'ECONNREFUSED', 'EACCES'];

/**
 * Connects briefly to the runtime as a second NRI plugin, just as the driver connects: success means that the driver can
 * connect, too.
 * @param socketPath the runtime's NRI socket
 * @throws NetdraError `nri-unavailable`, with the system's error code as `cause.code` if there is one
 */
export async function probeNri(socketPath: string): Promise<RuntimeInfo> {
  let failure: unknown;
  const abort = new AbortController();
  const remember = (fields: object) => {
    if (!('err' in fields)) return;
    failure = fields.err;
    // Ends the probe at once: the plugin would go on waiting for the runtime to appear.
    if (hopelessCodes.includes(deepCode(failure) ?? '')) abort.abort();
  };
  const logger = { debug: () => undefined, info: () => undefined, warn: remember, error: remember };
  // The highest index makes this the last plugin, so that it does not disturb others.
  await using plugin = createPlugin({ name: 'netdra-doctor', index: '99', socketPath, handlers: {}, logger });
  using deadline = systemClock.deadline(timeoutMs, abort.signal);
  plugin.start();
  try {
    return await plugin.whenConnected(deadline.signal);
  } catch (error) {
    const cause = failure ?? error;
    throw new NetdraError('nri-unavailable', `cannot connect to NRI at ${socketPath}`, { cause, path: socketPath });
  }
}

/** Returns the system's error code of an error or its causes. */
export function deepCode(error: unknown): string | undefined {
  for (let current = error; current instanceof Error; current = current.cause) {
    const code = errnoCode(current);
    if (code !== undefined && /^E[A-Z]+$/.test(code)) return code;
  }
  return undefined;
}
