import * as z from 'zod';
import { isTooDeep, maxJsonDepth } from '../../lib/json-depth.ts';
import { CniError } from './errors.ts';
import { type CniVersion, cniVersions, describeUnknownVersion, latestOf } from './versions.ts';

/** Configuration of an IPAM plugin without an attaching plugin. */
export interface CniIpam {
  cniVersion: CniVersion;
  /** Name under which plugins keep their leases. */
  name: string;
  ipam: { type: string; [field: string]: unknown };
}

const maxPlugins = 16;
/** Fields that netdra sets. If configurations set them, plugins could reach devices that netdra does not know of. */
const reservedFields = ['prevResult', 'runtimeConfig'];

const pluginType = z
  .string({ error: 'must be the file name of a plugin, such as host-device' })
  .refine(isBareFileName, { error: 'must be a bare file name of letters, digits, ".", "_" and "-": no "/", no ".."' });
const pluginSchema = z
  .looseObject({
    /** Name of the plugin's program, without a directory. */
    type: pluginType,
    /** Capabilities that the runtime may pass in `runtimeConfig`. */
    capabilities: z.record(z.string(), z.boolean()).optional(),
    /** IPAM section; no address management if it is absent or has no type. */
    ipam: z.looseObject({ type: z.union([z.literal(''), pluginType]).optional() }).optional(),
  })
  .superRefine((plugin, context) => {
    for (const field of Object.keys(plugin).filter((key) => reservedFields.includes(key) || key.startsWith('cni.dev/')))
      context.addIssue({ code: 'custom', path: [field], message: 'is filled in by netdra: leave it out' });
  });
/** Configuration of one plugin, with the plugin's own fields. */
export type CniPluginConfig = z.infer<typeof pluginSchema>;
const networkName = z
  .string({ error: 'must be a name' })
  .regex(
    /^[A-Za-z0-9][A-Za-z0-9_.-]{0,252}$/,
    'must begin with a letter or digit, followed by letters, digits, "_", "." and "-"',
  );
const versionFields = {
  cniVersion: z.string({ error: `must be one of ${cniVersions.join(', ')}` }),
  /** Further versions that the configuration supports, since CNI 1.1.0. */
  cniVersions: z.array(z.string()).optional(),
};
const listSchema = z
  .looseObject({ ...versionFields, name: networkName, plugins: z.array(pluginSchema).min(1).max(maxPlugins) })
  .transform((list, context) => ({
    cniVersion: pickVersion(list, context),
    name: list.name,
    plugins: list.plugins,
  }));
/** A chain of plugins, in the order of their calls. */
export type CniNetwork = z.infer<typeof listSchema>;
const singleSchema = pluginSchema
  .safeExtend({ ...versionFields, name: networkName })
  .transform(({ cniVersion, cniVersions, name, ...plugin }, context) => ({
    cniVersion: pickVersion({ cniVersion, cniVersions }, context),
    name,
    plugins: [plugin],
  }));
const ipamSchema = z.looseObject({ type: pluginType });

/**
 * Parses the configuration of a network: a list of plugins or a single one, as an object or as JSON text.
 * @param subject owner of the configuration, for errors: `claim default/fast-net`
 * @param options.defaultName name for a configuration without one, such as the name of its NetworkAttachmentDefinition
 * @throws CniError `cni-config-invalid` with the paths of the fields and what is allowed
 */
export function parseCniNetwork(value: unknown, subject: string, options: { defaultName?: string } = {}): CniNetwork {
  const config = asGoReads(toPlainObject(value, `CNI network of ${subject}`));
  const named = config.name === undefined || config.name === '' ? { ...config, name: options.defaultName } : config;
  const result = ('plugins' in named ? listSchema : singleSchema).safeParse(named);
  if (result.success) return result.data;
  throw invalidConfig(`CNI network of ${subject}`, describeIssues(result.error));
}

