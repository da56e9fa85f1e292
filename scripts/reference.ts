/**
 * Writes docs/reference.md and docs/errors.md from the code: the flags of all commands, and the codes of all errors with
 * what to do about each. `npm run reference`.
 * Values, metrics, events and alerts have pages of their own, which tests compare with the code.
 */
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Option } from 'commander';
import { createKubectlPlugin, createProgram } from '../src/program.ts';
import { remedies } from './error-remedies.ts';
import { repository } from './run-command.ts';
import { wrongInputs } from './wrong-inputs.ts';

/** Codes that no type lists, since the program that throws them, or the library `nri/`, does not tell them apart. */
const otherCodes: Record<string, string> = {
  'address-invalid': 'The address for metrics and probes is not valid.',
  'address-unavailable': 'The address for metrics and probes is used by another process, or may not be used.',
  'bad-option': 'An option of the NRI plugin is invalid.',
  'boot-id-unknown': "The kernel's boot ID cannot be read.",
  'bundle-exists': 'The folder for a bundle exists, or cannot be made.',
  'call-timeout': 'The runtime did not answer a call over NRI in time.',
  'claim-ambiguous': 'Claims of several namespaces have this name.',
  'claim-invalid': 'The argument is neither the name of a claim nor `namespace/name`.',
  'claim-not-allocated': 'The claim has no device of the driver.',
  'claim-not-prepared': 'The claim is not prepared on this node.',
  'connection-closed': 'The NRI connection was closed before the answer came.',
  'cri-unavailable': "The runtime's own socket does not answer.",
  'devices-unlisted': 'The devices of the node have not been listed yet.',
  'directory-unwritable': 'The driver cannot write to one of its directories.',
  'driver-not-running': 'No driver runs on the node that could answer.',
  'driver-unanswering': 'The driver of the node runs but does not answer the tool.',
  'exec-failed': 'A command could not be run in a pod of the driver.',
  'instance-unreadable': 'The settings of the running driver cannot be read, or several drivers run on the node.',
  'kubeconfig-missing': 'There is neither a service account nor a kubeconfig that names the API server.',
  'kubeconfig-unusable': 'The kubeconfig cannot be read, or has something that is not supported.',
  'list-forbidden': 'Your role may not list the objects that the command shows.',
  'mux-frame-too-long': 'The process at the NRI socket is not an NRI runtime.',
  'no-driver-pod': 'No pod of the driver is on the node.',
  'no-effect': 'The PF accepted a setting of a VF but still reports another value.',
  'not-an-error': 'Code that uses the NRI library has thrown something that is not an error.',
  'not-connected': 'There is no connection to the NRI socket.',
  'nri-unavailable': 'The runtime does not accept a plugin over its NRI socket.',
  'handlers-hang':
    'Too many handlers of the NRI plugin ran on after their calls had timed out, and the connection was closed.',
  'peer-not-reading': 'The runtime does not read from the NRI connection.',
  'policy-invalid': 'The inventory policy cannot be read, or is invalid.',
  'policy-refused': 'A NetworkDevicePolicy does not fit the node, or several select the node.',
  'policy-unread':
    'The driver has not read the NetworkDevicePolicies yet, may not read them, or they were deleted with their definition.',
  'proto-not-loaded': 'A protobuf definition is missing in the installation.',
  'proto-type-missing': 'The protobuf definitions are not those of this version.',
  'registration-failed': 'The runtime refused the NRI plugin.',
  'seccomp-not-installed': 'The seccomp profile cannot be written.',
  'selinux-label': 'SELinux refuses the label that containers need to read a file.',
  'state-missing': 'The directory where the tool looks for the state of a driver has none.',
  'tls-invalid': 'Certificate or key for metrics and probes cannot be read, or do not match.',
  'tool-failed': "A command in the driver's pod has failed, so that the bundle lacks its output.",
  'ttrpc-…': 'The runtime answered an NRI call with this status, such as `ttrpc-deadlineExceeded`.',
  'ttrpc-protocol': 'The runtime sent an invalid ttrpc message over the NRI connection.',
  undecodable: 'An NRI message from the runtime cannot be decoded.',
};

export interface ErrorCode {
  code: string;
  /** Name of the type that lists it. */
  type: string;
  meaning: string;
}

/** What a flag is, in Markdown, and the programs and commands that have it. */
export interface Flag {
  flags: string;
  variable: string;
  default: string;
  meaning: string;
  commands: string;
}

/** docs/reference.md, as it should be. */
export function renderReference(): string {
  const rows = listFlags()
    .map((each) =>
      row([each.flags, each.variable].filter(Boolean).join(', '), each.commands, each.default, each.meaning),
    )
    .sort();
  return `# Flags

*Reference for operators.* With this page you can look up the flags of \`netdra run\`, of the tools on a node, and of \`kubectl netdra\`.

Written by \`npm run reference\` from the code. The first column also has the flag's environment variable. Commands without a prefix belong to \`netdra\`. A flag takes precedence over its variable, and the variable over the default.

| flag | commands | default | meaning |
|---|---|---|---|
${rows.join('\n')}
`;
}

/** test/golden/wrong-inputs.md, as it should be. */
export function renderWrongInputs(): string {
  const rows = wrongInputs.map(({ what, args, isPlugin, exitCode, message }) => {
    const command = [isPlugin ? 'kubectl netdra' : 'netdra', ...args].join(' ');
    // Not as code: pages may have only commands that there are.
    return row(what, command, `${exitCode}`, `\`${message}\``);
  });
  return `# Wrong input

For contributors: what the commands answer to wrong input, and their exit code. Written by \`npm run reference\` from
\`scripts/wrong-inputs.ts\`; a test runs each.

| input | command | exit code | message |
|---|---|---|---|
${rows.join('\n')}
`;
}

