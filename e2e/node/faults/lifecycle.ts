import { execFileSync } from 'node:child_process';
import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import { decodeStream } from '../../../src/metadata/index.ts';
import { buildClaim, buildPod, testDriver } from '../../../test/doubles/objects.ts';
import { ipLinks, type RunningContainer, retry } from '../bench.ts';
import type { Sandbox } from '../pod.ts';
import type { FaultNode } from './fault-node.ts';

/** The steps of a pod's life in which the driver is killed. */
export const phases = ['prepare', 'hook', 'stop', 'unprepare'] as const;
export type Phase = (typeof phases)[number];

/** How the claim of the pod gets its VFs. */
export const scenarios = ['netlink', 'ipam'] as const;
export type Scenario = (typeof scenarios)[number];

type Pod = ReturnType<typeof buildPod>;

/** One pod with two VFs, from prepare to unprepare; each step can be repeated, as the kubelet does it. */
export class Lifecycle {
  readonly #node: FaultNode;
  readonly #pod: Pod;
  readonly #leaseDir: string;
  readonly #linksBefore: unknown;
  #sandbox: Sandbox | undefined;

  constructor(node: FaultNode, scenario: Scenario, name: string) {
    this.#node = node;
    this.#linksBefore = hostLinks(node);
    this.#leaseDir = join(node.bench.dir, 'leases');
    this.#pod = buildPod(name, { resourceClaims: [{ name: 'nic', resourceClaimName: name }] });
    node.bench.api.create(this.#claim(scenario, name));
  }

  /** One try of a phase. @throws Error if it fails; WrongMetadataError if a container started that should not have */
  async run(phase: Phase): Promise<void> {
    const { bench } = this.#node;
    if (phase === 'prepare') await bench.prepare(this.#pod);
    else if (phase === 'hook') await this.#startContainer();
    else if (phase === 'stop') await bench.endSandboxes(this.#pod);
    else await bench.endPod(this.#pod);
  }

  /** The same again, after the driver was killed in it and is back, as often as the kubelet would try. */
  async repeat(phase: Phase): Promise<void> {
    await retry(() => this.run(phase));
  }

  /** @throws Error with what is not as it was before the pod, or still there of it */
  checkClean(): void {
    const { bench } = this.#node;
    const leases = this.#leases();
    const problems = [
      isDeepStrictEqual(hostLinks(this.#node), this.#linksBefore)
        ? ''
        : `links: ${JSON.stringify(hostLinks(this.#node))}`,
      bench.claimFiles().length === 0 ? '' : `files: ${bench.claimFiles().join(' ')}`,
      this.#node.storedClaims() === 0 ? '' : 'a claim in the store',
      leases.length === 0 ? '' : `leases: ${leases.join(' ')}`,
    ].filter((problem) => problem !== '');
    if (problems.length > 0) throw new Error(`not as before: ${problems.join('; ')}`);
  }

  /** In the sandbox that is there, or in a new one: a refused one is given up. A container starts only with the truth. */
  async #startContainer(): Promise<void> {
    const { bench } = this.#node;
    this.#sandbox ??= await bench.runSandbox(this.#pod);
    const sandbox = this.#sandbox;
    const container = await bench.startContainer(sandbox, this.#pod);
    try {
      await this.#check(sandbox, container);
    } finally {
      const containerId = container.id;
      await bench.containerd.cri.call('StopContainer', { containerId, timeout: 0 });
      await bench.containerd.cri.call('RemoveContainer', { containerId });
    }
  }

  async #check(sandbox: Sandbox, container: RunningContainer): Promise<void> {
    const links = ipLinks(sandbox).filter(({ ifname }) => /^net\d$/.test(ifname));
    const expected = links.map(({ ifname, address, addr_info }) => ({
      interfaceName: ifname,
      hardwareAddress: address,
      ips: addr_info.filter(({ scope }) => scope === 'global').map(({ local, prefixlen }) => `${local}/${prefixlen}`),
    }));
    const told = await this.#told(container);
    if (expected.length !== 2 || !isDeepStrictEqual(told, expected)) {
      throw new WrongMetadataError(`told ${JSON.stringify(told)}, but ip says ${JSON.stringify(expected)}`);
    }
  }

  async #told(container: RunningContainer) {
    const name = this.#pod.metadata.name;
    const path = `/var/run/kubernetes.io/dra-device-attributes/resourceclaims/${name}/vf/${testDriver}-metadata.json`;
    const { stdout, stderr, exitCode } = await container.exec('cat', path);
    if (exitCode !== 0 || stdout === '') throw new Error(`cat ${path}: ${exitCode} ${stderr}`);
    const { devices } = decodeStream(stdout);
    const told = devices.map(({ networkData = {} }) => ({
      ...networkData,
      ips: (networkData.ips ?? []).filter(isGlobal),
    }));
    return told.sort((a, b) => (a.interfaceName ?? '').localeCompare(b.interfaceName ?? ''));
  }

  #leases(): string[] {
    const dir = join(this.#leaseDir, 'netdra');
    return existsSync(dir) ? readdirSync(dir).filter((file) => /^[0-9]/.test(file)) : [];
  }

  #claim(scenario: Scenario, name: string) {
    const { bench } = this.#node;
    const [slice] = bench.api.objects<{ spec: { devices: { name: string }[] } }>('ResourceSlice');
    const devices = (slice?.spec.devices ?? []).slice(0, 2).map((device) => device.name);
    const ipam = { type: 'host-local', dataDir: this.#leaseDir, ranges: [[{ subnet: '198.18.0.0/24' }]] };
    const parameters = {
      apiVersion: 'netdra.dev/v1alpha1',
      kind: 'VFConfig',
      interfaceName: 'net%d',
      mtu: 1400,
      ...(scenario === 'ipam' ? { ipam } : {}),
    };
    const config = [{ source: 'FromClass' as const, parameters }];
    return buildClaim(name, { requests: [{ name: 'vf', devices }], config, pods: [this.#pod] });
  }
}

/** Link-local ones come a moment later, by themselves. */
const isGlobal = (cidr: string) => !cidr.startsWith('fe80:');

/** The one thing that must never be: a container that was told something wrong. */
export class WrongMetadataError extends Error {}

function hostLinks({ bench }: FaultNode) {
  const links = JSON.parse(execFileSync('ip', ['-j', 'link']).toString()) as Record<string, unknown>[];
  const pattern = new RegExp(`^${bench.settings.simulatePrefix}\\d+v\\d+$`);
  return links
    .filter(({ ifname }) => pattern.test(String(ifname)))
    .map(({ ifname, address, mtu, operstate }) => ({ ifname, address, mtu, operstate }))
    .sort((a, b) => String(a.ifname).localeCompare(String(b.ifname)));
}
