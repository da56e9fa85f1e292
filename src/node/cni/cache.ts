import { createHash, randomUUID } from 'node:crypto';
import { mkdir, open, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import * as z from 'zod';
import { defined } from '../../lib/defined.ts';
import { errnoCode, fileHint } from '../../lib/errors.ts';
import { type CniTask, chainTask } from './attachment.ts';
import { CniError } from './errors.ts';
import { describeIssues, parseCniNetwork } from './network.ts';
import type { RawCniResult } from './result.ts';
import { isCniVersion } from './versions.ts';

/** Stored attachment. Without a result, its ADD was begun but perhaps not completed. */
export interface CacheEntry extends CniTask {
  result?: RawCniResult;
  /** Whether the DEL was begun: the interface and addresses of the result may no longer exist. */
  deleting?: boolean;
}

const formatVersion = 1;
const fileMode = 0o600;
const dirMode = 0o700;

const fileSchema = z.object({
  version: z.literal(formatVersion),
  kind: z.enum(['chain', 'ipam']),
  attachment: z.object({
    network: z.unknown(),
    containerId: z.string(),
    netnsPath: z.string(),
    ifName: z.string(),
    args: z.record(z.string(), z.string()).optional(),
    deviceId: z.string().optional(),
    capabilities: z.record(z.string(), z.unknown()).optional(),
  }),
  result: z.looseObject({ cniVersion: z.string().refine(isCniVersion) }).optional(),
  deleting: z.boolean().optional(),
});

/**
 * Attachments that still need a DEL, one file each. Entries survive a power loss. File names are hashes, since network and
 * interface names come from users; the content identifies the entry. Methods throw CniError `cni-cache-unusable`.
 */
export class CniCache {
  readonly #dir: string;

  /** @param dir directory of the files; the first write creates it */
  constructor(dir: string) {
    this.#dir = dir;
  }

  /** Returns the entry with the task's network, container and interface; `undefined` if there is none. */
  async read(task: CniTask): Promise<CacheEntry | undefined> {
    return await this.#readFile(fileName(task));
  }

  /** Adds or replaces an entry. */
  async write(entry: CacheEntry): Promise<void> {
    const name = fileName(entry);
    const path = join(this.#dir, name);
    const temporary = join(this.#dir, `${name}.${randomUUID()}.tmp`);
    try {
      await mkdir(this.#dir, { recursive: true, mode: dirMode });
      const text = JSON.stringify({ version: formatVersion, ...entry });
      await writeFile(temporary, text, { flag: 'wx', mode: fileMode, flush: true });
      await rename(temporary, path);
      await this.#syncDir();
    } catch (cause) {
      await rm(temporary, { force: true }).catch(() => undefined);
      throw unusable('write', path, cause);
    }
  }

  /** Removes an entry, and the temporary file of an interrupted write. */
  async remove(task: CniTask): Promise<void> {
    const name = fileName(task);
    try {
      const files = (await this.#files()).filter((file) => file.startsWith(name));
      for (const file of files) await rm(join(this.#dir, file), { force: true });
      if (files.length > 0) await this.#syncDir();
    } catch (cause) {
      throw unusable('remove', join(this.#dir, name), cause);
    }
  }

  /** Returns all entries, and the errors of invalid files. */
  async list(): Promise<{ entries: CacheEntry[]; problems: CniError[] }> {
    const entries: CacheEntry[] = [];
    const problems: CniError[] = [];
    for (const file of (await this.#files()).filter((name) => name.endsWith('.json')).sort()) {
      try {
        const entry = await this.#readFile(file);
        if (entry !== undefined) entries.push(entry);
      } catch (error) {
        if (!(error instanceof CniError)) throw error;
        problems.push(error);
      }
    }
    return { entries, problems };
  }

  async #files(): Promise<string[]> {
    try {
      return await readdir(this.#dir);
    } catch (cause) {
      if (errnoCode(cause) === 'ENOENT') return [];
      throw unusable('list', this.#dir, cause);
    }
  }

  async #readFile(name: string): Promise<CacheEntry | undefined> {
    const path = join(this.#dir, name);
    try {
      const entry = parseEntry(await readFile(path, 'utf8'), path);
      if (fileName(entry) !== name) throw new Error('its content belongs to a file of another name');
      return entry;
    } catch (cause) {
      if (errnoCode(cause) === 'ENOENT') return undefined;
      throw unusable('read', path, cause);
    }
  }

  async #syncDir(): Promise<void> {
    await using dir = await open(this.#dir, 'r');
    await dir.sync();
  }
}

function fileName({ kind, attachment: { network, containerId, ifName } }: CniTask): string {
  const identity = JSON.stringify([kind, network.name, containerId, ifName]);
  return `${createHash('sha256').update(identity).digest('hex')}.json`;
}

/** Parses an entry. It is checked as strictly as user input, since it names programs that run as root. */
function parseEntry(text: string, path: string): CacheEntry {
  const parsed = fileSchema.safeParse(JSON.parse(text));
  if (!parsed.success) throw new Error(describeIssues(parsed.error));
  const { kind, attachment, result, deleting } = parsed.data;
  const network = parseCniNetwork(attachment.network, `cache file ${path}`);
  const task: CniTask = { ...chainTask({ ...attachment, network } as CniTask['attachment']), kind };
  return { ...task, ...defined({ result: result as RawCniResult | undefined, deleting }) };
}

function unusable(verb: string, path: string, cause: unknown): CniError {
  const message = `cannot ${verb} the cache of CNI attachments at ${path}`;
  return new CniError('cni-cache-unusable', message, { cause, path, retriable: true, hint: fileHint(cause) });
}
