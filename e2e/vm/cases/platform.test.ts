import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readlinkSync, writeFileSync } from 'node:fs';
import { basename } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { detailedLinks, hostVfStates, type VfState, withoutAddresses } from '../vfs.ts';

const run = (program: string, ...args: string[]) => execFileSync(program, args).toString();

/** Binds a PCI function to another driver. */
function bindDriver(pciAddress: string, driver: string): void {
  const device = `/sys/bus/pci/devices/${pciAddress}`;
  writeFileSync(`${device}/driver/unbind`, pciAddress);
  // A blank line clears the override.
  writeFileSync(`${device}/driver_override`, driver === 'igbvf' ? '\n' : driver);
  writeFileSync('/sys/bus/pci/drivers_probe', pciAddress);
  expect(basename(readlinkSync(`${device}/driver`))).toBe(driver);
}

describe('the machine without netdra', () => {
  let before: VfState[];
  let dpdk: VfState;
  let peer: VfState;
  beforeEach(() => {
    before = hostVfStates();
    dpdk = before[5]!;
    peer = before[6]!;
    run('ip', 'netns', 'add', 'peer');
    run('ip', 'link', 'set', peer.name, 'netns', 'peer');
    run('ip', '-n', 'peer', 'address', 'add', '192.0.2.1/24', 'dev', peer.name);
    run('ip', '-n', 'peer', 'link', 'set', peer.name, 'up');
    bindDriver(dpdk.pciAddress, 'vfio-pci');
  });
  afterEach(() => {
    bindDriver(dpdk.pciAddress, 'igbvf');
    const renamed = detailedLinks().find(({ parentdev }) => parentdev === dpdk.pciAddress);
    run('ip', 'link', 'set', renamed?.ifname ?? '', 'name', dpdk.name);
    run('ip', '-n', 'peer', 'link', 'set', peer.name, 'netns', '1');
    run('ip', 'netns', 'delete', 'peer');
    expect(hostVfStates().map(withoutAddresses)).toEqual(before.map(withoutAddresses));
  });

  it('runs dpdk-testpmd on a VF by vfio-pci, and a VF of the kernel gets its answers', async () => {
    const eal = ['-l', '0,1', '-a', dpdk.pciAddress, '-m', '128', '--no-telemetry'];
    const application = ['--forward-mode=icmpecho', '--auto-start', '--total-num-mbufs=4096', '-i'];
    const testpmd = spawn('dpdk-testpmd', [...eal, '--', ...application]);
    let output = '';
    for (const stream of [testpmd.stdout, testpmd.stderr]) stream.on('data', (chunk) => (output += chunk));
    try {
      await expect.poll(() => output, { timeout: 60_000 }).toMatch(/icmpecho packet forwarding/);
      const ping = run('ip', 'netns', 'exec', 'peer', 'ping', '-c', '3', '-W', '5', '192.0.2.99');
      expect(ping).toContain('3 packets transmitted, 3 received');
      const [, told] = /Port 0: ([0-9A-F:]{17})/.exec(output) ?? [];
      const neighbor = run('ip', '-n', 'peer', 'neigh', 'show', '192.0.2.99');
      expect(neighbor).toContain(`lladdr ${told?.toLowerCase()}`);
    } finally {
      testpmd.stdin.end('show port info 0\nquit\n');
      const timer = setTimeout(() => testpmd.kill('SIGKILL'), 20_000);
      await once(testpmd, 'close');
      clearTimeout(timer);
    }
    expect(testpmd.exitCode, output).toBe(0);
    expect(output).toMatch(/Driver name: net_e1000_igb_vf/);
  });
});
