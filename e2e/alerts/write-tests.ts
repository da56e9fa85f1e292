/**
 * Writes deploy/helm/alerts.test.yaml from what the last runs of the suites have recorded: `node e2e/alerts/write-tests.ts`. Alerts
 * without a new recording keep theirs.
 */
import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { dump, load } from 'js-yaml';
import { repository } from '../../scripts/run-command.ts';
import type { AlertTest } from './recording.ts';
import { alertNames } from './rules.ts';

const path = join(repository, 'deploy/helm/alerts.test.yaml');
const head = `# promtool test rules deploy/helm/alerts.test.yaml
# Recorded from a real driver by e2e/node/cases/alerts.test.ts and e2e/vm/cases/alerts.test.ts, and written by
# \`node e2e/alerts/write-tests.ts\`. A minute here was a second there.
`;

function readRecordings(folder: string): AlertTest[] {
  if (!existsSync(folder)) return [];
  return readdirSync(folder).map((name) => JSON.parse(readFileSync(join(folder, name), 'utf8')) as AlertTest);
}

const { tests: known } = load(readFileSync(path, 'utf8')) as { tests: AlertTest[] };
const recorded = ['test-results/alerts', 'test-results/vm/alerts'].flatMap((dir) =>
  readRecordings(join(repository, dir)),
);
const tests = alertNames().flatMap((alert) => [...recorded, ...known].find(({ name }) => name === alert) ?? []);
const file = { rule_files: ['netdra/alerts.yaml'], evaluation_interval: '1m', tests };
writeFileSync(path, head + dump(file, { lineWidth: -1 }));
