import { execFileSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { load } from 'js-yaml';
import { describe, expect, it } from 'vitest';
import { alertNames } from '../../e2e/alerts/rules.ts';
import { dashboardExpressions, locatePrometheus } from '../../e2e/release/prometheus.ts';
import { cacheFolder } from '../../scripts/packages/cache-folder.ts';
import { tempDir } from '../doubles/temp-dir.ts';

const deploy = fileURLToPath(new URL('../../deploy', import.meta.url));
const promtool = (...args: string[]) =>
  execFileSync(locatePrometheus('promtool', cacheFolder(process.env), process.env), args, {
    encoding: 'utf8',
    stdio: 'pipe',
  });

/** Expects the alerts that fire on series, by name, with the number of their nodes. */
function expectFiring(series: object[], at: string, firing: object[]): void {
  using dir = tempDir();
  const expr = 'count by (alertname) (ALERTS{alertstate="firing"})';
  const promqlTest = { expr, eval_time: at, exp_samples: firing };
  const test = { interval: '1m', input_series: series, promql_expr_test: [promqlTest] };
  const path = join(dir.path, 'test.json');
  const ruleFiles = [join(deploy, 'helm/netdra/alerts.yaml')];
  writeFileSync(path, JSON.stringify({ rule_files: ruleFiles, evaluation_interval: '1m', tests: [test] }));
  expect(promtool('test', 'rules', path)).toContain('SUCCESS');
}

describe('promtool', () => {
  it('accepts the alert rules and passes their unit tests', () => {
    expect(promtool('check', 'rules', join(deploy, 'helm/netdra/alerts.yaml'))).toContain('SUCCESS: 21 rules found');
    expect(promtool('test', 'rules', join(deploy, 'helm/alerts.test.yaml'))).toContain('SUCCESS');
  });

  it.each([
    ['no-carrier', 0, ['NetdraDevicesUnhealthy', 'NetdraNoFreeDevices']],
    // The policy says that the condition has no taint.
    ['no-carrier', 8, []],
    // Planned work takes longer than the alerts wait.
    ['operator-at-work', 0, []],
  ])(
    'fires the expected alerts if all devices of a node have the condition %s and %i of them are free: %j',
    (condition, free, alerts) => {
      const labels = 'job="netdra", instance="worker-1:9797", node="worker-1"';
      const series = [
        { series: `netdra_devices_unhealthy{condition="${condition}", ${labels}}`, values: '8x30' },
        { series: `netdra_devices_withheld{reason="${condition}", ${labels}}`, values: free === 0 ? '8x30' : '_x30' },
        { series: `netdra_devices_offered{${labels}}`, values: '8x30' },
        { series: `netdra_devices_free{${labels}}`, values: `${free}x30` },
      ];
      const firing = alerts.map((name) => ({ labels: `{alertname="${name}"}`, value: 1 }));
      expectFiring(series, '20m', firing);
    },
  );

  const hour = 3_600;
  it.each<[string, number, number, string[]]>([
    ['90 days has 5 left', 90 * 24 * hour, 5 * 24 * hour, ['NetdraCertificateExpires']],
    ['90 days has 8 left', 90 * 24 * hour, 8 * 24 * hour, []],
    ['a day has 7 hours left, and later 5', 24 * hour, 7 * hour, []],
    ['a day has 3 hours left, and later 1', 24 * hour, 3 * hour, ['NetdraCertificateExpires']],
    ['8 hours has 130 minutes left, and later 10', 8 * hour, (13 / 6) * hour, ['NetdraCertificateExpires']],
    ['an hour expires', hour, 2 * hour, ['NetdraCertificateExpires']],
  ])(
    'fires one certificate alert per node if renewal is overdue: a certificate of %s',
    (_, lifetime, expiry, alerts) => {
      const series = ['worker-1', 'worker-2', 'worker-3', 'worker-4'].flatMap((node) => {
        const labels = `job="netdra", instance="${node}:9797", node="${node}"`;
        return [
          { series: `up{${labels}}`, values: '1x120' },
          { series: `netdra_build_info{${labels}}`, values: '1x120' },
          { series: `netdra_certificate_expiry_timestamp_seconds{${labels}}`, values: `${expiry}x120` },
          { series: `netdra_certificate_lifetime_seconds{${labels}}`, values: `${lifetime}x120` },
        ];
      });
      const firing = alerts.map((name) => ({ labels: `{alertname="${name}"}`, value: 4 }));
      expectFiring(series, '120m', firing);
    },
  );

  it('runs a unit test for every alert', () => {
    const { tests } = load(readFileSync(join(deploy, 'helm/alerts.test.yaml'), 'utf8')) as {
      tests: { name: string }[];
    };
    const names = tests.map(({ name }) => name);
    expect(names).toEqual(alertNames());
  });

  it('accepts the expressions of the dashboard', () => {
    using dir = tempDir();
    const expressions = dashboardExpressions();
    const rules = expressions.map((expr, index) => ({ record: `panel_${index}`, expr }));
    const path = join(dir.path, 'rules.json');
    writeFileSync(path, JSON.stringify({ groups: [{ name: 'dashboard', rules }] }));
    expect(promtool('check', 'rules', path)).toContain(`${expressions.length} rules found`);
  });
});