/**
 * Parses the `ipam` section of a plugin's configuration.
 * @throws CniError `cni-config-invalid` with the paths of the fields and what is allowed
 */
export function parseCniIpam(
  value: unknown,
  subject: string,
  { name, cniVersion = '1.0.0' }: { name: string; cniVersion?: CniVersion },
): CniIpam {
  const what = `IPAM configuration of ${subject}`;
  const result = ipamSchema.safeParse(asGoReads(toPlainObject(value, what)));
  if (!result.success) throw invalidConfig(what, describeIssues(result.error));
  const checkedName = networkName.safeParse(name);
  if (!checkedName.success) throw invalidConfig(what, describeIssues(checkedName.error, 'network name'));
  return { cniVersion, name, ipam: result.data };
}

/** Describes validation issues: `plugins.0.type: …; name: …`. */
export function describeIssues(error: z.ZodError, whole = 'configuration'): string {
  return error.issues.map(({ path, message }) => `${path.join('.') || whole}: ${message}`).join('; ');
}

function pickVersion(
  { cniVersion, cniVersions = [] }: { cniVersion: string; cniVersions?: string[] | undefined },
  context: z.RefinementCtx,
): CniVersion {
  const version = latestOf([cniVersion, ...cniVersions]);
  if (version !== undefined) return version;
  context.addIssue({ code: 'custom', path: ['cniVersion'], message: describeUnknownVersion(cniVersion) });
  return z.NEVER;
}

function isBareFileName(name: string): boolean {
  return /^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$/.test(name) && !name.includes('..');
}

/** Returns a copy that went through JSON: plugins and the cache get exactly what was checked. */
function toPlainObject(value: unknown, what: string): Record<string, unknown> {
  const isText = typeof value === 'string';
  let plain = value;
  try {
    if (isText) plain = JSON.parse(value);
    if (isTooDeep(plain))
      throw invalidConfig(what, `configuration: must be nested at most ${maxJsonDepth} levels deep`);
    if (!isText) plain = JSON.parse(JSON.stringify(value) ?? 'null');
  } catch (cause) {
    if (cause instanceof CniError) throw cause;
    throw invalidConfig(what, 'configuration: must be JSON', cause);
  }
  if (isObject(plain)) return plain;
  throw invalidConfig(what, 'configuration: must be a JSON object');
}

/** Returns whether a value is a JSON object. */
export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** Fields that the CNI specification defines. Their names are compared after {@link fold}. */
const ownFields = ['cniVersion', 'cniVersions', 'name', 'type', 'plugins', 'capabilities', 'ipam'];
const specified = new Map([...ownFields, ...reservedFields].map((name) => [fold(name), name]));

/**
 * Converts a configuration to what plugins, which are written in Go, would read: keys match in any case, and null means
 * absent. Otherwise a plugin could see values that were not checked.
 */
function asGoReads(config: Record<string, unknown>): Record<string, unknown> {
  const entries = Object.entries(config).flatMap(([key, value]): [string, unknown][] => {
    const name = specified.get(fold(key));
    if (name === undefined) return [[key, value]];
    return value === null ? [] : [[name, nestedAsGoReads(name, value)]];
  });
  return Object.fromEntries(entries);
}

function nestedAsGoReads(name: string, value: unknown): unknown {
  if (name === 'plugins' && Array.isArray(value)) return value.map((each) => (isObject(each) ? asGoReads(each) : each));
  if (!isObject(value)) return value;
  if (name === 'ipam') return asGoReads(value);
  if (name !== 'capabilities') return value;
  return Object.fromEntries(Object.entries(value).filter(([, each]) => each !== null));
}

/** Folds the case of a key. Go also treats two characters beyond ASCII as "s" and "k", which are folded, too. */
export function fold(key: string): string {
  return key.toUpperCase().toLowerCase();
}

function invalidConfig(what: string, problems: string, cause?: unknown): CniError {
  return new CniError('cni-config-invalid', `invalid ${what}: ${problems}`, { cause });
}
