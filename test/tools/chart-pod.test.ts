import { loadYaml, type V1ClusterRole, type V1Pod } from '@kubernetes/client-node';
import { describe, expect, it } from 'vitest';
import { parseObjects, renderChart, renderObjects } from '../../e2e/release/chart.ts';
import { layoutNames } from '../../src/framework/metadata/index.ts';
import { parseAddress } from '../../src/instance/parse-flags.ts';
import { find, podOf, read } from './chart-objects.ts';

describe("the chart's pod", () => {
  it('uses the image by tag or by digest', () => {
    expect(podOf({ image: { repository: '[fd00::1]:5000/netdra' } })?.containers[0]?.image).toBe(
      '[fd00::1]:5000/netdra:0.1.0',
    );
    const digest = `sha256:${'a'.repeat(64)}`;
    const of = (image: object) => podOf({ image: { repository: 'registry.example.com:5000/net/netdra', ...image } });
    expect(of({})?.containers[0]?.image).toBe('registry.example.com:5000/net/netdra:0.1.0');
    const pinned = of({ digest });
    expect(pinned?.containers[0]?.image).toBe(`registry.example.com:5000/net/netdra@${digest}`);
    expect(pinned?.initContainers?.[0]?.image).toBe(pinned?.containers[0]?.image);
    const { localhostProfile } = pinned?.containers[0]?.securityContext?.seccompProfile ?? {};
    expect(localhostProfile).toBe(`sriov.netdra.dev/${'a'.repeat(64)}.json`);
  });

  it('runs on the Linux nodes that the values select', () => {
    const os = { 'kubernetes.io/os': 'linux' };
    expect(podOf({})?.nodeSelector).toEqual(os);
    expect(podOf({ kubeletPlugin: { nodeSelector: { sriov: 'true' } } })?.nodeSelector).toEqual({
      ...os,
      sriov: 'true',
    });
  });

  it('mounts a directory that a feature needs only if the feature is enabled', () => {
    const paths = (values: Record<string, unknown>) =>
      podOf(values)?.containers[0]?.volumeMounts?.map((each) => each.mountPath);
    expect(paths({})).toHaveLength(13);
    expect(paths({ cni: { enabled: true } })?.slice(13)).toEqual(['/opt/cni/bin', '/var/lib/cni']);
    expect(paths({ inventoryPolicy: { pfs: [] } })?.slice(13)).toEqual(['/etc/netdra']);
    const rule = { apiGroups: ['k8s.cni.cncf.io'], resources: ['network-attachment-definitions'], verbs: ['get'] };
    const roles = (values: Record<string, unknown>) =>
      renderObjects({ values }).filter(({ kind }) => kind === 'ClusterRole') as V1ClusterRole[];
    const rulesOf = (values: Record<string, unknown>) => roles(values).flatMap(({ rules }) => rules);
    expect(rulesOf({ cni: { enabled: true } })).toContainEqual(rule);
    expect(rulesOf({})).not.toContainEqual(rule);
  });

  it('mounts the directories of all metadata layouts, since prepared claims keep their layouts', () => {
    const dirsOf = (kubeletPlugin: Record<string, unknown>) => {
      const pod = podOf({ kubeletPlugin });
      const [container] = pod?.containers ?? [];
      return ['attributes', 'downward-api'].map((name) => ({
        flag: container?.args?.find((arg) => arg.startsWith(`--${name}-dir=`)),
        mount: container?.volumeMounts?.find((each) => each.name === name),
        onNode: pod?.volumes?.find((each) => each.name === name)?.hostPath,
      }));
    };
    const dir = (name: string, path: string) => ({
      flag: `--${name}-dir=${path}`,
      mount: { name, mountPath: path },
      onNode: { path, type: 'DirectoryOrCreate' },
    });
    const usual = [dir('attributes', '/var/run/dra-device-attributes'), dir('downward-api', '/etc/dra')];
    for (const metadataLayouts of [['v1'], ['v1', 'downward-api'], layoutNames]) {
      expect(dirsOf({ metadataLayouts })).toEqual(usual);
    }
    // For nodes whose /etc is read-only.
    expect(dirsOf({ attributesDirectoryPath: '/run/attributes', downwardApiDirectoryPath: '/var/lib/dra' })).toEqual([
      dir('attributes', '/run/attributes'),
      dir('downward-api', '/var/lib/dra'),
    ]);
  });

  it('serves metrics and probes over HTTPS with the given Secret, and all clients use HTTPS', () => {
    const values = { http: { tls: { secretName: 'netdra-tls' } }, serviceMonitor: { enabled: true } };
    const pod = podOf(values);
    const [driver] = pod?.containers ?? [];
    expect(driver?.args).toContain('--http-tls-dir=/etc/netdra-tls');
    // Without a subPath: such a file stays as it was when the container was started.
    const mount = driver?.volumeMounts?.find(({ name }) => name === 'tls');
    expect(mount).toEqual({ name: 'tls', mountPath: '/etc/netdra-tls', readOnly: true });
    const volume = pod?.volumes?.find(({ name }) => name === 'tls');
    expect(volume?.secret).toEqual({ secretName: 'netdra-tls', defaultMode: 0o400 });
    expect(driver?.livenessProbe?.httpGet).toEqual({ path: '/healthz', port: 9797, scheme: 'HTTPS' });
    const path = expect.stringMatching(/^\/readyz\?revision=/);
    expect(driver?.readinessProbe?.httpGet).toEqual({ path, port: 9797, scheme: 'HTTPS' });
    const endpointOf = (more: Record<string, unknown>) =>
      find<{ spec: { endpoints: object[] } }>('ServiceMonitor', more).spec.endpoints[0];
    expect(endpointOf(values)).toMatchObject({
      scheme: 'https',
      tlsConfig: {
        ca: { secret: { name: 'netdra-tls', key: 'ca.crt' } },
        serverName: 'netdra-metrics.kube-system.svc',
      },
    });
    const tlsConfig = { caFile: '/etc/prometheus/ca.crt', serverName: 'netdra' };
    expect(endpointOf({ ...values, serviceMonitor: { enabled: true, tlsConfig } })).toMatchObject({ tlsConfig });
    const plain = endpointOf({ serviceMonitor: { enabled: true } });
    expect(plain).not.toHaveProperty('scheme');
    expect(plain).not.toHaveProperty('tlsConfig');
    expect(podOf({})?.containers[0]?.readinessProbe?.httpGet).toEqual({ path, port: 9797 });
  });

  it.each([
    ['', ':9797', undefined],
    ['192.0.2.1', '192.0.2.1:9797', '192.0.2.1'],
    ['fd00::10', '[fd00::10]:9797', 'fd00::10'],
    ['[fd00::10]', '[fd00::10]:9797', 'fd00::10'],
    // No address to connect to.
    ['::', '[::]:9797', '::1'],
    ['0.0.0.0', '0.0.0.0:9797', '127.0.0.1'],
  ])('serves metrics and probes at host %j, and the kubelet reaches them', (host, address, probed) => {
    const [driver] = podOf({ http: { host } })?.containers ?? [];
    const flag = driver?.args?.find((arg) => arg.startsWith('--http-address='));
    expect(flag).toBe(`--http-address=${address}`);
    expect(parseAddress(address).port).toBe(9797);
    for (const probe of [driver?.livenessProbe, driver?.readinessProbe]) expect(probe?.httpGet?.host).toBe(probed);
  });

  it("runs with the driver's seccomp profile, a given profile or the runtime's default", () => {
    const of = (seccomp: Record<string, unknown>, image = {}) => {
      const pod = podOf({ image, kubeletPlugin: { seccomp } });
      const install = pod?.initContainers?.[0]?.args?.[2];
      return { install, profile: pod?.containers[0]?.securityContext?.seccompProfile };
    };
    const local = (localhostProfile: string) => ({ type: 'Localhost', localhostProfile });
    // By the tag: in an update two versions are on a node.
    expect(of({ directoryPath: '/var/lib/k0s/kubelet/seccomp' }, { tag: '0.1.1-rc.1' })).toEqual({
      install: '/var/lib/k0s/kubelet/seccomp/sriov.netdra.dev/0.1.1-rc.1.json',
      profile: local('sriov.netdra.dev/0.1.1-rc.1.json'),
    });
    expect(of({ install: false, localhostProfile: 'operator/netdra.json' })).toEqual({
      install: undefined,
      profile: local('operator/netdra.json'),
    });
    expect(of({ profile: 'RuntimeDefault' })).toEqual({ install: undefined, profile: { type: 'RuntimeDefault' } });
    const volumes = podOf({ kubeletPlugin: { seccomp: { profile: 'RuntimeDefault' } } })?.volumes;
    expect(volumes?.map(({ name }) => name)).not.toContain('seccomp');
    expect(() => of({ localhostProfile: '../x.json' })).toThrow(/localhostProfile/);
  });

  it('requests exactly what the security context constraints of the OpenShift preset allow', () => {
    const preset = loadYaml<Record<string, Record<string, object>>>(read('helm/netdra/values-openshift.yaml'));
    const values = {
      ...preset,
      http: { tls: { secretName: 'netdra-tls' } },
      inventoryPolicy: { pfs: [] },
    };
    const pod = podOf(values);
    const constraints = find<Record<string, unknown>>('SecurityContextConstraints', values);
    const containers = [...(pod?.containers ?? []), ...(pod?.initContainers ?? [])];
    const contexts = containers.map(({ securityContext }) => securityContext);
    for (const context of contexts) {
      expect(context?.seLinuxOptions).toEqual({ type: 'spc_t', level: 's0' });
      expect(context?.readOnlyRootFilesystem).toBe(constraints.readOnlyRootFilesystem);
      expect(context?.allowPrivilegeEscalation).toBe(constraints.allowPrivilegeEscalation);
      const { type, localhostProfile } = context?.seccompProfile ?? {};
      const profile = type === 'Localhost' ? `localhost/${localhostProfile}` : 'runtime/default';
      expect(constraints.seccompProfiles).toContain(profile);
    }
    const added = [...new Set(contexts.flatMap((context) => context?.capabilities?.add ?? []))];
    expect(constraints.allowedCapabilities).toEqual(added);
    // The kubelet adds the volume of the token.
    const kinds = (pod?.volumes ?? []).flatMap((volume) => Object.keys(volume).filter((key) => key !== 'name'));
    expect(constraints.volumes).toEqual([...new Set([...kinds, 'projected'])].sort());
    expect(constraints).toMatchObject({
      users: ['system:serviceaccount:kube-system:netdra'],
      allowHostNetwork: pod?.hostNetwork,
      allowHostDirVolumePlugin: true,
      allowPrivilegedContainer: false,
      allowHostPID: false,
      allowHostIPC: false,
      allowHostPorts: false,
    });
    expect(() => find('SecurityContextConstraints', {})).toThrow('0 objects');
    // The test's pod has other constraints, which refuse a user that is not of its namespace.
    const users = [values, {}].map((each) => {
      const objects = parseObjects(renderChart({ values: each, withTests: true }));
      const test = objects.find(({ kind }) => kind === 'Pod') as V1Pod;
      return test.spec?.containers[0]?.securityContext;
    });
    expect(users).toMatchObject([{ runAsNonRoot: true }, { runAsNonRoot: true, runAsUser: 65534 }]);
    expect(users[0]).not.toHaveProperty('runAsUser');
  });
});
