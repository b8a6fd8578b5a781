/** Judges by the survey of a server whether it is fit for locks. */

import type { ServerAnswer, ServerSurvey } from '../views/survey.js';

/** The result of one check. The documented shape of `doctor --json`. */
export interface Finding {
  /** The server, without login; `null` if the finding is about all of them. */
  readonly server: string | null;
  readonly check: string;
  /** A problem must be fixed; a warning may be intended. */
  readonly level: 'ok' | 'warning' | 'problem';
  readonly message: string;
  /** Advice for the operator. */
  readonly advice?: string;
}

type Found = Omit<Finding, 'server'>;

/** The commands that every server gets, in this order. */
export const QUESTIONS = [['INFO'], ['CONFIG', 'GET', 'appendfsync'], ['CLUSTER', 'INFO']];

/** The kind of the target. */
export interface Kind {
  readonly cluster: boolean;
  readonly quorum: boolean;
}

/** The largest accepted distance between a server's clock and this machine's, in µs. */
const AHEAD_MAX_US = 1_000_000;
const ROUND_TRIP_MAX_MS = 50;
const REPLICA_LAG_MAX_S = 10;
const MEMORY_MAX = 0.9;
const REDIS_MIN = [6, 2] as const;
const VALKEY_MIN = [7, 2] as const;

/** The fields of INFO. */
type Info = ReadonlyMap<string, string>;

/** The findings about one server, except those about rights. */
export function judge(survey: ServerSurvey, kind: Kind): Found[] {
  if (survey.failure !== undefined) {
    const advice = /^(WRONGPASS|NOAUTH|NOPERM)\b/.test(survey.failure)
      ? 'the server refuses the login: check username and password, and the ACL user'
      : 'make sure that it runs, and that host, port, TLS and login are right';
    return [{ check: 'connection', level: 'problem', message: survey.failure, advice }];
  }
  const [about, config, cluster] = survey.answers;
  const trip = survey.roundTrips.length === 0 ? [] : [roundTrip(survey)];
  if (about === undefined || about.refused) {
    const message = `it does not answer INFO: ${about?.text ?? 'no answer'}`;
    const advice =
      'grant the user +info: docs/operations.md, in the package holdfast, has the rule';
    return [...trip, { check: 'rights', level: 'problem', message, advice }];
  }
  const info = fields(about.text);
  return [
    ...trip,
    version(info),
    role(info, kind),
    ...(kind.cluster ? [clusterState(cluster)] : []),
    memory(info),
    ...persistence(info, config, kind),
    ...(survey.roundTrips.length === 0 ? [] : [clock(survey)]),
    ...replicas(info),
  ];
}

/** `key:value` by line, as INFO has it. */
export function fields(text: string): Info {
  const lines = text.split('\n').filter((line) => line.includes(':'));
  return new Map(
    lines.map((line) => {
      const at = line.indexOf(':');
      return [line.slice(0, at), line.slice(at + 1).trim()] as const;
    }),
  );
}

function ok(check: string, message: string): Found {
  return { check, level: 'ok', message };
}

function roundTrip({ roundTrips }: ServerSurvey): Found {
  // The first round trip may include the set-up of the connection.
  const sorted = roundTrips.slice(1).sort((a, b) => a - b);
  const ms = (sorted[Math.floor(sorted.length / 2)] ?? 0) / 1_000;
  const message = `a round trip takes ${ms.toFixed(2)} ms`;
  if (ms < ROUND_TRIP_MAX_MS) return ok('round trip', message);
  const advice = 'a lock needs two round trips: use a nearer server';
  return { check: 'round trip', level: 'warning', message, advice };
}

function version(info: Info): Found {
  const [garnet, kvrocks] = [info.get('garnet_version'), info.get('kvrocks_version')];
  if (garnet !== undefined) {
    // Nothing that it answers tells whether it does that.
    const message = `Garnet ${garnet}, which runs a script at one go only with --lua-transaction-mode`;
    const advice =
      'start it with --lua --lua-transaction-mode: without it two clients may hold a lock';
    return { check: 'version', level: 'warning', message, advice };
  }
  // It calls itself a Redis 4, whatever it can do.
  if (kvrocks !== undefined) return ok('version', `Kvrocks ${kvrocks}`);
  const valkey = info.get('valkey_version');
  const [name, number, least] =
    valkey === undefined
      ? (['Redis', info.get('redis_version') ?? '0', REDIS_MIN] as const)
      : (['Valkey', valkey, VALKEY_MIN] as const);
  const [major = 0, minor = 0] = number.split('.').map(Number);
  const message = `${name} ${number}`;
  if (major > least[0] || (major === least[0] && minor >= least[1])) return ok('version', message);
  const advice = `holdfast needs ${name} ${least.join('.')} or newer`;
  return { check: 'version', level: 'problem', message, advice };
}

