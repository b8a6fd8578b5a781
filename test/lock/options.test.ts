import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { connect, holdfast, type LockManager } from '../support/holdfast.js';
import { FaultProxy } from '../support/proxy.js';
import { RedisServer } from '../support/server.js';

let server: RedisServer;
let proxy: FaultProxy;
let locks: LockManager;

before(async () => {
  server = await RedisServer.start();
  proxy = await FaultProxy.start(server.port);
  locks = await connect(proxy.url);
});

after(async () => {
  await locks.close();
  await proxy.stop();
  await server.stop();
});

type Case = readonly [
  what: string,
  args: unknown[],
  code: string,
  kind: ErrorConstructor,
  message: RegExp,
];

const NAMES: readonly Case[] = [
  ['a number', [42], 'ERR_INVALID_ARG_TYPE', TypeError, /must be a string, got number 42/],
  ['nothing', [], 'ERR_INVALID_ARG_TYPE', TypeError, /must be a string, got undefined/],
  ['an empty text', [''], 'ERR_INVALID_ARG_VALUE', TypeError, /must not be empty/],
  ['half a surrogate pair', ['a\ud800'], 'ERR_INVALID_ARG_VALUE', TypeError, /well-formed/],
  ['1025 bytes', ['x'.repeat(1025)], 'ERR_OUT_OF_RANGE', RangeError, /1024 bytes.*got 1025/],
  ['1026 bytes in 342 letters', ['€'.repeat(342)], 'ERR_OUT_OF_RANGE', RangeError, /got 1026/],
  ['a fence key', ['a:fence'], 'ERR_INVALID_ARG_VALUE', TypeError, /must not end in ":fence"/],
  ['a queue key', ['a:queue'], 'ERR_INVALID_ARG_VALUE', TypeError, /must not end in ":queue"/],
  ['a holders key', ['a:shared'], 'ERR_INVALID_ARG_VALUE', TypeError, /must not end in/],
];

const OPTIONS: readonly Case[] = [
  ['an array', ['a', []], 'ERR_INVALID_ARG_TYPE', TypeError, /must be an object, got an array/],
  [
    'a number of ms',
    ['a', 5_000],
    'ERR_INVALID_ARG_TYPE',
    TypeError,
    /got number 5000: write \{ ttl: 5000 \}/,
  ],
  [
    'a length of time',
    ['a', '5s'],
    'ERR_INVALID_ARG_TYPE',
    TypeError,
    /got "5s": write \{ ttl: "5s" \}/,
  ],
  ['null', ['a', null], 'ERR_INVALID_ARG_TYPE', TypeError, /must be an object, got null/],
  [
    'an unknown option',
    ['a', { tttl: 5 }],
    'ERR_INVALID_ARG_TYPE',
    TypeError,
    /no option "tttl"; did you mean "ttl"/,
  ],
  [
    'an option of another library',
    ['a', { expire: 5 }],
    'ERR_INVALID_ARG_TYPE',
    TypeError,
    /no option "expire"; it has awaitRelease, label, leaveToExpire, limit, linger, maxHold, .*ttl/,
  ],
  [
    'a ttl of text',
    ['a', { ttl: '5' }],
    'ERR_INVALID_ARG_VALUE',
    TypeError,
    /ttl must be a number of ms, or a text with a unit .*got "5": write 5 for ms, or '5s' for seconds/,
  ],
  [
    'a ttl of 49 ms',
    ['a', { ttl: 49 }],
    'ERR_OUT_OF_RANGE',
    RangeError,
    /50 to 9000000000000000, got 49/,
  ],
  [
    'a ttl whose end is not exact',
    ['a', { ttl: 9_000_000_000_000_001 }],
    'ERR_OUT_OF_RANGE',
    RangeError,
    /got 9000000000000001/,
  ],
  [
    'a ttl of half a ms',
    ['a', { ttl: 50.5 }],
    'ERR_OUT_OF_RANGE',
    RangeError,
    /whole ms.*got 50.5/,
  ],
  ['a ttl of NaN', ['a', { ttl: Number.NaN }], 'ERR_OUT_OF_RANGE', RangeError, /got NaN/],
  [
    'leaveToExpire for a lock that is renewed',
    ['a', { leaveToExpire: true }],
    'ERR_INVALID_ARG_VALUE',
    TypeError,
    /leaveToExpire needs renew: false/,
  ],
  [
    'leaveToExpire of text',
    ['a', { renew: false, leaveToExpire: 'yes' }],
    'ERR_INVALID_ARG_TYPE',
    TypeError,
    /boolean/,
  ],
  [
    'a label of 5',
    ['a', { label: 5 }],
    'ERR_INVALID_ARG_TYPE',
    TypeError,
    /label must be a string/,
  ],
];

