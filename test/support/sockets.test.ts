import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { join } from 'node:path';
import { test } from 'node:test';
import { ended } from './child.js';

/** A process that goes on for so long is killed, in ms. */
const PATIENCE_MS = 30_000;

/** What a server does with a socket, by the state in which it resets it, and what its peer sees. */
const CASES = {
  'is open': { does: 'reset(socket);', seen: 'ECONNRESET\n' },
  'is shutting down': { does: 'socket.end(); reset(socket);', seen: '' },
  'is closed': { does: `socket.on('close', () => reset(socket)).destroy();`, seen: '' },
};

for (const [state, { does, seen }] of Object.entries(CASES)) {
  test(`a process ends after the reset of a socket that ${state}`, async () => {
    const source = `
      const { connect, createServer } = require('node:net');
      const { reset } = require(process.argv[1]);
      const server = createServer((socket) => {
        server.close();
        socket.on('error', (error) => console.log('server:', error.code)).resume();
        ${does}
      });
      server.listen(0, '127.0.0.1', () => {
        const peer = connect(server.address().port, '127.0.0.1');
        peer.on('error', (error) => console.log(error.code)).resume();
      });`;
    const child = spawn(process.execPath, ['-e', source, join(__dirname, 'sockets.js')], {
      stdio: ['ignore', 'pipe', 'pipe'],
      timeout: PATIENCE_MS,
    });
    const { code, signal, stdout, stderr } = await ended(child);
    assert.deepEqual([code, signal], [0, null], stdout + stderr);
    assert.equal(stdout, seen);
  });
}
