import { readFile } from 'node:fs/promises';
import { text as readAll } from 'node:stream/consumers';
import * as yaml from 'js-yaml';
import { networkAddressPoolSchema } from '../driver/api/address-pool.ts';
import { classConfigSchema } from '../driver/api/class-config.ts';
import { networkDevicePolicySchema } from '../driver/api/policy-object.ts';
import { checkSchema, type SchemaFault } from '../driver/api/schema-faults.ts';
import { vfConfigSchema } from '../driver/api/vf-config.ts';
import { type FindPlace, type TextPlace, yamlPlaces } from '../driver/api/yaml-places.ts';
import type { ClosedField } from '../driver/model/index.ts';
import { explain } from '../lib/errors.ts';
import { findYamlProblem } from '../lib/json-depth.ts';
import { inventoryPolicySchema } from '../node/inventory/index.ts';
import { classesInValues } from './chart-values.ts';
import { checkFileClaim, type FileClaim, isOwnedByPod } from './claim-check.ts';
import { findUnknownRequests } from './claim-requests.ts';
import { type ConfigEntry, checkFileClass, type FileClass } from './class-check.ts';
import { fieldsOf, selectorsOf } from './multus/contract.ts';
import { MultusFiles } from './multus/files.ts';
import { slipsIn } from './strict-checks.ts';

/** A fault in a file. */
export interface FileFault extends TextPlace {
  file: string;
  field: string;
  message: string;
}

export interface Validation {
  /** Number of checked objects: inventory policies, and classes, claims and templates with a VFConfig. */
  checked: number;
  faults: FileFault[];
  /** Facts that could not be checked without a cluster, as text. */
  notes: string[];
}

export interface ValidateOptions {
  driverName: string;
  /** Fields in the driver's `--open-claim-fields`. */
  openClaimFields: readonly ClosedField[];
  /** Whether notes are faults, and also objects that were skipped because of a probable misspelling. */
  strict?: boolean;
}

interface Document {
  file: string;
  /** Any YAML value. */
  value: unknown;
  placeOf: FindPlace;
}

/** A claim, with its place in its document. */
interface ClaimToCheck extends FileClaim {
  document: Document;
  /** Path of the claim's `devices` in its document. */
  at: readonly PropertyKey[];
}

const start: TextPlace = { line: 1, column: 1 };

/** Kinds of resource.k8s.io, of all versions. Source: Kubernetes, staging/src/k8s.io/api/resource. */
const resourceKinds = ['DeviceClass', 'ResourceClaim', 'ResourceClaimTemplate', 'ResourceSlice'];
const otherResourceKinds = ['DeviceTaintRule', 'ResourcePoolStatusRequest'];
/** Object kinds of netdra.dev; a VFConfig is part of other objects. */
const ownKinds = [
  'InventoryPolicy',
  'NetworkAddress',
  'NetworkAddressLease',
  'NetworkAddressPool',
  'NetworkDevicePolicy',
  'NodeNetworkDevices',
];

/**
 * Checks files without a cluster: inventory policies, NetworkDevicePolicies and policies in values of the chart, and the
 * VFConfigs of DeviceClasses, ResourceClaims and ResourceClaimTemplates. Also checks a claim against its class if a file
 * contains the class. Skips other objects.
 * @param files paths of the files; `-`: standard input
 */
export async function validateFiles(files: readonly string[], options: ValidateOptions): Promise<Validation> {
  return await new Validator(options).run(files);
}

class Validator {
  readonly #options: ValidateOptions;
  readonly #result: Validation = { checked: 0, faults: [], notes: [] };
  readonly #classes = new Map<string, FileClass>();
  readonly #claims: ClaimToCheck[] = [];
  readonly #multus: MultusFiles<Document>;
  /** Notes that several objects share, each with its first place and the number of further places. */
  readonly #shared = new Map<string, { place: TextPlace & { file: string }; more: number }>();

  constructor(options: ValidateOptions) {
    this.#options = options;
    this.#multus = new MultusFiles(options.driverName);
  }

