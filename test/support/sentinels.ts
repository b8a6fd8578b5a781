/** Sentinel deployments that tests start themselves: a master, its replicas, and their Sentinels. */

import type { SentinelTarget } from 'holdfast';
import { quiet } from './crew.js';
import { isInSync, isPrimary } from './replication.js';
import { RedisServer, type ServerTls } from './server.js';
import { until } from './wait.js';

export interface SentinelsOptions {
  /** How many replicas follow the master; one by default. */
  readonly replicas?: number;
  /** The password of the master and its replicas. */
  readonly password?: string;
  /** The password of the Sentinels. */
  readonly sentinelPassword?: string;
  /** How long the master may be silent before a Sentinel takes it for gone, in ms; 1000 by default. */
  readonly downAfter?: number;
  /** A proxy stands in front of the master and each replica, for all: clients, Sentinels, and each other. */
  readonly proxied?: boolean;
  /** Speak TLS, all with each other and with clients. */
  readonly tls?: ServerTls;
  /** Further arguments of the master and its replicas. */
  readonly args?: readonly string[];
  /** The binary that all of them run; by default that of `serverBinary`. */
  readonly binary?: string;
}

/** The Sentinels' name for the master. */
const NAME = 'mymaster';
const SENTINELS = 3;
const QUORUM = 2;
/**
 * Sentinels ask a replica every ten seconds whom it follows, and correct what they find wrong twice,
 * four to eight seconds apart, in ms.
 */
const CORRECTION = 60_000;

/**
 * Three Sentinels, a master and its replicas. A failover takes two to four seconds. On a busy machine
 * Sentinels may begin one by themselves: the master of a moment ago may be a replica now.
 */
export class Sentinels {
  readonly name = NAME;
  /** The first master, then its replicas. A failover changes their roles, not their order. */
  readonly servers: RedisServer[] = [];
  readonly sentinels: RedisServer[] = [];
  #logins: Partial<SentinelTarget> = {};

  private constructor() {}

  /** Starts a deployment, and waits until a failover can succeed. */
  static async start(options: SentinelsOptions = {}): Promise<Sentinels> {
    const deployment = new Sentinels();
    try {
      await deployment.#start(options);
      return deployment;
    } catch (error) {
      await deployment.stop();
      throw error;
    }
  }

