import type { ContainerAdjustment } from './handlers.ts';
import { StatusCode, TtrpcError } from './ttrpc/status.ts';
import type { WireAdjustments } from './wire.ts';

/** Prefix that marks a variable's name or a mount's destination for removal. Source: NRI `IsMarkedForRemoval`. */
export const removalMark = '-';

/**
 * Encodes an adjustment for the runtime. With `overrides`, removes each variable and mount before adding it, which releases the
 * claim of an earlier plugin on it.
 * @throws TtrpcError `invalidArgument`
 */
export function encodeAdjustment(adjustment: ContainerAdjustment): WireAdjustments {
  check(adjustment);
  const { mounts = [], env = [], overrides = false } = adjustment;
  const [removedMounts, removedEnv] = overrides ? [mounts, env] : [[], []];
  return {
    adjust: {
      mounts: [...removedMounts.map(({ destination }) => ({ destination: removalMark + destination })), ...mounts],
      env: [
        ...removedEnv.map(({ name }) => ({ key: removalMark + name })),
        ...env.map(({ name, value }) => ({ key: name, value })),
      ],
    },
  };
}

/**
 * Rejects values that Go's decoder or the runtime would misinterpret, or would refuse with an error that names neither plugin
 * nor field.
 * @throws TtrpcError `invalidArgument`
 */
function check({ env = [], mounts = [] }: ContainerAdjustment): void {
  for (const { name, value } of env) {
    const variable = JSON.stringify(name);
    if (!isText(name) || name === '' || name.includes('=')) throw invalid(`${variable} as name of a variable`);
    if (name.startsWith(removalMark))
      throw invalid(`variable ${variable}, whose leading "-" would make the runtime remove another one`);
    if (!isText(value)) throw invalid(`a value of variable ${variable} that is not text`);
  }
  for (const { destination, source, type, options } of mounts) {
    const path = JSON.stringify(destination);
    if (!isText(destination) || !destination.startsWith('/')) throw invalid(`${path} as destination of a mount`);
    if (![source, type, ...options].every(isText))
      throw invalid(`a source, type or option of mount ${path} that is not text`);
  }
}

/**
 * Returns whether the runtime can receive and use the text: half a surrogate pair is not UTF-8, and Linux forbids NUL in
 * variables and paths.
 */
function isText(value: unknown): value is string {
  return typeof value === 'string' && value.isWellFormed() && !value.includes('\0');
}

function invalid(what: string): TtrpcError {
  return new TtrpcError(StatusCode.invalidArgument, `createContainer returned ${what}`);
}
