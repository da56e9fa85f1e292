import { execFileSync } from 'node:child_process';
import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import { decodeStream } from '../../../src/framework/metadata/index.ts';
import { buildClaim, buildPod, testDriver } from '../../../test/doubles/objects.ts';
import { ipLinks, type RunningContainer, retry } from '../bench.ts';
import type { Sandbox } from '../pod.ts';
import type { FaultNode } from './fault-node.ts';

/** The phases of a pod's life in which the driver is killed. */
export const phases = ['prepare', 'hook', 'stop', 'unprepare'] as const;
export type Phase = (typeof phases)[number];

/** How the claim of the pod gets its VFs. */
export const scenarios = ['netlink', 'ipam', 'cni'] as const;
export type Scenario = (typeof scenarios)[number];

type Pod = ReturnType<typeof buildPod>;

/** One pod with two VFs, from prepare to unprepare; each step can be repeated, as by the kubelet. */
export class Lifecycle {
  readonly #node: FaultNode;
  readonly #pod: Pod;
  readonly #requests: string[];
  readonly #leaseDir: string;
  readonly #linksBefore: unknown;
  readonly #filesBefore: string[];
  #sandbox: Sandbox | undefined;

  constructor(node: FaultNode, scenario: Scenario, name: string) {
    this.#node = node;
    this.#linksBefore = hostLinks(node);
    this.#filesBefore = node.bench.claimFiles();
    this.#leaseDir = join(node.bench.dir, 'leases');
    this.#pod = buildPod(name, { resourceClaims: [{ name: 'nic', resourceClaimName: name }] });
    const claim = this.#claim(scenario, name);
    this.#requests = (claim.spec.devices?.requests ?? []).map((request) => request.name);
    node.bench.api.create(claim);
  }

