/**
 * `npm run demo`: the main job once, on containerd with a fake kubelet and API server; without Go, in less than a minute.
 * `npm run demo -- --kubernetes`: the same on a real cluster, after building its programs.
 * `npm run demo -- --failover`: a bond that loses a cable, on real VFs in a virtual machine.
 */
import { parseArgs } from 'node:util';
import { runCommand } from '../scripts/run-command.ts';
import { runOnCluster } from './cluster/launch.ts';
import { testedPairs } from './cluster/programs.ts';

const flag = { type: 'boolean', default: false } as const;
const { kubernetes, failover } = parseArgs({ options: { kubernetes: flag, failover: flag } }).values;
const { succeeded } = kubernetes
  ? await runOnCluster(testedPairs[0], ['node', 'e2e/cluster/demo.ts'])
  : await runCommand(demoCommand(), {}, true);
process.exitCode = succeeded ? 0 : 1;

function demoCommand(): string[] {
  if (!failover) return ['bash', 'scripts/in-node.sh', 'node', 'e2e/node/demo.ts'];
  console.log('booting a machine with two cards, on emulated processors: two minutes');
  return ['bash', 'scripts/in-vm.sh', 'node', 'e2e/vm/demo.ts'];
}