const HOLDS: readonly Case[] = [
  ['renew of 1', ['a', { renew: 1 }], 'ERR_INVALID_ARG_TYPE', TypeError, /renew must be a boolean/],
  [
    'a maxHold of 49 ms',
    ['a', { maxHold: 49 }],
    'ERR_OUT_OF_RANGE',
    RangeError,
    /maxHold.*50 or more, got 49/,
  ],
  ['no time to stall', ['a', { stallTimeout: 0 }], 'ERR_OUT_OF_RANGE', RangeError, /stallTimeout/],
];

const SIGNALS: readonly Case[] = [
  [
    'a signal of text',
    ['a', { signal: 'stop' }],
    'ERR_INVALID_ARG_TYPE',
    TypeError,
    /must be an AbortSignal/,
  ],
  ...[
    { aborted: false, addEventListener() {} },
    { aborted: false, reason: undefined, addEventListener() {}, removeEventListener() {} },
    Object.create(AbortSignal.prototype),
    new AbortController(),
    new EventTarget(),
    () => {},
  ].map(
    (signal, i): Case => [
      `what only looks like a signal (${i})`,
      ['a', { signal }],
      'ERR_INVALID_ARG_TYPE',
      TypeError,
      /signal must be an AbortSignal, got an? (object|function)/,
    ],
  ),
  ['a signal of null', ['a', { signal: null }], 'ERR_INVALID_ARG_TYPE', TypeError, /got null/],
];

const WAITS: readonly Case[] = [
  ['a negative wait', ['a', { wait: -1 }], 'ERR_OUT_OF_RANGE', RangeError, /0 or more, got -1/],
  ['a wait of null', ['a', { wait: null }], 'ERR_INVALID_ARG_TYPE', TypeError, /got null/],
];

type Call = (...args: never[]) => Promise<unknown>;

function refuses(method: 'acquire' | 'tryAcquire', cases: readonly Case[]): void {
  for (const [what, args, code, kind, message] of cases) {
    test(`${method}: refuses ${what} before anything is sent`, async () => {
      const before = proxy.requestBytes;
      const call = locks[method].bind(locks) as unknown as Call;
      await assert.rejects(call(...(args as never[])), (error: Error & { code: string }) => {
        assert.ok(error instanceof kind, String(error));
        assert.equal(error.code, code);
        assert.match(error.message, message);
        return true;
      });
      assert.equal(proxy.requestBytes, before);
    });
  }
}

refuses('acquire', [...NAMES, ...OPTIONS, ...HOLDS, ...WAITS, ...SIGNALS]);
refuses('tryAcquire', [...NAMES, ...OPTIONS, ...HOLDS]);

test('request: refuses a callback that is none before anything is sent', async () => {
  const before = proxy.requestBytes;
  const call = locks.request.bind(locks) as unknown as Call;
  for (const args of [['a'], ['a', {}], ['a', {}, 5], ['a', { tll: 5 }, () => {}], [5, () => {}]]) {
    await assert.rejects(call(...(args as never[])), { name: 'TypeError' });
  }
  assert.equal(proxy.requestBytes, before);
});

test('tryAcquire: knows no wait', async () => {
  const call = locks.tryAcquire.bind(locks) as unknown as Call;
  await assert.rejects(call(...(['a', { wait: 5 }] as never[])), /tryAcquire has no option "wait"/);
});

test('acquire: takes any other name', async () => {
  const names = [
    'x',
    ' ',
    '\0',
    'ключ',
    '🔒',
    '{tag}:x',
    'a}b',
    '{}',
    'fence',
    'queue',
    'x'.repeat(1024),
  ];
  const taken = await Promise.all(names.map((name) => locks.acquire(name)));
  const fences = new Set(taken.map((lock) => lock.fence));
  assert.ok(fences.size > 0);
  for (const lock of taken) assert.equal(await lock.release(), true);
});

function messageAbout(lock: string | undefined): RegExp {
  if (lock === undefined) return /must not end in/;
  return lock === 'all' ? /the fences of all locks/ : new RegExp(`"${lock}" keeps`);
}

