import { readdirSync, readFileSync } from 'node:fs';
import {
  type KubernetesObject,
  loadAllYaml,
  type ResourceV1ResourceClaim,
  type V1Container,
  type V1DeviceClass,
  type V1Pod,
  type V1ResourceClaimTemplate,
} from '@kubernetes/client-node';
import { buildClaim, type ConfigOptions, type Identified, testDriver } from '../../doubles/objects.ts';

const repo = new URL('../../../', import.meta.url);

export const exampleFiles = readdirSync(new URL('examples', repo)).filter((name) => name.endsWith('.yaml'));

/** The objects of an example. */
export function loadExample(file: string): KubernetesObject[] {
  return loadAllYaml(readFileSync(new URL(`examples/${file}`, repo), 'utf8'));
}

/** Every DeviceClass that is there when an example is applied: the driver's own and those of the examples. */
export function deviceClasses(): V1DeviceClass[] {
  const manifest = loadAllYaml(readFileSync(new URL('deploy/manifests/netdra.yaml', repo), 'utf8'));
  const objects: KubernetesObject[] = [...manifest, ...exampleFiles.flatMap(loadExample)];
  return objects.filter(({ kind }) => kind === 'DeviceClass') as V1DeviceClass[];
}

export function podsOf(objects: KubernetesObject[]): V1Pod[] {
  return objects.filter(({ kind }) => kind === 'Pod') as V1Pod[];
}

/** The specification of a claim: of a claim itself, or of a template. */
export type ClaimSpec = ResourceV1ResourceClaim['spec'];

/** By the pod's name for it. @throws for a claim that the example does not have */
export function claimSpecsOf(objects: KubernetesObject[], pod: V1Pod): Map<string, ClaimSpec> {
  const specs = (pod.spec?.resourceClaims ?? []).map(({ name, resourceClaimName, resourceClaimTemplateName }) => {
    const claim = objects.find(
      ({ kind, metadata }) => kind === 'ResourceClaim' && metadata?.name === resourceClaimName,
    ) as ResourceV1ResourceClaim | undefined;
    const template = objects.find(
      ({ kind, metadata }) => kind === 'ResourceClaimTemplate' && metadata?.name === resourceClaimTemplateName,
    ) as V1ResourceClaimTemplate | undefined;
    const spec = claim?.spec ?? template?.spec.spec;
    if (spec === undefined) throw new Error(`pod ${pod.metadata?.name}: no claim for ${name}`);
    return [name, spec] as const;
  });
  return new Map(specs);
}

export function requestsOf(spec: ClaimSpec) {
  return spec.devices?.requests ?? [];
}

/**
 * The configuration that the scheduler puts together for a claim: of its classes, then of the claim.
 * @param isSimulated whether its VFs are: the chart then has classes without properties that only a PF can set
 */
export function configOf(spec: ClaimSpec, isSimulated = false): ConfigOptions[] {
  const classes = deviceClasses();
  const fromClass = requestsOf(spec).flatMap(({ name, exactly }) => {
    const found = classes.find(({ metadata }) => metadata?.name === exactly?.deviceClassName);
    if (found === undefined) throw new Error(`request ${name}: no DeviceClass ${exactly?.deviceClassName}`);
    return (found.spec.config ?? []).map(({ opaque }) => ({
      source: 'FromClass' as const,
      requests: [name],
      parameters: { ...opaque?.parameters, ...(isSimulated ? { vf: undefined } : {}) },
    }));
  });
  const fromClaim = (spec.devices?.config ?? []).map(({ requests, opaque }) => ({
    source: 'FromClaim' as const,
    ...(requests === undefined ? {} : { requests }),
    ...(opaque?.driver === undefined ? {} : { driver: opaque.driver }),
    parameters: opaque?.parameters as object,
  }));
  return [...fromClass, ...fromClaim];
}

/** The claim as it is when it is allocated to simulated VFs. @param devices one for each request */
export function allocateClaim(
  name: string,
  spec: ClaimSpec,
  devices: readonly string[],
  pods: Identified<V1Pod>[] = [],
): Identified<ResourceV1ResourceClaim> {
  const requests = requestsOf(spec).map((request, index) => ({ name: request.name, devices: [devices[index] ?? ''] }));
  return buildClaim(name, { driver: testDriver, requests, config: configOf(spec, true), pods });
}

/** All containers of a pod, those that run first too. */
export function containersOf(pod: V1Pod): V1Container[] {
  return [...(pod.spec?.initContainers ?? []), ...(pod.spec?.containers ?? [])];
}
