import type { ClassConfig } from '../../driver/api/class-config.ts';
import { isDefaultRoute } from '../../driver/api/route-limits.ts';
import { closedFields, fieldOf, mergeVfConfigs, type VfConfig } from '../../driver/model/index.ts';
import { parseCidr } from '../../node/netlink/index.ts';
import { type Dialect, draDriverSriov, dranet, isMeant, rewriteExpression } from './dialects.ts';
import { type Estate, opaqueOf } from './estate.ts';
import { attributeOf } from './expressions.ts';
import { FieldReader } from './field-reader.ts';
import { noteClosed } from './networks.ts';
import type { InputObject } from './report.ts';

const dialects = [draDriverSriov, dranet];
/** Prefix of converted classes, claims and templates. The originals stay while their pods run. */
const prefix = 'netdra-';

/** A DeviceClass of another driver, converted to a class of netdra. */
interface ForeignClass {
  dialect: Dialect;
  /** Name of the converted class. */
  name: string;
  metadata: Metadata;
  expressions: string[];
  config: ClassConfig;
}

interface Metadata {
  labels?: Record<string, string>;
  annotations?: Record<string, string>;
}

interface ConvertedRequest {
  name: string;
  /** Class names of the request's alternatives. */
  classes: string[];
  value: Record<string, unknown>;
  /** Converted classes of the alternatives; `fields` are those of the alternative in `value`. */
  foreign: (ForeignClass & { fields: Record<string, unknown> })[];
  isComplete: boolean;
}

/** Converts DeviceClasses, ResourceClaims and ResourceClaimTemplates of other DRA drivers. */
export class DraConverter {
  readonly #estate: Estate;
  readonly #driver: string;
  /** Converted classes, by the names of their originals; `undefined` for a class of another driver that was not converted. */
  readonly #classes = new Map<string, ForeignClass | undefined>();

  constructor(estate: Estate, driver: string) {
    this.#estate = estate;
    this.#driver = driver;
  }

