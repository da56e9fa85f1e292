import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
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
  replaceRunner,
  runner,
  second,
  until,
  useRunner,
} from './runner-bench.ts';

useRunner();

const within = (ms: number) => ({ signal: AbortSignal.timeout(ms) });

describe('CNI ADD', () => {
  it('runs the chain in order, passes each result to the next plugin, and returns the last result', async () => {
    plugins.writeResult('sriov', first);
    plugins.writeResult('tuning', second);
    const attachment = attachmentOf(['sriov', { type: 'tuning', mtu: 9000 }], { deviceId: '0000:3b:02.1' });
    expect(await runner.add(attachment, never)).toEqual({
      cniVersion: '1.0.0',
      ips: [{ address: '10.1.2.3/24' }],
      routes: [],
      unused: ['interfaces', 'vendor'],
    });
    const [sriov, tuning] = plugins.calls();
    expect(plugins.summary()).toEqual(['sriov ADD', 'tuning ADD']);
    expect(sriov!.config).toMatchObject({ name: 'fast', cniVersion: '1.0.0', deviceID: '0000:3b:02.1' });
    expect(sriov!.config).not.toHaveProperty('prevResult');
    expect(tuning!.config).toMatchObject({ mtu: 9000, prevResult: first });
    for (const { env } of [sriov!, tuning!]) {
      expect(Object.keys(env).sort()).toEqual([
        'CNI_ARGS',
        'CNI_COMMAND',
        'CNI_CONTAINERID',
        'CNI_IFNAME',
        'CNI_NETNS',
        'CNI_PATH',
        'PATH',
      ]);
      expect(env).toMatchObject({ CNI_CONTAINERID: 'c1', CNI_IFNAME: 'net1', CNI_NETNS: liveNetns });
    }
  });

  it('stores the attachment before the first plugin runs, and the result before it is returned', async () => {
    const cacheDir = join(dir.path, 'cache');
    plugins.write('sriov', `cp ${cacheDir}/*.json ${dir.path}/seen.json; echo '${JSON.stringify(first)}'`);
    const attachment = attachmentOf(['sriov']);
    await runner.add(attachment, never);
    const seen = JSON.parse(readFileSync(join(dir.path, 'seen.json'), 'utf8'));
    expect(seen).toEqual({ version: 1, kind: 'chain', attachment });
    const [file] = readdirSync(cacheDir);
    expect(JSON.parse(readFileSync(join(cacheDir, file!), 'utf8')).result).toEqual(first);
    expect(await createRunner().cachedAttachments()).toEqual({
      attachments: [{ kind: 'chain', attachment }],
      problems: [],
    });
  });

  it('returns the stored result of an earlier ADD without running a plugin', async () => {
    plugins.writeResult('sriov', first);
    const result = await runner.add(attachmentOf(['sriov']), never);
    expect(await createRunner().add(attachmentOf(['sriov']), never)).toEqual(result);
    expect(plugins.summary()).toEqual(['sriov ADD']);
  });

  it('deletes the earlier attachment first if its configuration differs', async () => {
    plugins.writeResult('sriov', first);
    await runner.add(attachmentOf([{ type: 'sriov', vlan: 5 }]), never);
    await runner.add(attachmentOf([{ type: 'sriov', vlan: 6 }]), never);
    expect(plugins.calls().map(({ env, config }) => [env.CNI_COMMAND, config.vlan, config.prevResult])).toEqual([
      ['ADD', 5, undefined],
      ['DEL', 5, first],
      ['ADD', 6, undefined],
    ]);
  });

  it('deletes the leftovers of an ADD that a crash interrupted before it adds again', async () => {
    plugins.write('sriov', `[ $CNI_COMMAND = DEL ] || echo '{}'; cp ${dir.path}/cache/*.json ${dir.path}/kept.json`);
    await runner.add(attachmentOf(['sriov']), never);
    const [file] = readdirSync(join(dir.path, 'cache'));
    writeFileSync(join(dir.path, 'cache', file!), readFileSync(join(dir.path, 'kept.json'))); // as before the result
    expect((await runner.cachedAttachments()).attachments[0]).not.toHaveProperty('result');
    await createRunner().add(attachmentOf(['sriov']), never);
    expect(plugins.summary()).toEqual(['sriov ADD', 'sriov DEL', 'sriov ADD']);
  });

  it('runs the plugins again if the interface of an earlier ADD is lost, even if DEL fails', async () => {
    plugins.write('sriov', `[ $CNI_COMMAND = ADD ] || exit 1; echo '${JSON.stringify(first)}'`);
    const attachment = attachmentOf(['sriov']);
    await runner.deleteLost(attachment, never);
    expect(plugins.summary()).toEqual([]);
    await runner.add(attachment, never);
    await runner.deleteLost(attachment, never);
    expect([await cachedCount(), logger.messages('warn')]).toEqual([
      0,
      ['CNI DEL failed; probably there was nothing to delete'],
    ]);
    await runner.add(attachment, never);
    expect(plugins.summary()).toEqual(['sriov ADD', 'sriov DEL', 'sriov ADD']);
  });

  it.each([
    { cniVersion: '0.3.1', prevResult: undefined },
    { cniVersion: '0.4.0', prevResult: { ...first, cniVersion: '0.4.0' } },
    { cniVersion: '1.0.0', prevResult: first },
  ])('passes the result of ADD to the DEL of a lost interface only since CNI 0.4.0: $cniVersion', async (versions) => {
    const { cniVersion, prevResult } = versions;
    plugins.writeResult('firewall', { ...first, cniVersion });
    const attachment = attachmentOf(['firewall'], { cniVersion });
    await runner.add(attachment, never);
    await runner.deleteLost(attachment, never);
    expect(plugins.summary()).toEqual(['firewall ADD', 'firewall DEL']);
    expect(plugins.calls()[1]!.config.prevResult).toEqual(prevResult);
  });

  it('supports plugins of older CNI versions', async () => {
    const old = { cniVersion: '0.3.1', ips: [{ version: '4', address: '10.1.2.3/24' }] };
    plugins.writeResult('sriov', old);
    plugins.writeResult('tuning', old);
    const attachment = attachmentOf(['sriov', 'tuning'], { cniVersion: '0.3.1' });
    expect((await runner.add(attachment, never)).ips).toEqual([{ address: '10.1.2.3/24' }]);
    expect(plugins.calls()[1]!.config.prevResult).toEqual(old);
    await runner.delete(attachment, never);
    expect(plugins.calls().at(-1)!.config).not.toHaveProperty('prevResult'); // since 0.4.0
  });

  it('rejects an attachment without a namespace', async () => {
    const error = await failureOf(runner.add(attachmentOf(['sriov'], { netnsPath: '' }), never));
    expect(error.code).toBe('cni-attachment-invalid');
  });
});

