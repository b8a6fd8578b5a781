/** The rights that `holdfast doctor` asks for, and what it makes of a server's answers. */

import assert from 'node:assert/strict';
import { test } from 'node:test';

interface Right {
  readonly words: readonly string[];
  readonly trial: readonly string[] | undefined;
  readonly use: string;
}

interface Answer {
  readonly text: string;
  readonly refused: boolean;
}

interface Found {
  readonly check: string;
  readonly level: string;
  readonly message: string;
  readonly advice?: string;
}

interface Internals {
  rights(scope: object): Right[];
  questions(all: readonly Right[], user: string, isLogin: boolean): string[][];
  judgeRights(
    all: readonly Right[],
    user: string,
    name: string,
    answers: readonly Answer[],
  ): Found[];
}

// They are internal: they are reached by path, past the package's exports.
const { rights, questions, judgeRights } = require('../../../../dist/internals.js') as Internals;

const SCOPE = { name: 'job', prefix: 'p:', db: 0, cluster: false, quorum: false };
const wordsOf = (scope: object) =>
  rights({ ...SCOPE, ...scope }).map(({ words }) => words.join(' '));

const OF_SERVER = ['INFO server', 'TIME', 'EVAL x 0', 'EVALSHA x 0'];
const ofKey = (key: string) => [`SET ${key} x`, `GET ${key}`, `DEL ${key}`, `PEXPIRE ${key} 1`];
const ofLock = (lock: string, sides: string) => [
  ...ofKey(lock),
  `EXISTS ${sides}queue`,
  `PTTL ${lock}`,
  ...ofKey(`${sides}queue`),
  `INCRBY ${sides}fence 1`,
  ...['HSET', 'ZADD', 'HGET', 'HDEL', 'ZREM'].map((command) =>
    command === 'ZADD'
      ? `ZADD ${sides}queue 1 x`
      : `${command} ${sides}queue x${command === 'HSET' ? ' x' : ''}`,
  ),
  `ZRANGE ${sides}queue 0 0`,
  `ZRANGEBYSCORE ${sides}queue 0 0`,
  `ZRANK ${sides}queue x`,
  `ZSCORE ${sides}queue x`,
  `ZCOUNT ${sides}queue 0 0`,
];
const ofCounter = (key: string) => [`MGET ${key}`, `GET ${key}`, `SET ${key} 1`, `INCRBY ${key} 1`];
const CHANNEL = 'holdfast:{doctor}';
const OF_MESSAGES = [`PUBLISH ${CHANNEL} x`, `PUBSUB NUMSUB ${CHANNEL}`, `SUBSCRIBE ${CHANNEL}`];

test('the rights are those of one lock, of the common counter, of messages and of lists', () => {
  const lock = [...OF_SERVER, ...ofLock('p:job', '{p:job}:')];
  assert.deepEqual(wordsOf({}), [
    ...lock,
    ...ofCounter('holdfast:fence'),
    ...OF_MESSAGES,
    'SCAN 0',
  ]);
  assert.deepEqual(wordsOf({ quorum: true }), [...lock, ...OF_MESSAGES, 'SCAN 0']);
  assert.deepEqual(wordsOf({ quorum: true, db: 2 }), [
    ...lock,
    'SELECT 2',
    ...OF_MESSAGES,
    'SCAN 0',
  ]);
  assert.deepEqual(wordsOf({ cluster: true }), [
    ...lock,
    ...ofCounter('holdfast:{0}:fence'),
    'CLUSTER SLOTS',
    'ASKING',
    ...[`SPUBLISH ${CHANNEL} x`, `SSUBSCRIBE ${CHANNEL}`, `SUNSUBSCRIBE ${CHANNEL}`],
    'SCAN 0',
  ]);
  assert.deepEqual(wordsOf({ prefix: '{p}:', quorum: true }), [
    ...OF_SERVER,
    ...ofLock('{p}:job', '{p}:job::'),
    ...OF_MESSAGES,
    'SCAN 0',
  ]);
});

test('each right is of one use, and what is tried changes nothing', () => {
  const all = rights({ ...SCOPE, cluster: true, db: 1 });
  const uses = ['needed', 'plain', 'messages', 'lists'];
  const counts = uses.map((use) => [use, all.filter((each) => each.use === use).length]);
  const needed = all.length - 4 - 3 - 1;
  assert.deepEqual(Object.fromEntries(counts), { needed, plain: 4, messages: 3, lists: 1 });
  const trials = new Map(all.map(({ words, trial }) => [words.join(' '), trial?.join(' ')]));
  assert.equal(trials.get('SET p:job x'), 'SET p:job x NONSENSE');
  assert.equal(trials.get('INCRBY {p:job}:fence 1'), 'INCRBY {p:job}:fence nonsense');
  assert.equal(trials.get('SET holdfast:{0}:fence 1'), 'SET holdfast:{0}:fence 1 NONSENSE');
  assert.equal(trials.get('SCAN 0'), 'SCAN 0 COUNT 1');
  assert.equal(trials.get('GET p:job'), 'GET p:job');
  for (const command of ['ASKING', `SSUBSCRIBE ${CHANNEL}`, `SUNSUBSCRIBE ${CHANNEL}`]) {
    assert.ok(trials.has(command) && trials.get(command) === undefined, command);
  }
  assert.equal(trials.get(`SPUBLISH ${CHANNEL} x`), `SPUBLISH ${CHANNEL} x`);
});

