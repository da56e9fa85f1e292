import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import {
  listCgroupFolders,
  listFolder,
  listMountPoints,
  listProcesses,
  parseProcCgroup,
} from '../../../e2e/node/host-state.ts';
import { parseSandboxInfo } from '../../../e2e/node/pod.ts';

let dir: string;
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'host-'));
});
afterEach(() => rmSync(dir, { recursive: true }));

describe('listProcesses', () => {
  const writeProcess = (pid: number, name: string, state: string, cmdline: string) => {
    mkdirSync(join(dir, String(pid)));
    writeFileSync(join(dir, String(pid), 'stat'), `${pid} (${name}) ${state} 1 1 1`);
    writeFileSync(join(dir, String(pid), 'cmdline'), cmdline);
    writeFileSync(join(dir, String(pid), 'cgroup'), '4:memory:/a/b\n0::/c:d\n');
  };

  it('gives arguments and cgroups', () => {
    writeProcess(7, 'shim', 'S', 'shim\0-id\0\0x y\0');
    mkdirSync(join(dir, 'self'));
    expect(listProcesses(dir)).toEqual([{ pid: 7, args: ['shim', '-id', '', 'x y'], cgroups: ['/a/b', '/c:d'] }]);
  });

  it('leaves out zombies, whatever their name looks like, and processes that just went', () => {
    writeProcess(8, 'odd) S (', 'Z', '');
    writeProcess(9, 'odd) Z (', 'R', 'odd\0');
    mkdirSync(join(dir, '10'));
    expect(listProcesses(dir).map(({ pid }) => pid)).toEqual([9]);
  });

  it('finds this very process', () => {
    expect(listProcesses().find(({ pid }) => pid === process.pid)?.args[0]).toBeDefined();
  });
});

describe('parseProcCgroup', () => {
  it('keeps colons of the path', () => expect(parseProcCgroup('1:name=systemd:/a:b\n')).toEqual(['/a:b']));
});

describe('listMountPoints', () => {
  it('gives them in order, with blanks as blanks', () => {
    const text = '1 0 0:1 / / rw - ext4 /dev/a rw\n2 1 0:2 / /with\\040blank\\134 rw shared:1 - tmpfs none rw\n';
    expect(listMountPoints(text)).toEqual(['/', '/with blank\\']);
  });
  it('knows the mounts of this machine', () => expect(listMountPoints()).toContain('/proc'));
});

describe('listCgroupFolders', () => {
  it('finds a cgroup in every hierarchy once, deepest first', () => {
    for (const path of ['memory/top/pod/box', 'cpu,cpuacct/top', 'memory/other']) {
      mkdirSync(join(dir, path), { recursive: true });
    }
    symlinkSync('cpu,cpuacct', join(dir, 'cpu'));
    expect(listCgroupFolders('/top', dir)).toEqual(
      ['cpu,cpuacct/top', 'memory/top/pod/box', 'memory/top/pod', 'memory/top'].map((path) => join(dir, path)),
    );
    expect(listCgroupFolders('/nowhere', dir)).toEqual([]);
  });

  it('finds one in a single hierarchy', () => {
    mkdirSync(join(dir, 'top', 'pod'), { recursive: true });
    writeFileSync(join(dir, 'cgroup.procs'), '');
    expect(listCgroupFolders('/top', dir)).toEqual([join(dir, 'top', 'pod'), join(dir, 'top')]);
  });
});

describe('listFolder', () => {
  it('has nothing for what is not there or no folder', () => {
    writeFileSync(join(dir, 'file'), '');
    expect(listFolder(join(dir, 'file'))).toEqual([]);
    expect(listFolder(join(dir, 'none'))).toEqual([]);
    expect(listFolder(dir)).toEqual(['file']);
  });
});

describe('parseSandboxInfo', () => {
  const info = (namespaces: object[]) => JSON.stringify({ pid: 12, runtimeSpec: { linux: { namespaces } } });

  it('gives pid and network namespace', () => {
    const namespaces = [{ type: 'pid' }, { type: 'network', path: '/var/run/netns/cni-1' }];
    expect(parseSandboxInfo(info(namespaces))).toEqual({ pid: 12, netnsPath: '/var/run/netns/cni-1' });
  });
  it('gives no network namespace where the pod has none of its own', () => {
    expect(parseSandboxInfo(info([{ type: 'pid' }]))).toEqual({ pid: 12, netnsPath: undefined });
  });
});
