import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, readlinkSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'vitest';
import { PageRecorder } from '../../alerts/page-recorder.ts';
import { retry } from '../../node/bench.ts';
import { classConfig } from '../vf-config.ts';
import { type VfState, vfAt } from '../vfs.ts';
import { httpAddress } from '../vm-node.ts';
import { it } from '../vm-test.ts';

const slow = { timeout: 300_000, interval: 500 };
const hung = 'netdra_devices_withheld{reason="hung"}';
const unrestored = 'netdra_devices_withheld{reason="unrestored"}';

/** A process outside all pods that has a device open by vfio. */
async function openDevice({ pciAddress }: VfState): Promise<ChildProcess> {
  const eal = ['-l', '0,1', '--no-huge', '-m', '64', '--iova-mode=va', '--no-telemetry', '-a', pciAddress];
  const child = spawn('dpdk-testpmd', [...eal, '--', '-i', '--total-num-mbufs=2048'], {
    stdio: ['pipe', 'ignore', 'ignore'],
  });
  const hasDevice = () => {
    if (child.exitCode !== null) throw new Error(`dpdk-testpmd has ended with code ${child.exitCode}`);
    const descriptors = `/proc/${child.pid}/fd`;
    const targets = readdirSync(descriptors).map((name) => linkTarget(join(descriptors, name)));
    return targets.some((target) => target.includes('[vfio-device]'));
  };
  await expect.poll(hasDevice, slow).toBe(true);
  return child;
}

/** Empty for a descriptor that has been closed meanwhile. */
function linkTarget(path: string): string {
  try {
    return readlinkSync(path);
  } catch {
    return '';
  }
}

it('alerts fire while another process keeps a released VF open, until the VF is restored', {
  timeout: 1_200_000,
}, async ({ node, vfs }) => {
  const vf = vfAt(vfs, 'pf0', 2);
  const pod = node.createPod('held', vf, [classConfig({ driver: 'vfio-pci' })]);
  await node.bench.startPod(pod);
  const holder = await openDevice(vf);
  await using recorder = new PageRecorder(`http://${httpAddress}/metrics`, 'worker-1');
  try {
    // The kernel waits for the process before it takes the VF from vfio-pci.
    await retry(() => node.bench.endPod(pod));
    await expect.poll(() => recorder.holds(hung, 5), slow).toBe(true);
    recorder.fires('NetdraDevicesHung');
    // A new instance knows that the VF is not restored, and not yet that it hangs.
    await node.killDriver();
    await node.startDriver();
    await expect.poll(() => recorder.holds(unrestored, 10), slow).toBe(true);
    recorder.fires('NetdraDevicesNotRestored');
  } finally {
    holder.kill('SIGKILL');
    await once(holder, 'close');
  }
  for (const series of [hung, unrestored]) await expect.poll(() => recorder.isZero(series), slow).toBe(true);
  recorder.keep('NetdraDevicesHung', hung, process.env.NETDRA_RESULTS);
  recorder.keep('NetdraDevicesNotRestored', unrestored, process.env.NETDRA_RESULTS);
});
