import { copyFileSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { programPath } from '../../deploy/image/layout.ts';

/** The task of a guest. */
export interface GuestTask {
  /** Absolute path, on the host and in the guest. */
  repository: string;
  /** Absent: a shell. */
  command: string[];
  /** Whether the command gets the guest's terminal, instead of separate stdout and stderr. */
  terminal: boolean;
  /** Whether the command reads input from the host, instead of none; for a command without a terminal. */
  input?: boolean;
  /** Network of the guest's management interface; default: not connected. */
  network?: GuestNetwork;
  /** Rows of the terminal. */
  rows: number;
  columns: number;
  env: NodeJS.ProcessEnv;
}

export interface GuestNetwork {
  /** With prefix length: `10.250.0.1/24`. */
  address: string;
  gateway: string;
}

const isolated: GuestNetwork = { address: '10.0.2.15/24', gateway: '10.0.2.2' };

/** Folders of a run: the command's results, the driver's image without Node.js, and programs for containers. */
export const runFolders = { results: 'results', image: 'image', tools: 'tools' };

/** Archive of the code that Node.js has compiled in the guest; the guest unpacks it, and packs it anew. */
export const compiledFile = 'compiled.tar';

/** Path of the run's folder in the guest. */
export const guestRunDir = '/run/netdra/vm';

/** Variables of the host that are passed to the command. */
const passedOn = /^(CI|FORCE_COLOR|NO_COLOR|TERM|NETDRA_(?!CACHE$|CGROUP_PARENT$|VM_).*)$/;

/** Writes the files that the guest reads when it starts: see guest/second-root.sh. */
export function writeRunFiles(runDir: string, task: GuestTask): void {
  mkdirSync(join(runDir, runFolders.results));
  copyFileSync(fileURLToPath(new URL('guest/second-root.sh', import.meta.url)), join(runDir, 'second-root.sh'));
  writeFileSync(join(runDir, 'settings.sh'), formatSettings(task));
  writeFileSync(join(runDir, 'command.sh'), formatCommand(task));
}

/** @returns assignments for the script that starts the guest */
export function formatSettings(task: GuestTask): string {
  const { repository, terminal, input = false, network = isolated, rows, columns } = task;
  return [
    `repository=${quote(repository)}`,
    `terminal=${terminal ? 'yes' : 'no'}`,
    `input=${input ? 'yes' : 'no'}`,
    `address=${quote(network.address)}`,
    `gateway=${quote(network.gateway)}`,
    `rows=${rows}`,
    `columns=${columns}`,
    '',
  ].join('\n');
}

/** @returns a script that executes the command */
export function formatCommand({ repository, command, env }: GuestTask): string {
  const passed = Object.entries(env).filter(([name]) => passedOn.test(name));
  const variables = Object.fromEntries([
    ...passed,
    ['NETDRA_RESULTS', join(guestRunDir, runFolders.results)],
    ['NETDRA_DRIVER', join(guestRunDir, runFolders.image, programPath)],
    ['NETDRA_TOOLS', join(guestRunDir, runFolders.tools)],
    // Folder with the unpacked packages of QEMU: guest/second-root.sh.
    ['NETDRA_QEMU', '/run/netdra/qemu'],
    // Fewer garbage collections: memory is plentiful, and the processors are emulated.
    [
      'NODE_OPTIONS',
      `--max-semi-space-size=64 --require ${JSON.stringify(join(repository, 'e2e/vm/guest/interpret.cjs'))}`,
    ],
    ['GOGC', '400'],
    ['NODE_COMPILE_CACHE', '/tmp/compiled'],
    // Parent of the pods' cgroups; a guest has the whole tree to itself.
    ['NETDRA_CGROUP_PARENT', '/netdra'],
  ]);
  const exports = Object.entries(variables).map(([name, value]) => `export ${name}=${quote(value ?? '')}`);
  const words = command.length === 0 ? ['bash', '-i'] : command;
  return [
    ...exports,
    `export PATH=${quote(`${repository}/node_modules/.bin`)}:"$PATH"`,
    `exec ${words.map(quote).join(' ')}`,
    '',
  ].join('\n');
}

function quote(text: string): string {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}
