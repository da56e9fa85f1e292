// Loaded first by each Node.js in the guest. Code that V8 makes while a program runs has to be translated once more by the
// emulator, and with it all that lies on the same page, each time that V8 writes there: it costs more than it saves. With
// these the suite takes 60 % of the time.
const { setFlagsFromString } = require('node:v8');

for (const compiler of ['sparkplug', 'maglev', 'opt']) setFlagsFromString(`--no-${compiler}`);
