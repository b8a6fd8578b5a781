/** `runOnce` in each of its forms: docs/once.md. */

import type { LockManager } from '../support/holdfast.js';
import type { Feature, Outcome, Preparation, Promised, Scene, Seen } from './feature.js';
import { openManager } from './holding.js';

interface Form {
  readonly retry: boolean;
  readonly keepResult: boolean;
  /** Planned times: of a new job, or of one whose last run is known. */
  readonly cron?: 'new' | 'known';
}

/** Planned times that are weeks apart: none passes while a test runs. */
const MONTHLY = { cron: '0 0 1 * *', keep: 360 * 86_400_000 };
/** One of them, some months ago. */
const EARLIER = {
  cron: `0 0 1 ${((new Date().getUTCMonth() + 9) % 12) + 1} *`,
  keep: MONTHLY.keep,
};

interface Result {
  readonly ran: boolean;
  readonly reason?: string;
  readonly value?: unknown;
}

function resultOf({ value }: Outcome): Result | undefined {
  return value as Result | undefined;
}

/** The results of all calls that have one. */
function results({ first, second, again }: Seen): Result[] {
  return [first, second, again].flatMap((each) => resultOf(each) ?? []);
}

const count = ({ effects }: Seen, effect: string) =>
  effects.filter((each) => each.startsWith(effect)).length;

/** No two bodies at the same time; a process that was stopped may not have known. */
const oneAtATime: Promised<unknown> = ({ fault, effects }) => {
  if (fault === 'process stopped past its lease') return true;
  let running = '';
  return effects
    .filter((effect) => /^(begins|ends) /.test(effect))
    .every((effect) => {
      const [what, who = ''] = effect.split(' ');
      if (what === 'ends') {
        running = '';
        return true;
      }
      const alone = running === '' || fault === 'process killed';
      running = who;
      return alone;
    });
};

/** Runs the job at a time that was planned before. */
async function prepare(scene: Scene): Promise<Preparation> {
  const locks = await openManager(scene);
  const { ran } = await locks.runOnce(scene.name, EARLIER, () => 1);
  if (!ran) throw new Error('the job is not new');
  return { close: () => locks.close() };
}

function once({ retry, keepResult, cron }: Form): Feature<LockManager> {
  const options = [
    cron && `cron of a ${cron} job`,
    retry && 'retry',
    keepResult && 'keepResult',
  ].filter(Boolean);
  const slot = cron ? MONTHLY : { slot: 's', keep: 600_000 };
  const call = (locks: LockManager, scene: Scene, wait: number) =>
    locks.runOnce(
      scene.name,
      { ...slot, retry, keepResult, ttl: scene.ttl, wait },
      async (_lock, _slot, missed) => {
        scene.note(`begins ${scene.who}`);
        if (cron === 'known') scene.note(`${missed.length > 0 ? 'knows' : 'forgets'} the last run`);
        // A body takes its time: here the turns in which the answers of others come.
        await new Promise((resolve) => setImmediate(resolve));
        scene.note(`ends ${scene.who}`);
        return { by: scene.who };
      },
    );
  const always: Record<string, Promised<unknown>> = {
    'a call ends': ({ first, second, again }) =>
      [first, second, again].every(({ error }) => error?.name !== 'Never'),
    'who comes when the lock is free gets a result': ({ second, again }) =>
      [second, again].every((each) => resultOf(each) !== undefined),
    'no two bodies run at a time': oneAtATime,
    'after a result the slot is done': ({ again }) => resultOf(again)?.reason === 'done',
    'a body whose caller got its result is the last': (seen) =>
      resultOf(seen.first)?.ran !== true || count(seen, 'begins') === 1,
    'nothing is left but the marker': ({ store }) =>
      Object.keys(store).every((key) => /^lock:once:.*@s?$/.test(key)),
    'no run forgets the last one': ({ effects }) => !effects.includes('forgets the last run'),
  };
  const atMostOnce: Record<string, Promised<unknown>> = {
    'the body runs at most once': (seen) => count(seen, 'begins') <= 1,
  };
  const withRetry: Record<string, Promised<unknown>> = {
    'done is a slot whose body has ended': (seen) =>
      !results(seen).some(({ reason }) => reason === 'done') || count(seen, 'ends') >= 1,
    'after a crash or an error the next caller runs the body': (seen) =>
      resultOf(seen.first) !== undefined ||
      seen.effects.includes('ends first') ||
      resultOf(seen.second)?.ran === true,
  };
  const kept: Record<string, Promised<unknown>> = {
    'every later caller gets what the body returned to its own': (seen) => {
      const { first, second, again } = seen;
      const ran = [first, second].map(resultOf).find((result) => result?.ran === true);
      if (ran === undefined) return true;
      const later = resultOf(first)?.ran === true ? [second, again] : [again];
      const value = JSON.stringify(ran.value);
      return later.every((each) => JSON.stringify(resultOf(each)?.value) === value);
    },
    'a value is one that a body has returned': (seen) =>
      results(seen).every(({ value }) => {
        const by = (value as { by?: string } | undefined)?.by;
        return by === undefined || seen.effects.includes(`ends ${by}`);
      }),
  };
  return {
    name: `runOnce${options.length > 0 ? ` with ${options.join(' and ')}` : ''}`,
    page: 'docs/once.md',
    memory: true,
    ...(cron === 'known' ? { prepare } : {}),
    open: openManager,
    close: (locks) => locks.close(),
    first: (locks, scene) => call(locks, scene, 1_000),
    second: (locks, scene) => call(locks, scene, scene.wait),
    promises: { ...always, ...(retry ? withRetry : atMostOnce), ...(keepResult ? kept : {}) },
  };
}

export const features: readonly Feature[] = [
  once({ retry: false, keepResult: false }),
  once({ retry: false, keepResult: true }),
  once({ retry: true, keepResult: false }),
  once({ retry: true, keepResult: true }),
  once({ retry: false, keepResult: false, cron: 'new' }),
  once({ retry: false, keepResult: false, cron: 'known' }),
  once({ retry: false, keepResult: true, cron: 'known' }),
  once({ retry: true, keepResult: false, cron: 'known' }),
  once({ retry: true, keepResult: true, cron: 'known' }),
];