/** docs/errors.md, as it should be. @throws Error for a code that is not described, or is described and gone */
export function renderErrors(): string {
  const sections = [...Map.groupBy(listErrorCodes(), ({ code }) => code)].map(([code, entries]) => {
    const [first, ...others] = entries;
    if (others.length === 0) return `## ${code}\n${first?.meaning} ${remedies[code]}\n`;
    const meanings = entries.map(({ type, meaning }) => `- \`${type}\`: ${meaning}`);
    return `## ${code}\n${meanings.join('\n')}\n\n${remedies[code]}\n`;
  });
  return `# Error codes

*Reference for operators.* With this page you can look up an error code and what to do about it.

Log lines (\`err.code\`), events, and the labels \`code\` and \`error_type\` of metrics have these codes, which never change. Errors of other programs have the label \`other\`. Written by \`npm run reference\` from the code.

${sections.join('\n')}`;
}

const row = (...cells: string[]) => `| ${cells.map((cell) => cell.replaceAll('|', '\\|')).join(' | ')} |`;

/** One for each flag; commands that have the same one share it. */
export function listFlags(): Flag[] {
  const commandsOf = new Map<string, string[]>();
  for (const program of [createProgram(), createKubectlPlugin()]) {
    const flags = new Map<string, string[]>();
    for (const command of program.commands) {
      for (const option of command.options.filter(({ hidden }) => !hidden)) {
        const key = JSON.stringify(describeFlag(option));
        flags.set(key, [...(flags.get(key) ?? []), `\`${command.name()}\``]);
      }
    }
    for (const [key, names] of flags) {
      const prefix = program.name() === 'netdra' ? '' : `${program.name()}: `;
      commandsOf.set(key, [...(commandsOf.get(key) ?? []), `${prefix}${names.join(', ')}`]);
    }
  }
  return [...commandsOf].map(([key, commands]) => ({ ...JSON.parse(key), commands: commands.join('; ') }));
}

function describeFlag({ flags, envVar, defaultValue, defaultValueDescription, description, argChoices }: Option) {
  const text = defaultValueDescription ?? defaultValue?.toString();
  const choices = argChoices === undefined ? '' : `: ${argChoices.join(', ')}`;
  return {
    flags: `\`${flags}\``,
    variable: envVar === undefined ? '' : `\`${envVar}\``,
    default: text === undefined ? '' : `\`${text}\``,
    meaning: `${description}${choices}`,
  };
}

/** Types that list codes have a comment above each. Errors that are thrown with other codes are in `otherCodes`. */
export function listErrorCodes(): ErrorCode[] {
  const texts = ['src', 'nri'].flatMap((folder) =>
    readdirSync(join(repository, folder), { recursive: true, encoding: 'utf8' })
      .filter((path) => path.endsWith('.ts') && !/node_modules|^testing\b/.test(path))
      .map((path) => readFileSync(join(repository, folder, path), 'utf8')),
  );
  const listed = texts.flatMap(listedCodes);
  const isListed = (code: string) => listed.some((each) => each.code === code);
  const thrown = new Set(texts.flatMap(thrownCodes).filter((code) => !isListed(code)));
  const problems = [
    ...listed.filter(({ meaning }) => meaning === '').map(({ type, code }) => `${type} does not describe ${code}`),
    ...[...thrown]
      .filter((code) => !(code in otherCodes))
      .map((code) => `scripts/reference.ts does not describe ${code}`),
    ...Object.keys(otherCodes)
      .filter((code) => !thrown.has(code))
      .map((code) => `nothing throws ${code}`),
    ...[...listed.map(({ code }) => code), ...thrown]
      .filter((code) => !(code in remedies))
      .map((code) => `scripts/error-remedies.ts does not say what to do about ${code}`),
    ...Object.keys(remedies)
      .filter((code) => !thrown.has(code) && !isListed(code))
      .map((code) => `scripts/error-remedies.ts has ${code}, which nothing throws`),
  ];
  if (problems.length > 0) throw new Error(problems.join('\n'));
  const others = Object.entries(otherCodes).map(([code, meaning]) => ({ code, type: '', meaning }));
  return [...listed, ...others].sort((left, right) => (left.code + left.type < right.code + right.type ? -1 : 1));
}

function listedCodes(text: string): ErrorCode[] {
  return [...text.matchAll(/^export type (\w+ErrorCode) =(.*?');$/gms)].flatMap(([, type = '', members = '']) =>
    [...members.matchAll(/(?:\/\*\*(.*?)\*\/\s*)?\| '([\w-]+)'/gs)].map(([, comment = '', code = '']) => ({
      code,
      type: type.replace(/Code$/, ''),
      meaning: comment.replaceAll(/\s*\*\s+/g, ' ').trim(),
    })),
  );
}

/** @throws Error for a code that is put together, except from a prefix that `otherCodes` has */
function thrownCodes(text: string): string[] {
  return [...text.matchAll(/(?:new (?:NetdraError|NriError)|super)\(\s*(?:'([\w-]+)'|(`[^`]*`|.))/g)].flatMap(
    ([whole, code, template]) => {
      if (code !== undefined) return [code];
      const prefix = /^`(.*?)\$\{/.exec(template ?? '')?.[1];
      if (prefix !== undefined) return [`${prefix}…`];
      if (whole.startsWith('new ')) throw new Error(`the code of this error is not in the text: ${whole}`);
      return [];
    },
  );
}

if (process.argv[1] === import.meta.filename) {
  writeFileSync(join(repository, 'docs/reference.md'), renderReference());
  writeFileSync(join(repository, 'docs/errors.md'), renderErrors());
  writeFileSync(join(repository, 'test/golden/wrong-inputs.md'), renderWrongInputs());
}
