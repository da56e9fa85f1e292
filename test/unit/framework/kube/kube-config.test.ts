import { mkdtempSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { openApiAccess } from '../../../../src/framework/kube/index.ts';
import { loadKubeConfig } from '../../../../src/framework/kube/kube-config.ts';
import { explain } from '../../../../src/lib/errors.ts';
import { tempDir } from '../../../doubles/temp-dir.ts';

function write(text: string): string {
  const dir = tempDir();
  onTestFinished(() => dir[Symbol.dispose]());
  const path = join(mkdtempSync(join(dir.path, 'x')), 'kubeconfig');
  writeFileSync(path, text);
  return path;
}

/** A kubeconfig whose cluster has these fields. */
const withCluster = (cluster: object) =>
  JSON.stringify({
    apiVersion: 'v1',
    kind: 'Config',
    'current-context': 'c',
    clusters: [{ name: 'c', cluster }],
    users: [{ name: 'u', user: { token: 'secret' } }],
    contexts: [{ name: 'c', context: { cluster: 'c', user: 'u' } }],
  });

const failureOf = (path: string | undefined) =>
  openApiAccess(path).then(() => expect.unreachable('it was taken'), explain);

describe('loadKubeConfig', () => {
  it.each([
    { server: 'https://10.0.0.1:6443' },
    { server: 'https://api.example.com/clusters/a' },
    { server: 'http://127.0.0.1:8080', 'insecure-skip-tls-verify': true },
  ])('accepts %j', (cluster) => {
    expect(loadKubeConfig(write(withCluster(cluster))).getCurrentCluster()?.server).toBe(cluster.server);
  });

  it.each([
    ['a file that is not YAML', 'token: [secret\nusers:', /^cannot load kubeconfig \S+: [^\n]*\(\d+:\d+\)$/],
    [
      'an empty kubeconfig',
      '',
      /^cannot load kubeconfig \S+: |^kubeconfig \S+ cannot be used: it has no current cluster$/,
    ],
    ['a kubeconfig without clusters', 'kind: Config', /^kubeconfig \S+ cannot be used: it has no current cluster$/],
    [
      'a current context that the kubeconfig lacks',
      withCluster({ server: 'https://a' }).replace('"current-context":"c"', '"current-context":"gone"'),
      /^kubeconfig \S+ cannot be used: it has no context gone; it has c$/,
    ],
    [
      'a context whose user the kubeconfig lacks',
      withCluster({ server: 'https://a' }).replace('"user":"u"', '"user":"gone"'),
      /^kubeconfig \S+ cannot be used: it has no user gone, whom its context c names$/,
    ],
    ['a cluster without a server', withCluster({}), /cluster.server is missing$/],
    ['an incomplete server URL', withCluster({ server: '10.0.0.1' }), /: server "10.0.0.1" is not a URL$/],
    [
      'a server URL with another protocol',
      withCluster({ server: 'ftp://a' }),
      /: server ftp:\/\/a has to begin with https:\/\/$/,
    ],
    ['an unencrypted connection', withCluster({ server: 'http://a' }), /needs insecure-skip-tls-verify: true$/],
  ])('rejects %s, in one line', async (_, text, message) => {
    const failure = await failureOf(write(text));
    expect(failure).toMatch(message);
    expect(failure).not.toMatch(/\n|secret/);
  });

  it('merges several files like kubectl: the first value wins, and files may be missing', () => {
    const named = (context: string, server: string) =>
      withCluster({ server }).replaceAll('"c"', JSON.stringify(context)).replaceAll('"u"', '"user"');
    const paths = [write(named('lab', 'https://lab')), '/nowhere', write(named('lab', 'https://no'))];
    const joined = [...paths, write(named('site', 'https://site'))].join(':');
    const serverOf = (context?: string) => loadKubeConfig(joined, context).getCurrentCluster()?.server;
    expect([serverOf(), serverOf('site')]).toEqual(['https://lab', 'https://site']);
    expect(() => loadKubeConfig(joined, 'moon')).toThrow(/cannot be used: it has no context moon; it has lab, site$/);
  });

  it.each([undefined, ''])('asks for --kubeconfig or KUBECONFIG outside of a cluster: %j', async (path) => {
    vi.stubEnv('KUBERNETES_SERVICE_HOST', undefined);
    onTestFinished(() => void vi.unstubAllEnvs());
    expect(await failureOf(path)).toBe(
      'no API server is known: this is not a pod with a service account (give --kubeconfig, or KUBECONFIG in the environment)',
    );
  });
});
