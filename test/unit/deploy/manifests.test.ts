import { readFileSync } from 'node:fs';
import type { V1ClusterRole, V1Container, V1DaemonSet, V1DeviceClass } from '@kubernetes/client-node';
import { describe, expect, it } from 'vitest';
import { renderRules } from '../../../deploy/admission/rules.ts';
import { findTypeProblems } from './kubernetes-types.ts';
import { findObject, manifestObjects } from './manifest-objects.ts';

const daemonSet = findObject<V1DaemonSet>('DaemonSet');
const pod = daemonSet.spec?.template.spec;
const container = pod?.containers[0] as V1Container;
const flag = (name: string) => container.args?.find((arg) => arg.startsWith(`--${name}=`))?.slice(name.length + 3);

describe('deploy/manifests/netdra.yaml', () => {
  it.each(manifestObjects.map((object) => [object.kind, object.metadata?.name, object] as const))(
    'has a %s %s that fits the schema of Kubernetes',
    (kind, _, object) => {
      expect(findTypeProblems(object, `V1${kind}`)).toEqual([]);
    },
  );

  it('is checked by something that sees unknown fields, wrong types, and what is not there', () => {
    const broken = structuredClone(daemonSet) as unknown as { spec: { template: { spec: Record<string, unknown> } } };
    broken.spec.template.spec = { hostNetwrok: true, containers: [{ image: 1 }] };
    expect(findTypeProblems(broken, 'V1DaemonSet')).toEqual([
      '.spec.template.spec.hostNetwrok: no such field',
      '.spec.template.spec.containers[0].name: is required',
      '.spec.template.spec.containers[0].image: is no string',
    ]);
  });

  it('mounts every directory that a flag passes to the driver, under the path that it has on the node', () => {
    const driverDir = `${flag('kubelet-plugins-dir')}/${flag('driver-name')}`;
    const dirs = [
      driverDir,
      flag('kubelet-registry-dir'),
      flag('cdi-dir'),
      flag('attributes-dir'),
      flag('downward-api-dir'),
      flag('nri-socket')?.replace('/nri.sock', ''),
    ];
    expect(container.volumeMounts?.map(({ mountPath }) => mountPath)).toEqual(expect.arrayContaining(dirs));
    // Inside and outside the same path, since the kubelet and the runtime get our paths.
    for (const { name, mountPath } of container.volumeMounts ?? []) {
      // Nothing can be mounted below a container's own /proc.
      const path = name === 'proc-sys-net' ? '/proc/sys/net' : mountPath;
      expect(pod?.volumes?.find((volume) => volume.name === name)?.hostPath?.path).toBe(path);
    }
    const netns = container.volumeMounts?.find(({ name }) => name === 'netns');
    expect(netns?.mountPropagation).toBe('HostToContainer');
    expect(container.volumeMounts?.find(({ name }) => name === 'proc-sys-net')?.mountPath).toBe(
      `${flag('proc-sys-dir')}/net`,
    );
  });

  it('can write to the parts of /sys only that it has to, and has a memory limit', () => {
    const below = (container.volumeMounts ?? []).filter(({ mountPath }) => /^\/sys(\/|$)/.test(mountPath));
    const writable = below.filter(({ readOnly }) => !readOnly).map(({ mountPath }) => mountPath);
    expect(writable).toEqual(['/sys/devices', '/sys/bus/pci']);
    expect(below.find(({ mountPath }) => mountPath === '/sys')?.readOnly).toBe(true);
    expect(container.resources?.limits).toEqual({ memory: '512Mi' });
  });

  it('has classes that choose VFs, with spoof check and without trust', () => {
    const classes = manifestObjects.filter(({ kind }) => kind === 'DeviceClass') as V1DeviceClass[];
    expect(classes.map(({ metadata }) => metadata?.name)).toEqual(['netdra-kernel', 'netdra-dpdk']);
    for (const { spec } of classes) {
      const expression = 'device.driver == "sriov.netdra.dev" && device.attributes["sriov.netdra.dev"].kind == "vf"';
      expect(spec.selectors).toEqual([{ cel: { expression } }]);
      expect(spec.config).toMatchObject([{ opaque: { parameters: { vf: { spoofCheck: true, trust: false } } } }]);
    }
  });

  it('is not privileged', () => {
    expect(container.securityContext).toEqual({
      runAsUser: 0,
      allowPrivilegeEscalation: false,
      readOnlyRootFilesystem: true,
      seccompProfile: { type: 'Localhost', localhostProfile: 'sriov.netdra.dev/0.1.0.json' },
      appArmorProfile: { type: 'Unconfined' },
      capabilities: { drop: ['ALL'], add: ['NET_ADMIN', 'SYS_ADMIN'] },
    });
    expect(pod).not.toHaveProperty('hostPID');
    expect(pod).not.toHaveProperty('hostIPC');
  });

  it('installs its seccomp profile where the kubelet looks for it, before the driver starts, with no rights besides', () => {
    const [init, ...others] = pod?.initContainers ?? [];
    expect(others).toEqual([]);
    expect(init?.image).toBe(container.image);
    const { localhostProfile } = container.securityContext?.seccompProfile ?? {};
    expect(init?.args).toEqual(['seccomp', '--install', `/var/lib/kubelet/seccomp/${localhostProfile}`]);
    expect(init?.volumeMounts).toEqual([{ name: 'seccomp', mountPath: '/var/lib/kubelet/seccomp' }]);
    const volume = pod?.volumes?.find(({ name }) => name === 'seccomp');
    expect(volume?.hostPath).toEqual({ path: '/var/lib/kubelet/seccomp', type: 'DirectoryOrCreate' });
    expect(init?.securityContext).toEqual({
      runAsUser: 0,
      allowPrivilegeEscalation: false,
      readOnlyRootFilesystem: true,
      seccompProfile: { type: 'RuntimeDefault' },
      capabilities: { drop: ['ALL'] },
    });
    // The driver itself cannot change it.
    expect(container.volumeMounts?.map(({ name }) => name)).not.toContain('seccomp');
  });

  it('lets two instances serve side by side while one replaces the other', () => {
    expect(daemonSet.spec?.updateStrategy?.rollingUpdate).toEqual({ maxSurge: 1, maxUnavailable: 0 });
    expect(container.env?.find(({ name }) => name === 'POD_UID')?.valueFrom?.fieldRef?.fieldPath).toBe('metadata.uid');
    // On the host's network a declared port is one of the node: no second pod would be scheduled there.
    expect(container.ports).toBeUndefined();
    expect(flag('http-address')).toBe(`:${container.readinessProbe?.httpGet?.port}`);
  });

  it('has policies that check what the schemas of the driver check', () => {
    const rules = readFileSync(new URL('../../../deploy/helm/netdra/vfconfig-rules.yaml', import.meta.url), 'utf8');
    expect(rules).toBe(renderRules());
  });

  it('allows what the driver asks of the API server, and no more', () => {
    expect(findObject<V1ClusterRole>('ClusterRole').rules).toEqual([
      { apiGroups: ['resource.k8s.io'], resources: ['resourceclaims'], verbs: ['get'] },
      { apiGroups: ['resource.k8s.io'], resources: ['deviceclasses'], verbs: ['get', 'list', 'watch'] },
      { apiGroups: ['resource.k8s.io'], resources: ['resourceclaims/status'], verbs: ['patch'] },
      {
        apiGroups: ['resource.k8s.io'],
        resources: ['resourceclaims/driver'],
        verbs: ['associated-node:patch'],
        resourceNames: ['sriov.netdra.dev'],
      },
      {
        apiGroups: ['resource.k8s.io'],
        resources: ['resourceslices'],
        verbs: ['get', 'list', 'watch', 'create', 'update', 'delete'],
      },
      { apiGroups: [''], resources: ['nodes'], verbs: ['get'] },
      { apiGroups: [''], resources: ['namespaces'], verbs: ['get'] },
      { apiGroups: [''], resources: ['pods'], verbs: ['get'] },
      { apiGroups: ['events.k8s.io'], resources: ['events'], verbs: ['create', 'patch'] },
    ]);
  });
});
