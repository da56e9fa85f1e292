import { writeFileSync } from 'node:fs';
import type { RequestOptions } from 'node:https';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { hasServiceAccount, ServiceAccount } from '../../../../src/framework/kube/service-account.ts';
import { ManualClock } from '../../../doubles/manual-clock.ts';
import { tempDir } from '../../../doubles/temp-dir.ts';

const env = { KUBERNETES_SERVICE_HOST: '10.96.0.1', KUBERNETES_SERVICE_PORT: '6443' };

/** What the kubelet mounts. */
function mount(files: Record<string, string>): string {
  const dir = tempDir();
  onTestFinished(() => dir[Symbol.dispose]());
  for (const [name, text] of Object.entries(files)) writeFileSync(join(dir.path, name), text);
  return dir.path;
}

async function optionsOf(account: ServiceAccount): Promise<RequestOptions> {
  const options: RequestOptions = {};
  await account.applyToHTTPSOptions(options);
  return options;
}

describe('ServiceAccount', () => {
  it.each([
    ['10.96.0.1', 'https://10.96.0.1:6443'],
    ['fd00::1', 'https://[fd00::1]:6443'],
    ['kubernetes.default.svc', 'https://kubernetes.default.svc:6443'],
  ])('connects to the server at %s by TLS', (host, server) => {
    const account = new ServiceAccount({ env: { ...env, KUBERNETES_SERVICE_HOST: host } });
    expect(account.getCurrentCluster()).toEqual({ server });
  });

  it('reloads a token that the kubelet renewed', async () => {
    const dir = mount({ token: 'first\n', 'ca.crt': 'PEM' });
    const clock = new ManualClock();
    const account = new ServiceAccount({ env, dir, clock });
    expect(await optionsOf(account)).toEqual({ ca: 'PEM', headers: { authorization: 'Bearer first' } });
    writeFileSync(join(dir, 'token'), 'second');
    clock.advance(10_000);
    expect(await optionsOf(account)).toMatchObject({ headers: { authorization: 'Bearer second' } });
  });

  it('fails each request while its files are unreadable, and recovers', async () => {
    const dir = mount({ token: 'a' });
    const account = new ServiceAccount({ env, dir, clock: new ManualClock() });
    await expect(optionsOf(account)).rejects.toThrow('ca.crt');
    writeFileSync(join(dir, 'ca.crt'), 'PEM');
    expect(await optionsOf(account)).toMatchObject({ ca: 'PEM' });
  });
});

it('hasServiceAccount requires both the environment of a pod and the mounted token', () => {
  const dir = mount({ token: 'a' });
  expect(hasServiceAccount({ env, dir })).toBe(true);
  expect(hasServiceAccount({ env: {}, dir })).toBe(false);
  expect(hasServiceAccount({ env, dir: join(dir, 'none') })).toBe(false);
});
