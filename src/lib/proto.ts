import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import type { ServiceDefinition } from '@grpc/grpc-js';
import { loadSync, type PackageDefinition } from '@grpc/proto-loader';

/** Beside the folder of the bundled program; beside `src` where the sources or the npm package run. */
const [besideProgram, besideSources] = ['../proto', '../../proto'].map((path) =>
  fileURLToPath(new URL(path, import.meta.url)),
) as [string, string];
const defaultDir = existsSync(besideProgram) ? besideProgram : besideSources;

/**
 * Loads one of our wire contracts. Field names become camelCase, 64-bit integers become numbers (none of ours exceeds
 * 2^53), and absent fields get their proto3 defaults.
 * @param file name below `proto/`, e.g. `dra-v1.proto`
 */
export function loadProto(file: string, dir = defaultDir): PackageDefinition {
  return loadSync(file, { includeDirs: [dir], longs: Number, enums: String, defaults: true, oneofs: false });
}

/** A service whose contract is loaded with the first message that is received or sent. */
export interface LazyService {
  definition: ServiceDefinition;
  load(): void;
}

/**
 * A service definition that loads its contract on demand: loading takes as long as the rest of the driver's startup,
 * and most of the served versions are never called.
 * @param service full name, e.g. `v1.DRAPlugin`
 * @param methods by name: whether they respond with a stream
 */
export function lazyService(file: string, service: string, methods: Record<string, { streams: boolean }>): LazyService {
  let loaded: ServiceDefinition | undefined;
  const load = () => {
    loaded ??= loadProto(file)[service] as ServiceDefinition | undefined;
    if (loaded === undefined) throw new TypeError(`${file} has no service ${service}`);
    return loaded;
  };
  const entries = Object.entries(methods).map(([name, { streams }]) => {
    const path = `/${service}/${name}`;
    const method = () => {
      const found = load()[name];
      if (found === undefined) throw new TypeError(`${file} has no method ${path}`);
      return found;
    };
    return [
      name,
      {
        path,
        requestStream: false,
        responseStream: streams,
        requestSerialize: (message: object) => method().requestSerialize(message),
        requestDeserialize: (bytes: Buffer) => method().requestDeserialize(bytes),
        responseSerialize: (message: object) => method().responseSerialize(message),
        responseDeserialize: (bytes: Buffer) => method().responseDeserialize(bytes),
      },
    ];
  });
  return { definition: Object.fromEntries(entries), load: () => void load() };
}
