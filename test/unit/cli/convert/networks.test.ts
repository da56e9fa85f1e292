import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { load, loadAll } from 'js-yaml';
import { describe, expect, it } from 'vitest';
import { repository } from '../../../../scripts/run-command.ts';
import { allowedPlugins } from '../../../../src/cli/convert/cni-values.ts';
import { convertText } from './convert-text.ts';

/** A NetworkAttachmentDefinition with a chain of plugins, and the VFs that it is for. */
const definition = (plugins: object[], driver = 'iavf') => {
  const config = JSON.stringify({ cniVersion: '1.0.0', name: 'n', plugins });
  const resources = {
    resourceList: [{ resourceName: 'nic', resourcePrefix: 'intel.com', selectors: { drivers: [driver] } }],
  };
  return `apiVersion: v1
kind: ConfigMap
metadata: { name: sriovdp-config, namespace: kube-system }
data: { config.json: '${JSON.stringify(resources)}' }
---
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: { name: n, namespace: apps, annotations: { k8s.v1.cni.cncf.io/resourceName: intel.com/nic } }
spec: { config: '${config}' }
`;
};
const sriov = { type: 'sriov' };
const tuning = (sysctl: Record<string, string>) => ({ type: 'tuning', sysctl });
const ipv6 = (settings: Record<string, string>) =>
  tuning(Object.fromEntries(Object.entries(settings).map(([key, value]) => [`net.ipv6.conf.IFNAME.${key}`, value])));

/** Notes on the network, and the VFConfig of its class. */
async function convert(plugins: object[], driver?: string) {
  const { yaml, remarks } = await convertText(definition(plugins, driver));
  const objects = loadAll(yaml) as {
    metadata: { name: string };
    spec: { config: { opaque: { parameters: object } }[] };
  }[];
  const parameters: Record<string, unknown> = {
    ...objects.find(({ metadata }) => metadata.name === 'apps-n')?.spec.config[0]?.opaque.parameters,
  };
  return { config: parameters, remarks };
}