  /** One attempt of a phase. @throws LossError for a loss that no retry can repair; other errors if it fails */
  async run(phase: Phase): Promise<void> {
    const { bench } = this.#node;
    if (phase === 'prepare') await bench.prepare(this.#pod);
    else if (phase === 'hook') await this.#startContainer();
    else if (phase === 'stop') await bench.endSandboxes(this.#pod);
    else await bench.endPod(this.#pod);
  }

  /** Repeats a phase, after the driver was killed in it and is back, as often as the kubelet would try. */
  async repeat(phase: Phase): Promise<void> {
    let loss: LossError | undefined;
    await retry(() =>
      this.run(phase).catch((error: unknown) => {
        if (!(error instanceof LossError)) throw error;
        loss = error;
      }),
    );
    if (loss !== undefined) throw loss;
  }

  /** @throws Error with the differences from the state before the pod, and its left-overs */
  checkClean(): void {
    const { bench } = this.#node;
    const leases = this.#leases();
    const files = bench.claimFiles().filter((file) => !this.#filesBefore.includes(file));
    const problems = [
      isDeepStrictEqual(hostLinks(this.#node), this.#linksBefore)
        ? ''
        : `links: ${JSON.stringify(hostLinks(this.#node))}`,
      files.length === 0 ? '' : `files: ${files.join(' ')}`,
      this.#node.storedClaims() === 0 ? '' : 'a claim in the store',
      leases.length === 0 ? '' : `leases: ${leases.join(' ')}`,
    ].filter((problem) => problem !== '');
    if (problems.length > 0) throw new Error(`not as before: ${problems.join('; ')}`);
  }

  /** In the existing sandbox. Starts a container once, as in a pod without restarts; its metadata must be correct. */
  async #startContainer(): Promise<void> {
    const { bench } = this.#node;
    this.#sandbox ??= await bench.runSandbox(this.#pod);
    const sandbox = this.#sandbox;
    const created = await bench.createContainer(sandbox, this.#pod);
    const container = await bench.start(created).catch((cause: unknown) => {
      throw new LossError('a container that was started once failed', { cause });
    });
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
    const expected = links
      .map(({ ifname, address, addr_info }) => ({
        interfaceName: ifname,
        hardwareAddress: address,
        ips: addr_info.filter(({ scope }) => scope === 'global').map(({ local, prefixlen }) => `${local}/${prefixlen}`),
      }))
      .sort((a, b) => a.interfaceName.localeCompare(b.interfaceName));
    const written = await this.#readMetadata(container);
    if (expected.length !== 2 || !isDeepStrictEqual(written, expected)) {
      throw new LossError(`metadata says ${JSON.stringify(written)}, but ip says ${JSON.stringify(expected)}`);
    }
  }

  async #readMetadata(container: RunningContainer) {
    const written = [];
    for (const request of this.#requests) written.push(...(await this.#readMetadataOf(request, container)));
    return written.sort((a, b) => (a.interfaceName ?? '').localeCompare(b.interfaceName ?? ''));
  }

  async #readMetadataOf(request: string, container: RunningContainer) {
    const dir = `/var/run/kubernetes.io/dra-device-attributes/resourceclaims/${this.#pod.metadata.name}`;
    const path = `${dir}/${request}/${testDriver}-metadata.json`;
    const { stdout, stderr, exitCode } = await container.exec('cat', path);
    if (exitCode !== 0 || stdout === '') throw new Error(`cat ${path}: ${exitCode} ${stderr}`);
    const { devices } = decodeStream(stdout);
    return devices.map(({ networkData = {} }) => ({ ...networkData, ips: (networkData.ips ?? []).filter(isGlobal) }));
  }

  #leases(): string[] {
    const networks = existsSync(this.#leaseDir) ? readdirSync(this.#leaseDir) : [];
    return networks
      .flatMap((network) => readdirSync(join(this.#leaseDir, network)))
      .filter((file) => /^[0-9]/.test(file));
  }

  #claim(scenario: Scenario, name: string) {
    const [slice] = this.#node.bench.api.objects<{ spec: { devices: { name: string }[] } }>('ResourceSlice');
    const devices = (slice?.spec.devices ?? []).slice(0, 2).map((device) => device.name);
    const pods = [this.#pod];
    if (scenario !== 'cni') {
      const more = scenario === 'ipam' ? { ipam: this.#ipam() } : { dialects };
      const fields = { interfaceName: 'net%d', mtu: 1400, ...more };
      return buildClaim(name, { requests: [{ name: 'vf', devices }], config: [configOf(fields)], pods });
    }
    // Plugins cannot find a simulated VF by PCI address, so each gets the name of its interface.
    const requests = devices.map((device, index) => ({ name: `vf${index}`, devices: [device] }));
    const config = requests.map((request, index) => {
      const plugins = [{ type: 'host-device', device: this.#hostName(index), ipam: this.#ipam() }];
      const cni = { cniVersion: '1.0.0', name: 'faults', plugins };
      return configOf({ interfaceName: `net${index}`, attach: 'cni', cni }, [request.name]);
    });
    return buildClaim(name, { requests, config, pods });
  }

  #hostName(index: number): string {
    return `${this.#node.bench.settings.simulatePrefix}0v${index}`;
  }

  #ipam() {
    return { type: 'host-local', dataDir: this.#leaseDir, ranges: [[{ subnet: '198.18.0.0/24' }]] };
  }
}

/** All dialects: a spec for the request, a file for each VF. */
const dialects = {
  devicePlugin: { resourceName: 'example.com/nic' },
  deviceInfo: { resourceName: 'example.com/nic' },
  sriovNetwork: {},
};

function configOf(fields: object, requests: string[] = []) {
  const parameters = { apiVersion: 'netdra.dev/v1alpha1', kind: 'VFConfig', ...fields };
  return { source: 'FromClass' as const, requests, parameters };
}

/** Link-local addresses appear a moment later, by themselves. */
const isGlobal = (cidr: string) => !cidr.startsWith('fe80:');

/** Must never happen: a container that read wrong metadata, or that failed permanently. */
export class LossError extends Error {}

function hostLinks({ bench }: FaultNode) {
  const links = JSON.parse(execFileSync('ip', ['-j', 'link']).toString()) as Record<string, unknown>[];
  const pattern = new RegExp(`^${bench.settings.simulatePrefix}\\d+v\\d+$`);
  return links
    .filter(({ ifname }) => pattern.test(String(ifname)))
    .map(({ ifname, address, mtu, operstate }) => ({ ifname, address, mtu, operstate }))
    .sort((a, b) => String(a.ifname).localeCompare(String(b.ifname)));
}
