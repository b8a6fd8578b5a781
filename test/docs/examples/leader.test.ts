/** One of several processes leads, and another as soon as it ends. */

import assert from 'node:assert/strict';
import { afterEach, test } from 'node:test';
import { connect } from '../../support/holdfast.js';
import { serverOfFile } from '../../support/server-of-file.js';
import { until } from '../../support/wait.js';
import { Program } from './program.js';

const NODES = 3;

let nodes: Program[] = [];

const server = serverOfFile();

afterEach(async () => {
  for (const node of nodes) node.kill('SIGKILL');
  await Promise.all(nodes.map((node) => node.ended()));
  nodes = [];
  await server.admin.flushall();
});

async function startNodes(leaseMs: number): Promise<void> {
  const env = { REDIS_URL: server.url, LEASE_MS: String(leaseMs) };
  nodes = Array.from({ length: NODES }, () => new Program('leader/node.mjs', env));
  await Promise.all(nodes.map((node) => node.says(/^ready$/)));
}

/** When a node said that it leads, and under which fence. */
interface Lead {
  readonly fence: number;
  readonly at: bigint;
}

function leadsOf(node: Program): Lead[] {
  return node.lines.flatMap((line) => {
    const [, fence, at] = /^leads (\d+) (\d+)$/.exec(line) ?? [];
    return fence === undefined || at === undefined
      ? []
      : [{ fence: Number(fence), at: BigInt(at) }];
  });
}

/** The node that leads, once one does that is none of `former`. */
async function nextLeader(...former: Program[]): Promise<Program> {
  let leader: Program | undefined;
  await until(() => {
    leader = nodes.find((node) => !former.includes(node) && leadsOf(node).length > 0);
    return leader !== undefined;
  }, 'a node to lead');
  return leader as Program;
}

/** A leader with a greater fence begins when those with smaller fences have printed their last line. */
function assertOneAtATime(): void {
  const leads = nodes.flatMap(leadsOf).sort((a, b) => (a.at < b.at ? -1 : 1));
  for (const [index, { fence }] of leads.entries()) {
    assert.ok(index === 0 || fence >= (leads[index - 1]?.fence ?? 0), 'two led at a time');
  }
  const leaders = nodes.filter((node) => leadsOf(node).length > 0);
  assert.equal(new Set(leads.map(({ fence }) => fence)).size, leaders.length);
}

test('a leader that is killed is followed by another, and both never lead at a time', async () => {
  await startNodes(4_000);
  const first = await nextLeader();
  first.kill('SIGKILL');
  const second = await nextLeader(first);
  second.kill('SIGKILL');
  await nextLeader(first, second);
  assertOneAtATime();
});

test('a leader that stops hands over at once, without waiting for its lease', async () => {
  // Longer than a test waits for anything: only a release lets the next one lead.
  await startNodes(120_000);
  const first = await nextLeader();
  first.kill('SIGTERM');
  assert.equal(await first.ended(), 0, first.lines.join('\n'));
  const second = await nextLeader(first);
  for (const node of nodes) if (node !== second) node.kill('SIGTERM');
  second.kill('SIGTERM');
  assert.deepEqual(await Promise.all(nodes.map((node) => node.ended())), [0, 0, 0]);
  assertOneAtATime();
});

test('a leader that loses the lead stops, and leads again in its turn', async () => {
  await startNodes(120_000);
  const first = await nextLeader();
  const lost = leadsOf(first)[0]?.fence ?? 0;
  await using locks = await connect(server.url);
  assert.equal(await locks.forceRelease('leader:work'), true);
  await nextLeader(first);
  for (const node of nodes) if (node !== first) node.kill('SIGTERM');
  await until(() => leadsOf(first).some(({ fence }) => fence > lost), 'the first to lead again');
});
