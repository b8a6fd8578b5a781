/** The table "every option" of docs/reference.md is what the checks in the code accept, and the other way round. */

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { mayBlock, oneAtATime } from 'holdfast/bullmq';
import { fencedSet, httpFence, redisFences } from 'holdfast/fence';
import {
  expressIdempotency,
  fastifyIdempotency,
  fetchIdempotency,
  memoryStore,
  redisStore,
} from 'holdfast/idempotency';
import { lockHealth } from 'holdfast/nest';
import { runCoordinator } from 'holdfast/node-cron';
import { measureLocks as measureByMeter } from 'holdfast/opentelemetry';
import { measureLocks } from 'holdfast/prometheus';
import { fetchLockUi, lockUi } from 'holdfast/ui';
import { Registry } from 'prom-client';
import { connect, type LockManager } from '../support/holdfast.js';
import { defaultsOf, read } from './declarations.js';

// biome-ignore lint/suspicious/noExplicitAny: what is tried is wrong on purpose
type Any = any;
type Given = Record<string, unknown>;

interface Caller {
  /** Calls it with these options. */
  readonly call: (options: Any) => unknown;
  /** The file and the type of its options, for their defaults. */
  readonly type?: readonly [file: string, name: string];
}

interface Row {
  readonly option: string;
  readonly of: readonly string[];
  readonly values: string;
  readonly byDefault: string;
}

let locks: LockManager;
let count = 0;
const fresh = () => `name-${count++}`;
const client = { eval: async () => 1 };
const store = memoryStore();
const DAY_MS = 86_400_000;

before(async () => {
  locks = await connect('memory:');
});

after(() => locks.close());

const closed = async (manager: Promise<LockManager>) => (await manager).close();
const ofLock = (name: string) => ['js/lock/options.ts', name] as const;
const ofIdempotency = ['js/adapters/idempotency/options.ts', 'IdempotencyOptions'] as const;

const CALLERS: Readonly<Record<string, Caller>> = {
  connect: {
    call: (options) => closed(connect('memory:', options)),
    type: ['js/connect/options.ts', 'ConnectOptions'],
  },
  besideOldCode: {
    call: (options) =>
      closed(connect('memory:', { besideOldCode: { retryDelay: 100, ...options } })),
    type: ['js/connect/options.ts', 'BesideOldCode'],
  },
  tls: {
    call: (tls) => closed(connect('rediss://127.0.0.1:1', { tls })),
    type: ['js/connect/tls.ts', 'TlsOptions'],
  },
  acquire: {
    call: async (options) => (await locks.acquire(fresh(), options)).release(),
    type: ofLock('AcquireOptions'),
  },
  tryAcquire: {
    call: async (options) => (await locks.tryAcquire(fresh(), options))?.release(),
    type: ofLock('TryAcquireOptions'),
  },
  request: {
    call: (options) => locks.request(fresh(), options, () => {}),
    type: ofLock('RequestOptions'),
  },
  adopt: {
    call: async (options) => {
      const lock = await locks.acquire(fresh());
      await (await locks.adopt(lock.toJSON(), options)).release();
    },
    type: ofLock('AdoptOptions'),
  },
  release: { call: (options) => locks.release(fresh(), options), type: ofLock('ReleaseOptions') },
  forceRelease: {
    call: (options) => locks.forceRelease(fresh(), options),
    type: ofLock('ForceReleaseOptions'),
  },
  query: { call: (options) => locks.query(options), type: ofLock('QueryOptions') },
  queryPages: {
    call: async (options) => {
      for await (const _ of locks.queryPages(options));
    },
    type: ofLock('QueryOptions'),
  },
  runOnce: {
    call: (options) => {
      const isNamed = ['slot', 'every', 'cron'].some((each) => each in options);
      const slot = isNamed ? {} : { slot: 'a' };
      return locks.runOnce(fresh(), { ...slot, ...options }, () => {});
    },
    type: ['js/once/options.ts', 'OnceOptions'],
  },
  lead: {
    // It leads until somebody ends it.
    call: (options) =>
      locks.lead(fresh(), { ...options }, () => Promise.reject(new Error('the end'))),
    type: ['js/lead/options.ts', 'LeadOptions'],
  },
  mayBlock: {
    call: (options) => mayBlock(locks, async () => {}, options),
    type: ['js/adapters/bullmq/options.ts', 'MayBlockOptions'],
  },
  oneAtATime: {
    call: (options) =>
      oneAtATime(
        locks,
        () => 'key',
        () => {},
        options,
      ),
    type: ['js/adapters/bullmq/options.ts', 'OneAtATimeOptions'],
  },
  runCoordinator: {
    call: (options) => runCoordinator(locks, options),
    type: ['js/adapters/node-cron/coordinator.ts', 'CoordinatorOptions'],
  },
  expressIdempotency: {
    call: (options) => expressIdempotency({ locks, store, ...options }),
    type: ofIdempotency,
  },
  fastifyIdempotency: {
    call: (options) => fastifyIdempotency({ locks, store, ...options }),
    type: ofIdempotency,
  },
  fetchIdempotency: {
    call: (options) => fetchIdempotency({ locks, store, ...options }),
    type: ofIdempotency,
  },
  redisStore: { call: (options) => redisStore(client, options) },
  redisFences: { call: (options) => redisFences(client, options) },
  httpFence: {
    call: (options) => httpFence({ name: () => 'a', ...options }),
    type: ['js/fence/http.ts', 'HttpFenceOptions'],
  },
  fencedSet: {
    call: (options) => fencedSet(client, { name: 'a', fence: 1 }, 'key', 'value', options),
  },
  lockUi: {
    call: (options) => lockUi({ locks, ...options }).close(),
    type: ['js/operators/page/options.ts', 'LockUiOptions'],
  },
  fetchLockUi: {
    call: (options) => fetchLockUi({ locks, ...options }).close(),
    type: ['js/operators/page/options.ts', 'LockUiFetchOptions'],
  },
  lockHealth: {
    call: (options) => lockHealth('redis', locks, options),
    type: ['js/adapters/nest/health.ts', 'LockHealthOptions'],
  },
  measureLocks: {
    call: (options) => {
      const ends = 'registry' in options || 'meter' in options ? {} : { registry: new Registry() };
      return 'meter' in options
        ? measureByMeter(locks, options)()
        : measureLocks(locks, { ...ends, manager: fresh(), ...options })();
    },
    type: ['js/metrics/prometheus.ts', 'MeasureOptions'],
  },
};

