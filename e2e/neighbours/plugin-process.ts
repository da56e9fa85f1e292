import { writeSync } from 'node:fs';
import { createPlugin } from '../../nri/index.ts';

// A plugin in a separate process, to be killed: `node plugin-process.ts SOCKET INDEX`. It prints each pod, waits a
// moment, and agrees.
const [, , socketPath, index = '20'] = process.argv;
if (socketPath === undefined) throw new Error('usage: node plugin-process.ts SOCKET INDEX');
const plugin = createPlugin({
  name: 'mortal',
  index,
  socketPath,
  handlers: {
    runPodSandbox: async (pod) => {
      writeSync(1, `${pod.id}\n`);
      await new Promise((resolve) => setTimeout(resolve, 5));
    },
  },
});
plugin.start();
await plugin.whenConnected();
writeSync(1, 'connected\n');
