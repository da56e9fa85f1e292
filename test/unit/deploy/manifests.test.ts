import { readFileSync } from 'node:fs';
import type {
  V1ClusterRole,
  V1ClusterRoleBinding,
  V1Container,
  V1DaemonSet,
  V1DeviceClass,
  V1Role,
} from '@kubernetes/client-node';
import { describe, expect, it } from 'vitest';
import { renderRules } from '../../../deploy/admission/rules.ts';
import { definitions, renderDefinition } from '../../../deploy/helm/definitions.ts';
import { findObject, manifestObjects } from './manifest-objects.ts';

const daemonSet = findObject<V1DaemonSet>('DaemonSet');
const pod = daemonSet.spec?.template.spec;
const container = pod?.containers[0] as V1Container;

describe('deploy/manifests/netdra.yaml', () => {
  it('mounts only the necessary parts of /sys as writable, and sets a memory limit', () => {
    const below = (container.volumeMounts ?? []).filter(({ mountPath }) => /^\/sys(\/|$)/.test(mountPath));
    const writable = below.filter(({ readOnly }) => !readOnly).map(({ mountPath }) => mountPath);
    expect(writable).toEqual(['/sys/devices', '/sys/bus/pci']);
    expect(below.find(({ mountPath }) => mountPath === '/sys')?.readOnly).toBe(true);
    expect(container.resources?.limits).toEqual({ memory: '512Mi' });
  });

  it('has classes that select only VFs, and set spoof check on and trust off', () => {
    const classes = manifestObjects.filter(({ kind }) => kind === 'DeviceClass') as V1DeviceClass[];
    expect(classes.map(({ metadata }) => metadata?.name)).toEqual(['netdra-kernel', 'netdra-dpdk']);
    for (const { spec } of classes) {
      const expression = 'device.driver == "sriov.netdra.dev" && device.attributes["sriov.netdra.dev"].kind == "vf"';
      expect(spec.selectors).toEqual([{ cel: { expression } }]);
      expect(spec.config).toMatchObject([{ opaque: { parameters: { vf: { spoofCheck: true, trust: false } } } }]);
    }
    const drivers = classes.map(({ spec: { config } }) => config?.[0]?.opaque?.parameters.driver);
    expect(drivers).toEqual(['kernel', 'vfio-pci']);
  });

  it('is not privileged', () => {
    expect(container.securityContext).toEqual({
      runAsUser: 0,
      allowPrivilegeEscalation: false,
      readOnlyRootFilesystem: true,
      seccompProfile: { type: 'Localhost', localhostProfile: 'sriov.netdra.dev/0.1.0.json' },
      appArmorProfile: { type: 'Unconfined' },
      capabilities: { drop: ['ALL'], add: ['NET_ADMIN', 'NET_RAW', 'SYS_ADMIN'] },
    });
    expect(pod).not.toHaveProperty('hostPID');
    expect(pod).not.toHaveProperty('hostIPC');
  });

  it('installs the seccomp profile where the kubelet reads it, without extra privileges, before the driver starts', () => {
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

  it("has admission policies with the same checks as the driver's schemas", () => {
    const rules = readFileSync(new URL('../../../deploy/helm/netdra/vfconfig-rules.yaml', import.meta.url), 'utf8');
    expect(rules).toBe(renderRules());
  });

  it.each(Object.entries(definitions))("has the driver's schema in %s", (file, spec) => {
    const schema = readFileSync(new URL(`../../../deploy/helm/netdra/${file}`, import.meta.url), 'utf8');
    expect(schema).toBe(renderDefinition(spec));
  });

  it('grants permission for exactly the requests that the driver sends to the API server', () => {
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
      { apiGroups: [''], resources: ['nodes'], verbs: ['list', 'watch'] },
      { apiGroups: ['netdra.dev'], resources: ['networkdevicepolicies'], verbs: ['list', 'watch'] },
      { apiGroups: [''], resources: ['namespaces'], verbs: ['get'] },
      { apiGroups: [''], resources: ['pods'], verbs: ['get'] },
      { apiGroups: ['events.k8s.io'], resources: ['events'], verbs: ['create', 'patch'] },
      { apiGroups: ['netdra.dev'], resources: ['nodenetworkdevices'], verbs: ['get', 'create', 'patch'] },
    ]);
  });

  it("lets viewers read pods in the driver's namespace only: their environments may contain secrets", () => {
    const { rules: ofCluster } = findObject<V1ClusterRole>('ClusterRole', 'netdra-viewer');
    expect(ofCluster?.flatMap(({ resources }) => resources)).not.toContain('pods');
    const { metadata, rules } = findObject<V1Role>('Role', 'netdra-viewer');
    expect(metadata?.namespace).toBe(findObject('DaemonSet').metadata?.namespace);
    expect(rules).toEqual([{ apiGroups: [''], resources: ['pods'], verbs: ['get', 'list', 'watch'] }]);
  });

  it('allows kubelets only to get claims by name', () => {
    const { metadata, rules } = findObject<V1ClusterRole>('ClusterRole', 'netdra-kubelets');
    expect(rules).toEqual([{ apiGroups: ['resource.k8s.io'], resources: ['resourceclaims'], verbs: ['get'] }]);
    const { roleRef, subjects } = findObject<V1ClusterRoleBinding>('ClusterRoleBinding', metadata?.name);
    expect(roleRef).toMatchObject({ kind: 'ClusterRole', name: metadata?.name });
    expect(subjects).toEqual([{ apiGroup: 'rbac.authorization.k8s.io', kind: 'Group', name: 'system:nodes' }]);
  });
});
