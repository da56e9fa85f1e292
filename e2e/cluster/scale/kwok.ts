import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Program } from '../../node/program.ts';

const now = '{{ Now | Quote }}';

/** kwok's stage for nodes: it renews their leases, and their status every ten minutes, as kubelets do. */
const heartbeat = stage('Node', {
  selector: [{ key: '.metadata.deletionTimestamp', operator: 'DoesNotExist' }],
  delay: { durationMilliseconds: 600_000 },
  status: `conditions:\n- {type: Ready, status: "True", reason: KubeletReady, lastHeartbeatTime: ${now}}\n`,
});

/** kwok's stage for pods with a node: they run at once. */
const run = stage('Pod', {
  selector: [{ key: '.status.phase', operator: 'In', values: ['Pending'] }],
  status: `phase: Running\nstartTime: ${now}\nconditions:\n- {type: Ready, status: "True", lastTransitionTime: ${now}}\n`,
});

/** Simulates the kubelets of all nodes. @param dir for its configuration, with `logs` */
export async function startKwok(program: string, dir: string, kubeconfig: string): Promise<Program> {
  const config = join(dir, 'kwok.yaml');
  writeFileSync(config, [heartbeat, run].map((each) => JSON.stringify(each)).join('\n---\n'));
  const port = 10_247;
  const flags = {
    ...{ config, kubeconfig, 'manage-all-nodes': 'true', 'node-lease-duration-seconds': '40' },
    'server-address': `127.0.0.1:${port}`,
  };
  const args = Object.entries(flags).map(([name, value]) => `--${name}=${value}`);
  const isReady = async () => (await fetch(`http://127.0.0.1:${port}/healthz`)).ok;
  return await Program.start({ program, args, logPath: join(dir, 'logs', 'kwok.log'), isReady });
}

interface StageOptions {
  selector: object[];
  delay?: object;
  /** A YAML template. */
  status: string;
}

function stage(kind: 'Node' | 'Pod', { selector, delay, status }: StageOptions): object {
  return {
    apiVersion: 'kwok.x-k8s.io/v1alpha1',
    kind: 'Stage',
    metadata: { name: `netdra-${kind.toLowerCase()}` },
    spec: {
      resourceRef: { apiGroup: 'v1', kind },
      selector: { matchExpressions: selector },
      ...(delay === undefined ? {} : { delay }),
      next: { statusTemplate: status },
    },
  };
}
