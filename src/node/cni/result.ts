import { isIPv4 } from 'node:net';
import * as z from 'zod';
import { isTooDeep, maxJsonDepth } from '../../lib/json-depth.ts';
import { canonicalCidr, NetlinkError } from '../netlink/index.ts';
import { CniError, type CniErrorDetails } from './errors.ts';
import { describeIssues, isObject } from './network.ts';
import { type CniVersion, describeUnknownVersion, isAtLeast, isCniVersion } from './versions.ts';

/** A result as the plugin printed it, including fields that netdra does not know: the next plugin gets the whole result. */
export type RawCniResult = Record<string, unknown> & { cniVersion: CniVersion };

const nonEmpty = z
  .string()
  .nullish()
  .transform((text) => text || undefined);
/** Schema of an address with prefix length. The result is canonical. */
const cidr = z.string().transform((text, context) => {
  return readCidr(text) ?? refuse(context, `must be an address with prefix length, not ${JSON.stringify(text)}`);
});
const ipAddress = nonEmpty.transform((text, context) => {
  if (text === undefined) return undefined;
  const single = readCidr(`${text}/${isIPv4(text) ? 32 : 128}`)?.split('/')[0];
  return single ?? refuse(context, `must be an IP address, not ${JSON.stringify(text)}`);
});
const count = z.int().min(0).max(0xffffffff).nullish();
const listOf = <Shape extends z.ZodRawShape>(shape: Shape) =>
  z
    .array(z.object(shape).transform((fields) => present(fields)))
    .nullish()
    .transform((list) => list ?? []);
/** Fields of results, addresses and routes that netdra uses, or that have no effect of their own. */
const known = {
  result: ['cniVersion', 'ips', 'routes'],
  /**
   * `interface` is an index into a list of interfaces that IPAM plugins do not have; `version` is the IP version, before CNI
   * 1.0.
   */
  ips: ['address', 'gateway', 'interface', 'version'],
  routes: ['dst', 'gw', 'mtu', 'advmss', 'priority', 'table', 'scope'],
} as const;
const resultSchema = z.object({
  ips: listOf({ address: cidr, gateway: ipAddress }),
  routes: listOf({
    dst: cidr,
    gw: ipAddress,
    mtu: count,
    advmss: count,
    priority: count,
    table: count,
    scope: z.int().min(0).max(255).nullish(),
  }),
});

/** Parsed result of a chain of plugins, or of an IPAM plugin. Interfaces are left out: netdra reads them from the kernel. */
export interface CniResult extends z.infer<typeof resultSchema> {
  cniVersion: CniVersion;
  /** Paths of other fields that have a value. In the result of an IPAM plugin, nothing applies them. */
  unused: string[];
}
/**
 * Route of a result. The fields have the meaning of CNI specification 1.1.0, section 5, "ADD success"; absent fields have the
 * kernel's defaults.
 */
export type CniRoute = CniResult['routes'][number];

/** Plugin call that gave a result, for errors. */
export interface ResultSubject extends CniErrorDetails {
  plugin: string;
  network: string;
  /** Version of the configuration. It is assumed for a result without a version. */
  cniVersion: CniVersion;
}

/**
 * Parses a plugin's output after an ADD.
 * @throws CniError `cni-output-invalid`
 */
export function parseCniResult(text: string, subject: ResultSubject): RawCniResult {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (cause) {
    const what = text.trim() === '' ? 'nothing' : 'something that is not JSON';
    throw invalidResult(subject, `it printed ${what}`, cause);
  }
  if (isTooDeep(value)) throw invalidResult(subject, `it is nested more than ${maxJsonDepth} levels deep`);
  if (!isObject(value)) throw invalidResult(subject, 'it is not a JSON object');
  const cniVersion = value.cniVersion ?? subject.cniVersion;
  if (typeof cniVersion !== 'string' || !isCniVersion(cniVersion)) {
    throw invalidResult(subject, `cniVersion: ${describeUnknownVersion(cniVersion)}`);
  }
  const raw = { ...value, cniVersion };
  decodeCniResult(raw, subject);
  return raw;
}

/** Returns the parts of a result that netdra uses. @throws CniError `cni-output-invalid` */
export function decodeCniResult(raw: RawCniResult, subject: ResultSubject): CniResult {
  const parsed = resultSchema.safeParse(raw);
  if (!parsed.success) throw invalidResult(subject, describeIssues(parsed.error));
  return { cniVersion: raw.cniVersion, ...parsed.data, unused: unusedFields(raw) };
}

function unusedFields(raw: RawCniResult): string[] {
  const others = (fields: object, names: readonly string[], path = '') =>
    Object.entries(fields).flatMap(([name, value]) => (names.includes(name) || isEmpty(value) ? [] : [path + name]));
  const inLists = (['ips', 'routes'] as const).flatMap((list) =>
    ((raw[list] ?? []) as object[]).flatMap((each, index) => others(each, known[list], `${list}.${index}.`)),
  );
  return [...others(raw, known.result), ...inLists];
}

/** Returns whether a value is empty. Plugins in Go print empty fields of some types. */
function isEmpty(value: unknown): boolean {
  if (typeof value === 'object' && value !== null) return Object.keys(value).length === 0;
  return value === undefined || value === null || value === '' || value === 0 || value === false;
}

/** Converts a result to the version that a plugin is configured for, so that the plugin accepts it as `prevResult`. */
export function convertCniResult(raw: RawCniResult, cniVersion: CniVersion): RawCniResult {
  if (raw.cniVersion === cniVersion) return raw;
  if (!Array.isArray(raw.ips)) return { ...raw, cniVersion };
  const ips = raw.ips.map(({ version: _version, ...ip }: Record<string, unknown>) =>
    isAtLeast(cniVersion, '1.0.0') ? ip : { ...ip, version: String(ip.address).includes(':') ? '6' : '4' },
  );
  return { ...raw, cniVersion, ips };
}

function readCidr(text: string): string | undefined {
  try {
    return canonicalCidr(text);
  } catch (error) {
    if (error instanceof NetlinkError) return undefined;
    throw error;
  }
}

function refuse(context: z.RefinementCtx, message: string): never {
  context.addIssue({ code: 'custom', message });
  return z.NEVER;
}

type Present<T> = { [K in keyof T as T[K] extends NonNullable<T[K]> ? K : never]: T[K] } & {
  [K in keyof T]?: NonNullable<T[K]>;
};

/** Returns an object without the fields that have no value. */
function present<T extends object>(fields: T): Present<T> {
  const entries = Object.entries(fields).filter(([, value]) => value !== undefined && value !== null);
  return Object.fromEntries(entries) as Present<T>;
}

function invalidResult(subject: ResultSubject, problem: string, cause?: unknown): CniError {
  const { plugin, network } = subject;
  const message = `plugin ${plugin} of CNI network ${network} gave no valid result: ${problem}`;
  const hint = `report it to the maintainers of ${plugin}: its result breaks the CNI specification`;
  return new CniError('cni-output-invalid', message, { ...subject, cause, hint });
}
