/** What `doctor` finds in the answers of a server: each branch, and each bound from both its sides. */

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';

interface Finding {
  readonly check: string;
  readonly level: string;
  readonly message: string;
  readonly advice?: string;
}

interface Survey {
  readonly failure?: string;
  readonly roundTrips?: readonly number[];
  readonly ahead?: number;
  readonly answers?: readonly object[];
}

interface Internals {
  judge(survey: object, kind: object): Finding[];
}

// It is internal: it is reached by path, past the package's exports.
const { judge } = require('../../../../dist/internals.js') as Internals;

const FIT = {
  redis_version: '7.2.4',
  redis_mode: 'standalone',
  role: 'master',
  maxmemory: '0',
  maxmemory_policy: 'noeviction',
  used_memory: '1000',
  aof_enabled: '1',
  aof_last_write_status: 'ok',
  rdb_last_bgsave_status: 'ok',
  connected_slaves: '0',
};

function answer(text: string) {
  return { text, refused: false };
}

function refused(text: string) {
  return { text, refused: true };
}

const EACH_SECOND = answer('appendfsync\neverysec');

function surveyOf(info: object, { answers, ...more }: Survey = {}) {
  const known = Object.entries(info).filter(([, value]) => value !== undefined);
  const text = known.map(([key, value]) => `${key}:${value}\r`);
  const all = answers ?? [answer(['# Server', ...text].join('\n')), EACH_SECOND];
  return { server: 'a:1', roundTrips: [90_000, 100, 100], ahead: 0, answers: all, ...more };
}

const KIND = { cluster: false, quorum: false };

/** The only finding of one check, as one text. */
function found(check: string, info: object, more: Survey = {}, kind: object = {}): string {
  const all = judge(surveyOf({ ...FIT, ...info }, more), { ...KIND, ...kind });
  const [finding, ...others] = all.filter((each) => each.check === check);
  assert.ok(finding !== undefined && others.length === 0, JSON.stringify(all));
  const { level, message, advice } = finding;
  assert.equal(advice === undefined, level === 'ok', 'advice is for what is not right');
  return `${level}: ${message}${advice === undefined ? '' : ` -> ${advice}`}`;
}

test('a fit server has each finding once, in order', () => {
  const checks = ['round trip', 'version', 'role', 'memory', 'persistence', 'clock', 'replicas'];
  const all = judge(surveyOf(FIT), KIND);
  assert.deepEqual(
    all.map(({ check, level }) => [check, level]),
    checks.map((check) => [check, 'ok']),
  );
});

test('a server that was not reached has one finding, with advice by its kind', () => {
  for (const [failure, advice] of [
    ['WRONGPASS no', /refuses the login/],
    ['NOAUTH no', /refuses the login/],
    ['NOPERM no', /refuses the login/],
    ['WRONGPASSWORD no', /make sure that it runs/],
    ['it said NOAUTH', /make sure that it runs/],
  ] as const) {
    const [finding, ...others] = judge(surveyOf(FIT, { failure }), KIND);
    assert.deepEqual([finding?.check, finding?.level, others], ['connection', 'problem', []]);
    assert.equal(finding?.message, failure);
    assert.match(finding?.advice ?? '', advice);
  }
});

test('without INFO nothing else is known', () => {
  for (const [answers, why] of [
    [[refused('NOPERM no')], 'NOPERM no'],
    [[], 'no answer'],
  ] as const) {
    const all = judge(surveyOf(FIT, { answers }), KIND);
    assert.deepEqual(
      all.map(({ check, level }) => [check, level]),
      [
        ['round trip', 'ok'],
        ['rights', 'problem'],
      ],
    );
    assert.equal(all[1]?.message, `it does not answer INFO: ${why}`);
    assert.match(all[1]?.advice ?? '', /\+info/);
    assert.deepEqual(
      judge(surveyOf(FIT, { answers, roundTrips: [] }), KIND).map(({ check }) => check),
      ['rights'],
    );
  }
});

test('where no round trip was timed, neither it nor the clock is judged', () => {
  const checks = judge(surveyOf(FIT, { roundTrips: [] }), KIND).map(({ check }) => check);
  assert.deepEqual(checks, ['version', 'role', 'memory', 'persistence', 'replicas']);
});

