/**
 * `npm run demo`: the main job once, on containerd with a fake kubelet and API server; without Go, in less than a minute.
 * `npm run demo -- --failover`: a bond that loses a cable, on real VFs in a virtual machine.
 */
import { parseArgs } from 'node:util';
import { runCommand } from '../scripts/run-command.ts';

const { failover } = parseArgs({ options: { failover: { type: 'boolean', default: false } } }).values;
const { succeeded } = await runCommand(demoCommand(), {}, true);
process.exitCode = succeeded ? 0 : 1;

function demoCommand(): string[] {
  if (!failover) return ['bash', 'scripts/in-node.sh', 'node', 'e2e/node/demo.ts'];
  console.log('booting a machine with two cards, on emulated processors: two minutes');
  return ['bash', 'scripts/in-vm.sh', 'node', 'e2e/vm/demo.ts'];
}