  async run(files: readonly string[]): Promise<Validation> {
    for (const file of files) {
      const { checked, faults } = this.#result;
      const before = checked + faults.length;
      for (const document of await this.#read(file)) this.#check(document, document.value, []);
      if (this.#result.checked + faults.length > before) continue;
      const nothing = `contains neither an inventory policy nor a VFConfig for ${this.#options.driverName}`;
      if (this.#options.strict) faults.push({ file, ...start, field: 'document', message: nothing });
      else this.#result.notes.push(`${file}: ${nothing}`);
    }
    for (const claim of this.#claims) await this.#checkWithClasses(claim);
    for (const { document, isNote, ...fault } of this.#multus.faults()) {
      if (isNote) this.#note(document, fault.path, `${fault.field}: ${fault.message}`);
      else this.#report(document, [fault], []);
    }
    for (const [note, { place, more }] of this.#shared) {
      const message = `${note}${more === 0 ? '' : ` (and ${more} more)`}`;
      if (this.#options.strict) this.#result.faults.push({ ...place, field: 'document', message });
      else this.#result.notes.push(`${place.file}:${place.line}: ${message}`);
    }
    const order = (a: FileFault, b: FileFault) => a.line - b.line || a.column - b.column;
    const inOrder = files.flatMap((file) => this.#result.faults.filter((fault) => fault.file === file).sort(order));
    return { ...this.#result, faults: inOrder };
  }

  async #read(file: string): Promise<Document[]> {
    try {
      const text = await (file === '-' ? readAll(process.stdin) : readFile(file, 'utf8'));
      const places = yamlPlaces(text, yaml);
      return yaml.loadAll(text).map((value, index) => {
        const problem = findYamlProblem(value, text);
        if (problem !== undefined) throw new Error(`document ${index + 1} ${problem}`);
        return { file, value, placeOf: places[index] ?? (() => start) };
      });
    } catch (error) {
      const { mark, reason } = error instanceof yaml.YAMLException ? error : {};
      const place = mark === undefined ? start : { line: mark.line + 1, column: mark.column + 1 };
      const message = reason === undefined ? `cannot be read: ${explain(error)}` : `is not valid YAML: ${reason}`;
      this.#result.faults.push({ file, ...place, field: 'document', message });
      return [];
    }
  }

  /** Checks an object. @param path path of the object in its document, for example an item of a list */
  #check(document: Document, value: unknown, path: readonly PropertyKey[]): void {
    const fields = fieldsOf(value);
    const { apiVersion, kind, items, inventoryPolicy } = fields;
    const isValues =
      kind === undefined && (Object.keys(fieldsOf(inventoryPolicy)).length > 0 || classesInValues(fields).length > 0);
    this.#multus.add(document, fields, path);
    if (Array.isArray(items)) {
      for (const [index, item] of items.entries()) this.#check(document, item, [...path, 'items', index]);
    } else if (String(apiVersion).startsWith('resource.k8s.io/')) {
      this.#checkResource(document, fields, path);
    } else if (kind === 'NetworkAddressPool') {
      this.#result.checked++;
      const { faults = [] } = checkSchema(networkAddressPoolSchema, value, 'docs/address-pools.md');
      this.#report(document, faults, path);
    } else if (kind === 'NetworkDevicePolicy') {
      this.#checkPolicy(document, value, path, networkDevicePolicySchema);
    } else if (kind === 'InventoryPolicy' || (kind === undefined && ('pfs' in fields || 'nics' in fields))) {
      this.#checkPolicy(document, value, path);
    } else if (isValues) {
      this.#checkValues(document, fields, path);
    } else if (kind === 'ConfigMap') {
      for (const [key, text] of Object.entries(fieldsOf(fields.data)))
        this.#checkConfigMapEntry(document, text, [...path, 'data', key]);
    } else if (isOwn(apiVersion) && !ownKinds.includes(String(kind))) {
      this.#reportKind(document, path, kind, ownKinds);
    } else if (this.#options.strict && value !== null && !isOwn(apiVersion)) {
      this.#report(document, slipsIn(fields), path);
    }
  }

  /** Checks values of the chart, which have no `apiVersion` and `kind`. */
  #checkValues(document: Document, fields: Record<string, unknown>, path: readonly PropertyKey[]): void {
    const apiVersion = 'netdra.dev/v1alpha1';
    const policy = fieldsOf(fields.inventoryPolicy);
    if (Object.keys(policy).length > 0)
      this.#checkPolicy(document, { apiVersion, kind: 'InventoryPolicy', ...policy }, [...path, 'inventoryPolicy']);
    for (const { name, config, selectors, extendedResourceName, path: at } of classesInValues(fields)) {
      const parameters = { apiVersion, kind: 'VFConfig', ...config };
      const { faults = [] } = checkSchema(classConfigSchema, parameters, 'docs/vfconfig.md', 'vfConfig');
      this.#report(document, faults, [...path, ...at]);
      this.#result.checked++;
      if (name === undefined || faults.length > 0) continue;
      const configs = [{ opaque: { driver: this.#options.driverName, parameters } }];
      const file = { name, configs, isOurs: true, selectors, extendedResourceName };
      this.#checkClass(document, file, [...path, ...at], 'vfConfig');
    }
  }

  /** Checks the inventory policy in a ConfigMap, which has it as text. Reports faults at the key of the text. */
  #checkConfigMapEntry(document: Document, text: unknown, path: readonly PropertyKey[]): void {
    if (typeof text !== 'string') return;
    const report = (message: string) => this.#report(document, [{ field: 'data', message, path: [] }], path);
    let value: unknown;
    try {
      value = yaml.load(text);
    } catch (error) {
      if (!(error instanceof yaml.YAMLException)) throw error;
      if (policyPattern.test(text)) report(`is not valid YAML: ${error.reason}`);
      return;
    }
    const { kind = '', ...fields } = fieldsOf(value);
    if (kind === 'InventoryPolicy') {
      const place = document.placeOf(path);
      const problem = findYamlProblem(value, text);
      if (problem !== undefined) report(problem);
      else this.#checkPolicy({ ...document, placeOf: () => place }, value, []);
    } else if (this.#options.strict && ('pfs' in fields || 'nics' in fields || isOwn(fields.apiVersion))) {
      this.#reportKind(document, path, kind, ['InventoryPolicy']);
    }
  }

  #reportKind(document: Document, path: readonly PropertyKey[], kind: unknown, known: readonly string[]): void {
    const message = `${JSON.stringify(kind)} is not a kind of this API: use one of ${known.join(', ')}`;
    this.#report(document, [{ field: 'kind', message, path: ['kind'] }], path);
  }

  /** Adds a note once, even if it applies to several objects. */
  #note({ file, placeOf }: Document, path: readonly PropertyKey[], note: string): void {
    const shared = this.#shared.get(note);
    if (shared !== undefined) shared.more++;
    else this.#shared.set(note, { place: { file, ...placeOf(path) }, more: 0 });
  }

  #checkPolicy(
    document: Document,
    policy: unknown,
    path: readonly PropertyKey[],
    schema: typeof inventoryPolicySchema | typeof networkDevicePolicySchema = inventoryPolicySchema,
  ): void {
    this.#result.checked++;
    this.#multus.addPolicy(policy);
    const { faults = [] } = checkSchema<unknown>(schema, policy, 'docs/inventory.md');
    this.#report(document, faults, path);
  }

  #checkResource(
    document: Document,
    { kind, metadata, spec }: Record<string, unknown>,
    path: readonly PropertyKey[],
  ): void {
    const { name = '', namespace } = fieldsOf(metadata) as { name?: string; namespace?: string };
    if (kind === 'DeviceClass') {
      const configs = this.#configs(document, fieldsOf(spec).config, classConfigSchema, [...path, 'spec', 'config']);
      if (configs === undefined) return;
      const selectors = selectorsOf(fieldsOf(spec));
      const isOurs = configs.length > 0 || selectors.includes(this.#options.driverName);
      const { extendedResourceName } = fieldsOf(spec);
      const at = [...path, 'spec', 'config', configs.length - 1, 'opaque', 'parameters'];
      this.#checkClass(document, { name, configs, isOurs, selectors, extendedResourceName }, at);
    } else if (kind === 'ResourceClaim' || kind === 'ResourceClaimTemplate') {
      const isTemplate = kind === 'ResourceClaimTemplate';
      if (isTemplate && fieldsOf(spec).spec === undefined) {
        this.#report(
          document,
          [{ field: 'spec.spec', message: 'is missing: put the specification of the claim there', path: ['spec'] }],
          path,
        );
      }
      const at = [...path, 'spec', ...(isTemplate ? ['spec'] : []), 'devices'];
      const devices = fieldsOf(fieldsOf(isTemplate ? fieldsOf(spec).spec : spec).devices);
      const configs = this.#configs(document, devices.config, vfConfigSchema, [...at, 'config']);
      this.#report(document, findUnknownRequests(devices), at);
      if (configs === undefined) return;
      const isFromTemplate = isTemplate || isOwnedByPod(metadata);
      this.#claims.push({ document, at, namespace, name, devices, configs, isFromTemplate });
      if (isTemplate && configs.some(hasAddresses))
        this.#note(document, at, 'each claim of a template gets the same addresses: use ipam, or a claim for each pod');
    } else if (![...resourceKinds, ...otherResourceKinds].includes(String(kind).replace(/List$/, ''))) {
      this.#reportKind(document, path, kind, resourceKinds);
    }
  }

  /** Checks a class. @param path path of the configuration at which faults are reported */
  #checkClass(
    document: Document,
    { name, ...file }: FileClass & { name: string },
    path: readonly PropertyKey[],
    field = 'parameters',
  ): void {
    this.#classes.set(name, file);
    const faults = checkFileClass(file, this.#options.openClaimFields);
    const found = faults.map((message) => ({ field, message, path: [] }));
    this.#report(document, found, path);
  }

  /** Checks entries of `config`. @returns the configurations for the driver; `undefined` if one is invalid */
  #configs(
    document: Document,
    entries: unknown,
    schema: typeof classConfigSchema | typeof vfConfigSchema,
    path: readonly PropertyKey[],
  ): ConfigEntry[] | undefined {
    const { driverName } = this.#options;
    const found: ConfigEntry[] = [];
    let isValid = true;
    for (const [index, entry] of (Array.isArray(entries) ? entries : []).entries()) {
      const { opaque, requests } = fieldsOf(entry);
      const { driver, parameters } = fieldsOf(opaque);
      if (driver !== driverName) {
        if (fieldsOf(parameters).kind !== 'VFConfig') continue;
        const which = `the VFConfig is for driver ${JSON.stringify(driver)}, not ${driverName} (--driver-name)`;
        this.#note(document, [...path, index], `${which}: not checked`);
        continue;
      }
      const { faults = [] } = checkSchema(schema, parameters, 'docs/vfconfig.md', 'parameters');
      this.#report(document, faults, [...path, index, 'opaque', 'parameters']);
      isValid &&= faults.length === 0;
      found.push({ requests: Array.isArray(requests) ? requests : [], opaque: { driver: driverName, parameters } });
    }
    if (found.length > 0) this.#result.checked++;
    return isValid ? found : undefined;
  }

  async #checkWithClasses({ document, at, ...claim }: ClaimToCheck): Promise<void> {
    const { driverName: driver, openClaimFields: open } = this.#options;
    const { faults, notes } = await checkFileClaim(claim, { driver, open, classes: this.#classes });
    this.#report(document, faults, at);
    for (const { path, message } of notes) this.#note(document, [...at, ...path], message);
  }

  #report(document: Document, faults: readonly SchemaFault[], at: readonly PropertyKey[]): void {
    const { file, placeOf } = document;
    for (const { field, message, path } of faults) {
      this.#result.faults.push({ file, ...placeOf([...at, ...path]), field, message });
    }
  }
}

/** Pattern that recognizes an inventory policy in text that is not valid YAML. */
const policyPattern = /(?:^|[{,]\s*)["']?kind["']? *: *["']?InventoryPolicy\b/m;

function isOwn(apiVersion: unknown): boolean {
  return String(apiVersion).startsWith('netdra.dev/');
}

function hasAddresses({ opaque }: ConfigEntry): boolean {
  const { addresses } = fieldsOf(opaque?.parameters);
  return Array.isArray(addresses) && addresses.length > 0;
}
