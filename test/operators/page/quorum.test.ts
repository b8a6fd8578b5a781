/** `holdfast ui` on a quorum of which a server is away: what it tells a page, without a browser. */

import assert from 'node:assert/strict';
import { type AddressInfo, createServer } from 'node:net';
import { Readable } from 'node:stream';
import type { ReadableStream } from 'node:stream/web';
import { afterEach, beforeEach, test } from 'node:test';
import { connect, type LockManager } from '../../support/holdfast.js';
import { RedisServer } from '../../support/server.js';
import { environment, Running } from '../cli/support.js';

/** The answer of one server about a lock: its holder, or why the server could not be asked. */
interface Vote {
  readonly by: string | null;
  readonly failure: string | null;
}

/** An event of the page: the locks that it lists, or a failure. */
interface Told {
  readonly kind: 'state' | 'change' | 'failure';
  readonly rows?: readonly { readonly votes: readonly Vote[] }[];
}

/** Yields the events that `running` sends to its page. */
async function* toldBy(running: Running): AsyncGenerator<Told, never> {
  const url = new URL(JSON.parse(running.stdout).url);
  const { headers } = await fetch(url, { redirect: 'manual' });
  const cookie = headers.getSetCookie()[0]?.split(';')[0] ?? '';
  const { body } = await fetch(new URL('/events', url), { headers: { cookie } });
  let text = '';
  for await (const chunk of Readable.fromWeb(body as ReadableStream)) {
    const events = (text + Buffer.from(chunk).toString()).split('\n\n');
    text = events.pop() ?? '';
    for (const event of events) {
      const [, kind, data = ''] = /^event: (state|change|failure)\ndata: (.*)$/.exec(event) ?? [];
      if (kind !== undefined) yield { ...JSON.parse(data), kind };
    }
  }
  assert.fail('the stream has ended');
}

let three: RedisServer[];
let quorum: LockManager;
let running: Running | undefined;

beforeEach(async () => {
  three = await RedisServer.startSeveral(3);
  const urls = three.map(({ url }) => url);
  quorum = await connect({ quorum: urls }, { label: 'web-9', longestLease: 0 });
  await quorum.acquire('job', { ttl: 600_000 });
});

afterEach(async () => {
  running?.child.kill('SIGTERM');
  const ended = await running?.ended;
  await quorum.close();
  await Promise.all(three.map((each) => each.stop()));
  assert.equal(ended?.code, 0, ended?.stderr);
});

/** Serves the page of these servers. */
async function serve(urls: readonly string[]): Promise<AsyncGenerator<Told, never>> {
  const place = urls.flatMap((url) => ['--quorum', url]);
  const args = ['ui', '--json', '--interval', '100ms', ...place, '--longest-lease', '0ms'];
  running = new Running(args, environment());
  await running.says('"url"');
  return toldBy(running);
}

/** Checks that the first two servers name the holder of the only lock, and returns the vote of the third. */
function third({ kind, rows }: Told): Vote | undefined {
  const [first, second, last] = rows?.[0]?.votes ?? [];
  assert.deepEqual([first?.by, second?.by], ['web-9', 'web-9'], kind);
  return last;
}

test('a server that is away while the page begins is told of, and asked as soon as it is back', async () => {
  await three[2]?.kill();
  const told = await serve(three.map(({ url }) => url));
  const { value } = await told.next();
  assert.equal(value.kind, 'state');
  assert.match(third(value)?.failure ?? '', /Connection refused .*; --quorum named it$/);
  await three[2]?.start();
  for await (const { rows } of told) if (rows?.[0]?.votes[2]?.failure === null) break;
});

test('a server that never answers is asked by one connection at a time, however often the page looks', async () => {
  let [open, most] = [0, 0];
  const deaf = createServer((socket) => {
    open += 1;
    most = Math.max(most, open);
    socket.on('error', () => {});
    socket.once('close', () => {
      open -= 1;
    });
    socket.resume();
  });
  await new Promise<void>((resolve) => deaf.listen(0, '127.0.0.1', resolve));
  try {
    const url = `redis://127.0.0.1:${(deaf.address() as AddressInfo).port}`;
    const told = await serve([...three.slice(0, 2).map((each) => each.url), url]);
    const { value } = await told.next();
    assert.match(third(value)?.failure ?? '', /no connection within/);
    const before = most;
    for (let looks = 0; looks < 10; looks++) {
      assert.equal((await told.next()).value.kind, 'change');
    }
    // One of the next attempt may be there before the end of the last is known.
    assert.ok(most <= before + 1, `${most} at once, ${before} before the first look`);
  } finally {
    deaf.close();
  }
});
