import { spawnSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { loadYaml } from '@kubernetes/client-node';
import { describe, expect, it } from 'vitest';
import {
  createCluster,
  deleteCluster,
  exportLogs,
  imagesArchive,
  listClusters,
  loadImages,
  type ProgramCall,
  writeKubeconfig,
} from '../../e2e/kind/commands.ts';
import { locateKind } from '../../e2e/kind/debian-kind.ts';
import { type KindSettings, parseSettings, repository } from '../../e2e/kind/settings.ts';
import { locateTools } from '../../e2e/node/tools.ts';
import { cacheFolder } from '../../scripts/packages/cache-folder.ts';
import { tempDir } from '../doubles/temp-dir.ts';

const read = (path: string) => readFileSync(join(repository, path), 'utf8');

const kindConfig = loadYaml<{ containerdConfigPatches: string[] }>(read('e2e/kind/kind.yaml'));

describe('the real kind', () => {
  const engineRefuses = '#!/bin/sh\nexit 1\n';

  /** What it says when no container engine works: with flags or a configuration that it does not take, it comes not so far. */
  function kindSays({ args, env = {} }: ProgramCall, engine: string): string {
    using dir = tempDir();
    writeFileSync(join(dir.path, engine), engineRefuses, { mode: 0o755 });
    const more = { ...env, PATH: dir.path, HOME: dir.path };
    const { stderr } = spawnSync(locateKind(cacheFolder(process.env)), args, { encoding: 'utf8', env: more });
    return stderr;
  }
  const reachesEngine = (engine: string) => new RegExp(`command "${engine} .* failed with error: exit status 1`);
  const settings = (engine: string) =>
    parseSettings(['--engine', engine], { NETDRA_CACHE: '/nowhere' }) as KindSettings;

  const calls = { listClusters, createCluster, deleteCluster, writeKubeconfig, exportLogs };
  it.each(Object.entries(calls))('takes what %s gives it, and asks docker', (_, call) => {
    expect(kindSays(call(settings('docker')), 'docker')).toMatch(reachesEngine('docker'));
  });

  it('takes the archive that the images are in', () => {
    using dir = tempDir();
    const mine = { ...settings('docker'), workDir: dir.path };
    writeFileSync(imagesArchive(mine), '');
    expect(kindSays(loadImages(mine)[1]!, 'docker')).toMatch(reachesEngine('docker'));
  });
});

describe('e2e/kind/kind.yaml', () => {
  /** Sections that a node's configuration may begin with; a patch adds to them. */
  const bases = {
    2: 'version = 2\n[plugins."io.containerd.grpc.v1.cri".containerd]\n  default_runtime_name = "runc"\n',
    3: "version = 3\n[plugins.'io.containerd.cri.v1.runtime'.containerd]\n  default_runtime_name = 'runc'\n",
  };
  it.each([2, 3] as const)('switches NRI and CDI on in containerd 2 with a configuration of version %i', (version) => {
    using dir = tempDir();
    const dump = (patches: string[]) => {
      const path = join(dir.path, 'config.toml');
      writeFileSync(path, [bases[version], ...patches].join('\n'));
      const containerd = join(locateTools(process.env).containerdDirs['2.1'], 'containerd');
      const { stdout, stderr, status } = spawnSync(containerd, ['--config', path, 'config', 'dump'], {
        encoding: 'utf8',
      });
      expect(status, stderr).toBe(0);
      const section = (name: string) =>
        new RegExp(`^ *\\[plugins\\.'${name.replaceAll('.', '\\.')}'\\]\\n((?: +\\w.*\\n)*)`, 'm').exec(stdout)?.[1] ??
        '';
      const cdi = /enable_cdi = (\w+)/.exec(section('io.containerd.cri.v1.runtime'))?.[1];
      const nri = /disable = (\w+)/.exec(section('io.containerd.nri.v1.nri'))?.[1];
      return { cdi, nri };
    };
    expect(dump(kindConfig.containerdConfigPatches)).toEqual({ cdi: 'true', nri: 'false' });
    // This reads the sections that count: with the opposite, it sees the opposite.
    const off = kindConfig.containerdConfigPatches.map((patch) =>
      patch.replace('disable = false', 'disable = true').replace('enable_cdi = true', 'enable_cdi = false'),
    );
    expect(dump(off)).toMatchObject({ nri: 'true', ...(version === 2 ? { cdi: 'false' } : {}) });
  });
});
