import { Client, credentials, type ServiceError } from '@grpc/grpc-js';
import type { MethodDefinition } from '@grpc/proto-loader';
import * as z from 'zod';
import { defined } from '../lib/defined.ts';
import { NetdraError } from '../lib/errors.ts';
import { loadProto } from '../lib/proto.ts';

/** Data that a container runtime reports about itself over CRI. */
export interface CriRuntime {
  /** Name of the runtime: `containerd`, `cri-o`. */
  name: string;
  /** Version of the runtime: `2.1.9`, `1.7.24~ds1`. */
  version: string;
  cdi: CdiConfig;
}

/** The runtime's settings for CDI; members that it does not report are absent. */
export interface CdiConfig {
  enabled?: boolean;
  specDirs?: string[];
}

type Unary = MethodDefinition<object, object>;

/**
 * Asks the runtime for its version and settings.
 * @param socketPath socket that the kubelet uses, such as `/run/containerd/containerd.sock`
 * @throws NetdraError `cri-unavailable`
 */
export async function readCriRuntime(socketPath: string, timeoutMs = 5_000): Promise<CriRuntime> {
  const service = loadProto('cri-runtime.proto')['runtime.v1.RuntimeService'] as unknown as Record<string, Unary>;
  const client = new Client(`unix://${socketPath}`, credentials.createInsecure());
  const call = <Response>(name: string, request: object): Promise<Response> => {
    const { path, requestSerialize, responseDeserialize } = service[name] as Unary;
    return new Promise((resolve, reject) => {
      const answer = (error: ServiceError | null, response?: object) =>
        error === null ? resolve(response as Response) : reject(error);
      const options = { deadline: Date.now() + timeoutMs };
      client.makeUnaryRequest(path, requestSerialize, responseDeserialize, request, options, answer);
    });
  };
  try {
    const version = await call<{ runtimeName: string; runtimeVersion: string }>('Version', {});
    const { info } = await call<{ info: Record<string, string> }>('Status', { verbose: true });
    const { runtimeName: name, runtimeVersion } = version;
    return { name, version: runtimeVersion.replace(/^v/, ''), cdi: parseCdiConfig(name, info.config ?? '') };
  } catch (cause) {
    const message = `the runtime does not answer at ${socketPath}`;
    throw new NetdraError('cri-unavailable', message, { cause, path: socketPath });
  } finally {
    client.close();
  }
}

/**
 * Parses the runtime's settings for CDI. @param config JSON of containerd or TOML of CRI-O. CRI-O, and containerd since 2.4,
 * cannot turn CDI off
 */
export function parseCdiConfig(runtime: string, config: string): CdiConfig {
  if (runtime !== 'containerd') {
    const [, list] = /^\s*cdi_spec_dirs\s*=\s*\[([^\]]*)\]/m.exec(config) ?? [];
    const specDirs = list?.match(/"[^"]*"/g)?.map((text) => text.slice(1, -1));
    return { enabled: true, ...defined({ specDirs }) };
  }
  try {
    const { enableCDI, cdiSpecDirs } = containerdConfig.parse(JSON.parse(config));
    // containerd 1.7 to 2.2 always report whether CDI is on.
    const enabled = enableCDI ?? (cdiSpecDirs === undefined ? undefined : true);
    return defined({ enabled, specDirs: cdiSpecDirs });
  } catch {
    return {};
  }
}

const containerdConfig = z.object({
  enableCDI: z.boolean().optional().catch(undefined),
  cdiSpecDirs: z.array(z.string()).optional().catch(undefined),
});
