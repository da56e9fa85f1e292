import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { type Command, CommanderError } from 'commander';
import { createKubectlPlugin, createProgram } from '../../../src/program.ts';
import { findValuePathProblem } from './check-document.ts';
import { repo } from './pages.ts';

const packageInfo = JSON.parse(readFileSync(join(repo, 'package.json'), 'utf8')) as { scripts: Record<string, string> };

/**
 * Commands of others that pages may have, each with the options that it may have there: `--name=` takes a value. Written
 * down by hand, since these programs are not where the tests run; a new one has to be added here, and is looked at then.
 */
const others: Record<string, string[]> = {
  'docker build': ['-t=', '--tag='],
  'docker buildx create': ['--use'],
  'docker buildx build': ['--platform=', '--tag=', '--push', '--file='],
  'docker buildx imagetools create': ['--tag='],
  'skopeo copy': ['--preserve-digests'],
  'helm get values': ['--namespace=', '--output='],
  'helm history': ['--namespace='],
  'helm install': ['--namespace=', '--create-namespace', '--set=', '--set-string=', '--values='],
  'helm upgrade': [
    '--install',
    '--create-namespace',
    '--namespace=',
    '--reuse-values',
    '--reset-then-reuse-values',
    '--set=',
    '--set-string=',
    '--values=',
  ],
  'helm template': [],
  'helm rollback': ['--namespace=', '--wait'],
  'git push': [],
  'git tag': ['--sign'],
  'helm uninstall': ['--namespace=', '--wait'],
  'helm test': ['--namespace=', '--logs'],
  'helm lint': ['--strict'],
  'helm package': [],
  'helm push': [],
  'docker exec': ['-it'],
  'kind create cluster': ['--name=', '--config=', '--image='],
  'kind delete cluster': ['--name='],
  'kind load docker-image': ['--name='],
  'kind load image-archive': ['--name='],
  'kind export logs': ['--name='],
  'kubectl apply': ['--filename=', '-f=', '--server-side', '--namespace='],
  'kubectl annotate node': ['--overwrite'],
  'kubectl cordon': [],
  'kubectl create clusterrolebinding': ['--clusterrole=', '--group='],
  'kubectl create rolebinding': ['--namespace=', '--role=', '--group='],
  'kubectl create secret tls': ['--namespace=', '--cert=', '--key='],
  'kubectl delete': ['--filename=', '-f=', '--ignore-not-found', '--namespace=', '-n='],
  'kubectl describe': ['--namespace=', '-n='],
  'kubectl drain': ['--ignore-daemonsets', '--delete-emptydir-data'],
  'kubectl exec': ['--namespace=', '-n=', '--container=', '-c=', '--stdin', '--tty', '-it'],
  'kubectl get': [
    '--namespace=',
    '-n=',
    '--selector=',
    '-l=',
    '--output=',
    '-o=',
    '--field-selector=',
    '--all-namespaces',
    '-A',
    '--raw=',
    '--sort-by=',
  ],
  'kubectl annotate daemonset/netdra': ['--overwrite', '--namespace='],
  'kubectl label node': ['--overwrite'],
  'kubectl logs': ['--namespace=', '-n=', '--selector=', '--prefix', '--tail=', '--container=', '-c=', '--since='],
  'kubectl patch ndp': ['--subresource=', '--type=', '--patch='],
  'kubectl rollout restart': ['--namespace=', '-n='],
  'kubectl rollout status': ['--namespace=', '-n=', '--timeout='],
  'kubectl uncordon': [],
  'kubectl wait': ['--for=', '--timeout=', '--namespace=', '-n=', '--all'],
  modprobe: [],
  'npm install': ['--no-save', '--global'],
  'npm pack': [],
  'npm publish': [],
  'promtool check rules': [],
  'promtool test rules': [],
  'rdma system': [],
  sha256sum: ['--check', '--ignore-missing'],
  'ssh-keygen': ['-Y=', '-f=', '-I=', '-n=', '-s='],
  'ip addr': [],
  'ip link set': [],
};

/** Programs whose words within a line of text are looked at as commands. */
export const programs = [
  ...new Set([...Object.keys(others).map((form) => form.split(' ')[0] ?? '')]),
  'npx',
  'node',
  'bash',
  'netdra',
  'sudo',
];

/**
 * What keeps a command line of a page from being one that works, as far as can be checked without its cluster.
 * Our own commands go through our own parsers; commands of others have to be of a form that is known here.
 * @param isMention within a sentence, where what a command needs may be left out
 * @returns `undefined` if there is nothing
 */
