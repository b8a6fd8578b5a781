/**
 * A proxy in front of a real server that imitates what services refuse. A refused command becomes a script that answers
 * the refusal, so all replies keep their order; everything else is passed on as it is.
 *
 * What services do besides, real servers do in other tests:
 * - Cluster mode with TLS alone, as ElastiCache Serverless has it: `test/topologies/tls/cluster.test.ts`.
 *   https://docs.aws.amazon.com/AmazonElastiCache/latest/dg/WhatIs.corecomponents.html
 * - Certificates that sign themselves, as Heroku has them: `test/topologies/tls`.
 *   https://devcenter.heroku.com/articles/connecting-heroku-redis
 * - Failovers by DNS, as of ElastiCache: `test/faults/dns.ts`.
 *   https://docs.aws.amazon.com/AmazonElastiCache/latest/dg/AutoFailover.html
 */

import { createHash } from 'node:crypto';
import { createServer, connect as dial, type Server, type Socket } from 'node:net';
import { slotOfKey } from './hash-slots.js';
import { frames } from './wire.js';
import { endOfValue, PUSH } from './wire-protocols.js';

/** A restriction: the command that takes the place of `words`, if it concerns them. */
interface Restriction {
  /** The public source that documents it. */
  readonly source: string;
  readonly instead: (words: readonly string[]) => readonly string[] | undefined;
  /** What the client gets in place of an answer or a push. */
  readonly answer?: (frame: Buffer) => Buffer;
}

/** The command that a server answers with this error. */
function refusing(error: string): readonly string[] {
  return ['EVAL', 'return redis.error_reply(ARGV[1])', '0', error];
}

function refused(command: RegExp, error: (words: readonly string[]) => string) {
  return (words: readonly string[]) =>
    command.test(words.slice(0, 2).join(' ')) ? refusing(error(words)) : undefined;
}

/** What is put ahead of scripts, so that a command is refused in them alone. */
function denial(command: string): string {
  const error = 'ERR This Redis command is not allowed from script';
  return [
    'local server = redis',
    `local function denied(name) return name == '${command}' end`,
    'local redis = {',
    `call = function(name, ...) if denied(name) then error('${error}', 0) end return server.call(name, ...) end,`,
    `pcall = function(name, ...) if denied(name) then return { err = '${error}' } end return server.pcall(name, ...) end,`,
    'error_reply = server.error_reply, status_reply = server.status_reply } ',
  ].join(' ');
}

function sha(text: string): string {
  return createHash('sha1').update(text).digest('hex');
}

function withoutInScripts(command: string): Restriction['instead'] {
  const prefix = denial(command);
  const known = new Map<string, string>();
  return ([name = '', script = '', ...rest]) => {
    if (/^EVAL$/i.test(name)) {
      known.set(sha(script), sha(prefix + script));
      return [name, prefix + script, ...rest];
    }
    return /^EVALSHA$/i.test(name) ? [name, known.get(script) ?? script, ...rest] : undefined;
  };
}

function oneSlot(words: readonly string[]): readonly string[] | undefined {
  const [name = '', , count = '0', ...rest] = words;
  if (!/^EVAL(SHA)?$/i.test(name)) return undefined;
  const slots = new Set(rest.slice(0, Number(count)).map(slotOfKey));
  return slots.size > 1
    ? refusing("CROSSSLOT Keys in request don't hash to the same slot")
    : undefined;
}

