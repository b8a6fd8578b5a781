/** Redis Clusters that tests start themselves. */

import { isInSync } from './replication.js';
import { RedisServer, type ServerTls } from './server.js';
import { until } from './wait.js';

export interface ClusterOptions {
  /** How many nodes share the slots; three by default, the fewest that can vote for a failover. */
  readonly primaries?: number;
  /** How many replicas each of them has; none by default. */
  readonly replicas?: number;
  /** How many more nodes have no slots yet, and follow nobody; none by default. */
  readonly spare?: number;
  /** The binary that all of them run; by default that of `serverBinary`. */
  readonly binary?: string;
  /** Further arguments of each. */
  readonly args?: readonly string[];
  /** A proxy stands in front of each node, for clients and for replication; the nodes' bus has none. */
  readonly proxied?: boolean;
  /** Speak TLS with clients and with each other. */
  readonly tls?: ServerTls;
}

const SLOTS = 16_384;

/** What a node knows of a node. */
interface NodeView {
  readonly id: string;
  readonly port: number;
  readonly flags: readonly string[];
  readonly epoch: number;
  /** First and last slot of each range. */
  readonly ranges: readonly (readonly [number, number])[];
}

/** Primaries that share the slots, their replicas, and who has nothing yet. A failover takes three to four seconds. */
export class Cluster {
  /** The first primaries, then their replicas in turn, then the spare ones. A failover changes roles, not the order. */
  readonly nodes: readonly RedisServer[];

  private constructor(nodes: readonly RedisServer[]) {
    this.nodes = nodes;
  }

  /** Starts a Cluster, and waits until all slots are served and every failover can succeed. */
  static async start(options: ClusterOptions = {}): Promise<Cluster> {
    const { primaries = 3, replicas = 0, spare = 0, args: extra = [], ...rest } = options;
    const args = [
      ...['--cluster-node-timeout', '2000'],
      // By default a primary waits five seconds for further replicas before it sends its data to one.
      ...['--repl-diskless-sync-delay', '0'],
      ...extra,
    ];
    const count = primaries * (1 + replicas) + spare;
    const cluster = new Cluster(
      await RedisServer.startSeveral(count, { ...rest, cluster: true, args }),
    );
    try {
      await cluster.#form(primaries, primaries * replicas);
      return cluster;
    } catch (error) {
      await cluster.stop();
      throw error;
    }
  }

  get urls(): string[] {
    return this.nodes.map(({ announced, port, url }) => url.replace(`:${port}`, `:${announced}`));
  }

