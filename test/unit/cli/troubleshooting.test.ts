import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { repository as repo } from '../../../scripts/run-command.ts';
import {
  claimsCommand,
  doctorCommand,
  inventoryCommand,
  logCommand,
  metadataCommand,
  validateCommand,
} from '../../../src/cli/commands.ts';
import { createProgram } from '../../../src/program.ts';

const page = readFileSync(join(repo, 'docs/troubleshooting.md'), 'utf8');
const sources = ['src', 'nri', 'programs/src']
  .flatMap((folder) =>
    readdirSync(join(repo, folder), { recursive: true, encoding: 'utf8' }).map((path) => join(repo, folder, path)),
  )
  .filter((path) => /\.(ts|c)$/.test(path))
  .map((path) => readFileSync(path, 'utf8'))
  .join('\n');

/** Apostrophes in comments would look like the start of a text. */
const code = sources.replaceAll(/^\s*(\/\/|\/\*\*|\*).*$/gm, '');

/** Every text in the sources, as its parts between what is put into it. */
const messages = [...code.matchAll(/'((?:[^'\\\n]|\\.)*)'|"((?:[^"\\\n]|\\.)*)"|`((?:[^`\\]|\\.)*)`/g)]
  .map(([, single, double, template]) => single ?? double ?? template ?? '')
  .map((text) => text.replaceAll(/\\(['"`])/g, '$1').split(/\$\{[^}]*\}/))
  .map((parts) => parts.map((part) => part.replaceAll(/^[^a-z0-9]+|[^a-z0-9]+$/gi, '')).filter(Boolean))
  .filter((parts) => parts.join('').length >= 8);

/** How much of a line consists of texts that the driver has, from 0 to 1. Names in it stand as `…`, or as examples. */
function shareSaid(line: string): number {
  const said = new Set<number>();
  for (const parts of messages) {
    const places: number[] = [];
    let at = 0;
    const isIn = parts.every((part) => {
      const found = line.indexOf(part, at);
      for (let place = found; place < found + part.length; place++) places.push(place);
      at = found + part.length;
      return found >= 0;
    });
    if (isIn) for (const place of places) said.add(place);
  }
  const letters = [...line].flatMap((character, place) => (/[a-z]/i.test(character) ? [place] : []));
  return letters.filter((place) => said.has(place)).length / letters.length;
}

/** The rest is names. */
const isSaid = (line: string) => shareSaid(line) > 0.35;

describe('docs/troubleshooting.md', () => {
  const lines = [...page.matchAll(/^```text\n([\s\S]*?)^```/gm)].flatMap(([, block = '']) => block.trim().split('\n'));
  const cells = [...page.matchAll(/^\| (.*?) \|/gm)]
    .flatMap(([, cell = '']) => [...cell.matchAll(/`([^`]*)`/g)].map(([, text = '']) => text))
    .filter((text) => text.includes(' ') && !text.startsWith('netdra '));

  it.each(lines.filter((line) => !/^(NOT OFFERED|0000:)/.test(line)))("quotes the driver's message: %s", (line) => {
    expect(isSaid(line)).toBe(true);
  });

  it.each(cells)("lists the driver's message: %s", (text) => {
    expect(isSaid(text)).toBe(true);
  });

  // Without those that begin with a name.
  const ofLog = [...page.matchAll(/\blog has [^`.]*((?:`[^`]+`[^`.]*)+)/g)]
    .flatMap(([, texts = '']) => [...texts.matchAll(/`([^`]*)`/g)].map(([, text = '']) => text))
    .filter((text) => /^[a-z]\w* /.test(text) && !text.includes('…') && !text.startsWith('netdra '));

  it.each(ofLog)('quotes the log message: %s', (text) => {
    expect(sources.includes(text)).toBe(true);
  });

  it('quotes only messages that the sources have', () => {
    expect(ofLog.length).toBeGreaterThan(3);
    expect(lines.length + cells.length).toBeGreaterThan(35);
    expect(isSaid('claim … may not eat …, since it is Friday')).toBe(false);
    expect(isSaid('the card cannot fly to … of VF …')).toBe(false);
  });

  it('names the reason of every event, and no other', () => {
    const named = [...page.matchAll(/^\| `([A-Z][A-Za-z]+)`(?:, on the Node)? \|/gm)].map(([, reason]) => reason);
    const reported = [...code.matchAll(/\breason: (\S+),\s+action: /g)].map(([, reason]) => reason);
    expect([...new Set(reported)].sort()).toEqual(named.map((reason) => `'${reason}'`).sort());
  });

  it('names only existing commands and flags', () => {
    const looks = [doctorCommand(), inventoryCommand(), claimsCommand(), metadataCommand(), logCommand()];
    const commands = [...looks, validateCommand()];
    const names = [...page.matchAll(/^\| `netdra (\w+)/gm)].map(([, name]) => name);
    expect(new Set(names)).toEqual(new Set(commands.map((command) => command.name())));
    const flags = createProgram().commands.flatMap(({ options }) => options.map(({ long }) => long));
    for (const [, flag] of page.matchAll(/`(--[a-z-]+)/g)) expect(flags).toContain(flag);
  });
});