function role(info: Info, { cluster }: Kind): Found {
  const mode = info.get('redis_mode') ?? info.get('server_mode');
  const problem = (message: string, advice: string): Found => {
    return { check: 'role', level: 'problem', message, advice };
  };
  if (mode === 'sentinel') {
    return problem('it is a Sentinel, and keeps no data', 'pass it as --sentinel, with --master');
  }
  if (mode === 'cluster' && !cluster) {
    return problem('it is a server of a Cluster', 'pass it as --cluster');
  }
  if (info.get('role') === 'slave') {
    const primary = `${info.get('master_host')}:${info.get('master_port')}`;
    return problem(`it is a replica of ${primary}`, 'name its primary, or its Sentinels');
  }
  if (info.get('role') === 'active-replica') {
    return problem(
      "it is an active replica (KeyDB's active-replica): each of its servers may grant the same lock",
      'turn active replication off, or use another server for locks',
    );
  }
  return ok('role', 'it is a primary');
}

function clusterState(answer: ServerAnswer | undefined): Found {
  if (answer === undefined || answer.refused) {
    return ok('cluster', 'its state is not known: the user may not run CLUSTER INFO');
  }
  const state = fields(answer.text).get('cluster_state') ?? 'unknown';
  if (state === 'ok') return ok('cluster', 'the Cluster is up');
  const message = `the state of the Cluster is ${state}`;
  const advice = 'look at CLUSTER INFO and CLUSTER NODES: slots without a server refuse all locks';
  return { check: 'cluster', level: 'problem', message, advice };
}

function memory(info: Info): Found {
  const policy = info.get('maxmemory_policy') ?? 'unknown';
  const [most, used] = [Number(info.get('maxmemory')), Number(info.get('used_memory'))];
  const set = 'set maxmemory-policy to noeviction, or use a separate server for locks';
  if (policy !== 'noeviction' && most > 0) {
    const message = `maxmemory-policy is ${policy}: it evicts locks when memory is short`;
    return { check: 'memory', level: 'problem', message, advice: set };
  }
  if (policy !== 'noeviction') {
    const message = `maxmemory-policy is ${policy}, which evicts nothing as long as maxmemory is 0`;
    return { check: 'memory', level: 'warning', message, advice: set };
  }
  if (most > 0 && used > most * MEMORY_MAX) {
    const message = `it uses ${Math.round((100 * used) / most)} % of its maxmemory`;
    const advice = 'free memory or raise maxmemory: when it is full, locks are refused';
    return { check: 'memory', level: 'warning', message, advice };
  }
  return ok('memory', 'it evicts nothing');
}

function persistence(info: Info, config: ServerAnswer | undefined, { quorum }: Kind): Found[] {
  const failed = [
    info.get('aof_enabled') === '1' && info.get('aof_last_write_status') === 'err',
    info.get('rdb_last_bgsave_status') === 'err',
  ];
  if (failed.includes(true)) {
    const message = 'its last write to disk failed, so it may refuse all locks (MISCONF)';
    const advice = "see the server's log: is the disk full, or the folder read-only?";
    return [{ check: 'persistence', level: 'problem', message, advice }];
  }
  if (info.get('aof_enabled') === '1') {
    const policy = config?.refused === false ? config.text.split('\n')[1] : undefined;
    const how = policy === undefined ? '' : `, appendfsync ${policy}`;
    return [ok('persistence', `appendonly yes${how}`)];
  }
  if (quorum) {
    return [
      ok(
        'persistence',
        'appendonly no: after a restart it has no vote for longestLease and up to 2 s more',
      ),
    ];
  }
  const message = 'appendonly no: a restart forgets locks, which other clients then get';
  const advice = 'appendonly yes, or a resource that checks fences';
  return [{ check: 'persistence', level: 'warning', message, advice }];
}

function clock({ ahead }: ServerSurvey): Found {
  const ms = Math.abs(ahead / 1_000).toFixed(Math.abs(ahead) < 10_000 ? 1 : 0);
  const message = `its clock is ${ms} ms ${ahead < 0 ? 'behind' : 'ahead of'} this machine's`;
  if (Math.abs(ahead) < AHEAD_MAX_US) return ok('clock', message);
  const advice =
    'set both clocks by NTP: fences rise across a failover only if the clocks of the servers agree';
  return { check: 'clock', level: 'warning', message, advice };
}

function replicas(info: Info): Found[] {
  const count = Number(info.get('connected_slaves') ?? 0);
  const known = Array.from({ length: count }, (_, i) => info.get(`slave${i}`) ?? '');
  const late = known.filter((text) => {
    const { state, lag } = Object.fromEntries(text.split(',').map((each) => each.split('=')));
    return state !== 'online' || Number(lag) > REPLICA_LAG_MAX_S;
  });
  if (late.length === 0) return [ok('replicas', count === 1 ? '1 replica' : `${count} replicas`)];
  const message = `${late.length} of ${count} replicas do not keep up`;
  const advice = 'look at INFO replication: a failover to one of them loses locks';
  return [{ check: 'replicas', level: 'warning', message, advice }];
}
