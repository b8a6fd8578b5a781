/** The command line's `run` and `run --once`: docs/cli.md. Who comes later uses the library. */

import { type ChildProcess, spawn } from 'node:child_process';
import { join } from 'node:path';
import { ended, ROOT } from '../support/child.js';
import { connect, type LockManager } from '../support/holdfast.js';
import type { Feature, Outcome, Promised, Scene, Seen } from './feature.js';

const MAIN = join(ROOT, 'dist', 'operators', 'cli', 'main.js');

export interface Caller {
  readonly locks: LockManager | undefined;
  child: ChildProcess | undefined;
}

interface Exit {
  readonly code: number | null;
  readonly signal: string | null;
  readonly stderr: string;
}

const exitOf = ({ value }: Outcome) => (value as Exit | undefined)?.code;

/** Runs a command under the lock, which writes its effects into the ledger. */
async function run(caller: Caller, scene: Scene, flags: readonly string[]): Promise<Exit> {
  const script = `echo has ${scene.who} >> "$0"; echo had ${scene.who} >> "$0"`;
  const times = ['--ttl', `${scene.ttl}ms`, '--wait', '1s'];
  const words = ['run', scene.name, ...times, ...flags, '--', 'sh', '-c', script, scene.ledger];
  const env = { ...process.env, HOLDFAST_URL: scene.url };
  const child = spawn(process.execPath, [MAIN, ...words], {
    env,
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const kill = () => void child.kill('SIGKILL');
  process.once('exit', kill);
  caller.child = child;
  scene.runsIn(child.pid ?? 0);
  const { code, signal, stderr } = await ended(child);
  process.off('exit', kill);
  return { code, signal, stderr };
}

/** What the lists of commands have in common. */
export const OF_COMMANDS: Pick<Feature<Caller>, 'ownProcess' | 'leavesLocks' | 'open' | 'close'> = {
  ownProcess: true,
  // It ends while the server is away, and can release nothing later.
  leavesLocks: ['away'],
  async open({ who, servers }: Scene): Promise<Caller> {
    const locks = who === 'first' ? undefined : await connect(servers['redis']);
    return { locks, child: undefined };
  },
  async close({ locks, child }: Caller) {
    child?.kill('SIGTERM');
    await locks?.close();
  },
};

const ran = ({ effects }: Seen, what = 'has') => effects.includes(`${what} first`);

const OF_RUNS: Readonly<Record<string, Promised<unknown>>> = {
  'a call ends': ({ first, second, again }) =>
    [first, second, again].every(({ error }) => error?.name !== 'Never'),
  'exit code 0: the command has ended': (seen) => exitOf(seen.first) !== 0 || ran(seen, 'had'),
  'exit codes 64, 69, 70 and 75: the command did not run': (seen) =>
    ![64, 69, 70, 75].includes(exitOf(seen.first) ?? 0) || !ran(seen),
  'a command that has ended by itself gives its exit code, unless the lock was lost': (seen) =>
    !ran(seen, 'had') ||
    [0, 76].includes(exitOf(seen.first) ?? 1) ||
    seen.fault === 'process killed',
};

const lock: Feature<Caller> = {
  ...OF_COMMANDS,
  name: 'holdfast run',
  page: 'docs/cli.md, run',
  first: (caller, scene) => run(caller, scene, []),
  async second({ locks }, scene) {
    return locks?.request(scene.name, { ttl: scene.ttl, wait: scene.wait }, async () => {
      scene.note(`has ${scene.who}`);
      scene.note(`had ${scene.who}`);
      return 'had it';
    });
  },
  promises: {
    ...OF_RUNS,
    'no lock is left behind: who comes later gets it': ({ second, again }) =>
      second.value === 'had it' && again.value === 'had it',
    'a released lock leaves nothing behind': ({ store }) =>
      Object.keys(store).every((key) => /:(queue|waiting|waiters)$/.test(key)),
    'two never hold it at once': ({ fault, effects }) => {
      const order = ['has first', 'had first', 'has second'].map((each) => effects.indexOf(each));
      const [has = -1, had = -1, other = -1] = order;
      return has < 0 || other < 0 || (had >= 0 && had < other) || fault.startsWith('process');
    },
  },
};

interface Result {
  readonly ran: boolean;
  readonly reason?: string;
}

const resultOf = ({ value }: Outcome) => value as Result | undefined;

function once(retry: boolean): Feature<Caller> {
  return {
    ...OF_COMMANDS,
    name: `holdfast run --once${retry ? ' --retry' : ''}`,
    page: 'docs/cli.md, A job for one of many machines',
    first: (caller, scene) =>
      run(caller, scene, ['--once', 'today', ...(retry ? ['--retry'] : [])]),
    async second({ locks }, scene) {
      const { ttl, wait, name } = scene;
      return locks?.runOnce(name, { slot: 'today', retry, ttl, wait }, () => {
        scene.note(`has ${scene.who}`);
        scene.note(`had ${scene.who}`);
      });
    },
    promises: {
      ...OF_RUNS,
      'who comes when the lock is free gets a result': ({ second, again }) =>
        resultOf(second) !== undefined && resultOf(again) !== undefined,
      'after a result the slot is done': ({ again }) => resultOf(again)?.reason === 'done',
      'a command whose end was reported without a message is the last': ({ first, effects }) =>
        exitOf(first) !== 0 ||
        (first.value as Exit).stderr !== '' ||
        !effects.includes('has second'),
      ...(retry
        ? {
            'done is a slot whose command has ended': ({ second, effects }: Seen) =>
              resultOf(second)?.reason !== 'done' || effects.includes('had first'),
            'if the machine died, the next runs the job': (seen: Seen) =>
              ran(seen, 'had') || resultOf(seen.second)?.ran === true,
          }
        : {
            'the command runs at most once': ({ effects }: Seen) =>
              effects.filter((each) => each.startsWith('has ')).length <= 1,
          }),
    },
  };
}

export const features: readonly Feature[] = [lock, once(false), once(true)];