describe('a failed CNI ADD', () => {
  it("is undone in reverse order, beginning with the failed plugin, and returns that plugin's error", async () => {
    plugins.writeResult('sriov', first);
    plugins.writeError('tuning', 'ADD', { cniVersion: '1.0.0', code: 7, msg: 'bad mtu', details: 'mtu is 9' });
    plugins.writeResult('later', second);
    const error = await failureOf(runner.add(attachmentOf(['sriov', 'tuning', 'later']), never));
    expect(error).toMatchObject({
      code: 'cni-plugin-failed',
      message: 'plugin tuning of CNI network fast failed to ADD net1 of container c1: bad mtu; mtu is 9 (code 7)',
      network: 'fast',
      plugin: 'tuning',
      command: 'ADD',
      pluginCode: 7,
      pluginMessage: 'bad mtu',
      pluginDetails: 'mtu is 9',
      hint: 'correct the network configuration as the message says',
      retriable: false,
    });
    expect(plugins.summary()).toEqual(['sriov ADD', 'tuning ADD', 'tuning DEL', 'sriov DEL']);
    expect(await cachedCount()).toBe(0);
  });

  it('continues undoing after a failure, logs it, and keeps the attachment for later', async () => {
    plugins.writeResult('sriov', first);
    plugins.write('tuning', 'echo "no luck with $CNI_COMMAND" >&2; exit 4');
    const error = await failureOf(runner.add(attachmentOf(['sriov', 'tuning']), never));
    expect(error.message).toMatch(/failed to ADD .*: it ended with exit code 4: no luck with ADD$/);
    expect(error.stderr).toBe('no luck with ADD\n');
    expect(plugins.summary()).toEqual(['sriov ADD', 'tuning ADD', 'tuning DEL', 'sriov DEL']);
    expect(logger.messages('warn')).toEqual(['cannot undo a failed CNI ADD completely']);
    expect(await cachedCount()).toBe(1);
  });

  it('runs nothing if a plugin of the chain is not installed', async () => {
    plugins.writeResult('sriov', first);
    const error = await failureOf(runner.add(attachmentOf(['sriov', 'tuning']), never));
    expect(error).toMatchObject({ code: 'cni-plugin-missing', plugin: 'tuning' });
    expect(error.hint).toBe(`install it into ${join(dir.path, 'none')} or ${plugins.binDir}`);
    expect(plugins.summary()).toEqual([]);
    expect(await cachedCount()).toBe(0);
  });

  it('reports a plugin that cannot be started', async () => {
    plugins.writeResult('sriov', first);
    writeFileSync(join(plugins.binDir, 'sriov'), '#!/no/such/interpreter\n');
    const error = await failureOf(runner.add(attachmentOf(['sriov']), never));
    expect(error).toMatchObject({ code: 'cni-plugin-missing', cause: { code: 'ENOENT' } });
    expect(error.message).toContain(`${plugins.binDir}/sriov cannot be started`);
  });

  it.each([
    ['prints an error but exits with 0', `echo '{"code":11,"msg":"busy"}'`, /: busy \(code 11\)$/],
    ['fails without output', 'exit 2', /: it ended with exit code 2 and printed nothing$/],
    ['prints no JSON', 'echo hello', /gave no valid result: it printed something that is not JSON$/],
    ['prints nothing', 'true', /gave no valid result: it printed nothing$/],
    ['is killed by a signal', 'kill -KILL $$', /: it was ended by SIGKILL and printed nothing$/],
    ['never stops printing', 'yes', /: it printed more than 1048576 bytes and was killed$/],
    ['answers with CNI version 0.2', `echo '{"cniVersion":"0.2.0","ip4":{}}'`, /cniVersion: "0.2.0" is too old/],
  ])('is reported if a plugin %s', async (_what, body, message) => {
    plugins.write('sriov', `[ $CNI_COMMAND = DEL ] && exit 0\n${body}`);
    const error = await failureOf(runner.add(attachmentOf(['sriov']), never));
    expect(error.message).toMatch(message);
    expect(plugins.summary()).toEqual(['sriov ADD', 'sriov DEL']);
    expect(await cachedCount()).toBe(0);
  });

  it.each([
    [1, /cniVersion/, false],
    [11, /later/, true],
    [50, /daemon/, true],
    [100, undefined, false],
  ])('has a hint for code %d if the specification defines it', async (code, hint, retriable) => {
    plugins.writeError('sriov', 'ADD', { code, msg: 'no' });
    const error = await failureOf(runner.add(attachmentOf(['sriov']), never));
    if (hint === undefined) expect(error.hint).toBeUndefined();
    else expect(error.hint).toMatch(hint);
    expect(error).toMatchObject({ pluginCode: code, retriable });
  });
});

