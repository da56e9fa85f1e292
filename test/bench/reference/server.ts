/**
 * The reference for the driver, also in a separate process: a gRPC server whose calls only read the claims
 * concerned, with nothing between them and the wire.
 *
 *   node server.ts GRPC_SOCKET API_SERVER_URL SERVICE_ACCOUNT_FOLDER
 *
 * Prints one line when it is listening.
 */
import { readFileSync } from 'node:fs';
import { Agent, get } from 'node:https';
import { join } from 'node:path';
import {
  Server,
  ServerCredentials,
  type ServerUnaryCall,
  type ServiceDefinition,
  type sendUnaryData,
} from '@grpc/grpc-js';
import { loadProto } from '../../../src/lib/proto.ts';

type Call = ServerUnaryCall<{ claims: { namespace: string; name: string }[] }, object>;

const [grpcPath = '', apiUrl = '', accountDir = ''] = process.argv.slice(2);
const [token, ca] = ['token', 'ca.crt'].map((name) => readFileSync(join(accountDir, name), 'utf8'));
const agent = new Agent({ keepAlive: true, maxSockets: 32, ca });
const headers = { authorization: `Bearer ${token}` };

function readClaim({ namespace, name }: { namespace: string; name: string }): Promise<void> {
  const url = `${apiUrl}/apis/resource.k8s.io/v1/namespaces/${namespace}/resourceclaims/${name}`;
  return new Promise((resolve, reject) => {
    get(url, { agent, headers }, (answer) => {
      if (answer.statusCode !== 200) reject(new Error(`GET ${url}: ${answer.statusCode}`));
      answer.resume().on('end', resolve).on('error', reject);
    }).on('error', reject);
  });
}

const server = new Server();
const definition = loadProto('dra-v1.proto')['k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin'] as ServiceDefinition;
server.addService(definition, {
  NodePrepareResources: ({ request }: Call, callback: sendUnaryData<object>) => {
    Promise.all(request.claims.map(readClaim)).then(
      () => callback(null, { claims: {} }),
      (error) => callback(error),
    );
  },
  NodeUnprepareResources: (_: Call, callback: sendUnaryData<object>) => callback(null, { claims: {} }),
});
await new Promise<void>((resolve, reject) => {
  server.bindAsync(`unix:${grpcPath}`, ServerCredentials.createInsecure(), (error) =>
    error ? reject(error) : resolve(),
  );
});
process.stdout.write('listening\n');
