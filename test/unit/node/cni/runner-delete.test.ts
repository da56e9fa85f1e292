import { readdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeEach, describe, expect, it } from 'vitest';
import { parseCniIpam } from '../../../../src/node/cni/index.ts';
import {
  attachmentOf,
  cachedCount,
  createRunner,
  dir,
  failureOf,
  first,
  liveNetns,
  logger,
  never,
  plugins,
  runner,
  second,
  until,
  useRunner,
} from './runner-bench.ts';

useRunner();

describe('CNI DEL', () => {
  it('runs the chain in reverse order with the result of ADD, and removes the attachment', async () => {
    plugins.writeResult('sriov', first);
    plugins.writeResult('tuning', second);
    const attachment = attachmentOf(['sriov', 'tuning'], { args: { K8S_POD_NAME: 'app' } });
    await runner.add(attachment, never);
    await runner.delete(attachment, never);
    const [, , ...deletions] = plugins.calls();
    expect(plugins.summary().slice(2)).toEqual(['tuning DEL', 'sriov DEL']);
    for (const { config, env } of deletions) {
      expect(config.prevResult).toEqual(second);
      expect(env).toMatchObject({ CNI_NETNS: liveNetns, CNI_ARGS: 'IgnoreUnknown=1;K8S_POD_NAME=app' });
    }
    expect(readdirSync(join(dir.path, 'cache'))).toEqual([]);
  });

  it('calls the plugins even without a cache entry, and then only logs their errors', async () => {
    plugins.writeResult('sriov', first);
    plugins.writeError('tuning', 'DEL', { code: 100, msg: 'no net1 here' });
    await runner.delete(attachmentOf(['sriov', 'tuning']), never);
    expect(plugins.summary()).toEqual(['tuning DEL', 'sriov DEL']);
    expect(logger.messages('warn')).toEqual(['CNI DEL failed; probably there was nothing to delete']);
  });

  it('treats the error "try again later" of a plugin as a failure', async () => {
    plugins.writeError('sriov', 'DEL', { code: 11, msg: 'busy' });
    expect(await failureOf(runner.delete(attachmentOf(['sriov']), never))).toMatchObject({ pluginCode: 11 });
  });

  it('stops at a failing plugin, and runs the whole chain again the next time', async () => {
    plugins.writeResult('sriov', first);
    plugins.write('tuning', '[ $CNI_COMMAND = ADD ] && echo {} || exit 1');
    const attachment = attachmentOf(['sriov', 'tuning']);
    await runner.add(attachment, never);
    expect(await failureOf(runner.delete(attachment, never))).toMatchObject({ plugin: 'tuning', command: 'DEL' });
    expect(plugins.summary().slice(2)).toEqual(['tuning DEL']);
    plugins.writeResult('tuning', first);
    await createRunner().delete(attachment, never);
    expect(plugins.summary().slice(3)).toEqual(['tuning DEL', 'sriov DEL']);
    expect(await cachedCount()).toBe(0);
  });

  it('is repeated by the next ADD if it failed midway', async () => {
    plugins.write('sriov', '[ $CNI_COMMAND = ADD ] && echo {} || exit 1');
    plugins.writeResult('tuning', first);
    const attachment = attachmentOf(['sriov', 'tuning']);
    await runner.add(attachment, never);
    await failureOf(runner.delete(attachment, never));
    plugins.writeResult('sriov', first);
    await runner.add(attachment, never);
    expect(plugins.summary().slice(4)).toEqual(['tuning DEL', 'sriov DEL', 'sriov ADD', 'tuning ADD']);
  });

  it('succeeds if a plugin does not know the container', async () => {
    plugins.writeError('sriov', 'DEL', { code: 3, msg: 'unknown container' });
    await runner.add(attachmentOf(['sriov']), never);
    await runner.delete(attachmentOf(['sriov']), never);
    expect(await cachedCount()).toBe(0);
  });

  it('kills a hanging plugin, and keeps the attachment', async () => {
    plugins.write('sriov', '[ $CNI_COMMAND = ADD ] && echo {} || sleep 1000');
    await runner.add(attachmentOf(['sriov']), never);
    const error = await failureOf(runner.delete(attachmentOf(['sriov']), until('sriov DEL')));
    expect(error).toMatchObject({ code: 'cni-timeout', plugin: 'sriov', command: 'DEL' });
    expect(await cachedCount()).toBe(1);
  });
});

it.each(['delete', 'add'] as const)(
  'CNI %s deletes possible leftovers of an ADD whose cache entry is unreadable',
  async (what) => {
    plugins.writeResult('sriov', first);
    await runner.add(attachmentOf(['sriov']), never);
    const [file] = readdirSync(join(dir.path, 'cache'));
    writeFileSync(join(dir.path, 'cache', file!), '{');
    await runner[what](attachmentOf(['sriov']), never);
    expect(plugins.summary()).toEqual(['sriov ADD', 'sriov DEL', ...(what === 'add' ? ['sriov ADD'] : [])]);
    expect(readdirSync(join(dir.path, 'cache'))).toHaveLength(what === 'add' ? 1 : 0);
    expect(logger.messages('warn')).toEqual(['cannot read a cached CNI attachment']);
  },
);