const LIST: readonly Right[] = [
  { words: ['GET', 'p:job'], trial: ['GET', 'p:job'], use: 'needed' },
  { words: ['HGET', '{p:job}:queue', 'x'], trial: ['HGET', '{p:job}:queue', 'x'], use: 'needed' },
  { words: ['GET', 'holdfast:fence'], trial: ['GET', 'holdfast:fence'], use: 'plain' },
  { words: ['PUBSUB', 'NUMSUB', 'c'], trial: ['PUBSUB', 'NUMSUB', 'c'], use: 'messages' },
  { words: ['SUBSCRIBE', 'c'], trial: undefined, use: 'messages' },
  { words: ['SCAN', '0'], trial: ['SCAN', '0', 'COUNT', '1'], use: 'lists' },
];

test('the server is asked for each right, and is tried where the user is the login', () => {
  const asked = LIST.map(({ words }) => ['ACL', 'DRYRUN', 'u', ...words]);
  assert.deepEqual(questions(LIST, 'u', false), asked);
  const tried = LIST.map(({ trial }) => trial ?? ['TIME']);
  assert.deepEqual(questions(LIST, 'u', true), [...asked, ...tried]);
});

const OK: Answer = { text: 'OK', refused: false };
const told = (texts: Readonly<Record<number, string>>): Answer[] =>
  LIST.map((_, i) => ({ text: texts[i] ?? 'OK', refused: false }));
const DENIED: Answer[] = LIST.map(() => ({ text: 'NOPERM no ACL', refused: true }));
const tried = (texts: Readonly<Record<number, string>>): Answer[] => [
  ...DENIED,
  ...LIST.map((_, i) => ({ text: texts[i] ?? 'ERR syntax', refused: true })),
];
const judged = (answers: readonly Answer[]) => judgeRights(LIST, 'u', 'job', answers);

test('a user with all rights is told so, as far as it is known', () => {
  const check = 'rights';
  const all = { check, level: 'ok', message: 'the user u may do all that is needed' };
  assert.deepEqual(judged(told({})), [all]);
  // What was tried besides counts only where the server does not tell.
  assert.deepEqual(judged([...told({}), ...tried({ 0: 'NOPERM' }).slice(LIST.length)]), [all]);
  const [found] = judged(tried({ 4: 'NOPERM x' }));
  assert.deepEqual(found, {
    check,
    level: 'ok',
    message: 'the user u may do all that could be tried without changing anything',
  });
});

test('rights that nobody tells of are a warning with the reason', () => {
  const [found, ...more] = judged(DENIED);
  assert.deepEqual([found?.level, more], ['warning', []]);
  assert.match(`${found?.message}`, /^the rights of the user u are not known: NOPERM no ACL$/);
  assert.match(`${found?.advice}`, /ACL DRYRUN/);
  assert.match(`${judged([])[0]?.message}`, /: no answer$/);
});

test('what is missing is told by use, with the rule that grants it', () => {
  const found = judged(
    told({
      0: "User u has no permissions to run the 'get' command",
      1: "User u has no permissions to access the '{p:job}:queue' key",
      2: "User u has no permissions to access the 'holdfast:fence' key",
      3: "User u has no permissions to run the 'pubsub|numsub' command",
      4: "User u has no permissions to access the 'c' channel",
      5: "User u has no permissions to run the 'scan' command",
    }),
  );
  const rule = ({ advice = '' }: Found) =>
    /^grant (.*) \(docs.*refused: (.*)$/.exec(advice)?.slice(1);
  assert.deepEqual(
    found.map((each) => [each.level, ...(rule(each) ?? [])]),
    [
      ['problem', '+get ~{p:*}:*', 'GET p:NAME, HGET {p:NAME}:queue x'],
      ['warning', '~holdfast:*', 'GET holdfast:fence'],
      ['warning', '+pubsub|numsub &holdfast:*', 'PUBSUB NUMSUB c, SUBSCRIBE c'],
      ['warning', '+scan', 'SCAN 0'],
    ],
  );
  for (const { message } of found) assert.match(message, /^the user u may not /);
});

test('a refusal of what was tried counts, and what was not tried is named', () => {
  const [found, ...more] = judged(tried({ 0: 'NOPERM no get', 3: 'ERR NOPERM' }));
  assert.deepEqual([found?.level, more], ['problem', []]);
  assert.match(`${found?.advice}`, /^grant \+get .*refused: GET p:NAME; not tried.*: SUBSCRIBE$/);
  const [both] = judged([...told({ 0: 'no get' }), OK]);
  assert.doesNotMatch(`${both?.advice}`, /not tried/);
});

test('the same rule is named once, and keys by their pattern', () => {
  const keys = ['p:job', '{p:job}:queue', '{p:job}:fence', '{p}:job::queue', 'holdfast:fence'];
  const all = keys.map((key) => ({ words: ['DEL', key], trial: undefined, use: 'needed' }));
  const answers = all.map(() => ({ text: 'no permission for one of the keys', refused: false }));
  const [found] = judgeRights(all, 'u', 'job', answers);
  const patterns = '~p:* ~{p:*}:* ~{p}:*::* ~holdfast:*';
  assert.ok(found?.advice?.startsWith(`grant ${patterns} (docs`), found?.advice);
});
