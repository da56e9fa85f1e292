import { spawnSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { loadYaml } from '@kubernetes/client-node';
import { describe, expect, it } from 'vitest';
import { repository } from '../../e2e/kind/settings.ts';
import { locateTools } from '../../e2e/node/tools.ts';
import { tempDir } from '../doubles/temp-dir.ts';

const read = (path: string) => readFileSync(join(repository, path), 'utf8');

const kindConfig = loadYaml<{ containerdConfigPatches: string[] }>(read('e2e/kind/kind.yaml'));

describe('e2e/kind/kind.yaml', () => {
  /** Sections that a node's configuration may begin with; a patch adds to them. */
  const bases = {
    2: 'version = 2\n[plugins."io.containerd.grpc.v1.cri".containerd]\n  default_runtime_name = "runc"\n',
    3: "version = 3\n[plugins.'io.containerd.cri.v1.runtime'.containerd]\n  default_runtime_name = 'runc'\n",
  };
  it.each([2, 3] as const)('enables NRI and CDI in containerd 2 with configuration version %i', (version) => {
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