describe('CNI DEL without the namespace', () => {
  const withIpam = { type: 'sriov', ipam: { type: 'leases', range: 'a' } };
  let netnsPath: string;
  beforeEach(() => {
    netnsPath = join(dir.path, 'netns');
    plugins.writeResult('sriov', { cniVersion: '1.0.0' });
    plugins.writeResult('leases', {});
  });

  it.each([
    ['the path does not exist', () => rmSync(netnsPath, { force: true })],
    ['the path is a plain file, left by a runtime', () => writeFileSync(netnsPath, '')],
  ])(
    'calls plugins with an empty path, and then releases addresses with the IPAM plugin itself: %s',
    async (_what, leave) => {
      const attachment = attachmentOf([withIpam, 'tuning'], { netnsPath });
      plugins.writeResult('tuning', {});
      await runner.add(attachment, never);
      leave();
      await runner.delete(attachment, never);
      expect(plugins.summary().slice(2)).toEqual(['tuning DEL', 'sriov DEL', 'leases DEL']);
      for (const { env } of plugins.calls().slice(2)) expect(env.CNI_NETNS).toBe('');
      expect(plugins.calls().at(-1)!.config).toMatchObject({ name: 'fast', ipam: { type: 'leases', range: 'a' } });
      expect(await cachedCount()).toBe(0);
    },
  );

  it('accepts an empty namespace path from the caller', async () => {
    await runner.delete(attachmentOf([withIpam], { netnsPath: '' }), never);
    expect(plugins.summary()).toEqual(['sriov DEL', 'leases DEL']);
  });

  it('calls no IPAM plugin directly if the namespace exists', async () => {
    await runner.add(attachmentOf([withIpam]), never);
    await runner.delete(attachmentOf([withIpam]), never);
    expect(plugins.summary()).toEqual(['sriov ADD', 'sriov DEL']);
  });

  it('runs only IPAM plugins for an attachment whose device now belongs to another claim', async () => {
    const attachment = attachmentOf([withIpam, 'tuning'], { netnsPath, deviceId: '0000:3b:02.1' });
    plugins.writeResult('tuning', {});
    await runner.add(attachment, never);
    await runner.releaseCached({ kind: 'chain', attachment }, never);
    expect(plugins.summary().slice(2)).toEqual(['leases DEL']);
    expect(await cachedCount()).toBe(0);
  });

  it('accepts an IPAM type for which no plugin is installed', async () => {
    await runner.add(attachmentOf([{ type: 'sriov', ipam: { type: 'built-in' } }], { netnsPath }), never);
    await runner.delete(attachmentOf([{ type: 'sriov', ipam: { type: 'built-in' } }], { netnsPath }), never);
    expect(await cachedCount()).toBe(0);
  });

  it('calls a plugin again if it failed because the namespace disappeared meanwhile', async () => {
    const netns = join(dir.path, 'link');
    symlinkSync(liveNetns, netns);
    plugins.write(
      'sriov',
      `[ $CNI_COMMAND = ADD ] && echo {} && exit\n[ -z "$CNI_NETNS" ] || { rm ${netns}; exit 1; }`,
    );
    await runner.add(attachmentOf([withIpam], { netnsPath: netns }), never);
    await runner.delete(attachmentOf([withIpam], { netnsPath: netns }), never);
    expect(plugins.calls().map(({ env }) => env.CNI_NETNS)).toEqual([netns, netns, '', '']);
    expect(plugins.summary()).toEqual(['sriov ADD', 'sriov DEL', 'sriov DEL', 'leases DEL']);
  });

  it('ignores a failing plugin after an incomplete ADD, which may have created nothing', async () => {
    plugins.writeError('sriov', 'DEL', { code: 100, msg: 'no net1 here' });
    plugins.writeError('tuning', 'ADD', { code: 100, msg: 'no' });
    const attachment = attachmentOf(['sriov', 'tuning'], { netnsPath });
    await failureOf(runner.add(attachment, never));
    expect(await cachedCount()).toBe(1);
    await runner.delete(attachment, never);
    expect(await cachedCount()).toBe(0);
  });
});

it('attachments in the CNI cache can be deleted by another runner, whether of chains or of IPAM plugins', async () => {
  plugins.writeResult('sriov', first);
  plugins.writeResult('leases', {});
  await runner.add(attachmentOf(['sriov']), never);
  const ipam = parseCniIpam({ type: 'leases' }, 'test', { name: 'fast' });
  await runner.ipamAdd({ ipam, containerId: 'c2', netnsPath: '/run/netns/gone', ifName: 'net1' }, never);
  const other = createRunner();
  const { attachments } = await other.cachedAttachments();
  expect(attachments.map(({ kind }) => kind).sort()).toEqual(['chain', 'ipam']);
  for (const cached of attachments) await other.deleteCached(cached, never);
  expect(plugins.summary().slice(2).sort()).toEqual(['leases DEL', 'sriov DEL']);
  expect(await cachedCount()).toBe(0);
});
