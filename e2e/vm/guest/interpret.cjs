// Preloaded by Node.js in the guest. The emulator has to translate the code that V8 compiles once more, and the rest of a page
// each time that V8 writes to it, so compiling costs more than it saves. Without the compilers
// `npm run e2e:vm -- cases/restored-vf.test.ts cases/kernel-mode.test.ts` took 145 s instead of 211 s.
const { setFlagsFromString } = require('node:v8');

for (const compiler of ['sparkplug', 'maglev', 'opt']) setFlagsFromString(`--no-${compiler}`);