/** What must stand beside an option so that its own check is reached. */
const BESIDE: Readonly<Record<string, Given>> = {
  limit: { mode: 'shared' },
  permits: { mode: 'shared', limit: 8 },
  timeZone: { cron: '* * * * *' },
};
const besideOf = (caller: string, option: string) =>
  caller === 'oneAtATime' ? {} : BESIDE[option];
/** The bounds that the table tells in words. */
const BOUNDS: Readonly<Record<string, number>> = {
  'a third of ttl': 3_333,
  limit: 8,
  retryDelay: 100,
  '1 day': DAY_MS,
  '366 days': 366 * DAY_MS,
};

const cellsOf = (line: string) =>
  line
    .split(/(?<!\\)\|/)
    .slice(1, -1)
    .map((cell) => cell.trim());
const codesIn = (cell: string) => Array.from(cell.matchAll(/`([^`]+)`/g), ([, code = '']) => code);

function rows(): Row[] {
  const [, table = ''] = read('docs/reference.md').split('| every option |');
  const [lines = ''] = table.split('\n\n');
  return lines
    .split('\n')
    .slice(2)
    .flatMap((line) => {
      const [options = '', of = '', values = '', byDefault = ''] = cellsOf(line);
      return codesIn(options).map((option) => ({ option, of: codesIn(of), values, byDefault }));
    });
}

/** The bounds of a row's values, the upper one `undefined` if there is none; `undefined` for what is no number. */
function rangeOf({ values }: Row): [least: number, most: number | undefined] | undefined {
  const text = values.replaceAll('`', '').replaceAll(/(?<=\d) (?=\d)/g, '');
  const found = /^([\de]+)(?: ms)? (?:or more|to ([^,;]+?)(?: ms| bytes)?(?=$|[,;]))/.exec(text);
  if (found === null) return undefined;
  const [, least, most] = found;
  return [Number(least), most === undefined ? undefined : (BOUNDS[most] ?? Number(most))];
}

