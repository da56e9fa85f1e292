import { once } from 'node:events';
import type { IncomingMessage } from 'node:http';
import { type RequestOptions, request } from 'node:https';
import { text } from 'node:stream/consumers';
import type { KubeConfig } from '@kubernetes/client-node';

/** Reads a path of an API server that is not JSON. @returns an empty text unless the server answers with 200 */
export async function readText(config: KubeConfig, path: string): Promise<string> {
  const options: RequestOptions = { timeout: 30_000, agent: false };
  await config.applyToHTTPSOptions(options);
  const call = request(new URL(path, config.getCurrentCluster()?.server), options).end();
  const [response] = (await once(call, 'response')) as [IncomingMessage];
  const body = await text(response);
  return response.statusCode === 200 ? body : '';
}
