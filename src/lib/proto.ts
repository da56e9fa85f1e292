import { existsSync } from 'node:fs';
import { dirname, join } from 'node:path';
import type { ServiceDefinition } from '@grpc/grpc-js';
import { loadSync, type PackageDefinition } from '@grpc/proto-loader';

/** Directory of this module. In a bundle of CommonJS modules, `import.meta.dirname` is undefined. */
const here = import.meta.dirname ?? dirname(process.argv[1] ?? '.');

/**
 * Directories that may contain the `.proto` files: beside a bundle of another project, beside the directory of netdra's bundled
 * program, and beside `src` for the sources and the npm package.
 */
const places = ['proto', '../proto', '../../proto'].map((path) => join(here, path));

/** Returns the directory that has a `.proto` file; `undefined` if no directory has it. */
export function findProtoDir(file: string): string | undefined {
  return places.find((dir) => existsSync(join(dir, file)));
}

/**
 * Loads one of netdra's `.proto` files. Field names become camelCase, 64-bit integers become numbers (none of these files has
 * values beyond 2^53), and absent fields get their proto3 defaults.
 * @param file name below `proto/`, e.g. `dra-v1.proto`
 */
export function loadProto(file: string, dir = findProtoDir(file) ?? '.'): PackageDefinition {
  return loadSync(file, { includeDirs: [dir], longs: Number, enums: String, defaults: true, oneofs: false });
}

/** A service whose `.proto` file is loaded with the first message received or sent. */
export interface LazyService {
  definition: ServiceDefinition;
  load(): void;
}

/**
 * Defines a service that loads its `.proto` file on demand: loading takes as long as the rest of the driver's startup, and most
 * of the served versions are never called.
 * @param service full name, e.g. `v1.DRAPlugin`
 * @param methods by name: whether the response is a stream
 * @param protoDir directory of the file; absent: the first known directory that has the file
 */
export function lazyService(
  file: string,
  service: string,
  methods: Record<string, { streams: boolean }>,
  protoDir?: string,
): LazyService {
  let loaded: ServiceDefinition | undefined;
  const load = () => {
    loaded ??= loadProto(file, protoDir)[service] as ServiceDefinition | undefined;
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