describe('netdra convert of a network', () => {
  const open = { waitSeconds: 0, defaultRoute: true };
  it.each<[Record<string, string>, object | undefined, object | undefined]>([
    [{ accept_ra: '1' }, open, undefined],
    [{ accept_ra: '2', autoconf: '1' }, open, { 'net.ipv6.conf.IFNAME.autoconf': '1' }],
    [{ autoconf: '1' }, open, { 'net.ipv6.conf.IFNAME.autoconf': '1' }],
    [{ accept_ra: '1', accept_ra_defrtr: '0' }, { waitSeconds: 0 }, { 'net.ipv6.conf.IFNAME.accept_ra_defrtr': '0' }],
    [{ accept_ra: '0' }, undefined, { 'net.ipv6.conf.IFNAME.accept_ra': '0' }],
    [
      { accept_ra: '1', autoconf: '0' },
      undefined,
      { 'net.ipv6.conf.IFNAME.accept_ra': '1', 'net.ipv6.conf.IFNAME.autoconf': '0' },
    ],
    [{ accept_ra: '2', forwarding: '1' }, open, { 'net.ipv6.conf.IFNAME.forwarding': '1' }],
    [{ accept_ra: '1', forwarding: '0' }, open, { 'net.ipv6.conf.IFNAME.forwarding': '0' }],
    // The kernel ignores advertisements then.
    [
      { accept_ra: '1', forwarding: '1' },
      undefined,
      { 'net.ipv6.conf.IFNAME.accept_ra': '1', 'net.ipv6.conf.IFNAME.forwarding': '1' },
    ],
    [
      { autoconf: '1', forwarding: '1' },
      undefined,
      { 'net.ipv6.conf.IFNAME.autoconf': '1', 'net.ipv6.conf.IFNAME.forwarding': '1' },
    ],
    [
      { accept_ra: '1', disable_ipv6: '1' },
      undefined,
      { 'net.ipv6.conf.IFNAME.accept_ra': '1', 'net.ipv6.conf.IFNAME.disable_ipv6': '1' },
    ],
  ])(
    'sets slaac only if the tuning plugin settings %j let routers assign addresses',
    async (settings, slaac, sysctls) => {
      const { config } = await convert([sriov, ipv6(settings)]);
      expect({ slaac: config.slaac, sysctls: config.sysctls }).toEqual({ slaac, sysctls });
    },
  );

  it.each<[string, object]>([
    ['an MTU that is too small for IPv6', { type: 'tuning', mtu: 1200 }],
    ['forwarding by another plugin', ipv6({ forwarding: '1' })],
  ])('does not set slaac if the network has %s', async (_, plugin) => {
    const { config } = await convert([sriov, ipv6({ accept_ra: '1' }), plugin]);
    expect(config).toMatchObject({ sysctls: { 'net.ipv6.conf.IFNAME.accept_ra': '1' } });
    expect(config).not.toHaveProperty('slaac');
  });

  it.each<[string, object[], string | undefined]>([
    [
      'router advertisements and forwarding',
      [sriov],
      'closes the interface to IPv6 router advertisements and IPv4 forwarding: if pods need that, set slaac and net.ipv4.conf.IFNAME.forwarding in sysctls of the class',
    ],
    ['forwarding', [sriov, ipv6({ accept_ra: '1' })], 'closes the interface to IPv4 forwarding: '],
    [
      'router advertisements',
      [sriov, tuning({ 'net.ipv4.conf.IFNAME.forwarding': '1' })],
      'closes the interface to IPv6 router advertisements: ',
    ],
    ['nothing', [sriov, ipv6({ accept_ra: '0' }), tuning({ 'net.ipv4.conf.IFNAME.forwarding': '1' })], undefined],
    ['nothing, if the plugins are kept', [sriov, { type: 'sbr' }], undefined],
  ])('notes that netdra closes the interface to %s', async (_, plugins, note) => {
    const { remarks } = await convert(plugins);
    if (note === undefined) expect(remarks).not.toContain('closes the interface');
    else expect(remarks).toContain(`object: note: netdra ${note}`);
  });

  const withIpam = (ipam: object) => [{ ...sriov, ipam }];
  it.each<[string, object[], string[]]>([
    [
      'an IPAM plugin of another project',
      withIpam({ type: 'nv-ipam', poolName: 'a' }),
      [
        "netdra runs the plugin nv-ipam: set cni.enabled and add nv-ipam to cni.allowedPlugins in the chart's values",
        "the driver's pod has the files that nv-ipam reads on the node only if they are below cni.binDirectoryPath or",
      ],
    ],
    [
      'whereabouts as configured by OpenShift',
      withIpam({ type: 'whereabouts', range: '192.0.2.0/24' }),
      [
        "netdra runs the plugin whereabouts: set cni.enabled in the chart's values",
        "the driver's pod has no /etc/cni/net.d, where whereabouts has its configuration: copy it and its kubeconfig below",
      ],
    ],
    [
      'whereabouts with a configuration file elsewhere',
      withIpam({ type: 'whereabouts', configuration_path: '/etc/whereabouts.conf' }),
      ["the driver's pod has no /etc/whereabouts.conf, where whereabouts has its configuration"],
    ],
    ['dhcp', withIpam({ type: 'dhcp' }), ['with its socket below cni.stateDirectoryPath: set daemonSocketPath in']],
    [
      'a chain with plugins of other projects',
      [sriov, { type: 'portmap' }, { type: 'rdma', ipam: { type: 'nv-ipam' } }, { type: 'sbr' }],
      [
        "set cni.enabled and cni.definitionNamespaces: [apps] and add portmap, rdma, nv-ipam to cni.allowedPlugins in the chart's values",
        'the files that nv-ipam reads on the node',
      ],
    ],
  ])('names the chart values and files of the driver that %s needs', async (_, plugins, notes) => {
    const { remarks } = await convert(plugins);
    for (const note of notes) expect(remarks).toContain(note);
  });

  it.each([
    { type: 'host-local', subnet: '192.0.2.0/24' },
    { type: 'whereabouts', configuration_path: '/opt/cni/bin/whereabouts.d/whereabouts.conf' },
    { type: 'dhcp', daemonSocketPath: '/var/lib/cni/dhcp.sock' },
  ])("prints no note on files that the driver's pod already has: %j", async (ipam) => {
    const { remarks } = await convert(withIpam(ipam));
    expect(remarks).not.toContain("the driver's pod has");
    expect(remarks).not.toContain('with its socket');
    expect(remarks).not.toContain('allowedPlugins');
  });

  it('knows the CNI plugins that the chart allows by default', () => {
    const values = load(readFileSync(join(repository, 'deploy/helm/netdra/values.yaml'), 'utf8'));
    expect(values).toMatchObject({ cni: { allowedPlugins } });
  });

  it('prints no note on a closed interface if the VF is in user space', async () => {
    const { config, remarks } = await convert([sriov], 'vfio-pci');
    expect(config.driver).toBe('vfio-pci');
    expect(remarks).not.toContain('closes the interface');
  });
});
