import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { loadYaml } from '@kubernetes/client-node';
import { type Browser, type BrowserContext, chromium, type Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { cacheFolder } from '../../../scripts/packages/cache-folder.ts';
import { tempDir } from '../../../test/doubles/temp-dir.ts';
import { buildSite, writeVersions } from '../build.ts';
import { readPage, Stage, sitePath } from '../stage.ts';
import { ensureChromium } from './chromium.ts';
import { serve } from './serve.ts';

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

/** How a page is looked at. */
const looks = (['light', 'dark'] as const).flatMap((colorScheme) =>
  [
    { device: 'phone', viewport: { width: 390, height: 844 } },
    { device: 'desktop', viewport: { width: 1440, height: 900 } },
  ].map((screen) => ({ ...screen, colorScheme })),
);

/** One page of each kind, and with code of each language. */
const examples = [
  'index.html',
  'ARCHITECTURE.html',
  'cnf-developers.html',
  'errors.html',
  'reference.html',
  'api/index.html',
  'source/examples/kernel-mode.yaml.html',
  '404.html',
];
/** One of each layout: what is on a phone only has colours of its own in the dark, and all else is the same as in the other looks. */
const layouts = ['index.html', 'cnf-developers.html', 'api/index.html'];
const own = new Stage('').pages.map((page) => sitePath(page).replace(/\.md$/, '.html'));

const stack = new AsyncDisposableStack();
let root: string;
let browser: Browser;

beforeAll(async () => {
  const out = stack.use(tempDir()).path;
  await buildSite({ version: 'main', out: join(out, 'docs'), base: '/docs/' });
  const { origin } = stack.use(await serve(out));
  root = `${origin}/docs/main/`;
  const { executablePath, env } = ensureChromium(cacheFolder(process.env), console.error);
  browser = stack.use(
    await chromium.launch({ executablePath, env: { ...process.env, ...env }, args: ['--no-sandbox', '--disable-gpu'] }),
  );
});

afterAll(() => stack.disposeAsync());

/**
 * What is wrong with a page: answers and errors of its scripts, what axe finds, and text beyond the screen's edge.
 * @param isExample also in the menus around the text, and whether colours differ enough, which take axe most of the time: both are
 * the same on all pages of a kind
 */
async function problemsOf(context: BrowserContext, path: string, isExample: boolean): Promise<string[]> {
  const page = await context.newPage();
  const problems: string[] = [];
  page.on('console', (message) => message.type() === 'error' && problems.push(`console: ${message.text()}`));
  page.on('pageerror', (error) => problems.push(`script: ${error.message}`));
  page.on(
    'request',
    (request) => request.url().startsWith(new URL(root).origin) || problems.push(`asks ${request.url()}`),
  );
  await page.goto(root + path);
  // Its scripts have taken over.
  await page.waitForFunction(() => '__vue_app__' in (document.querySelector('#app') ?? {}));
  await page.evaluate(axe);
  const violations: string[] = await page.evaluate(async (isExample) => {
    const { axe } = globalThis as unknown as { axe: typeof import('axe-core') };
    const { violations } = await axe.run(
      { exclude: isExample ? [] : ['.VPNav', '.VPSidebar'] },
      { resultTypes: ['violations'], rules: { 'color-contrast': { enabled: isExample } } },
    );
    return violations.map(
      ({ id, nodes }) =>
        `${id}: ${nodes
          .map(({ html, target }) => `${target} ${html}`)
          .slice(0, 3)
          .join('; ')}`,
    );
  }, isExample);
  const beyond = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
  if (beyond > 0) problems.push(`${beyond} pixels wider than the screen`);
  await page.close();
  return [...problems, ...violations].map((each) => `${path}: ${each}`);
}

/** Two pages at a time. */
async function problemsOfAll(look: (typeof looks)[number], paths: string[], isExample: boolean): Promise<string[]> {
  await using context = await browser.newContext(look);
  const queue = [...paths];
  const found: string[] = [];
  const work = async () => {
    for (let path = queue.shift(); path !== undefined; path = queue.shift())
      found.push(...(await problemsOf(context, path, isExample)));
  };
  await Promise.all([work(), work()]);
  return found;
}

describe.each(looks)('on a $device in $colorScheme', (look) => {
  it('shows each kind of page without accessibility violations', async () => {
    const isLast = look.device === 'phone' && look.colorScheme === 'dark';
    expect(await problemsOfAll(look, isLast ? layouts : examples, true)).toEqual([]);
  });

  it('shows our own pages without accessibility violations', async () => {
    const rest = own.filter((page) => !examples.includes(page));
    const share = rest.filter((_, index) => index % looks.length === looks.indexOf(look));
    expect(share.length).toBeGreaterThan(15);
    expect(await problemsOfAll(look, share, false)).toEqual([]);
  });
});

async function onPage(path: string, act: (page: Page) => Promise<void>): Promise<void> {
  await using context = await browser.newContext();
  const page = await context.newPage();
  await page.goto(root + path, { waitUntil: 'networkidle' });
  await act(page);
}

it('finds an error code with the search', () =>
  onPage('index.html', async (page) => {
    await page.keyboard.press('Control+k');
    // The box is loaded when it is opened: keys before that are lost.
    await page.locator('input.search-input').fill('api-conflict');
    await page.locator('a.result').first().click();
    await page.waitForURL('**/errors.html#api-conflict');
    expect(await page.locator('#api-conflict').textContent()).toContain('api-conflict');
  }));

it('links each alert to its remedy, under the path in the alert rule', async () => {
  const { groups } = loadYaml<{ groups: { rules: { alert: string; annotations: { runbook_url: string } }[] }[] }>(
    readPage('deploy/helm/netdra/alerts.yaml'),
  );
  const rules = groups.flatMap((group) => group.rules);
  expect(rules.length).toBeGreaterThan(10);
  const headingOf = ({ alert }: (typeof rules)[number]) => `#${alert.toLowerCase()}`;
  const path = 'docs/troubleshooting.md';
  expect(rules.map(({ annotations }) => annotations.runbook_url)).toEqual(rules.map((rule) => path + headingOf(rule)));
  // They differ in the heading only, which the page that forwards passes on.
  await onPage(path + headingOf(rules[0]!), async (page) => {
    await page.waitForURL(`**/troubleshooting.html${headingOf(rules[0]!)}`);
    for (const rule of rules) expect(await page.locator(headingOf(rule)).textContent()).toContain(rule.alert);
  });
});

it('opens another version from the version menu', () =>
  onPage('index.html', async (page) => {
    await page.route('**/versions.json', (route) => route.fulfill({ json: ['main', '0.1.0'] }));
    await page.reload({ waitUntil: 'networkidle' });
    const menu = page.locator('.VPNavBar .versions');
    expect(await menu.inputValue()).toBe('main');
    const asked = page.waitForRequest('**/docs/0.1.0/');
    await menu.selectOption('0.1.0');
    await asked;
  }));

it('redirects the start page to the newest release', () => {
  using dir = tempDir();
  const start = () => /url=([^"]*)"/.exec(readFileSync(join(dir.path, 'index.html'), 'utf8'))?.[1];
  const add = (version: string) => {
    mkdirSync(join(dir.path, version));
    writeFileSync(join(dir.path, version, 'index.html'), '');
    writeVersions(dir.path);
  };
  add('main');
  expect(start()).toBe('main/index.html');
  for (const version of ['0.9.0', '0.10.0', '0.1.0']) add(version);
  expect(start()).toBe('0.10.0/index.html');
  const list: unknown = JSON.parse(readFileSync(join(dir.path, 'versions.json'), 'utf8'));
  expect(list).toEqual(['main', '0.10.0', '0.9.0', '0.1.0']);
});