test('a key that another lock needs is refused, whether its name or the prefix brings it about', async () => {
  for (const [prefix, name, lock] of [
    ['{x}:', 'queue', 'x'],
    ['{x}:', 'fence', 'x'],
    ['{x}:', 'shared', 'x'],
    ['{x}:', 'waiters', 'x'],
    ['{x}:', 'waiting', 'x'],
    ['{lock:x}:que', 'ue', 'lock:x'],
    ['lock:{x}::', 'fence', 'lock:{x}'],
    ['lock:{x}:', ':fence', undefined],
    ['', '{x}:queue', undefined],
    ['', 'holdfast:fence', undefined],
    ['holdfast:', 'fence', 'all'],
    ['holdfast:fen', 'ce', 'all'],
    ['holdfast:{42}:', 'fence', 'all'],
  ] as const) {
    const other = await connect(proxy.url, { prefix });
    const before = proxy.requestBytes;
    const message = messageAbout(lock);
    const refused = { code: 'ERR_INVALID_ARG_VALUE', name: 'TypeError', message };
    const token = 'hf1.c.1';
    await assert.rejects(other.acquire(name), refused);
    await assert.rejects(other.tryAcquire(['a', name]), refused);
    await assert.rejects(
      other.request(name, () => {}),
      refused,
    );
    await assert.rejects(other.adopt({ name, token }), refused);
    await assert.rejects(other.forceRelease(name), refused);
    assert.equal(proxy.requestBytes, before);
    await other.close();
  }
  for (const [prefix, name] of [
    ['lock:', 'queue'],
    ['{x}', 'queue'],
    ['lock:{x}:', 'queue'],
    ['app::', 'queue'],
    ['{{x}}:', 'queue'],
    ['{x}:', 'a queue'],
    ['holdfast:', 'queue'],
    ['holdfast:x', 'fence'],
    ['holdfast:x:', 'fence'],
    ['holdfast:{x}:', 'fence'],
  ] as const) {
    const other = await connect(server.url, { prefix });
    assert.equal(await (await other.acquire(name)).release(), true);
    await other.close();
  }
});

test('acquire: a thousand names at most, and no time is lost with more', async () => {
  const many = Array.from({ length: 50_000 }, (_, i) => `many:${i}`);
  const before = proxy.requestBytes;
  const began = performance.now();
  const refused = { name: 'RangeError', code: 'ERR_OUT_OF_RANGE', message: /1000, got 50000/ };
  await assert.rejects(locks.acquire(many), refused);
  await assert.rejects(locks.tryAcquire(many), refused);
  assert.ok(performance.now() - began < 1_000);
  assert.equal(proxy.requestBytes, before);
  for (const count of [256, 257, 1_000]) {
    const names = many.slice(0, count);
    const { requests } = locks.stats();
    const set = await locks.acquire(names, { ttl: 60_000 });
    const sent = locks.stats().requests - requests;
    // One script takes this number of locks; more are taken one after the other.
    if (count > 256) assert.ok(sent >= count, `${sent} requests`);
    else assert.ok(sent < 5, `${sent} requests`);
    assert.equal(await set.release(), true);
  }
});

test('acquire: an option that is undefined is not given', async () => {
  const lock = await locks.acquire('a', { ttl: undefined, label: undefined } as never);
  assert.ok(lock.remaining > 9_000);
  await lock.release();
});

test('extend: refuses a wrong ttl before anything is sent', async () => {
  const lock = await locks.acquire('a');
  const before = proxy.requestBytes;
  await assert.rejects(lock.extend(1), { name: 'RangeError', code: 'ERR_OUT_OF_RANGE' });
  assert.equal(proxy.requestBytes, before);
  await lock.release();
});

test('connect: the defaults of a manager hold for its locks', async () => {
  const brief = await connect(server.url, { prefix: 'p:', ttl: 7_000, wait: 0 });
  const lock = await brief.acquire('a');
  assert.ok(lock.remaining > 0 && lock.remaining <= 7_000);
  assert.equal(await server.admin.get('p:a'), lock.token);
  await assert.rejects(brief.acquire('a'), { code: 'ERR_LOCK_TIMEOUT' });
  await brief.close();
});

test('options are read as the platform reads them: inherited ones and getters, too', async () => {
  class Options {
    get ifAvailable(): boolean {
      return true;
    }
  }
  const lock = await locks.acquire('a');
  for (const options of [Object.create({ ifAvailable: true }), new Options()]) {
    assert.equal(await locks.request('a', options, (given) => given), null);
  }
  const misspelt = Object.create({ ifAvailble: true });
  await assert.rejects(
    locks.request('a', misspelt, () => {}),
    { message: /no option "ifAvailble"; did you mean "ifAvailable"/ },
  );
  const inherited = await connect(server.url, Object.create({ prefix: 'inherited:' }));
  await (await inherited.acquire('a')).release();
  assert.equal(await server.admin.get('lock:a'), lock.token);
  await inherited.close();
  await lock.release();
});

test('options: what other code adds to all objects is no option', async () => {
  const everything = Object.prototype as unknown as Record<string, unknown>;
  Object.assign(everything, { steal: true, odd: 1 });
  try {
    const lock = await locks.acquire('a');
    await assert.rejects(locks.acquire('a', { wait: 0 }), { code: 'ERR_LOCK_TIMEOUT' });
    assert.equal(await lock.release(), true);
  } finally {
    delete everything['steal'];
    delete everything['odd'];
  }
});

