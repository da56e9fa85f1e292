import { chmodSync } from 'node:fs';
import type { V1ClusterRole } from '@kubernetes/client-node';
import { describe, expect, it, vi } from 'vitest';
import { checkDevicePlugins } from '../../../src/cli/checks/cards.ts';
import { parseCdiConfig } from '../../../src/cli/cri-runtime.ts';
import { KubeClient } from '../../../src/framework/kube/index.ts';
import { systemClock } from '../../../src/lib/clock.ts';
import { DevicePlugins } from '../../../src/node/inventory/index.ts';
import { ApiServer } from '../../doubles/api-server.ts';
import { kubeConfigOf } from '../../doubles/kube.ts';
import { findObject } from '../deploy/manifest-objects.ts';
import { BrokenNode, type NodeFaults } from './broken-node.ts';

const containerd = (version: string, cdi = { enabled: true }) => ({ name: 'containerd', version, cdi });

async function diagnose(faults: NodeFaults): Promise<string[]> {
  using node = new BrokenNode(faults);
  return (await node.diagnose('warning', 'problem')).filter(
    (text) => !text.startsWith('warning API server: not checked'),
  );
}

async function findingOf(check: string, faults: NodeFaults) {
  using node = new BrokenNode(faults);
  return await node.findingOf(check);
}