  /** The slot of a key. */
  async slotOf(key: string): Promise<number> {
    return Number(await this.#anyNode.admin.cluster('KEYSLOT', key));
  }

  /**
   * The node that serves a slot, by its own account. Of several who claim it the one with the newest
   * claim is meant: an old primary that was stopped does not know yet.
   */
  async primaryOf(slot: number): Promise<RedisServer> {
    const found = await this.#claimant(slot);
    if (found === undefined) throw new Error(`nobody serves slot ${slot}`);
    return found;
  }

  /** The nodes that follow `primary`, by its own account. */
  async replicasOf(primary: RedisServer): Promise<RedisServer[]> {
    const { id } = await viewOfItself(primary);
    const lines = (await primary.admin.cluster('REPLICAS', id)) as string[];
    const ports = lines.map((line) => parse(line).port);
    return this.nodes.filter((node) => ports.includes(node.announced));
  }

  /** Waits until another node than `old` serves `slot`, and the nodes that run agree on that. */
  async failedOver(slot: number, old: RedisServer): Promise<RedisServer> {
    let primary = old;
    await until(async () => {
      primary = (await this.#claimant(slot)) ?? old;
      return primary !== old;
    }, `the failover of slot ${slot} from port ${old.port}`);
    await this.#agree();
    return primary;
  }

  /** Orders a failover from a primary that is well to its replica, and waits for its end. */
  async failOver(slot: number): Promise<RedisServer> {
    const old = await this.primaryOf(slot);
    await this.inSync(old);
    const [replica] = await this.replicasOf(old);
    if (replica === undefined) throw new Error(`nobody follows port ${old.port}`);
    let ordered = Number.NEGATIVE_INFINITY;
    await until(async () => {
      // The others do not vote twice about one primary within four seconds; an order ends after five.
      if (performance.now() - ordered > 6_000) {
        await replica.admin.cluster('FAILOVER');
        ordered = performance.now();
      }
      return (await this.#claimant(slot)) !== old;
    }, `port ${replica.port} to take over`);
    return this.failedOver(slot, old);
  }

  /** Waits until every replica of `primary`, or of all, that runs has all that it has written. */
  async inSync(primary?: RedisServer): Promise<void> {
    await until(async () => {
      const primaries = primary === undefined ? await this.primaries() : [primary];
      const all = primaries.map(async (each) => {
        const replicas = await this.replicasOf(each);
        const running = replicas.filter((replica) => replica.running);
        return isInSync(each, running);
      });
      return (await Promise.all(all)).every(Boolean);
    }, 'the replicas to be in sync');
  }

  /** The nodes that run and serve slots, by their own account. */
  async primaries(): Promise<RedisServer[]> {
    const views = await this.#views();
    return views.filter(({ view }) => view.ranges.length > 0).map(({ node }) => node);
  }

  /**
   * Begins to move a slot: from now on both nodes answer for it, each for the keys that it has. The nodes first agree
   * on the move before: a node that has not heard of its epoch would claim the slot again, and nobody serves it then.
   */
  async startMove(slot: number, to: RedisServer): Promise<SlotMove> {
    await this.#agree();
    const from = await this.primaryOf(slot);
    const ids = await Promise.all([from, to].map(async (node) => (await viewOfItself(node)).id));
    const [fromId = '', toId = ''] = ids;
    await to.admin.cluster('SETSLOT', slot, 'IMPORTING', fromId);
    await from.admin.cluster('SETSLOT', slot, 'MIGRATING', toId);
    return new SlotMove(this, slot, from, to, toId);
  }

  /** Moves a slot and its keys to another primary. */
  async moveSlot(slot: number, to: RedisServer): Promise<void> {
    const move = await this.startMove(slot, to);
    await move.keys();
    await move.finish();
  }

  /** Has a slot move with all its keys at once, as Valkey does since 9.0 and Redis since 8.4, and waits until that is done. */
  async moveSlotAtOnce(slot: number, to: RedisServer): Promise<void> {
    if (/^valkey_version:/m.test(await to.admin.info('server'))) {
      const { id } = await viewOfItself(to);
      const range = ['SLOTSRANGE', slot, slot, 'NODE', id];
      await (await this.primaryOf(slot)).admin.call('CLUSTER', 'MIGRATESLOTS', ...range);
    } else {
      await to.admin.call('CLUSTER', 'MIGRATION', 'IMPORT', slot, slot);
    }
    await until(async () => (await this.#claimant(slot)) === to, `slot ${slot} to move`);
    await this.#agree();
  }

  async stop(): Promise<void> {
    await Promise.all(this.nodes.map((node) => node.stop()));
  }

  get #anyNode(): RedisServer {
    const node = this.nodes.find(({ running }) => running);
    if (node === undefined) throw new Error('no node runs');
    return node;
  }

  /** How each node that runs sees itself. */
  #views(): Promise<{ node: RedisServer; view: NodeView }[]> {
    const running = this.nodes.filter((node) => node.running);
    return Promise.all(running.map(async (node) => ({ node, view: await viewOfItself(node) })));
  }

  async #claimant(slot: number): Promise<RedisServer | undefined> {
    const claims = (await this.#views()).filter(({ view }) => serves(view, slot));
    claims.sort((a, b) => b.view.epoch - a.view.epoch);
    return claims[0]?.node;
  }

  async #form(primaries: number, replicas: number): Promise<void> {
    const [first, ...others] = this.nodes as [RedisServer, ...RedisServer[]];
    for (const [i, node] of this.nodes.entries()) {
      // Where two have the same epoch, one yields: not while a test looks.
      await node.admin.cluster('SET-CONFIG-EPOCH', i + 1);
      if (i >= primaries) continue;
      const mine = Array.from({ length: SLOTS }, (_, slot) => slot).filter(
        (slot) => Math.floor((slot * primaries) / SLOTS) === i,
      );
      await node.admin.cluster('ADDSLOTS', ...mine);
    }
    for (const other of others) await first.admin.cluster('MEET', '127.0.0.1', other.port);
    await until(async () => {
      const counts = await Promise.all(
        this.nodes.map(async (node) => (await knownTo(node)).length),
      );
      return counts.every((count) => count === this.nodes.length);
    }, 'the nodes to meet');
    for (const [i, replica] of this.nodes.slice(primaries, primaries + replicas).entries()) {
      const { id } = await viewOfItself(this.nodes[i % primaries] as RedisServer);
      await replica.admin.cluster('REPLICATE', id);
    }
    await until(async () => {
      const all = await Promise.all((await this.primaries()).map((each) => this.replicasOf(each)));
      return all.flat().length === replicas;
    }, 'the primaries to know their replicas');
    await this.#agree();
    await this.inSync();
  }

  /** Waits until all nodes that run see the same node behind every slot, by the same claim, and all is served. */
  async #agree(): Promise<void> {
    await until(async () => {
      const running = this.nodes.filter((node) => node.running);
      const views = await Promise.all(
        running.map(async (node) => {
          const slots = (await node.admin.cluster('SLOTS')) as unknown[][];
          // First slot, last slot, primary, replicas.
          const served = slots.map((range) => JSON.stringify(range.flat().sort()));
          const claims = (await knownTo(node)).map(({ id, epoch }) => `${id} ${epoch}`);
          return [...served, ...claims].sort();
        }),
      );
      const states = await Promise.all(running.map((node) => node.admin.cluster('INFO')));
      return (
        states.every((state) => state.includes('cluster_state:ok')) &&
        new Set(views.map((view) => view.join())).size === 1
      );
    }, 'the nodes to agree');
  }
}

/** A slot on its way. */
export class SlotMove {
  constructor(
    readonly cluster: Cluster,
    readonly slot: number,
    readonly from: RedisServer,
    readonly to: RedisServer,
    readonly toId: string,
  ) {}

