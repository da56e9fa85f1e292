import type {
  ResourceV1ResourceClaim,
  V1DeviceAllocationConfiguration,
  V1DeviceClass,
  V1DeviceRequestAllocationResult,
  V1Pod,
  V1ResourceClaimTemplate,
} from '@kubernetes/client-node';
import { Environment } from '@marcbachmann/cel-js';
import type { Device } from '../../../src/resourceslice/index.ts';
import type { ApiServer } from '../../../test/doubles/api-server.ts';
import { type Identified, reserveClaim } from '../../../test/doubles/objects.ts';

type Claim = Identified<ResourceV1ResourceClaim>;
type Pod = Identified<V1Pod>;

interface Slice {
  spec: { driver: string; nodeName?: string; pool: { name: string }; devices?: Device[] };
}

/** What the controller of claims and the scheduler do for pods: claims from templates, devices for claims, and back. */
export class Claims {
  readonly #api: ApiServer;

  constructor(api: ApiServer) {
    this.#api = api;
  }

  /** Makes the claims of a pod's templates and notes them in its status. */
  generate(pod: Pod): void {
    const { name, namespace, uid } = pod.metadata;
    for (const { name: podClaim, resourceClaimTemplateName } of pod.spec?.resourceClaims ?? []) {
      const isThere = pod.status?.resourceClaimStatuses?.some((each) => each.name === podClaim);
      if (resourceClaimTemplateName === undefined || isThere) continue;
      const template = this.#api.get<V1ResourceClaimTemplate>(
        'ResourceClaimTemplate',
        resourceClaimTemplateName,
        namespace,
      );
      if (template === undefined) throw new Error(`no ResourceClaimTemplate ${resourceClaimTemplateName}`);
      const owner = { apiVersion: 'v1', kind: 'Pod', name, uid, controller: true, blockOwnerDeletion: true };
      const claim = this.#api.create({
        apiVersion: 'resource.k8s.io/v1',
        kind: 'ResourceClaim',
        metadata: {
          generateName: `${name}-${podClaim}-`,
          namespace,
          annotations: { 'resource.kubernetes.io/pod-claim-name': podClaim },
          ownerReferences: [owner],
        },
        spec: template.spec.spec,
      });
      this.#api.edit<V1Pod>(
        'Pod',
        name,
        (each) => {
          each.status ??= {};
          each.status.resourceClaimStatuses ??= [];
          each.status.resourceClaimStatuses.push({ name: podClaim, resourceClaimName: claim.metadata.name });
        },
        namespace,
      );
    }
  }

  /**
   * Gives a pod's claims devices of a node and reserves them for it.
   * @returns `false` while a claim or a device is missing
   */
  allocate(pod: Pod, nodeName: string): boolean {
    return this.#namesOf(pod).every((name) => {
      const claim = this.#api.get<Claim>('ResourceClaim', name, pod.metadata.namespace);
      if (claim === undefined) return false;
      const allocation = claim.status?.allocation ?? this.#choose(claim, nodeName);
      if (allocation === undefined) return false;
      claim.status = { ...claim.status, allocation };
      if (!claim.status.reservedFor?.some(({ uid }) => uid === pod.metadata.uid)) reserveClaim(claim, pod);
      this.#api.update(claim);
      return true;
    });
  }

  /** Takes the claims of a pod that is no longer there back; those made for it go. */
  release(pod: Pod): void {
    const { namespace, uid } = pod.metadata;
    for (const claim of this.#api.objects<Claim>('ResourceClaim', namespace)) {
      if (!claim.status?.reservedFor?.some((each) => each.uid === uid)) continue;
      const reservedFor = claim.status.reservedFor.filter((each) => each.uid !== uid);
      const { allocation: _, reservedFor: _before, ...rest } = claim.status;
      this.#api.update({ ...claim, status: reservedFor.length === 0 ? rest : { ...claim.status, reservedFor } });
    }
    this.#api.collectGarbage();
  }

  #namesOf(pod: Pod): string[] {
    const { resourceClaimStatuses = [] } =
      this.#api.get<V1Pod>('Pod', pod.metadata.name, pod.metadata.namespace)?.status ?? {};
    return (pod.spec?.resourceClaims ?? []).map(({ name, resourceClaimName }) => {
      const generated = resourceClaimStatuses.find((each) => each.name === name)?.resourceClaimName;
      return resourceClaimName ?? generated ?? '';
    });
  }

  #choose(claim: Claim, nodeName: string): NonNullable<Claim['status']>['allocation'] | undefined {
    const results: V1DeviceRequestAllocationResult[] = [];
    const config: V1DeviceAllocationConfiguration[] = [];
    const taken = this.#taken();
    for (const { name: request, exactly } of claim.spec.devices?.requests ?? []) {
      if (exactly === undefined) throw new Error(`request ${request}: only exactly is understood`);
      const deviceClass = this.#api.get<V1DeviceClass>('DeviceClass', exactly.deviceClassName);
      if (deviceClass === undefined) return undefined;
      const free = this.#candidates(deviceClass, nodeName).filter((each) => !taken.has(keyOf(each)));
      const chosen = free.slice(0, exactly.count ?? 1);
      if (chosen.length < (exactly.count ?? 1)) return undefined;
      for (const each of chosen) taken.add(keyOf(each));
      results.push(...chosen.map((each) => ({ request, ...each })));
      for (const entry of deviceClass.spec.config ?? [])
        config.push({ source: 'FromClass', requests: [request], ...entry });
    }
    for (const entry of claim.spec.devices?.config ?? []) config.push({ source: 'FromClaim', ...entry });
    const onNode = { key: 'metadata.name', operator: 'In', values: [nodeName] };
    return {
      devices: { results, ...(config.length === 0 ? {} : { config }) },
      nodeSelector: { nodeSelectorTerms: [{ matchFields: [onNode] }] },
    };
  }

  #candidates({ spec }: V1DeviceClass, nodeName: string) {
    const expressions = (spec.selectors ?? []).map(({ cel }) => cel?.expression ?? 'false');
    const slices = this.#api.objects<Slice>('ResourceSlice').filter((slice) => slice.spec.nodeName === nodeName);
    return slices.flatMap(({ spec: { driver, pool, devices = [] } }) =>
      devices
        .filter((device) => expressions.every((expression) => evaluate(expression, driver, device)))
        .map(({ name: device }) => ({ driver, pool: pool.name, device })),
    );
  }

  #taken(): Set<string> {
    const claims = this.#api.objects<Claim>('ResourceClaim');
    return new Set(claims.flatMap(({ status }) => (status?.allocation?.devices?.results ?? []).map(keyOf)));
  }
}

function keyOf({ driver, pool, device }: { driver: string; pool: string; device: string }): string {
  return `${driver}/${pool}/${device}`;
}

/** What a class selects, as far as it does so by the driver. */
function evaluate(expression: string, driver: string, { name }: Device): boolean {
  const env = new Environment();
  env.registerVariable('device', 'dyn');
  return env.evaluate(expression, { device: { driver, name } }) === true;
}