describe('runDoctor', () => {
  it('finds no problem on a healthy node', async () => {
    expect(await diagnose({})).toEqual([]);
    using node = new BrokenNode();
    expect(await node.diagnose('ok')).toEqual([
      'ok kernel: Linux 6.12.0',
      'ok IOMMU: on (dmar0), 3 groups',
      'ok SR-IOV: ens1f0 (0000:3b:00.0), i40e: 2 of 64 VFs are on',
      'ok module iavf: loaded',
      'ok module vfio-pci: loaded',
      'ok hugepages: 4 of 1 GiB (1 free)',
      'ok runtime: containerd 2.2.6',
      'ok NRI: answers at /run/nri/nri.sock; 2 s for each event',
      'ok CDI: on',
      expect.stringMatching(/^ok plugin directory: .*sriov\.netdra\.dev will be created$/),
      expect.stringMatching(/^ok kubelet registry: .* is writable$/),
      expect.stringMatching(/^ok CDI directory: .* is writable$/),
      expect.stringMatching(/^ok CNI plugins: 1 in .*cni\/bin$/),
      expect.stringMatching(/^ok start gate: .*sriov\.netdra\.dev\/bin\/netdra-gate will be installed$/),
      'ok capabilities: CAP_NET_ADMIN, CAP_NET_RAW, CAP_SYS_ADMIN',
      expect.stringMatching(/^ok sysctls: /),
      expect.stringMatching(/^ok network namespaces: /),
    ]);
  });

  it.each([
    ['ENOENT', containerd('1.7.24~ds1'), 'off: there is no socket /run/nri/nri.sock', /disable = false .*1\.7/],
    ['ENOENT', { ...containerd('1.34.0'), name: 'cri-o' }, 'off: there is no socket', /enable_nri = true/],
    ['ENOENT', undefined, 'off: there is no socket', /in containerd: .*; in CRI-O: /],
    ['ECONNREFUSED', containerd('2.2.6'), 'off: no process listens at /run/nri/nri.sock', /disable = false/],
    ['EACCES', containerd('2.2.6'), 'no permission to use', /root/],
  ])('reports that NRI is off (%s), and how to enable it', async (nriError, cri, message, fix) => {
    const finding = await findingOf('NRI', {
      nriError,
      ...(cri === undefined ? { cri: undefined } : { cri }),
    } as NodeFaults);
    expect(finding).toMatchObject({ level: 'problem', message: expect.stringContaining(message) });
    expect(finding?.fix).toMatch(fix);
  });

  it.each([
    ['2.2.6', 'io.containerd.cri.v1.runtime'],
    ['1.7.24', 'io.containerd.grpc.v1.cri'],
  ])('reports that CDI is off in containerd %s, and where to enable it', async (version, section) => {
    const faults = { cri: containerd(version, { enabled: false }) };
    expect(await diagnose(faults)).toEqual(['problem CDI: off: containers get neither their metadata nor /dev/vfio']);
    expect((await findingOf('CDI', faults))?.fix).toContain(`enable_cdi = true in [plugins."${section}"]`);
  });

  it('names VFs that a program has open through vfio although no claim has them', async () => {
    const openIn = (options: NonNullable<NodeFaults['options']>) => {
      const node = new BrokenNode({ vfDrivers: ['vfio-pci', 'vfio-pci'], options });
      for (const index of [0, 1]) node.write(`bus/pci/devices/0000:3b:02.${index}/enable`, '1');
      return node;
    };
    using node = openIn({});
    expect(await node.findingOf('vfio')).toMatchObject({
      level: 'warning',
      message: 'a program has 0000:3b:02.0 (/dev/vfio/40) and 1 more open, so netdra does not offer it',
    });
    using claimed = openIn({ claimed: () => new Set(['0000:3b:02.0', '0000:3b:02.1']) });
    expect(await claimed.findingOf('vfio')).toBeUndefined();
  });

  it('names VFs that are not offered because a device plugin offers them', async () => {
    using node = new BrokenNode();
    const RegisteredDevices = { 'intel.com/sriov': ['0000:3b:02.0', '0000:3b:02.1'], 'gpu.example.com/gpu': ['GPU-1'] };
    node.write('device-plugins/kubelet_internal_checkpoint', JSON.stringify({ Data: { RegisteredDevices } }));
    expect(await node.findingOf('device plugins')).toMatchObject({
      level: 'warning',
      message: 'a device plugin offers 0000:3b:02.0 and 1 more as intel.com/sriov, so netdra does not offer them',
    });
  });

  it('names the consequences of an unreadable device plugin checkpoint, and when to remove it', async () => {
    using node = new BrokenNode();
    node.write('device-plugins/kubelet_internal_checkpoint', '{');
    expect(await node.findingOf('device plugins')).toMatchObject({
      level: 'problem',
      message: expect.stringMatching(
        /^.*kubelet_internal_checkpoint cannot be read .*: netdra offers no device if it starts now$/,
      ),
      fix: expect.stringContaining('on a node without device plugins remove the file'),
    });
  });

  it('tells a user without permission to read the device plugin checkpoint to run as root', async () => {
    using file = vi.spyOn(DevicePlugins.prototype, 'read');
    const error = Object.assign(new Error('EACCES: permission denied'), { code: 'EACCES' });
    file.mockResolvedValue({ givenOut: undefined, error });
    expect(await checkDevicePlugins({ pfs: [], vfs: [], problems: [] }, '/checkpoint')).toEqual([
      { level: 'problem', message: 'no permission to read /checkpoint', fix: 'run this as root' },
    ]);
  });

  it('reports a start gate that the node cannot execute', async () => {
    using node = new BrokenNode();
    const mount = (path: string, options: string) => `25 1 8:1 / ${path} ${options} - ext4 /dev/sda1 rw\n`;
    const plugins = node.path('plugins');
    node.write('proc/self/mountinfo', mount('/', 'rw,noexec') + mount(plugins, 'rw') + mount(plugins, 'rw,noexec'));
    expect(await node.findingOf('start gate')).toEqual({
      check: 'start gate',
      level: 'problem',
      message: `${plugins}/sriov.netdra.dev/bin/netdra-gate cannot be executed: ${plugins} is mounted noexec`,
      fix: 'mount it without noexec, or run the driver with --start-gate=file',
    });
    node.write('proc/self/mountinfo', mount('/', 'rw,noexec') + mount(plugins, 'rw,relatime'));
    expect((await node.findingOf('start gate'))?.level).toBe('ok');
    // Once it is installed, the kernel is asked: even root may not run a file without an execute bit.
    node.write('plugins/sriov.netdra.dev/bin/netdra-gate', '');
    expect(await node.findingOf('start gate')).toMatchObject({
      level: 'problem',
      message: expect.stringContaining('is not executable (EACCES)'),
    });
    chmodSync(node.path('plugins/sriov.netdra.dev/bin/netdra-gate'), 0o755);
    expect((await node.findingOf('start gate'))?.message).toContain('is executable');
  });

  it('reports that the runtime reads CDI specs from another directory', async () => {
    const cri = { ...containerd('2.2.6'), cdi: { enabled: true, specDirs: ['/etc/cdi', '/run/cdi'] } };
    const [finding] = await diagnose({ cri });
    expect(finding).toMatch(/^problem CDI: on, but the runtime looks at \/etc\/cdi, \/run\/cdi and not at /);
    using node = new BrokenNode({ cri: { ...cri, cdi: { enabled: true, specDirs: [] } } });
    const here = { ...cri, cdi: { enabled: true, specDirs: [node.path('netns/../cdi')] } };
    expect((await findingOf('CDI', { cri: here, options: { cdiDir: node.path('cdi') } }))?.level).toBe('ok');
  });

  it('reports the features that need an IOMMU, and where to enable it', async () => {
    const off = await findingOf('IOMMU', { iommu: 'none' });
    expect(off).toMatchObject({ level: 'warning', message: expect.stringContaining('(DPDK) fail') });
    expect(off?.fix).toContain('intel_iommu=on');
    const requested = await findingOf('IOMMU', { iommu: 'none', commandLine: 'ro intel_iommu=on iommu=pt' });
    expect(requested?.fix).toContain('the kernel command line enables it');
    const bound = await findingOf('IOMMU', { iommu: 'none', vfDrivers: ['vfio-pci'] });
    expect(bound).toMatchObject({ level: 'problem', message: 'off, but 1 VFs are bound to vfio-pci' });
  });

  it.each(['2.0.5', '2.1.9+unknown', '2.2.5', '2.3.2'])(
    'warns that containerd %s leaks rejected sandboxes',
    async (version) => {
      const [finding, ...others] = await diagnose({ cri: containerd(version) });
      expect(finding).toContain(
        `warning runtime: containerd ${version} leaks every sandbox that an NRI plugin refuses`,
      );
      expect(others).toEqual([]);
      expect((await findingOf('runtime', { cri: containerd(version) }))?.fix).toContain('docs/troubleshooting.md');
    },
  );

  it.each<[string, NodeFaults, RegExp]>([
    ['an old kernel', { kernel: '5.10.0-28-amd64' }, /^problem kernel: Linux 5\.10\.0-28-amd64 does not report/],
    ['an old runtime', { cri: containerd('1.6.8') }, /^problem runtime: containerd 1\.6\.8 has no usable NRI/],
    ['a runtime that does not answer', { cri: undefined as never }, /^warning CRI: .*cri\.sock does not answer/],
    ['no VFs', { vfDrivers: [] }, /^warning SR-IOV: ens1f0 \(0000:3b:00\.0\), i40e: 0 of 64 VFs are on$/],
    ['a PF that is down', { pfFlags: '0x1002' }, /^warning SR-IOV: ens1f0 .*: 2 of 64 VFs are on, and the PF is down/],
    ['shared IOMMU groups', { iommu: 'shared' }, /^warning IOMMU groups: 2 VFs share their IOMMU group/],
    ['no vfio-pci', { drivers: ['iavf'] }, /^warning module vfio-pci: not loaded/],
    [
      'no kernel driver for VFs',
      { drivers: ['vfio-pci'], vfDrivers: ['vfio-pci'] },
      /^warning module iavf: not loaded/,
    ],
    ['a VF without a driver', { vfDrivers: ['iavf', undefined] }, /^warning VF drivers: 1 VFs .* 0000:3b:02\.1$/],
    ['no hugepages', { hugepages: 0 }, /^warning hugepages: none/],
    [
      'no plugins directory',
      { options: { dataDir: '/nowhere/x', stateDir: '/nowhere/x' } },
      /^problem plugin directory: \/nowhere does not exist$/,
    ],
    [
      'no kubelet',
      { options: { kubeletRegistryDir: '/nowhere/registry' } },
      /^problem kubelet registry: .* does not exist$/,
    ],
    [
      'a missing CDI directory',
      { options: { cdiDir: '/nowhere/cdi' } },
      /^problem CDI directory: \/nowhere\/cdi does not exist$/,
    ],
    [
      'a full disk for the state',
      { options: { stateDir: '/proc/version/state' } },
      /^problem state directory: .*\(ENOTDIR\)$/,
    ],
    [
      'missing sysctls',
      { options: { procSysDir: '/nowhere' } },
      /^problem sysctls: .*interfaces of pods cannot be set up$/,
    ],
    ['a missing capability', { capabilities: '0000000000003000' }, /^problem capabilities: CAP_SYS_ADMIN is missing/],
  ])('finds %s', async (_, faults, expected) => {
    expect(await diagnose(faults)).toEqual([expect.stringMatching(expected)]);
  });

  it('detects whether network namespaces that are mounted later become visible in the container', async () => {
    const mount = (path: string, optional: string) => `41 40 0:4 / ${path} rw${optional} - tmpfs tmpfs rw`;
    using node = new BrokenNode();
    const levelWith = (optional: string) => {
      node.write('proc/self/mountinfo', `${mount('/', ' shared:1')}\n${mount(node.path('netns'), optional)}\n`);
      return node.findingOf('network namespaces');
    };
    expect(await levelWith(' master:7')).toMatchObject({ level: 'ok' });
    expect(await levelWith(' shared:7')).toMatchObject({ level: 'ok' });
    expect(await levelWith('')).toMatchObject({
      level: 'problem',
      fix: expect.stringContaining('mountPropagation: HostToContainer'),
    });
    // Covered by a mount above it, as in a container with a /run of its own on a node that uses `ip netns`.
    const covered = `${mount(node.path('netns'), '')}\n${mount(node.path(), ' shared:9')}\n`;
    node.write('proc/self/mountinfo', covered);
    expect((await node.findingOf('network namespaces'))?.message).toContain('is not a separate mount');
  });

  it('names the port of a card in switchdev mode, not its VF representors', async () => {
    using node = new BrokenNode();
    const names = { ens1f0: 'p0', eth0: 'pf0vf0', eth1: 'pf0vf1' };
    for (const [name, port] of Object.entries(names))
      node.write(`bus/pci/devices/0000:3b:00.0/net/${name}/phys_port_name`, `${port}\n`);
    expect((await node.findingOf('SR-IOV'))?.message).toBe('ens1f0 (0000:3b:00.0), i40e: 2 of 64 VFs are on');
  });

  it('recognizes simulated VFs', async () => {
    using node = new BrokenNode({ kernel: '5.10.0' });
    const options = { ...node.options(), simulated: true };
    using bare = new BrokenNode({ kernel: '5.10.0', options: { ...options, sysDir: '/nowhere' } });
    expect(await bare.diagnose('warning')).toContain(
      'warning kernel: Linux 5.10.0 does not report which VF an interface belongs to',
    );
  });
});

