import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { loadAllYaml } from '@kubernetes/client-node';
import { describe, expect, it } from 'vitest';
import { layouts } from '../../../src/framework/metadata/index.ts';
import { readSnippets, repo } from './pages.ts';

const text = readFileSync(join(repo, 'README.md'), 'utf8');
const blockOf = (info: string) => readSnippets('README.md').find((each) => each.info === info)?.content ?? '';

describe('README.md', () => {
  it('has at most 700 words', () => {
    expect(text.trim().split(/\s+/).length).toBeLessThanOrEqual(700);
  });

  it('shows an excerpt of the file that netdra writes for its claim, with the path', () => {
    const golden = readFileSync(join(repo, 'test/golden/v1/kernel.golden'), 'utf8');
    const [newest = ''] = golden.split(/(?<=^})\n(?={)/m);
    const shown = JSON.parse(blockOf('json'));
    expect(JSON.parse(newest)).toMatchObject(shown);

    const [claim] = loadAllYaml(blockOf('yaml')) as [
      { metadata: { name: string }; spec: { devices: { requests: object[]; config: { opaque: object }[] } } },
    ];
    const { metadata, requests } = shown;
    const { interfaceName, ips: addresses } = requests[0].devices[0].networkData;
    expect(claim).toMatchObject({
      metadata: { name: metadata.name },
      spec: {
        devices: {
          requests: [{ name: requests[0].name }],
          config: [{ opaque: { parameters: { interfaceName, addresses } } }],
        },
      },
    });
    const place = {
      claim: { ...metadata, uid: '' },
      request: requests[0].name,
      driver: 'sriov.netdra.dev',
      podUid: '',
    };
    for (const path of layouts.v1.containerPaths(place)) expect(text).toContain(`\`${path}\``);
  });

  it('links to at most four pages for each kind of reader', () => {
    const rows = [...text.matchAll(/^\| [\w ]+ \| (.*\]\(.*) \|$/gm)].map(([, links = '']) => links.match(/\]\(/g));
    expect(rows).toHaveLength(4);
    for (const links of rows) expect(links?.length).toBeLessThanOrEqual(4);
  });
});
