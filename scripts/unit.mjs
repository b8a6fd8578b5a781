// Runs the unit tests of the core, without the schedules of the simulator: `npm run test:unit`. Without a server it leaves out
// those that need one, and says so.

import { spawnSync } from 'node:child_process';
import { findServerBinary } from './redis-server.mjs';

const LEFT_OUT =
  'left out: the unit tests of beside_redis need Redis or Valkey (Debian: apt-get install redis-server; macOS: brew ' +
  'install redis, or say in HOLDFAST_REDIS_SERVER where it is)';

// Cargo tells what it compiles, and the tests print a dot each.
const cargo = ['test', '--no-default-features', '--features', 'core', '--', '--quiet'];
const without = ['--skip', 'simulator::', '--skip', 'quorum::quorum_'];
const env = { ...process.env };
const server = findServerBinary(env);
if (server === undefined) without.push('--skip', 'beside_redis::');
else env.HOLDFAST_REDIS_SERVER = server;
const { status, error } = spawnSync('cargo', [...cargo, ...without], { stdio: 'inherit', env });
if (error !== undefined) throw error;
if (server === undefined) console.log(LEFT_OUT);
process.exitCode = status ?? 1;
