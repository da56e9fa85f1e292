import { readFileSync } from 'node:fs';
import { type KubernetesObject, loadAllYaml, type V1ClusterRole, type V1DaemonSet } from '@kubernetes/client-node';
import { describe, expect, it } from 'vitest';

const text = readFileSync(new URL('../../../deploy/manifests/netdra.yaml', import.meta.url), 'utf8');
const objects: KubernetesObject[] = loadAllYaml(text);

function find<T extends KubernetesObject>(kind: string): T {
  const found = objects.filter((object) => object.kind === kind);
  if (found.length !== 1) throw new Error(`${found.length} objects of kind ${kind}`);
  return found[0] as T;
}

describe('deploy/manifests/netdra.yaml', () => {
  it('mounts every directory that the driver uses by default, the NRI directory among them', () => {
    const pod = find<V1DaemonSet>('DaemonSet').spec?.template.spec;
    const mounts = pod?.containers[0]?.volumeMounts?.map(({ mountPath }) => mountPath);
    const defaults = ['/var/lib/kubelet/plugins', '/var/lib/kubelet/plugins_registry', '/var/run/cdi', '/var/run/nri'];
    expect(mounts).toEqual(expect.arrayContaining(defaults));
    // Inside and outside the same path, since the kubelet and the runtime get our paths.
    for (const { name, mountPath } of pod?.containers[0]?.volumeMounts ?? []) {
      // Nothing can be mounted below a container's own /proc.
      if (name === 'proc-sys-net') continue;
      expect(pod?.volumes?.find((volume) => volume.name === name)?.hostPath?.path).toBe(mountPath);
    }
  });

  it("finds the host's settings of interfaces where they are mounted", () => {
    const [container] = find<V1DaemonSet>('DaemonSet').spec?.template.spec?.containers ?? [];
    const [, dir] = /^--proc-sys-dir=(.+)$/.exec(container?.args?.find((arg) => arg.includes('proc-sys')) ?? '') ?? [];
    const mount = container?.volumeMounts?.find(({ mountPath }) => mountPath === `${dir}/net`);
    expect(mount).toMatchObject({ name: 'proc-sys-net' });
    expect(mount?.readOnly).toBeUndefined();
    const volumes = find<V1DaemonSet>('DaemonSet').spec?.template.spec?.volumes;
    expect(volumes?.find(({ name }) => name === mount?.name)?.hostPath?.path).toBe('/proc/sys/net');
  });

  it('is not privileged', () => {
    const { securityContext } = find<V1DaemonSet>('DaemonSet').spec?.template.spec?.containers[0] ?? {};
    expect(securityContext?.privileged).toBeUndefined();
    expect(securityContext?.capabilities?.drop).toEqual(['ALL']);
  });

  it('allows what the driver asks of the API server', () => {
    const rules = find<V1ClusterRole>('ClusterRole').rules ?? [];
    const verbs = (resource: string) => rules.find(({ resources }) => resources?.includes(resource))?.verbs;
    expect(verbs('resourceclaims')).toEqual(['get']);
    expect(verbs('resourceclaims/status')).toEqual(['patch']);
    expect(verbs('resourceclaims/driver')).toEqual(['associated-node:patch']);
    expect(rules.find(({ resources }) => resources?.includes('resourceclaims/driver'))?.resourceNames).toEqual([
      'sriov.netdra.dev',
    ]);
    expect(verbs('resourceslices')).toEqual(['get', 'list', 'watch', 'create', 'update', 'delete']);
    expect(verbs('nodes')).toEqual(['get']);
    expect(verbs('network-attachment-definitions')).toEqual(['get']);
  });
});
