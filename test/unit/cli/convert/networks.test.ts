import { loadAll } from 'js-yaml';
import { describe, expect, it } from 'vitest';
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
  ])('takes addresses from routers as tuning with %j does', async (settings, slaac, sysctls) => {
    const { config } = await convert([sriov, ipv6(settings)]);
    expect({ slaac: config.slaac, sysctls: config.sysctls }).toEqual({ slaac, sysctls });
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
    ['nothing of plugins that stay', [sriov, { type: 'sbr' }], undefined],
  ])('notes that netdra closes the interface to %s', async (_, plugins, note) => {
    const { remarks } = await convert(plugins);
    if (note === undefined) expect(remarks).not.toContain('closes the interface');
    else expect(remarks).toContain(`object: note: netdra ${note}`);
  });

  it('prints no note on a closed interface if the VF is in user space anyway', async () => {
    const { config, remarks } = await convert([sriov], 'vfio-pci');
    expect(config.driver).toBe('vfio-pci');
    expect(remarks).not.toContain('closes the interface');
  });
});
