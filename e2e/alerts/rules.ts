import { readFileSync } from 'node:fs';
import { loadYaml } from '@kubernetes/client-node';

interface AlertRule {
  alert: string;
  expr: string;
  for?: string;
}

export interface AlertRules {
  groups: { name: string; rules: AlertRule[] }[];
}

/** Those of the chart. */
function readRules(): AlertRules {
  const path = new URL('../../deploy/helm/netdra/alerts.yaml', import.meta.url);
  return loadYaml<AlertRules>(readFileSync(path, 'utf8'));
}

/** All alerts of the chart, in order. */
export function alertNames(): string[] {
  return readRules().groups.flatMap(({ rules }) => rules.map(({ alert }) => alert));
}

const seconds = { m: 1, h: 60, d: 1_440 };
const inSeconds = (text: string) =>
  text.replace(/(\d+)([mhd])(?=\]|$)/g, (_, count, unit: keyof typeof seconds) => `${count * seconds[unit]}s`);

/** The rules of the chart, with a second for each minute of `for` and of windows. Thresholds stay as they are. */
export function hastyAlertRules(): AlertRules {
  const hasty = (rule: AlertRule) => ({
    ...rule,
    expr: inSeconds(rule.expr),
    ...(rule.for === undefined ? {} : { for: inSeconds(rule.for) }),
  });
  return { groups: readRules().groups.map((group) => ({ ...group, rules: group.rules.map(hasty) })) };
}

/** How long the expression of a hasty rule has to hold before the alert fires. */
export function holdSeconds(rules: AlertRules, alert: string): number {
  return Number.parseInt(findRule(rules, alert).for ?? '0s', 10);
}

/** The selectors of series that an alert reads, such as `up{job="netdra"}`; not those of other alerts. */
export function selectorsOf(rules: AlertRules, alert: string): string[] {
  const selectors = findRule(rules, alert).expr.matchAll(/\b(?:(?:netdra|dra)_\w+|up\b)(?:\{[^}]*\})?/g);
  return [...new Set([...selectors].map(([selector]) => selector))];
}

function findRule({ groups }: AlertRules, alert: string): AlertRule {
  const rule = groups.flatMap((group) => group.rules).find((each) => each.alert === alert);
  if (rule === undefined) throw new Error(`no rule ${alert}`);
  return rule;
}