describe('CNI ADD with a hanging plugin', () => {
  const hang = '[ $CNI_COMMAND = DEL ] && exit 0\nsleep 1000';

  it('fails, and is undone, when the signal aborts', async () => {
    plugins.writeResult('sriov', first);
    plugins.write('tuning', hang);
    const error = await failureOf(runner.add(attachmentOf(['sriov', 'tuning']), until('tuning ADD')));
    expect(error).toMatchObject({
      code: 'cni-timeout',
      plugin: 'tuning',
      command: 'ADD',
      network: 'fast',
      retriable: true,
    });
    expect(error.message).toMatch(
      /^plugin tuning of CNI network fast failed to ADD net1 of container c1: it had not ended after \d+ ms and was killed$/,
    );
    expect(error).toMatchObject({ cause: { name: 'TimeoutError' }, stderr: '' });
    await runner[Symbol.asyncDispose]();
    expect(plugins.summary()).toEqual(['sriov ADD', 'tuning ADD', 'tuning DEL', 'sriov DEL']);
    expect(await cachedCount()).toBe(0);
  });

  it('returns after an abort once ADD is undone, and makes later operations wait until then', async () => {
    const isUndone = join(dir.path, 'is-undone');
    const undo = `until [ -e ${isUndone} ]; do sleep 0.05; done`;
    plugins.write('sriov', `[ $CNI_COMMAND = DEL ] || sleep 1000\n${undo}`);
    let hasReturned = false;
    const failing = failureOf(runner.add(attachmentOf(['sriov']), until('sriov ADD'))).finally(() => {
      hasReturned = true;
    });
    await expect.poll(() => plugins.summary()).toEqual(['sriov ADD', 'sriov DEL']);
    const late = await failureOf(runner.add(attachmentOf(['sriov']), within(100)));
    expect(late).toMatchObject({ code: 'cni-timeout', retriable: true });
    expect(late.message).toBe('the deadline passed before work on net1 of container c1 could start');
    expect(hasReturned).toBe(false);
    plugins.writeResult('sriov', first);
    writeFileSync(isUndone, '');
    await failing;
    await runner.add(attachmentOf(['sriov']), never);
    expect(plugins.summary()).toEqual(['sriov ADD', 'sriov DEL', 'sriov ADD']);
  });

  it('gives up undoing after a limited time, and starts no plugin afterwards', async () => {
    await replaceRunner({ undoTimeoutMs: 1000 });
    plugins.writeResult('sriov', first);
    plugins.write('tuning', 'sleep 1000');
    await failureOf(runner.add(attachmentOf(['sriov', 'tuning']), until('tuning ADD')));
    await runner[Symbol.asyncDispose]();
    expect(plugins.summary()).toEqual(['sriov ADD', 'tuning ADD', 'tuning DEL']);
    expect(logger.lines.filter(({ level }) => level === 'warn').map(({ fields }) => String(fields.err))).toEqual([
      expect.stringMatching(/plugin tuning .* failed to DEL .*: it had not ended after \d+ ms and was killed$/),
      expect.stringMatching(/plugin sriov .* failed to DEL .*: no time was left to call it$/),
    ]);
    expect(await cachedCount()).toBe(1);
  });

  it('starts no plugin if the signal is already aborted', async () => {
    plugins.writeResult('sriov', first);
    await failureOf(runner.add(attachmentOf(['sriov']), { signal: AbortSignal.abort() }));
    expect(plugins.summary()).toEqual([]);
  });
});