/** Every restriction, by name. */
export const RESTRICTIONS = {
  'no RESP3': {
    source: 'https://redis.io/docs/latest/commands/hello/',
    // A command that no server knows, since a Sentinel has no scripts.
    instead: ([name = '']) => (/^HELLO$/i.test(name) ? ['WITHOUT-HELLO'] : undefined),
  },
  'no TIME in scripts': {
    source: 'https://redis.io/docs/latest/develop/programmability/eval-intro/',
    instead: withoutInScripts('TIME'),
  },
  'no PUBLISH in scripts': {
    source: 'https://redis.io/docs/latest/commands/publish/',
    instead: withoutInScripts('PUBLISH'),
  },
  'one slot per script': {
    source: 'https://redis.io/docs/latest/operate/rc/databases/configuration/clustering/',
    instead: oneSlot,
  },
  'keys as KEYS[n] alone': {
    source: 'https://www.alibabacloud.com/help/en/apsaradb-for-redis/latest/usage-of-lua-scripts',
    instead: ([name = '', script = '']) =>
      /^EVAL$/i.test(name) && /redis\.p?call\('\w+', (?!KEYS\[)/.test(script)
        ? refusing(
            'ERR bad lua script for redis cluster, all the keys that the script uses should be passed using the KEYS array',
          )
        : undefined,
  },
  'a key in every script': {
    source: 'https://help.aliyun.com/document_detail/92942.html',
    instead: ([name = '', , count = '0']) =>
      /^EVAL(SHA)?$/i.test(name) && count === '0'
        ? refusing("ERR for redis cluster, eval/evalsha number of keys can't be negative or zero")
        : undefined,
  },
  'no CLIENT SETINFO': {
    source: 'https://redis.io/docs/latest/commands/client-setinfo/',
    instead: refused(
      /^CLIENT SETINFO/i,
      () => "ERR unknown subcommand 'SETINFO'. Try CLIENT HELP.",
    ),
  },
  'RESP2 whatever is asked for': {
    // Kvrocks: HELLO 3 is answered in RESP2, with a `proto` of 2.
    source: 'https://kvrocks.apache.org/docs/supported-commands',
    instead: ([name = '', , ...rest]) => (/^HELLO$/i.test(name) ? [name, '2', ...rest] : undefined),
  },
  'RESP3 without pushes': {
    // Kvrocks with `resp3-enabled yes`.
    source: 'https://kvrocks.apache.org/docs/supported-commands',
    instead: () => undefined,
    answer: (frame) =>
      frame[0] === PUSH ? Buffer.concat([Buffer.from('*'), frame.subarray(1)]) : frame,
  },
  'no PUBSUB in scripts': {
    source: 'https://kvrocks.apache.org/docs/supported-commands',
    instead: withoutInScripts('PUBSUB'),
  },
  'the role of an active replica': {
    source: 'https://docs.keydb.dev/docs/active-rep',
    instead: ([name = '', section = '']) =>
      /^INFO$/i.test(name) && /^(replication)?$/i.test(section)
        ? [
            'ECHO',
            'redis_version:6.3.4\r\nrole:active-replica\r\nmaster_host:10.0.0.2\r\nmaster_port:6379\r\n',
          ]
        : undefined,
  },
  'no fields of INFO': {
    source: 'https://redis.io/docs/latest/operate/rs/references/compatibility/commands/server/',
    instead: ([name = '']) => (/^INFO$/i.test(name) ? ['ECHO', ''] : undefined),
  },
  'the name Garnet': {
    source: 'https://microsoft.github.io/garnet/docs/getting-started/configuration',
    instead: ([name = '']) =>
      /^INFO$/i.test(name) ? ['ECHO', 'garnet_version:2.1.5\r\n'] : undefined,
  },
  'the name Kvrocks': {
    source: 'https://kvrocks.apache.org/docs/supported-commands',
    instead: ([name = '']) =>
      /^INFO$/i.test(name)
        ? ['ECHO', 'redis_version:4.0.0\r\nkvrocks_version:2.14.0\r\n']
        : undefined,
  },
  'database 0 only': {
    source: 'https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/',
    instead: refused(/^SELECT/i, () => 'ERR DB index is out of range'),
  },
  'no right to the database': {
    // Valkey 9.1, for a user with `db=`.
    source: 'https://valkey.io/topics/acl/',
    instead: refused(
      /^(EVAL(SHA)?|GET|MGET|SET|INCRBY)/i,
      () => 'NOPERM No permissions to access database',
    ),
  },
  'another server has all slots': {
    source: 'https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/',
    instead: ([name = '', ...rest]) =>
      /^(SET|INCRBY|EVAL(SHA)?)$/i.test(name) && rest[1] !== '0'
        ? refusing('MOVED 1 127.0.0.1:7001')
        : undefined,
  },
  'no WAIT': {
    source: 'https://redis.io/docs/latest/operate/rs/references/compatibility/commands/generic/',
    instead: refused(/^WAIT/i, ([name]) => `ERR unknown command '${name}'`),
  },
} satisfies Record<string, Restriction>;

export type RestrictionName = keyof typeof RESTRICTIONS;

/** The proxy. */
export class RestrictedServer {
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  readonly #restrictions: readonly Restriction[];
  /** Where new connections lead. */
  upstreamPort: number;
  /** Where they lead in turn, if it is set: a name may have the addresses of several servers. */
  turns: number[] = [];
  /**
   * A connection without traffic for this long is cut, in ms; 0 for never.
   *
   * Source: <https://docs.aws.amazon.com/AmazonElastiCache/latest/dg/BestPractices.Clients.Redis.ServerTimeout.html>
   */
  idleMs = 0;
  /** Answers the next command that matches, its words joined by spaces, as a proxy that cannot reach its server. */
  failsOnce: RegExp | undefined;
  /** How many connections were accepted so far. */
  accepted = 0;

  private constructor(upstreamPort: number, names: readonly RestrictionName[]) {
    this.upstreamPort = upstreamPort;
    this.#restrictions = names.map((name) => RESTRICTIONS[name]);
    this.#server = createServer((client) => this.#accept(client));
  }

  static async start(upstreamPort: number, ...names: RestrictionName[]): Promise<RestrictedServer> {
    const proxy = new RestrictedServer(upstreamPort, names);
    await new Promise<void>((resolve) => proxy.#server.listen(0, '127.0.0.1', resolve));
    return proxy;
  }

  get url(): string {
    const address = this.#server.address();
    if (address === null || typeof address === 'string') throw new Error('not listening');
    return `redis://127.0.0.1:${address.port}`;
  }

  /** Ends every connection. */
  cut(): void {
    for (const socket of this.#sockets) socket.destroy();
  }

  async stop(): Promise<void> {
    this.cut();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  #accept(client: Socket): void {
    this.accepted += 1;
    const [port = this.upstreamPort, ...others] = this.turns;
    if (others.length > 0) this.turns = [...others, port];
    const upstream = dial(port, '127.0.0.1');
    let unread: Buffer = Buffer.alloc(0);
    client.on('data', (chunk) => {
      unread = Buffer.concat([unread, chunk]);
      for (let command = commandIn(unread); command !== undefined; command = commandIn(unread)) {
        unread = unread.subarray(command.length);
        upstream.write(this.#written(command.words));
      }
    });
    this.#passAnswers(upstream, client);
    for (const [socket, other] of [
      [client, upstream],
      [upstream, client],
    ] as const) {
      this.#sockets.add(socket);
      if (this.idleMs > 0) socket.setTimeout(this.idleMs, () => socket.destroy());
      socket.on('error', () => {});
      socket.on('close', () => {
        other.destroy();
        this.#sockets.delete(socket);
      });
    }
  }

  #passAnswers(upstream: Socket, client: Socket): void {
    const changes = this.#restrictions.flatMap(({ answer }) => answer ?? []);
    if (changes.length === 0) {
      upstream.on('data', (chunk) => client.write(chunk));
      return;
    }
    frames(upstream, (bytes) => {
      const length = endOfValue(bytes, 0);
      if (length < 0) return 0;
      client.write(changes.reduce((frame, change) => change(frame), bytes.subarray(0, length)));
      return length;
    });
  }

  #written(asked: readonly string[]): Buffer {
    const fails = this.failsOnce?.test(asked.join(' '));
    if (fails) this.failsOnce = undefined;
    const words = fails ? refusing('ERR upstream failure') : asked;
    const kept = this.#restrictions.reduce<readonly string[]>(
      (each, { instead }) => instead(each) ?? each,
      words,
    );
    const parts = kept.map((word) => `$${Buffer.byteLength(word, 'latin1')}\r\n${word}\r\n`);
    return Buffer.from(`*${kept.length}\r\n${parts.join('')}`, 'latin1');
  }
}

/** The first command in `bytes`, an array of bulk strings; nothing if its end is not there yet. */
function commandIn(bytes: Buffer): { words: string[]; length: number } | undefined {
  let at = 0;
  const line = () => {
    const end = bytes.indexOf('\r\n', at);
    if (end < 0) return undefined;
    const text = bytes.toString('latin1', at, end);
    at = end + 2;
    return text;
  };
  const count = line();
  if (count === undefined) return undefined;
  const words: string[] = [];
  for (let i = 0; i < Number(count.slice(1)); i++) {
    const size = line();
    if (size === undefined) return undefined;
    const end = at + Number(size.slice(1));
    if (bytes.length < end + 2) return undefined;
    words.push(bytes.toString('latin1', at, end));
    at = end + 2;
  }
  return { words, length: at };
}
