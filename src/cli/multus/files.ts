import type { DeviceKind } from '../selected-kind.ts';
import {
  type Alternative,
  alternativesOf,
  bothOf,
  type Fields,
  fieldsOf,
  isInjector,
  isObserved,
  keyOf,
  listOf,
  type MultusErrorCode,
  networksOf,
  pageOf,
  resourceAnnotation,
  resourceOf,
  selectorsOf,
  selectsByResource,
  selectsUnnamed,
} from './contract.ts';

/** An object in a file. `Document` is the caller's type for a document. */
interface Placed<Document> {
  document: Document;
  /** Path of the object in its document. */
  at: readonly PropertyKey[];
  key: string;
}

export interface MultusFault<Document> {
  document: Document;
  path: PropertyKey[];
  field: string;
  message: string;
  /** Whether the fault is only a note: an object that is not in the checked files could resolve it. */
  isNote: boolean;
}

interface RequestOfFile {
  name: string;
  alternatives: Alternative[];
  /** Number of devices; `undefined`: unknown. */
  count: number | undefined;
  isObserved: boolean;
}

interface ClassOfFile<Document> extends Placed<Document> {
  selectors: string;
  isObserved: boolean;
}

type ClaimOfFile<Document> = Placed<Document> & { requests: RequestOfFile[] };

/** A pod, or a template of pods, with networks and claims. */
interface PodOfFile<Document> extends Placed<Document> {
  namespace: string;
  networks: string[];
  /** Entries of the pod's `resourceClaims`. */
  claims: Fields[];
}

/** Compares objects in files with the expectations of Multus about claims: docs/migration.md, "Multus stays". */
export class MultusFiles<Document> {
  readonly #driver: string;
  readonly #networks: (Placed<Document> & { resource: string })[] = [];
  readonly #classes = new Map<string, ClassOfFile<Document>>();
  readonly #claims = new Map<string, ClaimOfFile<Document>>();
  readonly #pods: PodOfFile<Document>[] = [];
  readonly #injectors: Placed<Document>[] = [];
  /** Rules of policies: each with its name for people, the kind of its devices and their resource name. */
  readonly #rules: { rule: string; kind: DeviceKind; resource: unknown }[] = [];

  constructor(driver: string) {
    this.#driver = driver;
  }

  /** Adds an object of any kind. */
  add(document: Document, object: Fields, at: readonly PropertyKey[]): void {
    const place = { document, at, key: keyOf(object) };
    const spec = fieldsOf(object.spec);
    if (object.kind === 'NetworkAttachmentDefinition') {
      const resource = resourceOf(object);
      if (resource !== undefined) this.#networks.push({ ...place, resource });
    } else if (object.kind === 'DeviceClass') this.#addClass(place, object, spec);
    else if (object.kind === 'ResourceClaim') this.#addClaim('ResourceClaim', place, spec);
    else if (object.kind === 'ResourceClaimTemplate') this.#addClaim(object.kind, place, fieldsOf(spec.spec));
    else if (object.kind === 'MutatingWebhookConfiguration' && isInjector(object)) this.#injectors.push(place);
    else this.#addPod(place, object, spec);
  }

  /** Adds a policy. @param policy an inventory policy, or a NetworkDevicePolicy */
  addPolicy(policy: unknown): void {
    const whole = fieldsOf(policy);
    const { pfs = [{}], nics, resourceName } = fieldsOf(whole.spec ?? whole);
    for (const [list, rules] of Object.entries({ pfs, nics })) {
      for (const [index, rule] of listOf(rules).entries()) {
        const resource = fieldsOf(rule).resourceName ?? resourceName;
        this.#rules.push({ rule: `${list}[${index}]`, kind: list === 'pfs' ? 'vf' : 'nic', resource });
      }
    }
  }

