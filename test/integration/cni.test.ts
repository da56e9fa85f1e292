import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { locateTools } from '../../e2e/node/tools.ts';
import { systemClock } from '../../src/lib/clock.ts';
import { type CniAttachment, CniRunner, parseCniIpam, parseCniNetwork } from '../../src/node/cni/index.ts';
import { RecordingLogger } from '../doubles/logger.ts';
import { TestNetns } from '../doubles/netns.ts';
import { tempDir } from '../doubles/temp-dir.ts';

const never = { signal: new AbortController().signal };

/** A runner with the reference plugins, and a pod's namespace. The host is the namespace that the test runs in. */
class Setup implements AsyncDisposable {
  readonly #stack = new AsyncDisposableStack();
  readonly #dir = this.#stack.use(tempDir());
  readonly pod = this.#stack.use(new TestNetns('pod'));
  readonly logger = new RecordingLogger();
  /** Plugins of the test's own. */
  readonly binDir = join(this.#dir.path, 'bin');
  readonly #leasesDir = join(this.#dir.path, 'leases');
  readonly #dirs = {
    binDirs: [this.binDir, locateTools(process.env).cniBinDir],
    cacheDir: join(this.#dir.path, 'cache'),
  };
  readonly runner = this.#stack.use(new CniRunner({ ...this.#dirs, clock: systemClock, logger: this.logger }));

  constructor() {
    mkdirSync(this.binDir);
  }

  /** Addresses from one IPv4 and one IPv6 range. */
  ipam(rest: object = {}) {
    const ranges = [
      [{ subnet: '10.89.7.0/24', rangeStart: '10.89.7.10', rangeEnd: '10.89.7.20' }],
      [{ subnet: '2001:db8:89::/64', rangeStart: '2001:db8:89::10', rangeEnd: '2001:db8:89::20' }],
    ];
    const routes = [{ dst: '0.0.0.0/0' }, { dst: '::/0' }];
    return { type: 'host-local', dataDir: this.#leasesDir, ranges, routes, ...rest };
  }

  attachment(plugins: object[], rest: Partial<CniAttachment> & { cniVersion?: string } = {}): CniAttachment {
    const { cniVersion = '1.1.0', ...others } = rest;
    const network = parseCniNetwork({ cniVersion, name: 'fast', plugins }, 'test');
    return { network, containerId: 'sandbox1', netnsPath: this.pod.path, ifName: 'net1', ...others };
  }

  /** @returns the file that will have the pid of the plugin */
  writeHangingPlugin(): string {
    const pidFile = join(this.binDir, 'pid');
    const write = `echo $$ >${pidFile}.new; mv ${pidFile}.new ${pidFile}`;
    writeFileSync(join(this.binDir, 'hang'), `#!/bin/sh\n[ $CNI_COMMAND = DEL ] && exit 0\n${write}\nsleep 1000\n`);
    chmodSync(join(this.binDir, 'hang'), 0o755);
    return pidFile;
  }

  /** A process that adds the attachment with the same plugins and the same cache. */
  driverScript(attachment: CniAttachment): string {
    const imported = (path: string) => JSON.stringify(new URL(path, import.meta.url).href);
    return `
      import { systemClock as clock } from ${imported('../../src/lib/clock.ts')};
      import { CniRunner } from ${imported('../../src/node/cni/index.ts')};
      const logger = { debug() {}, info() {}, warn() {}, error() {} };
      const runner = new CniRunner({ ...${JSON.stringify(this.#dirs)}, clock, logger });
      await runner.add(${JSON.stringify(attachment)}, { signal: new AbortController().signal });
    `;
  }

  /** Addresses that host-local has given away. */
  leases(): string[] {
    const dir = join(this.#leasesDir, 'fast');
    if (!existsSync(dir)) return [];
    return readdirSync(dir).filter((name) => name !== 'lock' && !name.startsWith('last_reserved_ip'));
  }

  /** As ip(8) sees the link in the pod. */
  inPod(name: string) {
    return this.pod.ip('addr', 'show').find((link: { ifname: string }) => link.ifname === name);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#stack.disposeAsync();
  }
}

let setup: Setup;
beforeEach(() => {
  setup = new Setup();
});
afterEach(() => setup[Symbol.asyncDispose]());

function ip(...args: string[]): string {
  return execFileSync('ip', args, { encoding: 'utf8' });
}
const hostLinks = (): string[] => JSON.parse(ip('-j', 'link')).map(({ ifname }: { ifname: string }) => ifname);

/** What stands in for a VF: an end of a veth pair in the host's namespace. */
function createVf(): Disposable {
  ip('link', 'add', 'vf0', 'address', '02:00:00:00:00:07', 'type', 'veth', 'peer', 'name', 'peer0');
  // Without a carrier the plugins wait 5 s in vain for IPv6 addresses to be found unique.
  ip('link', 'set', 'peer0', 'up');
  return {
    [Symbol.dispose]: () => {
      // Deleting one end deletes the other, wherever it is.
      if (hostLinks().includes('peer0')) ip('link', 'delete', 'peer0');
    },
  };
}

interface AddressInfo {
  local: string;
  prefixlen: number;
  scope: string;
}
const globalAddresses = (link: { addr_info: AddressInfo[] }) =>
  link.addr_info
    .filter(({ scope }) => scope === 'global')
    .map(({ local, prefixlen }) => `${local}/${prefixlen}`)
    .sort();

describe('host-local alone', () => {
  it('assigns each container different IPv4 and IPv6 addresses from its ranges, and releases them', async () => {
    const ipam = parseCniIpam(setup.ipam(), 'test', { name: 'fast' });
    const attachment = { ipam, containerId: 'sandbox1', netnsPath: setup.pod.path, ifName: 'net1' };
    const other = { ...attachment, containerId: 'sandbox2' };
    expect(await setup.runner.ipamAdd(attachment, never)).toEqual({
      cniVersion: '1.0.0',
      ips: [
        { address: '10.89.7.10/24', gateway: '10.89.7.1' },
        { address: '2001:db8:89::10/64', gateway: '2001:db8:89::1' },
      ],
      routes: [{ dst: '0.0.0.0/0' }, { dst: '::/0' }],
      unused: [],
    });
    const { ips } = await setup.runner.ipamAdd(other, never);
    expect(ips.map(({ address }) => address)).toEqual(['10.89.7.11/24', '2001:db8:89::11/64']);
    expect(setup.leases()).toHaveLength(4);
    await setup.runner.ipamDelete(attachment, never);
    await setup.runner.ipamDelete(attachment, never);
    expect(setup.leases().sort()).toEqual(['10.89.7.11', '2001:db8:89::11']);
    await setup.runner.ipamDelete(other, never);
    expect(setup.leases()).toEqual([]);
  });

  it('assigns the address that the capability ips requests', async () => {
    const ipam = parseCniIpam(setup.ipam(), 'test', { name: 'fast' });
    const rest = { containerId: 'sandbox1', netnsPath: setup.pod.path, ifName: 'net1' };
    const capabilities = { ips: ['10.89.7.15/24'] };
    const { ips } = await setup.runner.ipamAdd({ ipam, ...rest, capabilities }, never);
    expect(ips[0]!.address).toBe('10.89.7.15/24');
    await setup.runner.ipamDelete({ ipam, ...rest, capabilities }, never);
  });

  it("reports the plugin's own error when its range is used up, and leaves no lease", async () => {
    const ranges = [[{ subnet: '10.89.8.0/30', rangeStart: '10.89.8.2', rangeEnd: '10.89.8.2' }]];
    const ipam = parseCniIpam(setup.ipam({ ranges }), 'test', { name: 'fast' });
    const attachment = { ipam, containerId: 'sandbox1', netnsPath: setup.pod.path, ifName: 'net1' };
    await setup.runner.ipamAdd(attachment, never);
    await expect(setup.runner.ipamAdd({ ...attachment, containerId: 'sandbox2' }, never)).rejects.toMatchObject({
      code: 'cni-plugin-failed',
      plugin: 'host-local',
      message: expect.stringMatching(/failed to ADD net1 of container sandbox2: .*no IP addresses available/),
    });
    expect(setup.leases()).toEqual(['10.89.8.2']);
  });
});

describe('a device moved by host-device and set up by tuning', () => {
  const chainOf = () => [
    { type: 'host-device', device: 'vf0', ipam: setup.ipam() },
    { type: 'tuning', mtu: 1400, mac: '02:00:00:00:00:aa', sysctl: { 'net.ipv4.conf.net1.arp_notify': '1' } },
  ];

  // The results of all versions: test/unit/node/cni/result.test.ts.
  it.each(['0.3.0', '1.1.0'])(
    'is in the pod as the CNI %s result describes it, and back on the host after DEL',
    async (cniVersion) => {
      using _vf = createVf();
      const attachment = setup.attachment(chainOf(), { cniVersion, args: { K8S_POD_NAME: 'app' } });
      const result = await setup.runner.add(attachment, never);
      const link = setup.inPod('net1');
      expect(link).toMatchObject({ mtu: 1400, address: '02:00:00:00:00:aa' });
      expect(result.cniVersion).toBe(cniVersion);
      expect(result.ips.map(({ address }) => address).sort()).toEqual(globalAddresses(link));
      const [route] = setup.pod.ip('route', 'show', 'default');
      expect(route).toMatchObject({ gateway: result.ips[0]!.gateway, dev: 'net1' });
      expect(setup.pod.exec('cat', '/proc/sys/net/ipv4/conf/net1/arp_notify').trim()).toBe('1');
      expect(hostLinks()).not.toContain('vf0');
      expect(setup.leases()).toHaveLength(2);

      await setup.runner.delete(attachment, never);
      expect(setup.inPod('net1')).toBeUndefined();
      expect(hostLinks()).toContain('vf0');
      expect(setup.leases()).toEqual([]);
      expect((await setup.runner.cachedAttachments()).attachments).toEqual([]);
      await setup.runner.delete(attachment, never); // nothing there any more, and no error
    },
  );

  it('leaves no lease if the namespace is deleted before DEL', async () => {
    using _vf = createVf();
    const attachment = setup.attachment(chainOf());
    await setup.runner.add(attachment, never);
    expect(setup.leases()).toHaveLength(2);
    setup.pod.unmount();
    await setup.runner.delete(attachment, never);
    expect(setup.leases()).toEqual([]);
    expect((await setup.runner.cachedAttachments()).attachments).toEqual([]);
  });

  it('is returned to the host if the driver was killed during ADD, even with only the CNI cache left', async () => {
    using _vf = createVf();
    const pidFile = setup.writeHangingPlugin();
    const attachment = setup.attachment([...chainOf(), { type: 'hang' }]);
    const driver = spawn(process.execPath, ['--input-type=module', '--eval', setup.driverScript(attachment)], {
      stdio: 'inherit',
    });
    while (!existsSync(pidFile)) await sleep(10);
    driver.kill('SIGKILL');
    await once(driver, 'exit');
    process.kill(-Number(readFileSync(pidFile, 'utf8')), 'SIGKILL'); // in a container it goes with the driver
    expect(setup.inPod('net1')).toBeDefined();
    expect(setup.leases()).toHaveLength(2);

    const { attachments } = await setup.runner.cachedAttachments();
    expect(attachments).toEqual([{ kind: 'chain', attachment }]);
    await setup.runner.deleteCached(attachments[0]!, never);
    expect(setup.inPod('net1')).toBeUndefined();
    expect(hostLinks()).toContain('vf0');
    expect(setup.leases()).toEqual([]);
    expect((await setup.runner.cachedAttachments()).attachments).toEqual([]);
  });
});
