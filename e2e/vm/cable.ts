import { once } from 'node:events';
import { createConnection } from 'node:net';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { MachineError } from './session.ts';

/** The socket of QEMU's monitor in the folder of a run. */
export const monitorSocket = 'monitor';

/**
 * Pulls the cable of a network card, or plugs it in again, without the guest's doing: QEMU's `set_link`.
 * @param card number of the card, from 0
 * @throws MachineError `command-failed` with QEMU's answer
 */
export async function setCable(runDir: string, card: number, isPlugged: boolean): Promise<void> {
  const path = join(runDir, monitorSocket);
  const socket = createConnection(path);
  using _socket = { [Symbol.dispose]: () => socket.destroy() };
  await once(socket, 'connect');
  const answers = createInterface(socket)[Symbol.asyncIterator]();
  await answers.next(); // The greeting.
  const commands = [
    { execute: 'qmp_capabilities' },
    { execute: 'set_link', arguments: { name: `network${card}`, up: isPlugged } },
  ];
  for (const command of commands) {
    socket.write(`${JSON.stringify(command)}\n`);
    const { value = '{}' } = await answers.next();
    if ('return' in JSON.parse(value)) continue;
    throw new MachineError('command-failed', `QEMU answers ${command.execute} with ${value}`, { path });
  }
}
