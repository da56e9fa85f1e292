import { describe, expect, it } from 'vitest';
import { type ContainerdSettings, formatContainerdConfig, formatToml } from '../../../e2e/node/containerd-config.ts';
import { createPodNetwork, formatConflist } from '../../../e2e/node/pod-network.ts';

const settings: ContainerdSettings = {
  rootDir: '/t/root',
  stateDir: '/t/state',
  socketPath: '/t/containerd.sock',
  optDir: '/t/opt',
  runc: '/tools/runc',
  snapshotter: 'native',
  sandboxImage: 'localhost/pause:1',
  cniBinDir: '/tools/cni',
  cniConfDir: '/t/net.d',
  cdiSpecDirs: ['/t/cdi', '/t/cdi2'],
  nri: {
    socketPath: '/t/nri.sock',
    pluginDir: '/t/plugins',
    pluginConfigDir: '/t/conf.d',
    registrationTimeoutMs: 5_000,
    requestTimeoutMs: 750,
  },
};

/** Lines of the table with this name. */
function table(text: string, name: string): string[] {
  const [, rest = ''] = text.split(`\n[${name}]\n`);
  return (rest.split('\n[')[0] ?? '').trim().split('\n');
}

describe('formatContainerdConfig', () => {
  const nri = [
    'disable = false',
    'socket_path = "/t/nri.sock"',
    'plugin_registration_timeout = "5000ms"',
    'plugin_request_timeout = "750ms"',
  ];

  it('writes version 3 for 2.x', () => {
    const text = formatContainerdConfig('2.1', settings);
    expect(text).toMatch(/^version = 3\nroot = "\/t\/root"\nstate = "\/t\/state"\n/);
    const runtime = '"plugins"."io.containerd.cri.v1.runtime"';
    expect(table(text, runtime)).toEqual(
      expect.arrayContaining([
        'enable_cdi = true',
        'cdi_spec_dirs = ["/t/cdi","/t/cdi2"]',
        'restrict_oom_score_adj = true',
      ]),
    );
    expect(table(text, `${runtime}."cni"`)).toEqual(['bin_dirs = ["/tools/cni"]', 'conf_dir = "/t/net.d"']);
    expect(table(text, `${runtime}."containerd"."runtimes"."runc"."options"`)).toContain('BinaryName = "/tools/runc"');
    expect(table(text, '"plugins"."io.containerd.cri.v1.images"')).toEqual(['snapshotter = "native"']);
    expect(table(text, '"plugins"."io.containerd.cri.v1.images"."pinned_images"')).toEqual([
      'sandbox = "localhost/pause:1"',
    ]);
    expect(table(text, '"plugins"."io.containerd.nri.v1.nri"')).toEqual(expect.arrayContaining(nri));
  });

  it('writes version 2 for 1.7, with CDI and NRI switched on', () => {
    const text = formatContainerdConfig('1.7', settings);
    expect(text).toMatch(/^version = 2\n/);
    const cri = '"plugins"."io.containerd.grpc.v1.cri"';
    expect(table(text, cri)).toEqual(
      expect.arrayContaining([
        'enable_cdi = true',
        'sandbox_image = "localhost/pause:1"',
        'restrict_oom_score_adj = true',
      ]),
    );
    expect(table(text, `${cri}."cni"`)).toEqual(['bin_dir = "/tools/cni"', 'conf_dir = "/t/net.d"']);
    expect(table(text, `${cri}."containerd"`)).toContain('snapshotter = "native"');
    expect(table(text, '"plugins"."io.containerd.nri.v1.nri"')).toEqual(expect.arrayContaining(nri));
  });
});

describe('formatToml', () => {
  it('writes the values of a table before the tables in it', () => {
    expect(formatToml({ inner: { deep: { on: true } }, size: 1, list: ['a"b'] })).toBe(
      'size = 1\nlist = ["a\\"b"]\n\n["inner"."deep"]\non = true\n',
    );
  });
});

describe('createPodNetwork', () => {
  it('gives every number subnets of its own and a bridge name that the kernel takes', () => {
    const networks = Array.from({ length: 256 }, (_, number) => createPodNetwork(number));
    for (const key of ['name', 'bridge', 'ipv4Subnet', 'ipv6Subnet'] as const) {
      expect(new Set(networks.map((network) => network[key])).size).toBe(256);
    }
    expect(networks.every(({ bridge }) => bridge.length <= 15)).toBe(true);
  });

  it('is what the CNI configuration says', () => {
    const conflist = JSON.parse(formatConflist(createPodNetwork(7), '/t/leases'));
    expect(conflist).toMatchObject({
      cniVersion: '1.0.0',
      name: 'netdra-7',
      plugins: [
        {
          type: 'bridge',
          bridge: 'ndbr7',
          ipam: { dataDir: '/t/leases', ranges: [[{ subnet: '10.201.7.0/24' }], [{ subnet: 'fd00:c9:7::/64' }]] },
        },
      ],
    });
  });
});
