import type { ResourceV1ResourceClaim, V1DeviceClass } from '@kubernetes/client-node';
import { describe, expect, it } from 'vitest';
import { decodeMetadata } from '../../../src/framework/metadata/index.ts';
import { expectedNetworkData } from '../../ip-link.ts';
import type { GetCluster } from '../describe-cluster.ts';
import { type ContainerSpec, testClaim, testPod } from '../objects.ts';

/** Links of a pod besides VFs. */
const podLinks = ['lo', 'eth0'];

/** Ways to request devices besides a claim with plain requests. */
export function describeRequests(get: GetCluster): void {
  describe('requests of all kinds', () => {
    it('firstAvailable: the path contains the request name, and the file also the alternative that was chosen', async () => {
      const { cluster, view } = get();
      const { kernel } = cluster.target.classes;
      const never = [{ cel: { expression: 'device.attributes["resource.kubernetes.io"].pciBusID == "none"' } }];
      const firstAvailable = [
        { name: 'best', deviceClassName: kernel, selectors: never },
        { name: 'other', deviceClassName: kernel, count: 2 },
      ];
      const requests = [
        { name: 'vf', firstAvailable, config: { interfaceName: 'net%d' } },
        { name: 'data', config: { interfaceName: 'data' } },
        { name: 'last', config: { interfaceName: 'last', mtu: 1300 } },
      ];
      // The schedulers of Kubernetes 1.34 to 1.36 repeat such an entry in the allocation for each request.
      const shared = [{ requests: ['data', 'vf/other'], config: { mtu: 1400 } }];
      await cluster.create(testClaim(cluster, 'choice', requests, shared));
      await cluster.create(testPod(cluster, 'choice', { claims: [{ name: 'nic', resourceClaimName: 'choice' }] }));
      await cluster.waitUntilRunning('choice');
      const container = view('choice');
      const document = await container.metadata('resourceclaims/choice', 'vf');
      expect(document.request).toBe('vf/other');
      expect(document.devices.map(({ networkData }) => networkData?.interfaceName)).toEqual(['net0', 'net1']);
      const paths = requests.flatMap(({ name }) => [
        container.kepPath('choice', name),
        container.metadataPath('resourceclaims/choice', name),
      ]);
      expect(await container.metadataFiles()).toEqual(paths.sort());
      const field = '.requests[0].devices[0].networkData.interfaceName';
      for (const name of ['vf', 'vf/other'])
        expect(await container.read('netdra-metadata', 'get', `choice/${name}`, field), name).toMatch(/^net0\s*$/);
      const mtus = (await container.links()).flatMap(({ ifname, mtu }) =>
        podLinks.includes(ifname) ? [] : [[ifname, mtu]],
      );
      expect(Object.fromEntries(mtus)).toEqual({ net0: 1400, net1: 1400, data: 1400, last: 1300 });
    });

    it('extended resources: a container finds its metadata file by resource name', async ({ skip }) => {
      const { cluster, view } = get();
      skip(!(await cluster.features()).has('DRAExtendedResource'), 'the feature gate DRAExtendedResource is off');
      const { extendedResourceName = '' } =
        (await cluster.find<V1DeviceClass>('DeviceClass', cluster.target.classes.kernel))?.spec ?? {};
      expect(extendedResourceName).toBe('netdra.dev/kernel-vf');
      const containers = [
        { name: 'main', limits: { [extendedResourceName]: '2' } },
        { name: 'other', limits: { [extendedResourceName]: '1' } },
      ];
      await cluster.create(testPod(cluster, 'extended', { containers }));
      const { status } = await cluster.waitUntilRunning('extended');
      const claim = status?.extendedResourceClaimStatus?.resourceClaimName ?? '';
      const mappings = status?.extendedResourceClaimStatus?.requestMappings ?? [];
      expect(mappings).toHaveLength(2);
      const links = (await view('extended').links()).filter(({ ifname }) => !podLinks.includes(ifname));
      expect(links).toHaveLength(3);
      const seen: string[] = [];
      for (const { containerName, requestName } of mappings) {
        const container = view('extended', containerName);
        const byResource = [
          extendedResourceName,
          `deviceclass.resource.kubernetes.io/${cluster.target.classes.kernel}`,
        ];
        const paths = [
          container.kepPath(claim, requestName),
          container.metadataPath(`resourceclaims/${claim}`, requestName),
          ...byResource.map((resource) => container.metadataPath('extended-resources', resource)),
        ];
        expect(await container.metadataFiles()).toEqual(paths.sort());
        // The tool finds them without knowing the name of the claim.
        const [header = '', ...rows] = (await container.read('netdra-metadata', 'list')).trim().split('\n');
        const column = (name: string) => rows.map((row) => row.split(/\s+/)[header.split(/\s+/).indexOf(name)] ?? '');
        expect(column('REQUEST')).toEqual(rows.map(() => `${claim}/${requestName}`));
        // As docs/cnf-developers.md shows it.
        const script = `eval "$(netdra-metadata env ${extendedResourceName} --prefix NIC)"
          echo "$NIC_COUNT $NIC_0_MAC"`;
        expect(await container.read('sh', '-euc', script)).toBe(`${rows.length} ${column('MAC')[0]}\n`);
        seen.push(...column('MAC'));
      }
      // Each container sees its own VFs, and together they see all.
      expect(seen.sort()).toEqual(links.map(({ address }) => address).sort());
    });

    it('extended resources: init containers, sidecars and containers each see exactly the devices allocated for them', async ({
      skip,
    }) => {
      const { cluster, view } = get();
      skip(!(await cluster.features()).has('DRAExtendedResource'), 'the feature gate DRAExtendedResource is off');
      const resource = 'netdra.dev/kernel-vf';
      const file = view('shared').metadataPath('extended-resources', resource);
      // Of the container's first process: the shell knows no variable with a `-` in its name.
      const script = `tr '\\0' '\\n' < /proc/1/environ | grep '^PCIDEVICE_NETDRA_DEV_KERNEL-VF='; cat ${file}`;
      const asks = (name: string, count: number) => ({ name, limits: { [resource]: `${count}` } });
      const initContainers: ContainerSpec[] = [
        { ...asks('setup', 2), command: ['sh', '-euc', script] },
        { ...asks('sidecar', 1), restartPolicy: 'Always' },
      ];
      await cluster.create(testPod(cluster, 'shared', { initContainers, containers: [asks('main', 1)] }));
      const { status } = await cluster.waitUntilRunning('shared');
      const { resourceClaimName = '', requestMappings = [] } = status?.extendedResourceClaimStatus ?? {};
      const claim = await cluster.find<ResourceV1ResourceClaim>('ResourceClaim', resourceClaimName);
      const results = claim?.status?.allocation?.devices?.results ?? [];
      // Before Kubernetes 1.35 the init container has a request of its own.
      if ((await cluster.minorVersion()) >= 35) expect(results).toHaveLength(2);
      const links = await view('shared').links();
      const seenBy: Record<string, string> = {
        setup: await cluster.log('shared', 'setup'),
        sidecar: await view('shared', 'sidecar').read('sh', '-euc', script),
        main: await view('shared').read('sh', '-euc', script),
      };
      for (const [container, text] of Object.entries(seenBy)) {
        const [variable = '', ...rest] = text.split('\n');
        const mine = requestMappings.filter(({ containerName }) => containerName === container);
        const devices = decodeMetadata(rest.join('\n')).requests.flatMap((each) => each.devices);
        const allocated = results.filter(({ request }) => mine.some(({ requestName }) => requestName === request));
        expect(allocated, container).toHaveLength(container === 'setup' ? 2 : 1);
        expect(
          devices.map(({ name }) => name),
          container,
        ).toEqual(allocated.map(({ device }) => device));
        const addresses = devices.map(({ attributes }) => attributes?.['resource.kubernetes.io/pciBusID']?.string);
        expect(variable, container).toBe(`PCIDEVICE_NETDRA_DEV_KERNEL-VF=${addresses}`);
        // Not the addresses: the kernel may add a link-local one after the init container has ended.
        for (const { networkData } of devices) {
          const { interfaceName: ifname, hardwareAddress: address } = networkData ?? {};
          expect(links, container).toContainEqual(expect.objectContaining({ ifname, address }));
        }
      }
    });

    it('adminAccess: a monitoring claim gets the metadata of a VF without disturbing the pod that holds the VF', async () => {
      const { cluster, view } = get();
      const path = { claim: 'resourceclaims/used', request: 'vf' };
      await cluster.create(
        testClaim(cluster, 'used', [{ name: 'vf', config: { interfaceName: 'net1', addresses: ['192.0.2.1/24'] } }]),
      );
      await cluster.create(testPod(cluster, 'user', { claims: [{ name: 'nic', resourceClaimName: 'used' }] }));
      await cluster.waitUntilRunning('user');
      const used = await view('user').metadata(path.claim, path.request);
      const linkOfUser = async () => {
        const links = await view('user').links();
        return expectedNetworkData(links.find(({ ifname }) => ifname === 'net1'));
      };
      const before = await linkOfUser();
      const [device] = used.devices;

      const busIdName = 'resource.kubernetes.io/pciBusID';
      const busId = device?.attributes?.[busIdName]?.string;
      const selectors = [`device.attributes["resource.kubernetes.io"].pciBusID == "${busId}"`];
      await cluster.create(testClaim(cluster, 'watch', [{ name: 'vf', adminAccess: true, selectors }]));
      await cluster.create(testPod(cluster, 'monitor', { claims: [{ name: 'nic', resourceClaimName: 'watch' }] }));
      await cluster.waitUntilRunning('monitor');
      const seen = await view('monitor').metadata('resourceclaims/watch', 'vf');
      const { networkData: _inPod, attributes: _seenInPod, ...identity } = device ?? {};
      expect(seen).toMatchObject({ generation: 1, request: 'vf' });
      expect(seen.devices).toEqual([
        { ...identity, attributes: expect.objectContaining({ [busIdName]: { string: busId } }) },
      ]);
      // The pod with the VF still has it, and the monitor has none.
      expect(await linkOfUser()).toEqual(before);
      const links = (await view('monitor').links()).map(({ ifname }) => ifname);
      expect(links.filter((name) => !podLinks.includes(name))).toEqual([]);
      // Removing the monitor changes nothing either.
      await cluster.remove('Pod', 'monitor');
      await cluster.remove('ResourceClaim', 'watch');
      expect(await linkOfUser()).toEqual(before);
      expect(await view('user').metadata(path.claim, path.request)).toEqual(used);
    });
  });
}
