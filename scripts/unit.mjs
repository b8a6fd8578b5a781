// Runs the unit tests of the core, without the schedules of the simulator. Without a server it leaves out those that need one,
// and says so: `npm run test:unit`.

import { spawnSync } from 'node:child_process';
import { findServerBinary } from './redis-server.mjs';

const HOW_TO_GET =
  'Redis or Valkey (Debian: apt-get install redis-server; macOS: brew install redis, or say in HOLDFAST_REDIS_SERVER ' +
  'where it is)';

const server = findServerBinary(process.env);
const skipped = [
  'simulator::',
  'quorum::quorum_',
  ...(server === undefined ? ['beside_redis::'] : []),
];
const cargo = ['test', '--no-default-features', '--features', 'core', '--quiet', '--'];
const { status, error } = spawnSync(
  'cargo',
  [...cargo, ...skipped.flatMap((name) => ['--skip', name])],
  {
    stdio: 'inherit',
    env: { ...process.env, ...(server !== undefined && { HOLDFAST_REDIS_SERVER: server }) },
  },
);
if (error !== undefined) throw error;
if (server === undefined)
  console.log(`left out: the unit tests beside a server, which need ${HOW_TO_GET}`);
process.exitCode = status ?? 1;
