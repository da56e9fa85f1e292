import { join } from 'node:path';
import { listNames, readText } from '../files.ts';
import { type Finding, ok, warning } from '../finding.ts';

/** Only DPDK programs need them. */
export async function checkHugepages(sysDir: string): Promise<Finding[]> {
  const check = 'hugepages';
  const dir = join(sysDir, 'kernel/mm/hugepages');
  const sizes = await listNames(dir);
  const pools = await Promise.all(
    sizes.map(async (name) => ({
      sizeKb: Number(/(\d+)kB$/.exec(name)?.[1]),
      total: Number(await readText(join(dir, name, 'nr_hugepages'))),
      free: Number(await readText(join(dir, name, 'free_hugepages'))),
    })),
  );
  const used = pools.filter(({ total }) => total > 0);
  if (used.length === 0) {
    const fix = 'boot with default_hugepagesz=1G hugepagesz=1G hugepages=8, for example, and restart the kubelet';
    return [warning(check, 'none: pods of DPDK programs that ask for them are not scheduled here', fix)];
  }
  const message = used.map(({ sizeKb, total, free }) => `${total} of ${formatSize(sizeKb)} (${free} free)`).join(', ');
  return [ok(check, message)];
}

function formatSize(kilobytes: number): string {
  if (kilobytes >= 1 << 20) return `${kilobytes / (1 << 20)} GiB`;
  return kilobytes >= 1024 ? `${kilobytes / 1024} MiB` : `${kilobytes} KiB`;
}
