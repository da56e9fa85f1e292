/**
 * `npm run demo`: the main job once, on containerd with a fake kubelet and API server; without Go, in less than a minute.
 * `npm run demo -- --kubernetes`: the same on a real cluster, after building its programs.
 */
import { parseArgs } from 'node:util';
import { runCommand } from '../scripts/run-command.ts';
import { runOnCluster } from './cluster/launch.ts';
import { testedPairs } from './cluster/programs.ts';

const { values } = parseArgs({ options: { kubernetes: { type: 'boolean', default: false } } });
const [newest] = testedPairs;
const { succeeded } = values.kubernetes
  ? await runOnCluster(newest, ['node', 'e2e/cluster/demo.ts'])
  : await runCommand(['bash', 'scripts/in-node.sh', 'node', 'e2e/node/demo.ts'], {}, true);
process.exitCode = succeeded ? 0 : 1;