async function errorOf(caller: string, options: Given): Promise<Any> {
  try {
    await CALLERS[caller]?.call(options);
    return undefined;
  } catch (error) {
    return error;
  }
}

/** Whether a value is refused as out of range. */
async function isOut(caller: string, option: string, value: number): Promise<boolean> {
  const error = await errorOf(caller, { ...besideOf(caller, option), [option]: value });
  return error?.code === 'ERR_OUT_OF_RANGE';
}

/** The options that a caller has, as its error about an unknown one lists them. */
async function knownTo(caller: string): Promise<string[]> {
  const { message } = await errorOf(caller, { ['q'.repeat(40)]: 1 });
  return /it has (.*)$/.exec(message)?.[1]?.split(', ') ?? [];
}

test('every caller of the table is tried, and every option of each stands in the table', async () => {
  const all = rows();
  assert.deepEqual([...new Set(all.flatMap(({ of }) => of))].sort(), Object.keys(CALLERS).sort());
  for (const caller of Object.keys(CALLERS)) {
    const listed = all.filter(({ of }) => of.includes(caller)).map(({ option }) => option);
    // It has the option meter in place of registry where a meter is measured.
    const more = caller === 'measureLocks' ? ['meter'] : [];
    assert.deepEqual(listed.sort(), [...(await knownTo(caller)), ...more].sort(), caller);
  }
});

test('the ranges of the table are those of the checks', async () => {
  for (const row of rows()) {
    const range = rangeOf(row);
    for (const caller of row.of) {
      const what = `${row.option} of ${caller}, ${row.values}`;
      if (range === undefined) {
        assert.equal(await isOut(caller, row.option, -1), false, `${what}: the table has no range`);
        continue;
      }
      const [least, most] = range;
      assert.equal(await isOut(caller, row.option, least), false, `${what}: ${least}`);
      assert.equal(await isOut(caller, row.option, least - 1), true, what);
      const given = { ...besideOf(caller, row.option), [row.option]: least - 1 };
      const { message } = await errorOf(caller, given);
      assert.equal(/whole ms/.test(message), /\d (ms|day)/.test(row.values), message);
      const isEndless = row.values.includes('Infinity');
      assert.equal(await isOut(caller, row.option, Number.POSITIVE_INFINITY), !isEndless, what);
      if (most === undefined) continue;
      assert.equal(await isOut(caller, row.option, most), false, `${what}: ${most}`);
      assert.equal(await isOut(caller, row.option, most + 1), true, `${what}: ${most + 1}`);
    }
  }
});

test('what the table calls a boolean, a text or a function is checked as one', async () => {
  for (const { option, of, values } of rows()) {
    const [, kind] = /^(boolean|text|function)(?:$|[ ,;])/.exec(values) ?? [];
    const word = kind === 'text' ? '(string|function)' : kind;
    if (kind === undefined) continue;
    for (const caller of of) {
      const error = await errorOf(caller, { ...besideOf(caller, option), [option]: -1 });
      assert.equal(error?.code, 'ERR_INVALID_ARG_TYPE', `${option} of ${caller}`);
      assert.match(error.message, new RegExp(`must be a ${word}`), `${option} of ${caller}`);
    }
  }
});

/** A number, a boolean or a text that a default begins with or ends in; `undefined` if it is told in words alone. */
function literalOf(text: string): string | undefined {
  const plain = text.replaceAll('`', '').replaceAll(/(?<=\d)[ _](?=\d)/g, '');
  const day = plain.replace(/^1 day$/, String(DAY_MS));
  const literal = /^(\d+(?= ms|[,;]|$)|true|false|Infinity|'[^']*'|\[.*\]|\{\})/.exec(day);
  return literal?.[1] ?? /, or else (\d+|true|false)$/.exec(day)?.[1];
}

test('the defaults of the table are those of the types', () => {
  const different: string[] = [];
  for (const { option, of, byDefault } of rows()) {
    for (const caller of of) {
      const { type } = CALLERS[caller] ?? {};
      if (type === undefined || option === 'meter') continue;
      const declared = defaultsOf(...type).get(option) ?? '';
      if (literalOf(byDefault) === literalOf(declared)) continue;
      different.push(`${option} of ${caller}: ${byDefault}, but ${declared}`);
    }
  }
  assert.deepEqual(different, []);
});
