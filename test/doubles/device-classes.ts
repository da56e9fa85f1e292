import type { KubernetesObject, ResourceV1ResourceClaim } from '@kubernetes/client-node';

/** The classes with which a claim was allocated, as far as its allocation shows them. */
export function deviceClassesOf({
  spec,
  status,
}: Pick<ResourceV1ResourceClaim, 'spec' | 'status'>): KubernetesObject[] {
  const config = status?.allocation?.devices?.config ?? [];
  const classOf = (name: string, requests: string[]) => ({
    apiVersion: 'resource.k8s.io/v1',
    kind: 'DeviceClass',
    metadata: { name },
    spec: {
      config: config
        .filter((entry) => entry.source === 'FromClass')
        .filter(
          (entry) => (entry.requests ?? []).length === 0 || entry.requests?.some((each) => requests.includes(each)),
        )
        .map(({ opaque }) => ({ opaque })),
    },
  });
  return (spec.devices?.requests ?? []).flatMap(({ name, exactly, firstAvailable = [] }) => [
    ...(exactly === undefined ? [] : [classOf(exactly.deviceClassName, [name])]),
    ...firstAvailable.map((each) => classOf(each.deviceClassName, [name, `${name}/${each.name}`])),
  ]);
}
