import * as z from 'zod';
import { bondOptionModes } from '../../src/driver/api/bond-config.ts';

/** The parts of JSON schema that zod generates for the schemas of VFConfig. */
interface Schema {
  type?: string;
  const?: unknown;
  enum?: unknown[];
  format?: string;
  pattern?: string;
  allOf?: Schema[];
  anyOf?: Schema[];
  minimum?: number;
  maximum?: number;
  minLength?: number;
  maxLength?: number;
  minItems?: number;
  maxItems?: number;
  items?: Schema;
  properties?: Record<string, Schema>;
  required?: string[];
  propertyNames?: Schema;
  additionalProperties?: Schema | boolean;
}

/** One check of opaque parameters, for a policy. */
export interface FormRule {
  field: string;
  /** CEL, true if the field is absent from the parameters `c` or has an allowed form. */
  valid: string;
  message: string;
}

function interfaceName(x: string): string {
  return `(${x}.size() >= 1 && ${x}.size() <= 15 && ${x}.matches("^[!-$&-.0-9;-~]*(%d[!-$&-.0-9;-~]*)?$") && !(${x} in [".", "..", "all", "default"]))`;
}

function bond(x: string): string {
  const mode = `(has(${x}.mode) ? ${x}.mode : "active-backup")`;
  const checks = [
    ...Object.entries(bondOptionModes).map(
      ([key, modes]) => `(!has(${x}.${key}) || ${mode} in ${JSON.stringify(modes)})`,
    ),
    `(has(${x}.arpInterval) == has(${x}.arpTargets))`,
    `(!has(${x}.arpInterval) || !has(${x}.miimon))`,
    `(!has(${x}.primaryReselect) || has(${x}.primary))`,
  ];
  return `(${checks.join(' && ')})`;
}

function deviceFiles(x: string): string {
  const isForGroup = `(has(${x}.gid) && !has(${x}.uid))`;
  const fits = `${isForGroup} ? ${x}.mode.matches("[67].$") : ${x}.mode.matches("[67]..$")`;
  return `(!has(${x}.mode) || (${fits}))`;
}

function vlanRange(x: string): string {
  const bound = (at: string) => `int(${x}.split("-")[${at}])`;
  const [first, last] = [bound('0'), bound(`${x}.split("-").size() - 1`)];
  return `(${x}.matches("^(0|[1-9][0-9]{0,3})(-[1-9][0-9]{0,3})?$") && ${first} <= ${last} && ${first} <= 4094)`;
}

function route(x: string): string {
  const fits = (address: string) => `${address}.contains(":") == ${x}.destination.contains(":")`;
  const isDirect = `!has(${x}.gateway) && !has(${x}.nextHops)`;
  const checks = [
    `(!has(${x}.gateway) || (${fits(`${x}.gateway`)} && !has(${x}.nextHops)))`,
    `(!has(${x}.nextHops) || ${x}.nextHops.all(h, ${fits('h.gateway')}))`,
    `(!has(${x}.source) || ${fits(`${x}.source`)})`,
    `(!has(${x}.onlink) || !(${isDirect}))`,
    `(!has(${x}.scope) || (!${x}.destination.contains(":") && (${x}.scope == "global" || (${isDirect}))))`,
  ];
  return `(${checks.join(' && ')})`;
}

/** The meaning of `.meta({ format })` in the schemas. Each has to agree with the function beside it there. */
const formats: Record<string, (x: string) => string> = {
  ip: (x) => `isIP(${x})`,
  'host-address': (x) =>
    `(isIP(${x}) && !ip(${x}).isUnspecified() && !cidr("224.0.0.0/4").containsIP(ip(${x})) && !cidr("ff00::/8").containsIP(ip(${x})))`,
  network: (x) => `(isCIDR(${x}) && cidr(${x}).masked() == cidr(${x}))`,
  'interface-address': (x) =>
    `(isCIDR(${x}) && !cidr(${x}).ip().isUnspecified() && !cidr("224.0.0.0/4").containsIP(cidr(${x}).ip()) && !cidr("ff00::/8").containsIP(cidr(${x}).ip()))`,
  'mac-address': (x) =>
    `(${x}.matches("^[0-9a-fA-F][02468aceACE](:[0-9a-fA-F]{2}){5}$") && ${x} != "00:00:00:00:00:00")`,
  'interface-name': interfaceName,
  bond,
  'device-files': deviceFiles,
  switches: (x) => `${x}.size() <= 64`,
  'arp-target': (x) => `(isIP(${x}) && !${x}.contains(":") && !${x}.startsWith("0.") && ${x} != "255.255.255.255")`,
  'link-name': (x) => `(${interfaceName(x)} && !${x}.contains("%"))`,
  rule: (x) =>
    `((has(${x}.source) || has(${x}.destination)) && (!has(${x}.source) || !has(${x}.destination) || ${x}.source.contains(":") == ${x}.destination.contains(":")))`,
  'vlan-range': vlanRange,
  'routing-table': (x) => `(${x} < 253 || ${x} > 255)`,
  route,
};

