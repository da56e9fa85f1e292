import { execFileSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { locatePromtool } from '../../deploy/alerts/promtool.ts';
import { cacheFolder } from '../../scripts/packages/cache-folder.ts';
import { tempDir } from '../doubles/temp-dir.ts';

const deploy = fileURLToPath(new URL('../../deploy', import.meta.url));
const promtool = (...args: string[]) =>
  execFileSync(locatePromtool(cacheFolder(process.env), process.env), args, { encoding: 'utf8', stdio: 'pipe' });

describe('promtool', () => {
  it('takes the alert rules, and sees them fire when they should', () => {
    expect(promtool('check', 'rules', join(deploy, 'alerts/netdra.yaml'))).toContain('SUCCESS: 14 rules found');
    expect(promtool('test', 'rules', join(deploy, 'alerts/netdra.test.yaml'))).toContain('SUCCESS');
  });

  it('takes the expressions of the dashboard', () => {
    using dir = tempDir();
    const dashboard = JSON.parse(readFileSync(join(deploy, 'dashboards/netdra.json'), 'utf8'));
    const expressions: string[] = dashboard.panels.flatMap(({ targets = [] }: { targets?: { expr: string }[] }) =>
      targets.map(({ expr }) => expr.replaceAll('$__rate_interval', '5m').replaceAll('$instance', '.*')),
    );
    const rules = expressions.map((expr, index) => ({ record: `panel_${index}`, expr }));
    const path = join(dir.path, 'rules.json');
    writeFileSync(path, JSON.stringify({ groups: [{ name: 'dashboard', rules }] }));
    expect(promtool('check', 'rules', path)).toContain(`${expressions.length} rules found`);
  });
});
