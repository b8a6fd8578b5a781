// Runs the simulator for as many seeds as one likes: three schedules each, one in which the server keeps
// its data, one in which it loses them and one in which its clock is set.
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

const cargo = ['test', '--no-default-features', '--features', 'driver'];
build();
const env = { ...process.env, HOLDFAST_SEEDS: values.seeds, HOLDFAST_FROM: values.from };
const began = performance.now();
const { status } = spawnSync('cargo', [...cargo, '--quiet', 'simulator::'], {
  stdio: 'inherit',
  env,
});
const seconds = (performance.now() - began) / 1000;
const schedules = 3 * Number(values.seeds);
console.log(
  `${schedules} schedules in ${seconds.toFixed(1)} s, ${Math.round(schedules / seconds)} per second`,
);
process.exitCode = status ?? 1;

function build() {
  const { status } = spawnSync('cargo', [...cargo, '--quiet', '--no-run'], { stdio: 'inherit' });
  if (status !== 0) process.exit(status ?? 1);
}
