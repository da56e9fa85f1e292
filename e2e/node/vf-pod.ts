import { join } from 'node:path';
import type { V1Pod } from '@kubernetes/client-node';
import { expect } from 'vitest';
import { Store } from '../../src/driver/state/index.ts';
import { decodeStream } from '../../src/framework/metadata/index.ts';
import { buildClaim, buildPod, type Identified, testDriver } from '../../test/doubles/objects.ts';
import { expectedNetworkData } from '../ip-link.ts';
import { type Bench, ipLinks, type RunningContainer } from './bench.ts';
import type { Sandbox } from './pod.ts';

export type VfPod = Identified<V1Pod>;

/**
 * A pod with its own VF, known to the API server, but not prepared yet. The claim has the pod's name.
 * @param index of the VF, from 0
 * @param fields of its VFConfig
 */
export async function addVfPod(
  bench: Bench,
  name: string,
  index: number,
  fields: Record<string, unknown> = {},
): Promise<VfPod> {
  const slices = () => bench.api.objects<{ spec: { devices: { name: string }[] } }>('ResourceSlice');
  await expect.poll(slices, { timeout: 60_000 }).toHaveLength(1);
  const device = slices()[0]?.spec.devices[index]?.name ?? '';
  const pod = buildPod(name, { resourceClaims: [{ name: 'nic', resourceClaimName: name }] });
  const parameters = {
    apiVersion: 'netdra.dev/v1alpha1',
    kind: 'VFConfig',
    interfaceName: 'net1',
    // CNI plugins assign their own.
    ...(fields.attach === 'cni' ? {} : { addresses: [`192.0.2.${index + 1}/24`] }),
    ...fields,
  };
  const config = [{ source: 'FromClass' as const, parameters }];
  bench.api.create(buildClaim(name, { requests: [{ name: 'vf', devices: [device] }], config, pods: [pod] }));
  return pod;
}

/** Path of the metadata of {@link addVfPod}. */
export const pathInContainer = (claim: string): string =>
  `/var/run/kubernetes.io/dra-device-attributes/resourceclaims/${claim}/vf/${testDriver}-metadata.json`;

/** Checks that a container reads correct metadata. @returns the generation */
export async function expectTold(container: RunningContainer, sandbox: Sandbox, pod: VfPod): Promise<number> {
  const { stdout, stderr, exitCode } = await container.exec('cat', pathInContainer(pod.metadata.name));
  if (exitCode !== 0) throw new Error(`the container has no metadata: ${stderr}`);
  const { generation, devices } = decodeStream(stdout);
  const link = ipLinks(sandbox).find(({ ifname }) => ifname === 'net1');
  expect(devices.map(({ networkData }) => networkData)).toEqual([expectedNetworkData(link)]);
  return generation;
}

/** Starts a container and checks that it reads correct metadata. @returns the generation */
export async function expectTruth(bench: Bench, sandbox: Sandbox, pod: VfPod): Promise<number> {
  return await expectTold(await bench.startContainer(sandbox, pod), sandbox, pod);
}

/** Nothing is left of any pod: no files, specs or rows, and all VFs are in the host's namespace. */
export async function expectClean(bench: Bench, vfs = 8): Promise<void> {
  await expect.poll(() => bench.hostVfs().length, { timeout: 60_000 }).toBe(vfs);
  expect(bench.claimFiles()).toEqual([]);
  using store = new Store(join(bench.settings.kubeletPluginsDir, testDriver, 'state.db'));
  expect(store.claims()).toEqual([]);
}
