import { readFileSync } from 'node:fs';
import { loadYaml } from '@kubernetes/client-node';
import { describe, expect, it } from 'vitest';
import { conditionNames } from '../../../src/driver/devices/device-conditions.ts';
import { buildBusyMetrics } from './build-metrics.ts';

const read = (path: string) => readFileSync(new URL(`../../../${path}`, import.meta.url), 'utf8');

interface Rule {
  alert: string;
  expr: string;
  for?: string;
  labels: { severity: string };
  annotations: Record<string, string>;
}
const rules = loadYaml<{ groups: { rules: Rule[] }[] }>(read('deploy/helm/netdra/alerts.yaml')).groups.flatMap(
  (each) => each.rules,
);
interface Panel {
  type: string;
  title: string;
  gridPos: { x: number; y: number; w: number; h: number };
  targets?: { expr: string }[];
}
const dashboard = JSON.parse(read('deploy/helm/netdra/dashboard.json')) as { panels: Panel[] };

/** Every series that a scrape can have: name, and label names. */
async function knownSeries(): Promise<Map<string, Set<string>>> {
  const { text } = await buildBusyMetrics().render();
  const series = new Map<string, Set<string>>([['up', new Set()]]);
  for (const [, name = '', labels = ''] of text.matchAll(/^([a-z_]+)(?:\{(.*)\})? /gm)) {
    const names = series.get(name) ?? new Set(['instance', 'job', 'node']);
    for (const [, label = ''] of labels.matchAll(/(\w+)="/g)) names.add(label);
    series.set(name, names);
  }
  series.set('up', new Set(['instance', 'job', 'node']));
  // Of Prometheus itself.
  series.set('ALERTS', new Set(['alertname', 'alertstate', 'instance', 'job', 'node']));
  // Of kube-state-metrics.
  series.set('kube_node_info', new Set(['job', 'node']));
  return series;
}

const functions = [
  'sum',
  'min',
  'count',
  'increase',
  'rate',
  'histogram_quantile',
  'last_over_time',
  'max',
  'quantile',
  'time',
  'vector',
  'topk',
];
const keywords = ['by', 'on', 'or', 'and', 'unless'];

/** Names in an expression that are no series, and labels that their series do not have. */
function findUnknown(expression: string, series: Map<string, Set<string>>): string[] {
  const unknown: string[] = [];
  const selectors = expression.replace(/\{[^}]*\}/g, (text) => text.replace(/"[^"]*"/g, '""'));
  const bare = selectors.replace(/\{[^}]*\}|\[[^\]]*\]|"[^"]*"/g, ' ');
  const grouping = [...bare.matchAll(/\b(?:by|on) \(([^)]*)\)/g)].flatMap(([, names = '']) => names.split(/,\s*/));
  const words = bare.replace(/\b(by|on) \([^)]*\)/g, '').match(/[a-zA-Z_]\w*/g) ?? [];
  const names = words.filter((word) => !functions.includes(word) && !keywords.includes(word));
  for (const name of names) if (!series.has(name)) unknown.push(name);
  const labels = new Set(names.flatMap((name) => [...(series.get(name) ?? [])]));
  const used = [...selectors.matchAll(/(\w+)\s*(?:=~|!~|!=|=)""/g)].map(([, label = '']) => label);
  unknown.push(...[...grouping, ...used].filter((label) => !labels.has(label)));
  if ((expression.match(/\(/g) ?? []).length !== (expression.match(/\)/g) ?? []).length) unknown.push('parentheses');
  return unknown;
}