  /** Moves all keys that the slot has now, or some of them; the slot stays where it was. */
  async keys(isMoved: (key: string) => boolean = () => true): Promise<void> {
    const { admin } = this.from;
    for (;;) {
      const all = (await admin.cluster('GETKEYSINSLOT', this.slot, 100)) as string[];
      const keys = all.filter(isMoved);
      if (keys.length === 0) return;
      await admin.migrate('127.0.0.1', this.to.port, '', 0, 5_000, 'KEYS', ...keys);
    }
  }

  /** Gives the slot to its new node. */
  async finish(): Promise<void> {
    // The new node first: otherwise nobody serves the slot for a moment.
    const others = (await this.cluster.primaries()).filter((node) => node !== this.to);
    for (const node of [this.to, ...others]) {
      await node.admin.cluster('SETSLOT', this.slot, 'NODE', this.toId);
    }
  }
}

/** The nodes that a node knows, itself among them, without those it only heard of. */
async function knownTo(node: RedisServer): Promise<NodeView[]> {
  const text = String(await node.admin.cluster('NODES'));
  const views = text.trim().split('\n').map(parse);
  return views.filter(({ flags }) => !flags.includes('handshake'));
}

async function viewOfItself(node: RedisServer): Promise<NodeView> {
  const itself = (await knownTo(node)).find(({ flags }) => flags.includes('myself'));
  if (itself === undefined) throw new Error(`port ${node.port} does not know itself`);
  return itself;
}

function serves(view: NodeView, slot: number): boolean {
  return view.ranges.some(([first, last]) => first <= slot && slot <= last);
}

/** Reads a line of CLUSTER NODES: id, address, flags, primary, ping, pong, epoch, link, slots. */
function parse(line: string): NodeView {
  const [id = '', address = '', flags = '', , , , epoch = '', , ...slots] = line.split(' ');
  const ranges = slots
    // In brackets stand those on their way.
    .filter((range) => /^\d/.test(range))
    .map((range) => range.split('-').map(Number))
    .map(([first = 0, last = first]) => [first, last] as const);
  const port = Number(/:(\d+)@/.exec(address)?.[1]);
  return { id, port, flags: flags.split(','), epoch: Number(epoch), ranges };
}