/**
 * The checks of a policy for opaque parameters: one for each field, and one for fields that do not exist.
 * @throws Error for a schema that uses an unsupported construct
 */
export function formRules(schema: z.ZodObject): FormRule[] {
  const { properties = {} } = z.toJSONSchema(schema, { io: 'input' }) as Schema;
  const names = Object.keys(properties);
  const unknown: FormRule = {
    field: '',
    valid: `c.all(k, k in ${JSON.stringify(names)})`,
    message: `a VFConfig here has the fields ${names.join(', ')} only`,
  };
  const rules = Object.entries(properties).map(([field, property]): FormRule => {
    const valid = `!has(c.${field}) || ${toCel(property, `c.${field}`)}`;
    return {
      field,
      valid,
      message: `${field} of a VFConfig has a value that is not allowed; docs/vfconfig.md says which are`,
    };
  });
  return [unknown, ...rules.filter(({ field }) => field !== 'apiVersion' && field !== 'kind')];
}

/** @param depth makes variable names unique within nested scopes */
function toCel(schema: Schema, x: string, depth = 0): string {
  const { anyOf, allOf = [], format } = schema;
  if (anyOf !== undefined) return `(${anyOf.map((each) => toCel(each, x, depth)).join(' || ')})`;
  const checks = [...typeChecks(schema, x, depth), ...allOf.map((each) => toCel(each, x, depth))];
  if (format !== undefined) {
    const check = formats[format];
    if (check === undefined) throw new Error(`no CEL for the format ${format}`);
    checks.push(check(x));
  }
  return checks.length === 1 ? (checks[0] ?? '') : `(${checks.join(' && ')})`;
}

function typeChecks(schema: Schema, x: string, depth: number): string[] {
  const { type, minimum, maximum, minLength, maxLength, minItems, maxItems, items, pattern } = schema;
  if (schema.enum !== undefined) return [`${x} in ${JSON.stringify(schema.enum)}`];
  if (schema.const !== undefined) return [`${x} == ${JSON.stringify(schema.const)}`];
  switch (type) {
    case undefined:
      return pattern === undefined ? ['true'] : [`${x}.matches(${JSON.stringify(pattern)})`];
    case 'boolean':
      return [`type(${x}) == bool`];
    case 'integer':
      // 1.0 is a whole number in JSON, but not an int in CEL.
      return [
        `(type(${x}) == int || (type(${x}) == double && double(int(${x})) == ${x}))`,
        ...bounds(x, minimum, maximum),
      ];
    case 'string':
      return [
        `type(${x}) == string`,
        ...bounds(`${x}.size()`, minLength, maxLength),
        ...(pattern === undefined ? [] : [`${x}.matches(${JSON.stringify(pattern)})`]),
      ];
    case 'array': {
      const each = `i${depth}`;
      const checked = items === undefined ? [] : [`${x}.all(${each}, ${toCel(items, each, depth + 1)})`];
      return [`type(${x}) == list`, ...bounds(`${x}.size()`, minItems, maxItems), ...checked];
    }
    case 'object':
      return [`type(${x}) == map`, ...objectChecks(schema, x, depth)];
    default:
      throw new Error(`no CEL for the type ${type}`);
  }
}

function objectChecks(schema: Schema, x: string, depth: number): string[] {
  const { properties, required = [], propertyNames, additionalProperties } = schema;
  const key = `k${depth}`;
  if (properties === undefined) {
    const ofNames = propertyNames === undefined ? [] : [toCel(propertyNames, key, depth + 1)];
    const isAny = typeof additionalProperties !== 'object' || Object.keys(additionalProperties).length === 0;
    const ofValues = isAny ? [] : [toCel(additionalProperties as Schema, `${x}[${key}]`, depth + 1)];
    const checks = [...ofNames, ...ofValues];
    return checks.length === 0 ? [] : [`${x}.all(${key}, ${checks.join(' && ')})`];
  }
  const known = `${x}.all(${key}, ${key} in ${JSON.stringify(Object.keys(properties))})`;
  const checks = Object.entries(properties).map(([name, property]) => {
    const at = `${x}.${name}`;
    const valid = toCel(property, at, depth + 1);
    return required.includes(name) ? `has(${at}) && ${valid}` : `(!has(${at}) || ${valid})`;
  });
  return [known, ...checks];
}

function bounds(x: string, least: number | undefined, most: number | undefined): string[] {
  return [...(least === undefined ? [] : [`${x} >= ${least}`]), ...(most === undefined ? [] : [`${x} <= ${most}`])];
}
