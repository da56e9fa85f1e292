/** The demonstration of a failover, in the machine of scripts/in-vm.sh: `npm run demo -- --failover`. */
import { explain } from '../../src/lib/errors.ts';
import { demoStep } from '../demo-step.ts';
import { failOver, setCable } from './failover.ts';
import { hostVfStates } from './vfs.ts';
import { VmNode } from './vm-node.ts';

async function demo(): Promise<void> {
  const driverPath = process.env.NETDRA_DRIVER;
  if (driverPath === undefined) throw new Error('it runs in the machine of scripts/in-vm.sh only');
  await using node = await demoStep(
    'starting containerd, an API server double, a kubelet stand-in and the driver',
    () => VmNode.start(driverPath),
  );
  const vfs = hostVfStates();
  const { before, after, interruptionMs, tainted } = await failOver(node, vfs, demoStep);
  console.log(`\n  ${Math.round(interruptionMs)} ms without an answer to a ping`);
  console.log(`  generation ${before.generation} of the file, then ${after.generation}:`);
  for (const { attributes = {}, networkData } of after.devices) {
    const { pfName, bondMember, bondActive } = attributes;
    console.log(
      `    ${pfName?.string}: ${bondMember?.string}, active: ${bondActive?.bool}, ${JSON.stringify(networkData)}`,
    );
  }
  console.log(`  devices with a taint: ${tainted.join(', ')}\n`);
  await demoStep('the cable is plugged in again: the bond stays with pf1', () => setCable('pf0', true));
  await demoStep('the pods end, and their VFs are restored', () => node.bench.endAllPods());
}

try {
  await demo();
} catch (error) {
  console.error(`\nnetdra demo failed: ${explain(error)}`);
  process.exitCode = 1;
}