  /** Converts a class, unless its driver is unknown. Call it before the conversion of claims, which refer to classes. */
  convertClass(of: InputObject): void {
    const dialect = dialects.find((each) => isMeant(each, Object(of.value.spec)));
    if (dialect === undefined) return;
    const spec = this.#reader(of, ['spec'], of.value.spec);
    const expressions = this.#selectors(spec, dialect);
    const configs = spec.objects('config').map((each) => this.#configOf(each, dialect));
    const extendedResourceName = spec.text('extendedResourceName');
    spec.end();
    if (extendedResourceName !== undefined) {
      spec.note(
        'extendedResourceName',
        'of several classes with this resource name, the newest serves pods: apply this class when the nodes have moved to netdra',
      );
    }
    // Without one of its selectors, the class would select foreign devices. Its claims are then not converted, either.
    this.#classes.set(of.name, undefined);
    if (expressions === undefined) return;
    const own = configs.map(({ config }) => config);
    // DRANET gives containers the RDMA device of each NIC that has such a device.
    const rdma =
      dialect === dranet && expressions.some((each) => /\.rdma\b(?!\s*==\s*false)/.test(each)) ? { rdma: true } : {};
    const given = [dialect.defaults, rdma, ...own].reduce(mergeVfConfigs, {});
    const implied = dialect.impliedFor?.(expressions, given);
    if (implied?.note !== undefined) spec.note('selectors', implied.note);
    const config = mergeVfConfigs(given, implied?.config ?? {});
    if (dialect === dranet) noteClosed(this.#estate.report, of, config);
    const entry = { dialect, name: `${prefix}${of.name}`, metadata: this.#metadataOf(of), expressions, config };
    this.#classes.set(of.name, entry);
    this.#addClass(of, entry, extendedResourceName);
  }

  /** Converts a claim or a template, in which the claim's specification is one level deeper. */
  convertClaim(of: InputObject): void {
    const isTemplate = of.kind === 'ResourceClaimTemplate';
    const path = isTemplate ? ['spec', 'spec', 'devices'] : ['spec', 'devices'];
    const spec = Object(isTemplate ? Object(of.value.spec).spec : of.value.spec);
    const devices = this.#reader(of, path, spec.devices);
    const requests = devices.objects('requests').map((each) => this.#request(each));
    const given = devices.objects('config');
    const areKnown = given.map((each) => hasKnownClass(each, requests)).every(Boolean);
    const [ours] = requests.flatMap(({ foreign }) => foreign);
    if (ours === undefined) return;
    const { dialect } = ours;
    const configs = given.map((each) => this.#configOf(each, dialect));
    const constraints = devices.objects('constraints').map((each) => this.#constraint(each, dialect));
    devices.end();
    if (!areKnown || requests.some(({ isComplete }) => !isComplete)) return;
    for (const request of requests) this.#narrow(of, request, configs);
    const entries = configs.flatMap(({ requests: names, config, foreign }) => {
      if (foreign !== undefined) return [foreign];
      const open = partOf(config, (field) => !isClosed(field, config));
      if (Object.keys(open).length === 0) return [];
      return [{ ...(names.length > 0 && { requests: names }), ...opaqueOf(this.#driver, open) }];
    });
    const converted = {
      devices: {
        requests: requests.map(({ value }) => value),
        ...(constraints.length > 0 && { constraints }),
        ...(entries.length > 0 && { config: entries }),
      },
    };
    const inner = isTemplate ? this.#reader(of, ['spec', 'metadata'], Object(of.value.spec).metadata) : undefined;
    const metadata = inner && metadataOf(inner);
    inner?.end();
    const namespace = of.namespace ?? 'default';
    this.#estate.objects.push({
      of,
      value: {
        apiVersion: 'resource.k8s.io/v1',
        kind: of.kind,
        metadata: { name: `${prefix}${of.name}`, namespace, ...this.#metadataOf(of) },
        spec: isTemplate ? { ...(metadata && { metadata }), spec: converted } : converted,
      },
    });
  }

  #reader(of: InputObject, path: readonly PropertyKey[], value: unknown): FieldReader {
    return new FieldReader(this.#estate.report, of, path, value);
  }

  #metadataOf(of: InputObject): Metadata {
    return metadataOf(this.#reader(of, ['metadata'], of.value.metadata)) ?? {};
  }

  #addClass(
    of: InputObject,
    { name, metadata, expressions, config }: ForeignClass,
    extendedResourceName?: string,
  ): void {
    // Leaves out `keepHostConfig: false`, the default. It was set only to keep the class of a claim from implying `true`.
    const settings = partOf(config, (field) => field !== 'keepHostConfig' || config.keepHostConfig === true);
    // The driver refuses `keepHostConfig` for VFs, which the expressions may select as well.
    const kinds = config.keepHostConfig === true ? [`${attributeOf(this.#driver, 'kind')} == "nic"`] : [];
    const spec = {
      ...(extendedResourceName !== undefined && { extendedResourceName }),
      selectors: [...expressions, ...kinds].map((expression) => ({ cel: { expression } })),
      ...(Object.keys(settings).length > 0 && { config: [opaqueOf(this.#driver, settings)] }),
    };
    const value = { apiVersion: 'resource.k8s.io/v1', kind: 'DeviceClass', metadata: { name, ...metadata }, spec };
    this.#estate.objects.push({ of, value });
  }

  /** Converts the selectors of a class or request. @returns `undefined` if a selector has no equivalent */
  #selectors(of: FieldReader, dialect: Dialect): string[] | undefined {
    const expressions = of.objects('selectors').map((each) => this.#selector(each, dialect));
    return expressions.includes(undefined) ? undefined : (expressions as string[]);
  }

  #selector(selector: FieldReader, dialect: Dialect): string | undefined {
    const cel = selector.object('cel');
    const expression = cel.text('expression') ?? '';
    const { text, unknown } = rewriteExpression(dialect, expression, this.#driver);
    if (text === undefined) {
      cel.lose('expression', `netdra has no equivalent of ${unknown}`, 'select by an attribute of docs/inventory.md');
    } else if (text.includes('.pfName') && dialect === dranet) {
      cel.note(
        'expression',
        'ifName becomes pfName, which is right for whole NICs (nics in the policy); select a VF by pfName and vfIndex',
      );
    }
    cel.end();
    selector.end();
    return text;
  }

  /** Converts an entry of `config`. Entries of drivers other than this one stay unchanged. */
  #configOf(entry: FieldReader, { driver, readConfig }: Dialect) {
    const requests = entry.texts('requests') ?? [];
    const opaque = entry.object('opaque');
    const of = opaque.text('driver');
    if (of !== driver) {
      const foreign = { ...(requests.length > 0 && { requests }), opaque: entry.raw('opaque') };
      return { requests, config: {} as VfConfig, foreign };
    }
    const config = readConfig(opaque.object('parameters'));
    opaque.end();
    entry.end();
    return { requests, config, foreign: undefined };
  }

  #constraint(constraint: FieldReader, { driver, attributes }: Dialect): Record<string, unknown> {
    const value = Object.fromEntries(constraint.names().map((name) => [name, constraint.raw(name)]));
    for (const field of ['matchAttribute', 'distinctAttribute']) {
      const [domain, name = ''] = (constraint.text(field) ?? '').split('/');
      if (domain !== driver) continue;
      if (name === 'numaNode') value[field] = 'resource.kubernetes.io/numaNode';
      else if (attributes[name] !== undefined) value[field] = `${this.#driver}/${attributes[name]}`;
      else constraint.lose(field, `netdra has no equivalent of ${name}`, 'use an attribute of docs/inventory.md');
    }
    return value;
  }

  /** Converts a request. Replaces the other driver's class by the converted one. */
  #request(request: FieldReader): ConvertedRequest {
    const value = Object.fromEntries(request.names().map((name) => [name, structuredClone(request.raw(name))]));
    const readers = [...request.objects('exactly'), ...request.objects('firstAvailable')];
    const inner = [value.exactly, value.firstAvailable].flat().filter((each) => each !== undefined);
    const own = this.#knownClassOf(request, value);
    if (own !== undefined && own !== 'missing') {
      request.lose(
        'deviceClassName',
        'is below exactly since resource.k8s.io/v1beta2',
        'convert the object to v1 first',
      );
    }
    let isComplete = own === undefined;
    const foreign = readers.flatMap((reader, index) => {
      const fields: Record<string, unknown> = Object(inner[index]);
      const known = this.#knownClassOf(reader, fields);
      if (known === undefined) return [];
      if (known === 'missing') {
        isComplete = false;
        return [];
      }
      fields.deviceClassName = known.name;
      const expressions = this.#selectors(reader, known.dialect);
      if (expressions === undefined) isComplete = false;
      else if (expressions.length > 0) fields.selectors = expressions.map((expression) => ({ cel: { expression } }));
      return [{ ...known, fields }];
    });
    const classes = [request, ...readers].flatMap((reader) => reader.text('deviceClassName') ?? []);
    return { value, name: `${value.name}`, classes, foreign, isComplete };
  }

  /** @returns `missing`: an unknown class of another driver, which was reported; `undefined`: no class of another driver */
  #knownClassOf(reader: FieldReader, fields: Record<string, unknown>): ForeignClass | 'missing' | undefined {
    const name = `${fields.deviceClassName}`;
    const known = this.#classOf(name);
    if (known !== undefined) return known;
    const dialect = dialects.find((each) => isMeant(each, fields));
    if (this.#classes.has(name)) {
      reader.lose('deviceClassName', `its DeviceClass ${name} is not converted`, 'correct the class first');
    } else if (dialect !== undefined) loseForClass(reader, 'deviceClassName', dialect.driver, [name]);
    else return undefined;
    return 'missing';
  }

  #classOf(name: string): ForeignClass | undefined {
    const dialect = dialects.find(({ className }) => className === name);
    if (dialect === undefined || this.#classes.has(name)) return this.#classes.get(name);
    const base = {
      dialect,
      name: `${prefix}${name}`,
      metadata: {},
      expressions: [`device.driver == ${JSON.stringify(this.#driver)}`],
      config: dialect.defaults,
    };
    this.#classes.set(name, base);
    const of = { file: '', placeOf: () => ({ line: 1, column: 1 }), at: [], kind: 'DeviceClass', name };
    this.#addClass({ ...of, namespace: undefined, value: {} }, base);
    return base;
  }

  /** Gives a request a class of its own, for claims of its namespace, if the claim sets fields that only a class may set. */
  #narrow(
    of: InputObject,
    { name, foreign }: ConvertedRequest,
    configs: readonly { requests: string[]; config: VfConfig }[],
  ): void {
    const own = configs.filter(({ requests }) => isFor(requests, name));
    const whole = own.map(({ config }) => config).reduce(mergeVfConfigs, {});
    for (const [index, { fields, ...known }] of foreign.entries()) {
      const implied = this.#impliedBy(of, known, fields, whole);
      const closed = mergeVfConfigs(
        implied,
        partOf(whole, (field) => isClosed(field, whole)),
      );
      if (closed.keepHostConfig === false && known.config.keepHostConfig !== true) delete closed.keepHostConfig;
      if (Object.keys(closed).length === 0) continue;
      const suffix = foreign.length === 1 ? '' : `-${index}`;
      const { namespace = 'default' } = of;
      const narrowed = `${prefix}${namespace}-${of.name}-${name}${suffix}`;
      fields.deviceClassName = narrowed;
      const limits = { allowedNamespaces: { names: [namespace] } };
      this.#addClass(of, { ...known, name: narrowed, config: { ...mergeVfConfigs(known.config, closed), limits } });
    }
  }

  /** Returns settings that the selectors of a request imply, unless its class sets them. */
  #impliedBy(of: InputObject, known: ForeignClass, fields: Record<string, unknown>, whole: VfConfig): VfConfig {
    const own = [fields.selectors ?? []].flat().map((each) => `${Object(Object(each).cel).expression}`);
    if (own.length === 0 || known.config.keepHostConfig !== undefined) return {};
    const { config, note } = known.dialect.impliedFor?.([...known.expressions, ...own], whole) ?? { config: {} };
    if (note !== undefined && Object.keys(config).length > 0) this.#estate.report.note(of, [], note);
    return config;
  }
}

/** Returns labels and annotations, without kubectl's copy of the whole object; `undefined` if there are none. */
function metadataOf(fields: FieldReader): Metadata | undefined {
  const { 'kubectl.kubernetes.io/last-applied-configuration': _, ...annotations } = fields.labels('annotations');
  const entries = Object.entries({ labels: fields.labels('labels'), annotations });
  const given = entries.filter(([, values]) => Object.keys(values).length > 0);
  return given.length === 0 ? undefined : Object.fromEntries(given);
}

/** Returns whether an entry of `config` applies to a request. */
function isFor(requests: readonly string[], name: string): boolean {
  return requests.length === 0 || requests.some((each) => each.split('/')[0] === name);
}

/** Reports an entry of `config` for another driver if no class of its requests is known as one of that driver. */
function hasKnownClass(entry: FieldReader, requests: readonly ConvertedRequest[]): boolean {
  const { driver } = Object(entry.raw('opaque'));
  if (!dialects.some((each) => each.driver === driver)) return true;
  const names = entry.texts('requests') ?? [];
  const own = requests.filter(({ name }) => isFor(names, name));
  if (own.some(({ foreign, isComplete }) => foreign.length > 0 || !isComplete)) return true;
  const classes = own.flatMap((each) => each.classes);
  loseForClass(entry, 'opaque', driver, classes);
  return false;
}

function loseForClass(fields: FieldReader, field: string, driver: string, classes: readonly string[]): void {
  fields.lose(
    field,
    `the input has no DeviceClass ${classes.map((each) => `${each} `).join('or ')}of ${driver}`,
    'add the DeviceClass to the input',
  );
}

/** Returns whether only a class may set the field, such as `attach` with its definition, or `routes` with a default route. */
function isClosed(field: string, { routes = [] }: VfConfig): boolean {
  if (field === 'routes') return routes.some(({ destination }) => isDefaultRoute(parseCidr(destination)));
  return field === 'attach' || closedFields.some((each) => each.split('.')[0] === field);
}

function partOf(config: VfConfig, isWanted: (field: string) => boolean): VfConfig {
  return Object.fromEntries(
    Object.keys(config)
      .filter(isWanted)
      .map((field) => [field, fieldOf(config, field)]),
  );
}