  /** The target of `connect`. */
  get target(): SentinelTarget {
    const sentinels = this.sentinels.map(({ port, url, options }) =>
      options.tls === undefined ? `127.0.0.1:${port}` : url,
    );
    return { sentinels, master: NAME, ...this.#logins };
  }

  /** The server that the Sentinels name, once all that run agree. */
  async master(): Promise<RedisServer> {
    const watching = this.sentinels.filter((sentinel) => sentinel.running);
    let named: RedisServer | undefined;
    await until(async () => {
      const ports = await Promise.all(watching.map((sentinel) => namedBy(sentinel)));
      named = this.servers.find(({ announced }) => ports.every((each) => each === announced));
      return named !== undefined;
    }, 'the Sentinels to agree');
    return named as RedisServer;
  }

  /** The servers that the Sentinels do not name. */
  async replicas(): Promise<RedisServer[]> {
    const master = await this.master();
    return this.servers.filter((server) => server !== master);
  }

  /** Waits until the Sentinels name another server than `old`, and it takes writes. */
  async failedOver(old: RedisServer): Promise<RedisServer> {
    let master = old;
    await until(async () => {
      master = await this.master();
      return master !== old && (await isPrimary(master));
    }, `the failover from port ${old.port}`);
    return master;
  }

  /** Orders a failover from a master that is well, and waits for its end; answers the new one. */
  async failOver(): Promise<RedisServer> {
    await this.inSync();
    const old = await this.master();
    const [sentinel] = this.sentinels.filter((each) => each.running);
    // Refused while the last failover is not over in the eyes of this Sentinel.
    await until(
      async () => (await sentinel?.admin.call('SENTINEL', 'FAILOVER', NAME).catch(String)) === 'OK',
      'a Sentinel to begin the failover',
    );
    return this.failedOver(old);
  }

  /**
   * Has the Sentinels name another master, by hand: the old one is made a replica, and none of its
   * connections is closed.
   */
  async change(old: RedisServer, master: RedisServer): Promise<void> {
    const tell = (...args: string[]) =>
      Promise.all(this.sentinels.map(({ admin }) => admin.call('SENTINEL', ...args)));
    await tell('REMOVE', NAME);
    await master.admin.call('REPLICAOF', 'NO', 'ONE');
    await old.admin.call('REPLICAOF', '127.0.0.1', String(master.announced));
    await tell('MONITOR', NAME, '127.0.0.1', String(master.announced), String(QUORUM));
  }

  /**
   * Waits until every other server that runs follows the master, and has all that it has written. One
   * that was started again, or resumed, takes 10 to 20 s to be told whom it follows.
   */
  async inSync(): Promise<void> {
    await until(
      async () => {
        const replicas = (await this.replicas()).filter((server) => server.running);
        return isInSync(await this.master(), replicas);
      },
      'the replicas to be in sync',
      CORRECTION,
    );
  }

  /** Waits until no Sentinel finds fault with the master, and all others that run follow it. */
  async settled(): Promise<void> {
    const watching = this.sentinels.filter((sentinel) => sentinel.running);
    const content = async (sentinel: RedisServer) =>
      (await viewOf(sentinel)).get('flags') === 'master';
    await until(
      async () => (await Promise.all(watching.map(content))).every(Boolean),
      'the Sentinels to be content with the master',
      CORRECTION,
    );
    await this.inSync();
  }

  /** Waits until `old` is told that it is the master no more. */
  async demoted(old: RedisServer): Promise<void> {
    const what = `port ${old.port} to follow the new master`;
    await until(async () => !(await isPrimary(old)), what, CORRECTION);
  }

  /**
   * Waits until the master has nothing left but fences. A waiter that left the queue at an old master may still
   * be in that of the new one, for half a minute after its last request.
   */
  async quiet(): Promise<void> {
    await quiet(await this.master(), 45_000);
  }

  async stop(): Promise<void> {
    // The Sentinels first, so that they promote no replica while the servers end.
    await Promise.all(this.sentinels.map((sentinel) => sentinel.stop()));
    await Promise.all(this.servers.map((server) => server.stop()));
  }

  async #start(all: SentinelsOptions): Promise<void> {
    const { replicas = 1, downAfter = 1_000, sentinelPassword, args: extra = [], ...options } = all;
    const { password } = options;
    this.#logins = {
      ...(password === undefined ? {} : { password }),
      ...(sentinelPassword === undefined ? {} : { sentinelPassword }),
    };
    // By default a master waits five seconds for further replicas before it sends its data to one.
    const sync = ['--repl-diskless-sync-delay', '0', ...extra];
    const master = await RedisServer.start({ ...options, args: sync });
    this.servers.push(master);
    const args = [...sync, '--replicaof', '127.0.0.1', String(master.announced)];
    this.servers.push(...(await RedisServer.startSeveral(replicas, { ...options, args })));
    const followed = () => isInSync(master, this.servers.slice(1));
    await until(followed, 'the replicas to be in sync');
    const watch = {
      sentinel: configuration(master, downAfter, sentinelPassword),
      ...(options.binary === undefined ? {} : { binary: options.binary }),
      ...(options.tls === undefined ? {} : { tls: options.tls }),
      ...(sentinelPassword === undefined ? {} : { password: sentinelPassword }),
    };
    this.sentinels.push(...(await RedisServer.startSeveral(SENTINELS, watch)));
    for (const sentinel of this.sentinels) await this.#knowsAll(sentinel);
  }

  /** Waits until a Sentinel knows every other one and every replica. */
  async #knowsAll(sentinel: RedisServer): Promise<void> {
    await until(async () => {
      const view = await viewOf(sentinel);
      return (
        Number(view.get('num-slaves')) === this.servers.length - 1 &&
        Number(view.get('num-other-sentinels')) === SENTINELS - 1
      );
    }, `the Sentinel on port ${sentinel.port} to know all others`);
  }
}

function configuration(
  master: RedisServer,
  downAfter: number,
  sentinelPassword: string | undefined,
): string {
  const { password } = master.options;
  const lines = [
    `sentinel monitor ${NAME} 127.0.0.1 ${master.announced} ${QUORUM}`,
    `sentinel down-after-milliseconds ${NAME} ${downAfter}`,
    // A failed election is repeated after twice this time; a failover that takes longer is given up.
    `sentinel failover-timeout ${NAME} 4000`,
  ];
  if (password !== undefined) lines.push(`sentinel auth-pass ${NAME} ${password}`);
  // Sentinels show it to each other as well.
  if (sentinelPassword !== undefined) lines.push(`requirepass ${sentinelPassword}`);
  return `${lines.join('\n')}\n`;
}

/** A Sentinel's fields about the master. */
async function viewOf(sentinel: RedisServer): Promise<ReadonlyMap<string, string>> {
  const answer = (await sentinel.admin.call('SENTINEL', 'MASTER', NAME)) as string[];
  return new Map(answer.flatMap((name, i) => (i % 2 === 0 ? [[name, answer[i + 1] ?? '']] : [])));
}

/** The port of the server that a Sentinel names as the master. */
async function namedBy(sentinel: RedisServer): Promise<number> {
  const address = await sentinel.admin.call('SENTINEL', 'GET-MASTER-ADDR-BY-NAME', NAME);
  return Number((address as string[])[1]);
}
