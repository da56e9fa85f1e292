import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { loadYaml } from '@kubernetes/client-node';
import { listFlags } from '../../scripts/reference.ts';
import { buildBusyMetrics } from '../../test/unit/deploy/build-metrics.ts';
import { repo } from '../../test/unit/docs/pages.ts';
import { readPage, type Stage, sitePath, titleOf } from './stage.ts';

/** Kinds of things that have a page each, and what the list of the kind is called. */
export const kinds = {
  events: 'Events',
  metrics: 'Metrics',
  flags: 'Flags',
  alerts: 'Alerts',
} as const;
type Kind = keyof typeof kinds;

interface Item {
  kind: Kind;
  /** As in the code: `api-conflict`, `--node-name`. */
  name: string;
  /** One sentence, in Markdown. */
  meaning: string;
  /** The rest of the page, in Markdown. */
  details: string[];
}

/** The page of an item, without its ending. */
export const itemPath = (kind: Kind, name: string) =>
  `reference/${kind}/${name.replace(/^--|-…$/g, '').replaceAll(/[^\w-]/g, '')}`;

/** Each event, metric, flag and alert of the code. @throws Error if the code cannot be understood */
export async function listItems(stage: Stage): Promise<Item[]> {
  const alerts = listAlerts(stage);
  const items = [...listEvents(stage), ...(await listMetrics(stage, alerts)), ...listFlagItems(), ...alerts];
  for (const kind of Object.keys(kinds)) {
    if (!items.some((each) => each.kind === kind))
      throw new Error(`the code has no ${kind} that docs/site/items.ts finds`);
  }
  return items;
}

/** Writes a page for each item, and a list for each kind. */
export function writeItems(stage: Stage, items: Item[]): void {
  const texts = stage.pages
    .filter((page) => !/^CHANGELOG|^docs\/reference\.md|^test\//.test(page))
    .map((page) => ({ page, text: readPage(page) }));
  for (const { kind, name, meaning, details } of items) {
    const path = `${itemPath(kind, name)}.md`;
    const mark = new RegExp(`\`${quoted(name)}(?![\\w-])`);
    const links = texts
      .filter(({ text }) => mark.test(text))
      .map(({ page, text }) => `- [${titleOf(text)}](../../${sitePath(page)})`);
    const about = links.length === 0 ? [] : ['## Pages about it', links.join('\n')];
    stage.write(path, `${[`# ${name}`, meaning, ...details, ...about].join('\n\n')}\n`);
  }
  for (const [kind, title] of Object.entries(kinds) as [Kind, string][]) {
    const rows = items
      .filter((each) => each.kind === kind)
      .map(({ name, meaning }) => `| [\`${name}\`](../../${itemPath(kind, name)}.md) | ${cell(meaning)} |`);
    stage.write(
      `reference/${kind}/index.md`,
      `# ${title}\n\nMade from the code.\n\n| name | meaning |\n|---|---|\n${rows.join('\n')}\n`,
    );
  }
}

const quoted = (text: string) => text.replaceAll(/[.*+?^${}()|[\]\\]/g, '\\$&');
const cell = (text: string) => text.replaceAll('|', '\\|').replaceAll('\n', ' ');

/** The value that each name has, in their order. */
function group<T>(values: T[], nameOf: (value: T) => string): [string, T[]][] {
  return [...Map.groupBy(values, nameOf)];
}

const sources = (folders: string[]) =>
  folders.flatMap((folder) =>
    readdirSync(join(repo, folder), { recursive: true, encoding: 'utf8' })
      .filter((path) => path.endsWith('.ts') && !path.includes('node_modules'))
      .map((path) => readPage(`${folder}/${path}`)),
  );

/** The second cell of the row of a table whose first cell names something. */
function rowOf(stage: Stage, page: string, name: string, kind: Kind): string {
  const found = new RegExp(`^\\|[^|\\n]*\`${quoted(name)}\`[^|\\n]*\\| (.*) \\|$`, 'm').exec(readPage(page))?.[1];
  if (found === undefined) throw new Error(`${page} has no row for ${name}`);
  return stage.moveLinks(found, page, `${itemPath(kind, name)}.md`);
}

function listEvents(stage: Stage): Item[] {
  const reported = sources(['src']).flatMap((text) => [...text.matchAll(/\breason: '(\w+)',\s+action: '(\w+)'/g)]);
  return group(reported, ([, reason = '']) => reason).map(([name, places]) => ({
    kind: 'events',
    name,
    meaning: rowOf(stage, 'docs/troubleshooting.md', name, 'events'),
    details: [`\`action\`: ${[...new Set(places.map(([, , action]) => `\`${action}\``))].join(', ')}.`],
  }));
}

async function listMetrics(stage: Stage, alerts: Item[]): Promise<Item[]> {
  const { text } = await buildBusyMetrics().render();
  return [...text.matchAll(/^# HELP (\w+) (.*)\n# TYPE \w+ (\w+)\n((?:[^#\n].*\n?)*)/gm)].map(
    ([, name = '', help = '', type = '', series = '']) => {
      const labels = new Set([...series.matchAll(/[{,](\w+)="/g)].map(([, label]) => `\`${label}\``));
      const users = alerts.filter(({ details }) => details.some((each) => new RegExp(`\\b${name}\\b`).test(each)));
      return {
        kind: 'metrics',
        name,
        meaning: help,
        details: [
          `In the table of [all metrics](../../metrics.md): ${rowOf(stage, 'docs/metrics.md', name, 'metrics')}.`,
          `| type | labels |\n|---|---|\n| ${type} | ${[...labels].join(', ')} |`,
          ...users.map((each) => `The alert [${each.name}](../alerts/${each.name}.md) looks at it.`),
        ],
      };
    },
  );
}

function listFlagItems(): Item[] {
  const nameOf = (flags: string) => /--[\w-]+/.exec(flags)?.[0] ?? '';
  return group(listFlags(), ({ flags }) => nameOf(flags))
    .sort(([left], [right]) => (left < right ? -1 : 1))
    .map(([name, entries]) => ({
      kind: 'flags',
      name,
      meaning: [...new Set(entries.map(({ meaning }) => meaning))].join('; '),
      details: [
        `| flag | commands | variable | default | meaning |\n|---|---|---|---|---|\n${entries
          .map((each) => [each.flags, each.commands, each.variable, each.default, each.meaning].map(cell))
          .map((cells) => `| ${cells.join(' | ')} |`)
          .join('\n')}`,
      ],
    }));
}

interface Rule {
  alert: string;
  expr: string;
  for?: string;
  labels: { severity: string };
  annotations: { summary: string; description: string; runbook_url: string };
}

/** The rules of the alerts, as the chart has them. */
export function readRules(): Rule[] {
  const file = loadYaml<{ groups: { rules: Rule[] }[] }>(readPage('deploy/helm/netdra/alerts.yaml'));
  return file.groups.flatMap(({ rules }) => rules);
}

function listAlerts(stage: Stage): Item[] {
  return readRules().map(({ alert, expr, for: duration, labels, annotations }) => {
    const runbook = stage.moveLinks(
      `[What to do](${annotations.runbook_url})`,
      'README.md',
      `${itemPath('alerts', alert)}.md`,
    );
    return {
      kind: 'alerts',
      name: alert,
      meaning: annotations.description,
      details: [
        `${runbook}.`,
        `| severity | after | summary |\n|---|---|---|\n| ${labels.severity} | ${duration ?? 'at once'} | \`${cell(annotations.summary)}\` |`,
        `\`\`\`text\n${expr}\n\`\`\``,
      ],
    };
  });
}
