import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { loadYaml } from '@kubernetes/client-node';
import { describe, expect, it } from 'vitest';
import { dialectsSchema } from '../../../../src/driver/api/dialects-config.ts';
import { deviceInfoDir, viewInDialects } from '../../../../src/driver/dialects/index.ts';

const docs = fileURLToPath(new URL('../../../../docs', import.meta.url));
const page = readFileSync(join(docs, 'dialects.md'), 'utf8');

describe('docs/dialects.md', () => {
  const [, text = ''] = /^```yaml\n([\s\S]*?)^```$/m.exec(page) ?? [];
  const config = dialectsSchema.parse(loadYaml<{ dialects: object }>(text).dialects);
  const vfs = [1, 2].map((index) => ({
    name: `0000-3b-02-${index}`,
    pciAddress: `0000:3b:02.${index}`,
    access: { vfio: { device: '/dev/vfio/42' }, nodes: ['/dev/vfio/vfio', '/dev/vfio/42'] },
  }));

  it('describes every field, and no other', () => {
    const fields = Object.entries(dialectsSchema.shape).flatMap(([name, part]) =>
      Object.keys(part.unwrap().shape).map((field) => `${name}.${field}`),
    );
    const rows = [...page.matchAll(/^\| `(\w+\.\w+)` \| .+ \| .+ \|$/gm)].map(([, name]) => name);
    expect(rows).toEqual(fields);
  });

  it('names the variables and files of its example class', () => {
    const { env, deviceInfoFiles } = viewInDialects(config, vfs);
    for (const name of ['PCIDEVICE_INTEL_COM_SRIOV_DPDK', 'SRIOVNETWORK_VF_DEVICE_0000_3b_02_1'])
      expect(page).toContain(`\`${name}=${env[name]}\``);
    expect(page).toContain(`\`SRIOVNETWORK_0000_3b_02_1_VFIO_DEVICE=${env.SRIOVNETWORK_0000_3b_02_1_VFIO_DEVICE}\``);
    for (const name of ['PCIDEVICE_INTEL_COM_SRIOV_DPDK_INFO', 'SRIOVNETWORK_NET_ATTACH_DEF_NAME']) {
      expect(env).toHaveProperty(name);
      expect(page).toContain(`\`${name}`);
    }
    expect(page).toContain(`\`${deviceInfoDir}/${deviceInfoFiles[0]?.name}\``);
  });
});