it('runDoctor, checking CNI plugins, reports missing plugins if claims are allowed to use them', async () => {
  const cniBinDirs = ['/nowhere/bin', '/nowhere/else'];
  expect(await findingOf('CNI plugins', { options: { cniBinDirs } })).toEqual({
    check: 'CNI plugins',
    level: 'warning',
    message: 'none in /nowhere/bin, /nowhere/else: claims with attach: cni or ipam fail',
    fix: 'install them, or pass their directories to the driver with --cni-bin-dirs',
  });
  expect((await findingOf('CNI plugins', { options: { cniBinDirs, cniUses: ['ipam'] } }))?.message).toMatch(
    /: claims with ipam fail$/,
  );
  expect(await findingOf('CNI plugins', { options: { cniBinDirs, cniUses: [] } })).toBeUndefined();
});

describe('runDoctor, checking the API server', () => {
  const openKube = (api: ApiServer) => {
    const config = kubeConfigOf(api);
    return async () => new KubeClient(config, { clock: systemClock, userAgent: 'netdra/test' });
  };
  const askAbout = async (api: ApiServer) => {
    using node = new BrokenNode({ options: { openKube: openKube(api) } });
    return (await node.diagnose()).filter((text) => /API server|permissions/.test(text));
  };

  it('reports its version, and that all permissions are granted', async () => {
    await using api = await ApiServer.start();
    expect(await askAbout(api)).toEqual([
      'ok API server: Kubernetes v1.36.0-double, resource.k8s.io/v1',
      'ok permissions: this account has all that the driver needs',
    ]);
  });

  it('names permissions that the role lacks', async () => {
    await using api = await ApiServer.start();
    api.denyAccess({ verb: 'patch', resource: 'events' });
    api.denyAccess({ verb: 'patch', resource: 'resourceclaims/status' });
    api.denyAccess({ verb: 'delete', resource: 'resourceslices' });
    api.denyAccess({ verb: 'create', resource: 'nodenetworkdevices' });
    api.denyAccess({ verb: 'watch', resource: 'networkdevicepolicies' });
    expect((await askAbout(api)).slice(1)).toEqual([
      'problem permissions: this account may not delete resourceslices: devices are not offered',
      'warning permissions: this account may not patch resourceclaims/status: claim status does not describe devices',
      'warning permissions: this account may not patch events: pods and claims get no events',
      'warning permissions: this account may not create nodenetworkdevices: no NodeNetworkDevices object shows the devices of this node',
      'warning permissions: this account may not watch networkdevicepolicies: NetworkDevicePolicies have no effect',
    ]);
  });

  it('requires NetworkAttachmentDefinitions only if claims are allowed to use CNI plugins', async () => {
    await using api = await ApiServer.start();
    api.denyAccess({ verb: 'get', resource: 'network-attachment-definitions' });
    expect((await askAbout(api)).slice(1)).toEqual([
      'warning permissions: this account may not get network-attachment-definitions: claims that name a NetworkAttachmentDefinition fail',
    ]);
    using node = new BrokenNode({ options: { openKube: openKube(api), cniUses: ['ipam'] } });
    expect(await node.findingOf('permissions')).toMatchObject({ level: 'ok' });
  });

  it('checks every permission of the rendered role', async () => {
    await using api = await ApiServer.start();
    const { rules = [] } = findObject<V1ClusterRole>('ClusterRole');
    const asked = rules.filter(({ resourceNames }) => resourceNames === undefined);
    const needed = asked.flatMap(({ resources = [], verbs }) =>
      resources.flatMap((resource) => verbs.map((verb) => ({ resource, verb }))),
    );
    for (const each of needed) api.denyAccess(each);
    const denied = (await askAbout(api)).map((text) => /may not (.*?) (\S+):/.exec(text) ?? []);
    const found = denied.flatMap(([, verbs = '', resource]) => verbs.split(', ').map((verb) => ({ resource, verb })));
    expect(found).toEqual(expect.arrayContaining(needed));
  });

  it('warns about missing permissions for address pools, and about missing definitions if pools are used', async () => {
    await using api = await ApiServer.start();
    api.denyAccess({ verb: 'update', resource: 'networkaddressleases' });
    expect((await askAbout(api)).slice(1)).toEqual([
      'warning permissions: this account may not update networkaddressleases: claims with addressPool fail',
    ]);
    const kinds = ['networkaddresspools', 'networkaddresses', 'networkaddressleases'];
    api.endDefinitions('missing', 'networkaddressleases');
    const poolsOf = async () => {
      using node = new BrokenNode({ options: { openKube: openKube(api) } });
      return await node.findingOf('address pools');
    };
    expect(await poolsOf()).toMatchObject({
      level: 'warning',
      message: 'this cluster does not serve networkaddressleases: claims with addressPool fail',
      fix: expect.stringContaining('addressPools.enabled'),
    });
    api.endDefinitions('missing', ...kinds);
    expect(await poolsOf()).toBeUndefined();
    const parameters = { apiVersion: 'netdra.dev/v1alpha1', kind: 'VFConfig', addressPool: { name: 'lan' } };
    const config = [{ opaque: { driver: 'sriov.netdra.dev', parameters } }];
    api.create({ kind: 'DeviceClass', metadata: { name: 'pool' }, spec: { config } } as never);
    expect((await poolsOf())?.message).toContain(`does not serve ${kinds.join(', ')}:`);
  });

  it("checks the permission to write the driver's own status entries if Kubernetes is 1.36 or newer", async () => {
    const verbs = ['associated-node:patch', 'arbitrary-node:patch'];
    const entries = { resource: 'resourceclaims/driver', name: 'sriov.netdra.dev' };
    await using api = await ApiServer.start();
    api.denyAccess({ verb: verbs[0]!, ...entries });
    // Either will do.
    expect((await askAbout(api)).slice(1)).toEqual(['ok permissions: this account has all that the driver needs']);
    api.denyAccess({ verb: verbs[1]!, ...entries });
    using node = new BrokenNode({ options: { openKube: openKube(api) } });
    expect(await node.findingOf('permissions')).toMatchObject({
      level: 'warning',
      message:
        'this account may not associated-node:patch resourceclaims/driver sriov.netdra.dev: claim status does not describe devices',
    });
    await using old = await ApiServer.start({ minorVersion: 35 });
    for (const verb of verbs) old.denyAccess({ verb, ...entries });
    expect((await askAbout(old)).slice(1)).toEqual(['ok permissions: this account has all that the driver needs']);
  });

  it('checks all permissions in a cluster without a version, such as a custom build', async () => {
    await using api = await ApiServer.start({ minorVersion: Number.NaN });
    api.denyAccess({ verb: 'delete', resource: 'resourceslices' });
    expect((await askAbout(api)).slice(1)).toEqual([
      'problem permissions: this account may not delete resourceslices: devices are not offered',
    ]);
  });

  it('names the fault of a cluster, or of the connection to its API server', async () => {
    await using old = await ApiServer.start({ draVersions: [] });
    expect(await askAbout(old)).toEqual([expect.stringContaining('problem API server: the API server serves none of')]);
    const gone = await ApiServer.start();
    const open = openKube(gone);
    await using guarded = await ApiServer.start({ token: 'secret' });
    using _ = guarded.failNext('GET /version', 401, { times: 1 });
    expect(await askAbout(guarded)).toEqual([expect.stringMatching(/^problem API server: .*answered 401/)]);
    await gone[Symbol.asyncDispose]();
    using node = new BrokenNode({ options: { openKube: open } });
    expect(await node.findingOf('API server')).toMatchObject({
      level: 'problem',
      message: expect.stringContaining('ECONNREFUSED'),
      fix: expect.stringContaining('address in the kubeconfig'),
    });
  });
});

it.each([
  ['containerd', '{"enableCDI":false,"cdiSpecDirs":["/etc/cdi"]}', { enabled: false, specDirs: ['/etc/cdi'] }],
  // Unless it is switched off, from containerd 2.3 on; 2.4 has no such setting any more.
  ['containerd', '{"enableCDI":null,"cdiSpecDirs":["/etc/cdi"]}', { enabled: true, specDirs: ['/etc/cdi'] }],
  ['containerd', '{"cdiSpecDirs":["/etc/cdi"]}', { enabled: true, specDirs: ['/etc/cdi'] }],
  ['containerd', '{}', {}],
  ['containerd', 'nonsense', {}],
  [
    'cri-o',
    '[crio.runtime]\ncdi_spec_dirs = [\n"/etc/cdi",\n"/run/cdi"]',
    { enabled: true, specDirs: ['/etc/cdi', '/run/cdi'] },
  ],
  ['cri-o', '', { enabled: true }],
])('parseCdiConfig parses the output of %s: %j', (runtime, config, expected) => {
  expect(parseCdiConfig(runtime, config)).toEqual(expected);
});
