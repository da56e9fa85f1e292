import { cpSync, mkdirSync, mkdtempSync, readdirSync, symlinkSync } from 'node:fs';
import { join } from 'node:path';
import { CommandError } from '../../../scripts/packages/run.ts';
import { repository, runCommand } from '../../../scripts/run-command.ts';
import { commandsOf } from '../../../test/unit/docs/check-snippet.ts';
import { readSnippets } from '../../../test/unit/docs/pages.ts';
import { type PagePlan, placeholders, type Site } from './plans.ts';

export interface PageCommand {
  line: number;
  /** Verbatim from the page. */
  text: string;
}

/** Environment in which commands of pages run. */
export interface Shell {
  /** A copy of the repository: commands may change its files. */
  dir: string;
  env: Record<string, string>;
}

/** All commands of a page in order: the lines of its `sh` blocks, and those within its text. */
export function readCommands(page: string): PageCommand[] {
  return readSnippets(page).flatMap((snippet) => commandsOf(snippet).map((text) => ({ line: snippet.line, text })));
}

/** Patterns of a plan that match no command of its page: the page has changed. */
export function findStalePatterns(plan: PagePlan): string[] {
  const commands = readCommands(plan.page);
  const { notRun = [], before = [], after = [], additions = [], output = [] } = plan;
  const patterns = [...notRun, ...before, ...after, ...additions, ...output].map(([pattern]) => pattern);
  return patterns.filter((each) => !commands.some(({ text }) => each.test(text))).map(String);
}

/**
 * A copy of the repository, with the installed packages, and programs for the commands.
 * @param parent folder for it
 * @param programs additional programs in PATH, by name
 */
export function openShell(parent: string, programs: Record<string, string>, kubeconfig: string): Shell {
  const dir = mkdtempSync(join(parent, 'checkout-'));
  for (const name of readdirSync(repository)) {
    if (name === 'node_modules') symlinkSync(join(repository, name), join(dir, name));
    else if (!name.startsWith('.') && name !== 'dist')
      cpSync(join(repository, name), join(dir, name), { recursive: true });
  }
  const bin = mkdtempSync(join(parent, 'bin-'));
  for (const [name, path] of Object.entries(programs)) symlinkSync(path, join(bin, name));
  const helm = mkdtempSync(join(parent, 'helm-'));
  const folders = ['CACHE', 'CONFIG', 'DATA'].map((name) => [`HELM_${name}_HOME`, join(helm, name)]);
  for (const [, path = ''] of folders) mkdirSync(path);
  return {
    dir,
    env: { ...Object.fromEntries(folders), NO_COLOR: '1', KUBECONFIG: kubeconfig, PATH: `${bin}:${process.env.PATH}` },
  };
}

/**
 * Runs a command of a page together with the commands that its plan adds.
 * @returns `undefined`, or the reason why the command is not run
 * @throws CommandError `command-failed` with all output
 */
export async function runPageCommand(
  { notRun = [], before = [], after = [], additions = [], output = [] }: PagePlan,
  { text }: PageCommand,
  shell: Shell,
  site: Site,
): Promise<string | undefined> {
  const reason = notRun.find(([pattern]) => pattern.test(text))?.[1];
  if (reason !== undefined) return reason;
  const matching = <T>(table: [RegExp, T][]) => table.flatMap(([pattern, each]) => (pattern.test(text) ? [each] : []));
  for (const command of matching(before).flat()) await runInShell(command, shell, site);
  const printed = await runInShell([text, ...matching(additions)].join(' '), shell, site);
  for (const expected of matching(output)) {
    if (expected.test(printed)) continue;
    throw new CommandError('command-failed', `${text} does not print ${expected}:\n${printed}`);
  }
  for (const command of matching(after).flat()) await runInShell(command, shell, site);
  return undefined;
}

/** @returns its output @throws CommandError `command-failed`, also after 150 s, before the test times out */
export async function runInShell(command: string, { dir, env }: Shell, site: Site): Promise<string> {
  const filled = placeholders.reduce((text, [name, fill]) => text.replaceAll(name, fill(site)), command);
  const { output, succeeded } = await runCommand(['timeout', '150', 'sh', '-c', `cd "$0" && ${filled}`, dir], env);
  if (!succeeded) throw new CommandError('command-failed', `$ ${filled}\n${output}`);
  return output;
}