export function findCommandProblem(line: string, { isMention = false } = {}): string | undefined {
  const text = line.replace(/\s+#\s.*$/, '').trim();
  // Names that the reader puts in stand in angle brackets, or as an ellipsis.
  const filled = text
    .replaceAll(/<[^<>|]*>\/<[^<>|]*>/g, 'a/b')
    .replaceAll(/<[^<>]*>/g, 'x')
    .replaceAll('…', 'x');
  if (spawnSync('sh', ['-n', '-c', filled]).status !== 0) return 'the shell does not understand it';
  for (const part of filled.split(/\s*(?:&&|\|\||\||;)\s*/)) {
    const problem = findPartProblem(splitWords(part), isMention);
    if (problem !== undefined) return problem;
  }
  return undefined;
}

function splitWords(text: string): string[] {
  return [...text.matchAll(/(?:[^\s'"]|'[^']*'|"[^"]*")+/g)].map(([word]) => word.replaceAll(/['"]/g, ''));
}

function findPartProblem(words: string[], isMention: boolean): string | undefined {
  const [program = '', ...args] = words;
  // Variables before a command, or for those that follow.
  if (program === 'export') return args.every((arg) => /^[A-Z_]+=/.test(arg)) ? undefined : 'export needs NAME=VALUE';
  if (/^[A-Z_]+=/.test(program)) return findPartProblem(args, isMention);
  switch (program) {
    case 'sudo':
      return findPartProblem(args, isMention);
    case 'npm':
      if (args[0] === 'run' || args[0] === 'test' || args[0] === 'start') return findScriptProblem(args);
      break;
    case 'npx':
      return findPartProblem(
        args.filter((arg) => arg !== '--no'),
        isMention,
      );
    case 'bash':
    case 'node':
      return findFileProblem(args, isMention);
    case 'netdra':
      return findOptionProblem(args, isMention);
    case 'kubectl':
      if (args[0] === 'netdra') return findOptionProblem(args.slice(1), isMention, createKubectlPlugin());
  }
  return findFormProblem(words);
}

function findScriptProblem([verb, ...rest]: string[]): string | undefined {
  const name = verb === 'run' ? rest[0] : verb;
  const script = packageInfo.scripts[name ?? ''];
  if (script === undefined) return `package.json has no script ${name}`;
  const missing = script.split(' ').find((word) => /\.(ts|sh)$/.test(word) && !existsSync(join(repo, word)));
  if (missing !== undefined) return `its script needs ${missing}, which is not there`;
  const given = verb === 'run' ? rest.slice(1) : rest;
  return given.length > 0 && given[0] !== '--' ? 'arguments of a script come after --' : undefined;
}

function findFileProblem([file = '', ...rest]: string[], isMention: boolean): string | undefined {
  if (file === 'src/main.ts') return findOptionProblem(rest, isMention);
  if (!existsSync(join(repo, file))) return `${file} is not there`;
  if (file !== 'scripts/bootstrap.sh') return undefined;
  const command = rest.filter((word) => word !== '--root');
  return command[0] === 'COMMAND' ? undefined : findPartProblem(command, isMention);
}

/** By the parser that the program itself has, with nothing done. */
function findOptionProblem(args: string[], isMention: boolean, program = createProgram()): string | undefined {
  const quieten = (command: Command) => {
    command.exitOverride().configureOutput({ writeOut: () => undefined, writeErr: () => undefined });
    if (command.commands.length === 0) command.action(() => undefined);
    command.commands.forEach(quieten);
  };
  quieten(program);
  try {
    program.parse(args, { from: 'user' });
    return undefined;
  } catch (error) {
    if (!(error instanceof CommanderError)) throw error;
    const isMissing = /^commander\.(missingMandatoryOptionValue|missingArgument|help)$/.test(error.code);
    return error.exitCode === 0 || (isMention && isMissing) ? undefined : error.message;
  }
}

function findFormProblem(words: string[]): string | undefined {
  const plain: string[] = [];
  const given: [string, string][] = [];
  const takesValue = (name: string) => Object.values(others).some((options) => options.includes(`${name}=`));
  for (let index = 0; index < words.length; index++) {
    const word = words[index] ?? '';
    if (word === '--') break;
    const [, name = '', value] = /^(--?[a-z][a-z-]*)(?:=(.*))?$/i.exec(word) ?? [];
    if (name === '') plain.push(word);
    else if (value !== undefined) given.push([`${name}=`, value]);
    else if (takesValue(name)) given.push([`${name}=`, words[++index] ?? '']);
    else given.push([name, '']);
  }
  const form = Object.keys(others)
    .filter((each) => `${plain.join(' ')} `.startsWith(`${each} `))
    .sort((left, right) => right.length - left.length)[0];
  if (form === undefined)
    return `no check covers ${plain.slice(0, 3).join(' ')}: add it to test/unit/docs/check-command.ts`;
  const unknown = given.find(([name]) => !others[form]?.includes(name));
  if (unknown !== undefined) return `${form} has no option ${unknown[0]} that is known here`;
  const names = plain.slice(form.split(' ').length);
  return findPodProblem(form, names) ?? findArgumentProblem(names, given);
}

/** Of a workload, kubectl takes a ready pod: not the one whose log or container says why it is not ready. */
function findPodProblem(form: string, names: readonly string[]): string | undefined {
  const workload = names.find((name) => /^(daemonset|deployment|ds|deploy)s?\//.test(name));
  if (workload === undefined || !/^kubectl (logs|exec)$/.test(form)) return undefined;
  return `${form} takes any ready pod of ${workload}: name a pod, or use --selector`;
}

/** Files of the repository are there, and values are those that the chart has. */
function findArgumentProblem(plain: string[], given: [string, string][]): string | undefined {
  for (const [name, value] of given) {
    if (name.startsWith('--set')) {
      const problem = findValuePathProblem(value);
      if (problem !== undefined) return problem;
    }
    if (name === '--filename=' || name === '-f=') plain.push(value);
  }
  const missing = plain.find((word) => /^(deploy|examples|docs|scripts)\//.test(word) && !existsSync(join(repo, word)));
  return missing === undefined ? undefined : `${missing} is not there`;
}