test('a round trip is the median of all but the first, and warned of from 50 ms', () => {
  const trip = (...roundTrips: number[]) => found('round trip', {}, { roundTrips });
  assert.equal(trip(900_000, 3_000, 1_000, 2_000), 'ok: a round trip takes 2.00 ms');
  assert.equal(trip(900_000, 10_000, 9_000, 1_000), 'ok: a round trip takes 9.00 ms');
  assert.equal(trip(0, 49_999), 'ok: a round trip takes 50.00 ms');
  assert.match(trip(0, 50_000), /^warning: a round trip takes 50\.00 ms -> .*nearer server/);
  assert.equal(trip(7), 'ok: a round trip takes 0.00 ms');
});

describe('the version', () => {
  for (const [info, expected] of [
    [{ redis_version: '6.2.0' }, /^ok: Redis 6\.2\.0$/],
    [{ redis_version: '6.1.9' }, /^problem: Redis 6\.1\.9 -> holdfast needs Redis 6\.2 or newer$/],
    [{ redis_version: '7.0' }, /^ok: Redis 7\.0$/],
    [{ redis_version: '5.9' }, /^problem: Redis 5\.9 /],
    [{ redis_version: undefined }, /^problem: Redis /],
    [{ valkey_version: '7.2.5' }, /^ok: Valkey 7\.2\.5$/],
    [{ valkey_version: '7.1.9' }, /^problem: Valkey 7\.1\.9 -> holdfast needs Valkey 7\.2 or/],
    [{ valkey_version: '8.0.0' }, /^ok: Valkey 8\.0\.0$/],
    [{ valkey_version: '6.9.0' }, /^problem: Valkey 6\.9\.0 /],
    [{ garnet_version: '2.1' }, /^warning: Garnet 2\.1, .* -> start it with --lua --lua-trans/],
    [{ kvrocks_version: '2.14', redis_version: '4.0.0' }, /^ok: Kvrocks 2\.14$/],
  ] as const) {
    test(JSON.stringify(info), () => assert.match(found('version', info), expected));
  }
});

describe('the role', () => {
  for (const [info, kind, expected] of [
    [{}, {}, /^ok: it is a primary$/],
    [{ redis_mode: 'sentinel' }, {}, /^problem: it is a Sentinel.* -> pass it as --sentinel/],
    [{ redis_mode: 'cluster' }, {}, /^problem: it is a server of a Cluster -> pass it as --clu/],
    [{ redis_mode: 'cluster' }, { cluster: true }, /^ok: it is a primary$/],
    [{ redis_mode: undefined, server_mode: 'cluster' }, {}, /^problem: it is a server of a Clus/],
    [{ redis_mode: 'standalone', server_mode: 'cluster' }, {}, /^ok: /],
    [
      { role: 'slave', master_host: 'b', master_port: 2 },
      {},
      /^problem: it is a replica of b:2 -> name its primary/,
    ],
    [{ role: 'active-replica' }, {}, /^problem: it is an active replica .* -> turn active repl/],
  ] as const) {
    test(`${JSON.stringify(info)} of ${JSON.stringify(kind)}`, () =>
      assert.match(found('role', info, {}, kind), expected));
  }
});

test('the state of a Cluster is judged in a Cluster alone', () => {
  const state = (...more: object[]) => {
    const [info] = surveyOf(FIT).answers;
    return found('cluster', {}, { answers: [info as object, EACH_SECOND, ...more] }, IN_CLUSTER);
  };
  assert.equal(state(answer('cluster_enabled:1\r\ncluster_state:ok\r\n')), 'ok: the Cluster is up');
  const fails = state(answer('cluster_state:fail'));
  assert.match(fails, /^problem: the state of the Cluster is fail -> look at CLUSTER INFO/);
  assert.match(state(answer('')), /^problem: the state of the Cluster is unknown -> /);
  for (const unknown of [[], [refused('NOPERM cluster_state:fail')]]) {
    assert.match(state(...unknown), /^ok: its state is not known/);
  }
  assert.ok(judge(surveyOf(FIT), KIND).every(({ check }) => check !== 'cluster'));
});

const IN_CLUSTER = { cluster: true };

