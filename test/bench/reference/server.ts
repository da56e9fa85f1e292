/**
 * The reference for the driver, also in a separate process: a gRPC server whose calls only read the claims
 * concerned, with nothing between them and the wire; and an echo on a unix socket.
 *
 *   node test/bench/reference/server.ts GRPC_SOCKET ECHO_SOCKET API_SERVER_URL CERTIFICATE
 *
 * Prints one line when it is listening.
 */
import { readFileSync } from 'node:fs';
import { Agent, get } from 'node:https';
import { createServer } from 'node:net';
import {
  Server,
  ServerCredentials,
  type ServerUnaryCall,
  type ServiceDefinition,
  type sendUnaryData,
} from '@grpc/grpc-js';
import { loadProto } from '../../../src/proto.ts';

type Call = ServerUnaryCall<{ claims: { namespace: string; name: string }[] }, object>;

const [grpcPath = '', echoPath = '', apiUrl = '', certificatePath = ''] = process.argv.slice(2);
const agent = new Agent({ keepAlive: true, maxSockets: 32, ca: readFileSync(certificatePath) });

function readClaim({ namespace, name }: { namespace: string; name: string }): Promise<void> {
  const url = `${apiUrl}/apis/resource.k8s.io/v1/namespaces/${namespace}/resourceclaims/${name}`;
  return new Promise((resolve, reject) => {
    get(url, { agent }, (answer) => {
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
const echo = createServer((socket) =>
  socket.on('data', (chunk) => socket.write(chunk)).on('error', () => socket.destroy()),
);
await new Promise<void>((resolve) => echo.listen(echoPath, resolve));
process.stdout.write('listening\n');