  /**
   * Returns the faults of all objects, and notes on them. Returns none unless the files have networks with devices, and claims
   * whose devices Multus attaches.
   */
  faults(): MultusFault<Document>[] {
    const requests = [...this.#claims.values()].flatMap((each) => each.requests);
    const isServing = [...requests, ...this.#classes.values()].some(({ isObserved }) => isObserved);
    if (this.#networks.length === 0 || !isServing) return [];
    const injector =
      "network-resources-injector adds a network's device to the limits of pods whose claim already has it: switch the injector off";
    return [
      ...this.#unnamed(),
      ...this.#unknown(),
      ...this.#injectors.map((each) => faultOf('multus-injector', each, ['metadata'], injector)),
      ...this.#pods.flatMap((pod) => [...this.#byName(pod), ...this.#tooFew(pod)]),
    ];
  }

  #addClass(place: Placed<Document>, object: Fields, spec: Fields): void {
    const observed = listOf(spec.config).some((each) => isObserved(fieldsOf(each), this.#driver));
    const name = `${fieldsOf(object.metadata).name}`;
    this.#classes.set(name, { ...place, selectors: selectorsOf(spec), isObserved: observed });
  }

  #addClaim(kind: string, place: Placed<Document>, spec: Fields): void {
    const { requests, config } = fieldsOf(spec.devices);
    const observing = listOf(config)
      .map(fieldsOf)
      .filter((each) => isObserved(each, this.#driver));
    const isFor = (entry: Fields, name: unknown) =>
      listOf(entry.requests).length === 0 || listOf(entry.requests).some((each) => `${each}`.split('/')[0] === name);
    const read = listOf(requests).map((each): RequestOfFile => {
      const request = fieldsOf(each);
      const { name, exactly = each, firstAvailable } = request;
      const one = fieldsOf(exactly);
      const isCounted = firstAvailable === undefined && one.allocationMode !== 'All';
      return {
        name: `${name}`,
        alternatives: alternativesOf(request),
        count: isCounted ? Number(one.count ?? 1) : undefined,
        isObserved: observing.some((entry) => isFor(entry, name)),
      };
    });
    this.#claims.set(`${kind} ${place.key}`, { ...place, requests: read });
  }

  #addPod(place: Placed<Document>, object: Fields, spec: Fields): void {
    const template =
      object.kind === 'Pod' ? undefined : fieldsOf(fieldsOf(fieldsOf(spec.jobTemplate).spec ?? spec).template);
    const pod = template ?? object;
    const namespace = `${fieldsOf(object.metadata).namespace ?? 'default'}`;
    const networks = networksOf(pod, namespace);
    const claims = listOf(fieldsOf(pod.spec).resourceClaims).map(fieldsOf);
    if (networks.length > 0 && claims.length > 0) this.#pods.push({ ...place, networks, claims, namespace });
  }

  #isServed({ isObserved, alternatives }: RequestOfFile): boolean {
    return isObserved || alternatives.some(({ className }) => this.#classes.get(className)?.isObserved === true);
  }

  /** Returns for each alternative of a request the CEL that its devices meet. */
  #selectorsOf({ alternatives }: RequestOfFile): string[] {
    return alternatives.map(({ className, selectors }) =>
      bothOf(this.#classes.get(className)?.selectors ?? '', selectors),
    );
  }

  /** Returns the name of a rule for devices without a resource name that one of the expressions selects. */
  #unnamedRule(expressions: readonly string[]): string | undefined {
    const unnamed = this.#rules.filter(({ resource }) => resource === undefined);
    return unnamed.find(({ kind }) => expressions.some((each) => selectsUnnamed(each, kind)))?.rule;
  }

  #unnamed(): MultusFault<Document>[] {
    const claims = [...this.#claims.values()];
    const alternatives = claims.flatMap(({ requests }) => requests).flatMap((each) => each.alternatives);
    const used = new Set(alternatives.map(({ className }) => className));
    const classes = [...this.#classes].filter(([name, each]) => each.isObserved && !used.has(name));
    const served = claims.flatMap((of) =>
      of.requests
        .filter((each) => this.#isServed(each))
        .map((each) => ({ of, what: `request ${each.name}`, selectors: this.#selectorsOf(each) })),
    );
    // The selectors of claims can select fewer devices than their class, so that the class itself counts only if no claim uses
    // it.
    const all = [...classes.map(([, of]) => ({ of, what: 'the class', selectors: [of.selectors] })), ...served];
    return all.flatMap(({ of, what, selectors }) => {
      const rule = this.#unnamedRule(selectors);
      if (rule === undefined) return [];
      const why = `${what} also selects devices without k8s.cni.cncf.io/resourceName, with which Multus fails a pod`;
      const todo = `set resourceName in ${rule} of the policy, or select by it`;
      return [faultOf('multus-device-unnamed', of, ['spec'], `${why}: ${todo}`)];
    });
  }

  #unknown(): MultusFault<Document>[] {
    if (this.#rules.length === 0) return [];
    const offered = new Set(this.#rules.map(({ resource }) => resource));
    return this.#networks
      .filter(({ resource }) => !offered.has(resource))
      .map((network) => {
        const why = `no policy gives devices the resourceName ${JSON.stringify(network.resource)}`;
        const path = ['metadata', 'annotations', resourceAnnotation];
        return faultOf(
          'multus-resource-unknown',
          network,
          path,
          `${why}: set it in the policy, or correct it in the network`,
        );
      });
  }

  #byName({ claims, namespace, ...pod }: PodOfFile<Document>): MultusFault<Document>[] {
    return claims.flatMap(({ resourceClaimName: name }) => {
      const claim = this.#claims.get(`ResourceClaim ${namespace}/${name}`);
      if (claim === undefined || !claim.requests.some((each) => this.#isServed(each))) return [];
      const why = `Multus does not see claim ${name}, which the pod names itself: use a ResourceClaimTemplate`;
      return [faultOf('multus-claim-by-name', pod, ['spec'], why)];
    });
  }

  /**
   * Reports a pod with more networks of a resource name than devices. Needs all its templates in the files. A request counts
   * for every resource name if it selects by none, and always suffices if its number of devices is unknown.
   */
  #tooFew({ claims, namespace, networks, ...pod }: PodOfFile<Document>): MultusFault<Document>[] {
    const templates = claims.map(({ resourceClaimTemplateName: name }) =>
      this.#claims.get(`ResourceClaimTemplate ${namespace}/${name}`),
    );
    if (templates.includes(undefined)) return [];
    const requests = templates.flatMap((each) => each?.requests ?? []);
    const wanted = networks.flatMap((name) => this.#networks.find(({ key }) => key === name)?.resource ?? []);
    return [...Map.groupBy(wanted, (resource) => resource)].flatMap(([resource, { length }]) => {
      const counts = requests.filter((each) => {
        const selectors = this.#selectorsOf(each).join(' ');
        return selectors.includes(JSON.stringify(resource)) || !selectsByResource(selectors);
      });
      const given = counts.reduce((sum, { count = Number.POSITIVE_INFINITY }) => sum + count, 0);
      if (given >= length) return [];
      const why = `the pod has ${length} networks of ${resource}, and its claims have ${given} such devices`;
      return [faultOf('multus-too-few-devices', pod, ['spec'], `${why}: give each network a request`)];
    });
  }
}

function faultOf<Document>(
  code: MultusErrorCode,
  { document, at }: Placed<Document>,
  path: readonly PropertyKey[],
  message: string,
): MultusFault<Document> {
  return {
    document,
    path: [...at, ...path],
    field: path.join('.'),
    isNote: code === 'multus-resource-unknown',
    message: `${message} (${pageOf(code)})`,
  };
}