describe('memory', () => {
  for (const [info, expected] of [
    [{}, /^ok: it evicts nothing$/],
    [{ maxmemory: 100, used_memory: 90 }, /^ok: it evicts nothing$/],
    [{ maxmemory: 100, used_memory: 91 }, /^warning: it uses 91 % of its maxmemory -> free mem/],
    [{ maxmemory: 100, maxmemory_policy: 'allkeys-lru' }, /^problem: .*allkeys-lru: it evicts/],
    [{ maxmemory: 1, maxmemory_policy: 'allkeys-lru' }, /^problem: .* -> set maxmemory-policy/],
    [{ maxmemory_policy: 'allkeys-lru' }, /^warning: .*evicts nothing as long.* -> set maxmemory/],
    [{ maxmemory_policy: undefined }, /^warning: maxmemory-policy is unknown, /],
  ] as const) {
    test(JSON.stringify(info), () => assert.match(found('memory', info), expected));
  }
});

describe('persistence', () => {
  const off = { aof_enabled: '0' };
  for (const [info, config, kind, expected] of [
    [{}, EACH_SECOND, {}, /^ok: appendonly yes, appendfsync everysec$/],
    [{}, refused('NOPERM\nno'), {}, /^ok: appendonly yes$/],
    [{}, undefined, {}, /^ok: appendonly yes$/],
    [{}, EACH_SECOND, { quorum: true }, /^ok: appendonly yes, /],
    [off, EACH_SECOND, {}, /^warning: appendonly no: a restart forgets locks.* -> appendonly yes/],
    [off, EACH_SECOND, { quorum: true }, /^ok: appendonly no: after a restart it has no vote/],
    [
      { aof_last_write_status: 'err' },
      EACH_SECOND,
      {},
      /^problem: .*MISCONF.* -> see the server's/,
    ],
    [{ ...off, aof_last_write_status: 'err' }, EACH_SECOND, {}, /^warning: /],
    [{ rdb_last_bgsave_status: 'err' }, EACH_SECOND, {}, /^problem: /],
    [{ ...off, rdb_last_bgsave_status: 'err' }, EACH_SECOND, { quorum: true }, /^problem: /],
  ] as const) {
    test(`${JSON.stringify(info)} of ${JSON.stringify(kind)}, ${config?.text}`, () => {
      const [first] = surveyOf({ ...FIT, ...info }).answers;
      const answers = [first, config].filter((each) => each !== undefined);
      assert.match(found('persistence', info, { answers }, kind), expected);
    });
  }
});

test('a clock is told with a tenth of a ms below 10 ms, and warned of from a second', () => {
  const clock = (ahead: number) => found('clock', {}, { ahead });
  assert.equal(clock(0), "ok: its clock is 0.0 ms ahead of this machine's");
  assert.equal(clock(-9_940), "ok: its clock is 9.9 ms behind this machine's");
  assert.equal(clock(11_400), "ok: its clock is 11 ms ahead of this machine's");
  assert.match(clock(999_999), /^ok: /);
  assert.match(clock(-999_999), /^ok: its clock is 1000 ms behind /);
  for (const ahead of [1_000_000, -1_000_000]) {
    assert.match(clock(ahead), /^warning: its clock is 1000 ms .* -> set both clocks by NTP/);
  }
});

test('replicas that are not online, or more than ten seconds late, are warned of', () => {
  const replica = (state: string, lag: number) =>
    `ip=127.0.0.1,port=1,state=${state},offset=1,lag=${lag}`;
  const replicas = (...slaves: string[]) => {
    const listed = slaves.map((text, i) => [`slave${i}`, text]);
    return found('replicas', { connected_slaves: slaves.length, ...Object.fromEntries(listed) });
  };
  assert.equal(replicas(), 'ok: 0 replicas');
  assert.equal(found('replicas', { connected_slaves: undefined }), 'ok: 0 replicas');
  assert.equal(replicas(replica('online', 10)), 'ok: 1 replica');
  assert.equal(replicas(replica('online', 0), replica('online', 1)), 'ok: 2 replicas');
  const late = replicas(replica('online', 11), replica('online', 0), replica('wait_bgsave', 0));
  assert.match(late, /^warning: 2 of 3 replicas do not keep up -> look at INFO replication/);
  assert.match(found('replicas', { connected_slaves: 1 }), /^warning: 1 of 1 replicas/);
});
