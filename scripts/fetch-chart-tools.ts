/**
 * Builds the program that renders the Helm chart where there is no Helm, and fetches promtool, before tests run where
 * there is no network:
 * `node scripts/fetch-chart-tools.ts`.
 */
import { fetchChartTools } from '../deploy/render/chart-tools.ts';
import { cacheFolder } from '../e2e/node/tools.ts';
import { explain, NetdraError } from '../src/errors.ts';

try {
  fetchChartTools(cacheFolder(process.env), process.env, (line) => console.error(`netdra: ${line}`));
} catch (error) {
  if (!(error instanceof NetdraError)) throw error;
  console.error(`netdra: ${explain(error)}`);
  process.exitCode = 1;
}
