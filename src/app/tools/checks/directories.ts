import { dirname } from 'node:path';
import { writeRefusal } from '../files.ts';
import { type Finding, ok, problem } from '../finding.ts';

export interface DirectoriesCheck {
  /** The driver's own directory below the kubelet's `plugins`. */
  dataDir: string;
  kubeletRegistryDir: string;
  cdiDir: string;
  /** The same as `dataDir` unless the operator chooses another. */
  stateDir: string;
}

const noKubelet = 'is the kubelet running here, with this root directory?';

/** The directories that the driver writes to. */
export async function checkDirectories(dirs: DirectoriesCheck): Promise<Finding[]> {
  const { dataDir, kubeletRegistryDir, cdiDir, stateDir } = dirs;
  const checks = [
    checkOwnDir('plugin directory', dataDir, 1, `${noKubelet} see --kubelet-plugins-dir`),
    checkDir('kubelet registry', kubeletRegistryDir, `${noKubelet} see --kubelet-registry-dir`),
    checkDir('CDI directory', cdiDir, `mkdir -p ${cdiDir}`),
  ];
  if (stateDir !== dataDir) checks.push(checkOwnDir('state directory', stateDir, Infinity, 'see --state-dir'));
  return await Promise.all(checks);
}

async function checkDir(check: string, path: string, fixMissing: string): Promise<Finding> {
  const code = await writeRefusal(path);
  if (code === undefined) return ok(check, `${path} can be written`);
  if (code === 'ENOENT') return problem(check, `${path} is not there`, fixMissing);
  return problem(check, `${path} cannot be written (${code})`, fixRefusal(code));
}

/**
 * A directory that the driver creates when it starts for the first time.
 * @param levels how many directories may be missing: those above belong to others
 */
async function checkOwnDir(check: string, path: string, levels: number, fixMissing: string): Promise<Finding> {
  for (let [level, parent] = [0, path]; level <= levels; level++, parent = dirname(parent)) {
    const code = await writeRefusal(parent);
    if (code === undefined) return ok(check, `${path} ${level === 0 ? 'can be written' : 'will be made'}`);
    if (code === 'ENOENT' && parent !== '/') continue;
    const verb = level === 0 ? 'written' : `made in ${parent}`;
    return problem(check, `${path} cannot be ${verb} (${code})`, fixRefusal(code));
  }
  return problem(check, `${dirname(path)} is not there`, fixMissing);
}

function fixRefusal(code: string): string {
  return code === 'EROFS' ? 'mount it writable' : 'run this as root, and mount it writable';
}