it('docs/troubleshooting.md has one section for each alert, and no other', () => {
  const [, section = ''] = read('docs/troubleshooting.md').split(/^## Alerts$/m);
  expect([...section.matchAll(/^### (.*)$/gm)].map(([, title]) => title)).toEqual(rules.map(({ alert }) => alert));
});

it('docs/metrics.md has a row for each metric', async () => {
  const { text } = await buildBusyMetrics().render();
  const names = [...text.matchAll(/^# HELP (\w+)/gm)].map(([, name = '']) => name);
  expect(names.length).toBeGreaterThan(30);
  const rows = read('docs/metrics.md');
  expect(names.filter((name) => !new RegExp(`^\\|[^|\\n]*\`${name}\`[^|\\n]*\\|`, 'm').test(rows))).toEqual([]);
});

describe('metrics in alerts and dashboards', () => {
  it.each(rules.map((rule) => [rule.alert, rule] as const))(
    'are exported if the alert %s uses them',
    async (_, rule) => {
      expect(findUnknown(rule.expr, await knownSeries())).toEqual([]);
      expect(['warning', 'critical']).toContain(rule.labels.severity);
      expect(Object.keys(rule.annotations)).toEqual(['summary', 'description', 'runbook_url']);
      expect(rule.annotations.runbook_url).toBe(`docs/troubleshooting.md#${rule.alert.toLowerCase()}`);
      expect(rule.for ?? '1m').toMatch(/^\d+[mh]$/);
      // A label that the expression drops would be empty in the text.
      const kept = /^(?:sum|histogram_quantile\([\d.]+, sum) by \(([^)]*)\)/.exec(rule.expr)?.[1]?.split(/,\s*/);
      for (const [, label = ''] of rule.annotations.summary?.matchAll(/\$labels\.(\w+)/g) ?? []) {
        if (kept !== undefined) expect(kept, label).toContain(label);
      }
      // Operators know nodes, and not the addresses of their drivers.
      const isOfAll = rule.expr.startsWith('count(');
      if (isOfAll) expect(rule.annotations.description).toContain('{{ or .Labels.node .Labels.instance }}');
      else expect(rule.annotations.summary).toContain('{{ or $labels.node $labels.instance }}');
      if (kept !== undefined) expect(kept).toContain('node');
    },
  );

  it("cover each device condition with one alert, except the SR-IOV operator's planned work", () => {
    const reasons = rules.flatMap(({ expr }) => [...expr.matchAll(/devices_withheld\{reason=~?"([^"]+)"/g)]);
    const covered = reasons.flatMap(([, names = '']) => names.split('|'));
    expect([...covered, 'operator-at-work'].sort()).toEqual([...conditionNames].sort());
  });

  it('include every series and bucket that the alert tests use', async () => {
    const tests = loadYaml<{ tests: { input_series: { series: string }[] }[] }>(read('deploy/helm/alerts.test.yaml'));
    const samples = tests.tests.flatMap(({ input_series }) => input_series.map(({ series }) => series));
    expect(samples.length).toBeGreaterThan(15);
    const { text } = await buildBusyMetrics().render();
    for (const sample of samples) {
      expect(findUnknown(sample, await knownSeries()), sample).toEqual([]);
      const [, name = ''] = /^(\w+)/.exec(sample) ?? [];
      const [, bucket] = /le="([^"]*)"/.exec(sample) ?? [];
      if (bucket !== undefined) expect(text, sample).toContain(`\n${name}{le="${bucket}"`);
    }
  });

  it('are exported if the dashboard uses them', async () => {
    const series = await knownSeries();
    const expressions = dashboard.panels.flatMap(({ targets = [] }) => targets.map(({ expr }) => expr));
    expect(expressions.length).toBeGreaterThan(15);
    for (const expression of expressions) expect(findUnknown(expression, series), expression).toEqual([]);
  });

  it('are shown in panels that do not overlap', () => {
    const cells = dashboard.panels.flatMap(({ gridPos: { x, y, w, h } }) =>
      Array.from({ length: w * h }, (_, index) => `${x + (index % w)},${y + Math.floor(index / w)}`),
    );
    expect(new Set(cells).size).toBe(cells.length);
    for (const { gridPos } of dashboard.panels) expect(gridPos.x + gridPos.w).toBeLessThanOrEqual(24);
  });
});
