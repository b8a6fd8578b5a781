// Runs the simulator for a number of seeds, three schedules each: in one the server keeps its data, in one it
// loses them, in one its clock is set. Some of these also have slots that move, on one server or among three, two
// masters, or data lost under live connections. And for a part of the seeds three schedules of a quorum: its servers keep
// their data, or lose them, or leases end at any moment.
// First come the schedules that were written for one defect each.
//
//   npm run simulate -- [--seeds N] [--from S]
//
// A schedule that breaks a promise ends the run with its seed and its story; `--from <seed> --seeds 1`
// replays it.

import { spawnSync } from 'node:child_process';
import { parseArgs } from 'node:util';

const { values } = parseArgs({
  options: {
    seeds: { type: 'string', default: '50000' },
    from: { type: 'string', default: '0' },
  },
});
for (const [flag, value] of Object.entries(values)) {
  if (!/^\d+$/.test(value)) throw new Error(`--${flag} takes a whole number, got ${value}`);
}

/** One of this many seeds is used for a quorum as well: its schedules take twice as long. */
const SEEDS_PER_QUORUM = 20;
const seeds = Number(values.seeds);
const quorumSeeds = Math.ceil(seeds / SEEDS_PER_QUORUM);

const cargo = ['test', '--no-default-features', '--features', 'core'];
build();
const env = {
  ...process.env,
  HOLDFAST_SEEDS: String(seeds),
  HOLDFAST_QUORUM_SEEDS: String(quorumSeeds),
  HOLDFAST_FROM: values.from,
};
const began = performance.now();
const schedulesOf = ['simulator::', 'quorum::quorum_', 'written::'];
const { status } = spawnSync('cargo', [...cargo, '--quiet', '--', ...schedulesOf], {
  stdio: 'inherit',
  env,
});
const seconds = (performance.now() - began) / 1000;
const [one, several] = [3 * seeds, 3 * quorumSeeds];
console.log(
  `${one} schedules of one server and ${several} of a quorum in ${seconds.toFixed(1)} s, ` +
    `${Math.round((one + several) / seconds)} per second`,
);
process.exitCode = status ?? 1;

function build() {
  const { status } = spawnSync('cargo', [...cargo, '--quiet', '--no-run'], { stdio: 'inherit' });
  if (status !== 0) process.exit(status ?? 1);
}
