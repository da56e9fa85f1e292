import { readFileSync } from 'node:fs';
import { loadYaml } from '@kubernetes/client-node';

export interface AlertRules {
  groups: { name: string; rules: { alert: string; expr: string; for?: string }[] }[];
}

const seconds = { m: 1, h: 60, d: 1_440 };
const inSeconds = (text: string) =>
  text.replace(/(\d+)([mhd])(?=\]|$)/g, (_, count, unit: keyof typeof seconds) => `${count * seconds[unit]}s`);

/** The rules of the chart, with a second for each minute of `for` and of windows. Thresholds stay as they are. */
export function hastyAlertRules(): AlertRules {
  const path = new URL('../../deploy/helm/netdra/alerts.yaml', import.meta.url);
  const { groups } = loadYaml<AlertRules>(readFileSync(path, 'utf8'));
  const hasty = (rule: AlertRules['groups'][number]['rules'][number]) => ({
    ...rule,
    expr: inSeconds(rule.expr),
    ...(rule.for === undefined ? {} : { for: inSeconds(rule.for) }),
  });
  return { groups: groups.map((group) => ({ ...group, rules: group.rules.map(hasty) })) };
}
