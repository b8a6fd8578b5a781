// Runs the simulator: the schedules that were written for one defect each, those of all seeds that have ever failed
// (src/machine/tests/seeds.txt), and those of seeds that nobody has run: they follow from the clock, and are printed.
//
//   npm run simulate -- [--seeds N] [--from S | --from-commit] [--report]
//   npm run simulate -- --until-stopped
//
// A seed has three schedules of one server: in one the server keeps its data, in one it loses them, in one its clock is set.
// Some of these also have slots that move, on one server or among three, two masters, or data lost under live connections.
// A tenth of the seeds have three schedules of a quorum, too: its servers keep their data, or lose them, or leases end at
// any moment.
//
// A schedule that breaks a promise is told without the steps that do not matter; `--from <seed> --seeds 1` replays it. It
// fails the run at its end, but with `--report` only the other schedules do. With `--from-commit` the seeds follow from the
// files of the commit, so that its author can run before what a gate will run. With either `--from` the other schedules are
// left out. `--until-stopped` runs on all cores until ctrl-C, and says each minute how far it is.

import { execFileSync, spawnSync } from 'node:child_process';
import { parseArgs } from 'node:util';

const { values } = parseArgs({
  options: {
    seeds: { type: 'string', default: '50000' },
    from: { type: 'string' },
    'from-commit': { type: 'boolean', default: false },
    report: { type: 'boolean', default: false },
    'until-stopped': { type: 'boolean', default: false },
  },
});
for (const flag of ['seeds', 'from']) {
  if (!/^\d*$/.test(values[flag] ?? ''))
    throw new Error(`--${flag} takes a whole number, got ${values[flag]}`);
}

const seeds = values['until-stopped'] ? Number.MAX_SAFE_INTEGER : Number(values.seeds);
const from = values.from ?? (values['from-commit'] ? ofCommit() : String(Date.now()));

if (values.from === undefined && !values['from-commit']) {
  const known = run(['simulator::', 'quorum::quorum_', 'written::', 'campaign::seeds_that']);
  if (known !== 0) process.exit(known);
}
console.log(
  `Fresh seeds: npm run simulate -- --from ${from} --seeds ${values['until-stopped'] ? 'N' : seeds}`,
);
const broken = run(['--ignored', '--nocapture', 'campaign::fresh_seeds'], {
  HOLDFAST_FROM: from,
  HOLDFAST_SEEDS: String(seeds),
});
process.exitCode = values.report ? 0 : broken;

/** A number for the files of the commit; a commit that is only moved has the same. */
function ofCommit() {
  const tree = execFileSync('git', ['rev-parse', 'HEAD^{tree}'], { encoding: 'utf8' });
  return String(Number.parseInt(tree.slice(0, 12), 16));
}

function run(tests, env = {}) {
  const cargo = ['test', '--no-default-features', '--features', 'core', '--quiet', '--', ...tests];
  const { status } = spawnSync('cargo', cargo, {
    stdio: 'inherit',
    env: { ...process.env, ...env },
  });
  return status ?? 1;
}
