/**
 * An OCI runtime for a machine without CAP_SYS_RESOURCE: removes from a container's configuration what the kernel would
 * refuse there, and continues as runc: `node oci-runtime.ts PATH_OF_RUNC ARGUMENT...`. Podman has no setting that keeps it
 * from asking for limits. Source: OCI runtime specification 1.0, "config.md"; conmon(8).
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

const capability = 'CAP_SYS_RESOURCE';

interface Process {
  rlimits?: unknown;
  oomScoreAdj?: number;
  capabilities?: Record<string, string[]>;
}

function edit<T>(path: string, change: (config: T) => void): void {
  const config = JSON.parse(readFileSync(path, 'utf8')) as T;
  change(config);
  writeFileSync(path, JSON.stringify(config));
}

function lowerDemands(process: Process): void {
  delete process.rlimits;
  delete process.oomScoreAdj;
  for (const [set, names] of Object.entries(process.capabilities ?? {})) {
    process.capabilities![set] = names.filter((name) => name !== capability);
  }
}

const [runc = '', ...args] = process.argv.slice(2);
const argumentOf = (flag: string) => args[args.indexOf(flag) + 1]!;
if (args.includes('create')) {
  edit<{ process: Process }>(join(argumentOf('--bundle'), 'config.json'), (config) => lowerDemands(config.process));
} else if (args.includes('exec')) {
  edit(argumentOf('--process'), lowerDemands);
}
process.execve!(runc, [runc, ...args], process.env);