describe('concurrent CNI operations', () => {
  it('wait for each other only on the same interface of a container', async () => {
    const log = join(dir.path, 'log');
    plugins.write(
      'sriov',
      // Goes on only when the other interface is being worked on as well.
      `echo "+$CNI_IFNAME" >>${log}; until grep -q +net1 ${log} && grep -q +net2 ${log}; do sleep 0.05; done
       sleep 0.3; echo "-$CNI_IFNAME" >>${log}; [ $CNI_COMMAND = DEL ] || echo {}`,
    );
    const net1 = attachmentOf(['sriov']);
    const net2 = attachmentOf(['sriov'], { ifName: 'net2' });
    await Promise.all([runner.add(net1, never), runner.delete(net1, never), runner.add(net2, never)]);
    const lines = readFileSync(log, 'utf8').trim().split('\n');
    expect(lines.filter((line) => line.endsWith('1'))).toEqual(['+net1', '-net1', '+net1', '-net1']);
    expect(lines.slice(0, 2).sort()).toEqual(['+net1', '+net2']);
    expect((await runner.cachedAttachments()).attachments.map(({ attachment }) => attachment.ifName)).toEqual(['net2']);
  });

  it("fail if the caller's deadline passes before they start", async () => {
    const stop = join(dir.path, 'stop');
    plugins.write('sriov', `while [ ! -e ${stop} ]; do sleep 0.05; done; echo {}`);
    const running = runner.add(attachmentOf(['sriov']), never);
    await sleep(50);
    expect((await failureOf(runner.delete(attachmentOf(['sriov']), within(100)))).code).toBe('cni-timeout');
    expect(existsSync(stop)).toBe(false);
    writeFileSync(stop, '');
    await running;
    expect(plugins.summary()).toEqual(['sriov ADD']);
  });

  it('run at most 16 ADD calls of one plugin at once, but limit neither other plugins nor DEL', async () => {
    const [log, stop] = [join(dir.path, 'log'), join(dir.path, 'stop')];
    // Ends by itself, also if the test fails before it says so.
    const wait = `for n in $(seq 400); do [ -e ${stop} ] && break; sleep 0.05; done`;
    const body = `[ $CNI_COMMAND = DEL ] || { echo x >>${log}; ${wait}; echo {}; }`;
    plugins.write('slow', body);
    plugins.writeResult('quick', first);
    const container = (index: number) => ({ containerId: `c${index}` });
    const adds = Array.from({ length: 20 }, (_, index) => runner.add(attachmentOf(['slow'], container(index)), never));
    const begun = () => (existsSync(log) ? readFileSync(log, 'utf8').trim().split('\n').length : 0);
    await expect.poll(begun, { timeout: 10_000 }).toBe(16);
    await runner.add(attachmentOf(['quick'], container(20)), never);
    await runner.delete(attachmentOf(['slow'], container(21)), never);
    const late = await failureOf(runner.add(attachmentOf(['slow'], container(22)), within(100)));
    expect(late).toMatchObject({
      code: 'cni-timeout',
      message: expect.stringContaining('no time was left to call it'),
    });
    expect(begun()).toBe(16);
    writeFileSync(stop, '');
    await Promise.all(adds);
    expect(begun()).toBe(20);
  });
});
