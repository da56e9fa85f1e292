import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { errnoCode } from '../errors.ts';
import { createFile, ioError, remove } from './atomic-file.ts';
import { formatGoJson } from './json-stream.ts';
import { pathPart } from './paths.ts';

/** A file of the host that containers of the request see. */
export interface CdiMount {
  hostPath: string;
  containerPath: string;
}

/**
 * The CDI specs that mount metadata files: one file per request with one device, kind `{driver}/metadata`, device name
 * `{claimUID}_{request}`. Names depend on nothing else, so preparing a claim again gives the same ids.
 * Source: KEP-5304 "Generate CDI spec"; Container Device Interface specification.
 */
export class CdiSpecs {
  readonly #dir: string;
  readonly #driver: string;

  constructor(options: { dir: string; driver: string }) {
    this.#dir = options.dir;
    this.#driver = pathPart(options.driver, 'driver name');
  }

  /** The id that the kubelet passes to the runtime. */
  deviceId(claimUid: string, request: string): string {
    return `${this.#driver}/metadata=${deviceName(claimUid, request)}`;
  }

  async write(claimUid: string, request: string, mounts: CdiMount[]): Promise<void> {
    const spec = {
      // A device name may start with a digit, as most UIDs do, only from 0.5.0 on.
      cdiVersion: '0.5.0',
      kind: `${this.#driver}/metadata`,
      devices: [
        {
          name: deviceName(claimUid, request),
          containerEdits: { mounts: mounts.map((mount) => ({ ...mount, options: ['ro', 'bind'] })) },
        },
      ],
    };
    await createFile(this.#path(claimUid, request), formatGoJson(spec));
  }

  /** Removes the specs of all requests of a claim. */
  async removeClaim(claimUid: string): Promise<void> {
    const prefix = this.#prefix(claimUid);
    for (const file of await this.#list()) {
      if (file.startsWith(prefix) && file.endsWith('.json')) await remove(join(this.#dir, file));
    }
  }

  async #list(): Promise<string[]> {
    try {
      return await readdir(this.#dir);
    } catch (cause) {
      if (errnoCode(cause) === 'ENOENT') return [];
      throw ioError('list', this.#dir, cause);
    }
  }

  #prefix(claimUid: string): string {
    return `${this.#driver}_metadata_${pathPart(claimUid, 'claim UID')}_`;
  }

  #path(claimUid: string, request: string): string {
    return join(this.#dir, `${this.#prefix(claimUid)}${pathPart(request, 'request')}.json`);
  }
}

function deviceName(claimUid: string, request: string): string {
  return `${pathPart(claimUid, 'claim UID')}_${pathPart(request, 'request')}`;
}
