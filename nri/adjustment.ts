import type { Container } from './container.ts';
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

const fields = ['env', 'mounts', 'overrides'];

/**
 * Rejects values that Go's decoder or the runtime would misinterpret, or would refuse with an error that names neither plugin
 * nor field. Checks types, too, since handlers in JavaScript are unchecked.
 * @throws TtrpcError `invalidArgument`
 */
function check(adjustment: ContainerAdjustment): void {
  if (!isObject(adjustment)) throw invalid(`${JSON.stringify(adjustment)}, not an object with env and mounts`);
  const unknown = Object.keys(adjustment).find((field) => !fields.includes(field));
  if (unknown !== undefined) throw invalid(`an unknown field ${unknown}: an adjustment has ${fields.join(', ')}`);
  const { overrides = false } = adjustment;
  if (typeof overrides !== 'boolean') throw invalid('overrides that is not a boolean');
  for (const { name, value } of listOf('env', adjustment.env)) checkVariable(name, value);
  for (const mount of listOf('mounts', adjustment.mounts)) checkMount(mount);
}

function checkVariable(name: unknown, value: unknown): void {
  const variable = JSON.stringify(name);
  if (!isText(name) || name === '' || name.includes('=')) throw invalid(`${variable} as name of a variable in env`);
  if (name.startsWith(removalMark))
    throw invalid(`variable ${variable}, whose leading "-" would make the runtime remove another one`);
  if (!isText(value)) throw invalid(`a value of variable ${variable} that is not text`);
}

function checkMount({ destination, source, type, options }: Partial<Container['mounts'][number]>): void {
  const path = JSON.stringify(destination);
  if (!isText(destination) || !destination.startsWith('/')) throw invalid(`${path} as destination of a mount`);
  if (!Array.isArray(options)) throw invalid(`options of mount ${path} that are not a list`);
  if (![source, type, ...options].every(isText))
    throw invalid(`a source, type or option of mount ${path} that is not text`);
}

/** Returns the entries of a list in an adjustment. @throws TtrpcError `invalidArgument` if it is no list of objects */
function listOf<T extends object>(field: string, list: readonly T[] = []): readonly Partial<T>[] {
  if (Array.isArray(list) && list.every(isObject)) return list;
  throw invalid(`${field} that is not a list of objects`);
}

function isObject(value: unknown): value is object {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
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