test('LockManager: for instanceof and as a token; only connect makes one', () => {
  const { LockManager: token } = holdfast;
  assert.ok(locks instanceof token);
  const container = new Map<unknown, unknown>([[token, locks]]);
  assert.equal(container.get(locks.constructor), locks);
  const illegal = { name: 'TypeError', code: 'ERR_ILLEGAL_CONSTRUCTOR', message: /connect\(\)/ };
  assert.throws(() => Reflect.construct(token, []), illegal);
  class Mine extends (token as unknown as new () => object) {}
  assert.throws(() => new Mine(), illegal);
});

test('without a wait, acquire and request wait for 10 s', async () => {
  const [waiter, holder] = await Promise.all([connect(server.url), connect(server.url)]);
  const held = await holder.acquire('awaited');
  const calls = [
    waiter.acquire('awaited'),
    waiter.acquire(['awaited', 'beside']),
    waiter.request('awaited', () => assert.fail('it is held')),
    waiter.request(['awaited', 'beside'], () => assert.fail('it is held')),
  ];
  for (const { reason } of (await Promise.allSettled(calls)) as PromiseRejectedResult[]) {
    assert.equal(reason?.code, 'ERR_LOCK_TIMEOUT');
    assert.ok(reason.waited > 9_000 && reason.waited < 60_000, String(reason.waited));
  }
  assert.equal(held.held, true);
  await Promise.all([waiter.close(), holder.close()]);
});

const CONNECT: readonly Case[] = [
  [
    'an unknown option',
    [undefined, { tlss: {} }],
    'ERR_INVALID_ARG_TYPE',
    TypeError,
    /connect has no option "tlss"; did you mean "tls"/,
  ],
  [
    'a prefix of 5',
    [undefined, { prefix: 5 }],
    'ERR_INVALID_ARG_TYPE',
    TypeError,
    /prefix must be a string/,
  ],
  [
    'a client name with a space',
    [undefined, { clientName: 'a b' }],
    'ERR_INVALID_ARG_VALUE',
    TypeError,
    /clientName/,
  ],
  [
    'no time between polls',
    [undefined, { besideOldCode: { retryJitter: 100 } }],
    'ERR_INVALID_ARG_TYPE',
    TypeError,
    /options\.besideOldCode\.retryDelay must be a number, got undefined/,
  ],
  [
    'polls without a pause',
    [undefined, { besideOldCode: { retryDelay: 0 } }],
    'ERR_OUT_OF_RANGE',
    RangeError,
    /retryDelay must be whole ms, 1 to 600000/,
  ],
  [
    'a jitter above the delay',
    [undefined, { besideOldCode: { retryDelay: 100, retryJitter: 101 } }],
    'ERR_OUT_OF_RANGE',
    RangeError,
    /retryJitter must be whole ms, 0 to 100, got 101/,
  ],
  [
    'a word of another library',
    [undefined, { besideOldCode: { retryInterval: 10 } }],
    'ERR_INVALID_ARG_TYPE',
    TypeError,
    /options\.besideOldCode has no option "retryInterval"/,
  ],
  [
    'no time to connect',
    [undefined, { connectTimeout: 0 }],
    'ERR_OUT_OF_RANGE',
    RangeError,
    /connectTimeout/,
  ],
  [
    'no time for commands',
    [undefined, { commandTimeout: 0 }],
    'ERR_OUT_OF_RANGE',
    RangeError,
    /commandTimeout/,
  ],
];

for (const [what, args, code, kind, message] of CONNECT) {
  test(`connect: refuses ${what}`, async () => {
    const call = connect as unknown as Call;
    await assert.rejects(call(...(args as never[])), (error: Error & { code: string }) => {
      assert.ok(error instanceof kind);
      assert.equal(error.code, code);
      assert.match(error.message, message);
      return true;
    });
  });
}

test('connect: a password of the wrong type is not shown', async () => {
  const call = connect as unknown as Call;
  const given = [undefined, { password: ['s3cret'] }] as never[];
  await assert.rejects(call(...given), (error: Error) => !error.message.includes('s3cret'));
});

test('a lock without an end is refused, with the reason and what to use', async () => {
  const locks = await connect('memory:');
  for (const ttl of [null, Number.POSITIVE_INFINITY]) {
    await assert.rejects(locks.acquire('x', { ttl: ttl as number }), {
      code: ttl === null ? 'ERR_INVALID_ARG_TYPE' : 'ERR_OUT_OF_RANGE',
      message: /^ttl must be whole ms, 50 to \d+, got \w+: .* outlive the crash .* '365d'$/,
    });
  }
  await locks.close();
});
