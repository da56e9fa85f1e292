import { readdirSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { profilePath } from '../../../deploy/seccomp/profile.ts';
import { deviceInfoDir } from '../../../src/driver/dialects/index.ts';
import { defaultHostDirs } from '../../../src/framework/metadata/index.ts';
import type { GetCluster } from '../describe-cluster.ts';
import { downwardApiDir, driverNamespace } from '../node/driver.ts';
import { kubeletDir } from '../node/kubelet.ts';
import type { RealNode } from '../node/real-node.ts';
import { createPodWithClaim, testClass } from '../objects.ts';

const busId = 'resource.kubernetes.io/pciBusID';

/** The driver's privileges from the chart's DaemonSet, as found on the node. */
export function describeInstalledDriver(get: GetCluster, getNode: () => RealNode): void {
  describe('the driver as installed by the chart', () => {
    it('has three capabilities and a seccomp profile, cannot gain privileges, and can write only to its mounts', () => {
      const [pid] = getNode().driverPids();
      const status = readFileSync(`/proc/${pid}/status`, 'utf8');
      const field = (name: string) => new RegExp(`^${name}:\\s+(\\S+)`, 'm').exec(status)?.[1];
      // CAP_NET_ADMIN is 12, CAP_NET_RAW 13, CAP_SYS_ADMIN 21.
      const capabilities = ((1n << 12n) | (1n << 13n) | (1n << 21n)).toString(16).padStart(16, '0');
      for (const set of ['CapEff', 'CapPrm', 'CapBnd']) expect(field(set), set).toBe(capabilities);
      expect(field('NoNewPrivs')).toBe('1');
      expect(field('Seccomp')).toBe('2');
      const lines = readFileSync(`/proc/${pid}/mountinfo`, 'utf8').trim().split('\n');
      const mounts = lines.map((line) => line.split(' '));
      const optionsOf = (path: string) => mounts.findLast((each) => each[4] === path)?.[5]?.split(',') ?? [];
      expect(optionsOf('/')).toContain('ro');
      expect(optionsOf('/var/run/netns')).toContain('ro');
      expect(optionsOf('/sys')).toContain('ro');
      for (const path of ['/sys/devices', '/sys/bus/pci']) expect(optionsOf(path), path).toContain('rw');
      for (const path of [deviceInfoDir, defaultHostDirs.attributesDir, downwardApiDir]) {
        expect(optionsOf(path), path).toContain('rw');
      }
    });

    // Not while the profile is being made: scripts/seccomp.ts.
    it.skipIf(process.env.NETDRA_SECCOMP !== undefined)(
      'runs with the seccomp profile that its image installed on the node',
      () => {
        const path = '{.items[0].spec.containers[0].securityContext.seccompProfile.localhostProfile}';
        const pods = ['get', 'pods', '--namespace', driverNamespace, '--output', `jsonpath=${path}`];
        const localhostProfile = getNode().kubectl(...pods);
        expect(localhostProfile).toBe('sriov.netdra.dev/e2e.json');
        const installed = readFileSync(join(kubeletDir, 'seccomp', localhostProfile), 'utf8');
        expect(installed).toBe(readFileSync(profilePath, 'utf8'));
      },
    );

    it('stops offering a device that another DRA driver offers, and does not offer it again after a restart', async () => {
      const { cluster } = get();
      const { name = '', attributes } = (await cluster.devices()).at(-1) ?? {};
      const names = async () => (await cluster.devices()).map((device) => device.name);
      const spec = {
        driver: 'other.example',
        nodeName: cluster.node.name,
        pool: { name: cluster.node.name, generation: 1, resourceSliceCount: 1 },
        devices: [{ name: 'nic', attributes: { 'vendor.example/pciAddress': attributes?.[busId] } }],
      };
      const slice = { apiVersion: 'resource.k8s.io/v1', kind: 'ResourceSlice', metadata: { name: 'other' }, spec };
      const kept = join(kubeletDir, 'plugins', cluster.target.driver, 'other-drivers.json');
      try {
        await cluster.create(slice);
        await expect.poll(names, { timeout: 120_000 }).not.toContain(name);
        await cluster.remove('ResourceSlice', 'other');
        await cluster.restartDriver();
        expect(JSON.parse(readFileSync(kept, 'utf8'))).toEqual({
          [attributes?.[busId]?.string ?? '']: 'other.example',
        });
        expect(await names()).not.toContain(name);
      } finally {
        await cluster.remove('ResourceSlice', 'other');
        // Makes the driver forget the other driver's device, which it would otherwise withhold for five minutes.
        rmSync(kept, { force: true });
        await cluster.restartDriver();
      }
      await expect.poll(names, { timeout: 120_000 }).toContain(name);
    });

    it("applies what a class allows: the node's IPAM plugins, kernel settings and dialects", async () => {
      const { cluster, view } = get();
      const range = { subnet: '198.18.9.0/24', rangeStart: '198.18.9.5', rangeEnd: '198.18.9.5' };
      const resourceName = 'example.com/nic';
      const config = {
        interfaceName: 'net1',
        ipam: { type: 'host-local', ranges: [[range]] },
        dialects: { devicePlugin: { resourceName }, deviceInfo: { resourceName }, sriovNetwork: {} },
        sysctls: { 'net.ipv4.conf.IFNAME.arp_ignore': 2 },
      };
      const { metadata } = await cluster.create(testClass(cluster, 'ipam', config));
      try {
        const request = { name: 'vf', deviceClassName: metadata.name };
        await createPodWithClaim(cluster, 'ipam', [request]);
        await cluster.waitUntilRunning('ipam');
        const link = (await view('ipam').links()).find(({ ifname }) => ifname === 'net1');
        expect(link?.addr_info).toContainEqual(expect.objectContaining({ local: '198.18.9.5', prefixlen: 24 }));
        const [device] = (await view('ipam').metadata('resourceclaims/ipam', 'vf')).devices;
        expect(device?.networkData).toMatchObject({ interfaceName: 'net1', ips: ['198.18.9.5/24'] });
        const pciAddress = device?.attributes?.[busId]?.string;
        for (const name of ['PCIDEVICE_EXAMPLE_COM_NIC', 'SRIOVNETWORK_PCI_ADDRESSES'])
          expect(await view('ipam').read('sh', '-c', `echo "$${name}"`), name).toBe(`${pciAddress}\n`);
        expect(await view('ipam').read('cat', '/proc/sys/net/ipv4/conf/net1/arp_ignore')).toBe('2\n');
        expect(readdirSync(deviceInfoDir)).toEqual([expect.stringMatching(/^example\.com-nic-.*-device\.json$/)]);
        await cluster.remove('Pod', 'ipam');
        await expect.poll(() => readdirSync(deviceInfoDir), { timeout: 30_000 }).toEqual([]);
      } finally {
        await cluster.remove('DeviceClass', metadata.name);
      }
    });
  });
}
