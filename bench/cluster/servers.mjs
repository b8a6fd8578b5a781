// Three servers that share the locks.

import { rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import { startOwnServer } from '../server.mjs';

const NODES = 3;
const SLOTS = 16_384;
const FORM_MS = 20_000;

/** `{ urls, stop }` */
export async function startCluster() {
  const servers = [];
  const files = [];
  const stop = async () => {
    await Promise.all(servers.map((server) => server.stop()));
    for (const file of files) rmSync(file, { force: true });
  };
  try {
    for (let index = 0; index < NODES; index++) {
      const file = join(tmpdir(), `holdfast-bench-${process.pid}-${index}.conf`);
      files.push(file);
      servers.push(
        await startOwnServer(['--cluster-enabled', 'yes', '--cluster-config-file', file]),
      );
    }
    const urls = servers.map(({ url }) => url);
    await form(urls);
    return { urls, stop };
  } catch (error) {
    await stop();
    throw error;
  }
}

async function form(urls) {
  const nodes = urls.map((url) => new Redis(url));
  try {
    for (const [index, node] of nodes.entries()) {
      const first = Math.ceil((SLOTS * index) / NODES);
      const last = Math.ceil((SLOTS * (index + 1)) / NODES) - 1;
      await node.cluster('ADDSLOTSRANGE', first, last);
      await node.cluster('MEET', '127.0.0.1', Number(new URL(urls[0]).port));
    }
    const deadline = performance.now() + FORM_MS;
    while (!(await Promise.all(nodes.map(isFormed))).every(Boolean)) {
      if (performance.now() > deadline) throw new Error('the Cluster did not form');
      await sleep(50);
    }
  } finally {
    for (const node of nodes) node.disconnect();
  }
}

async function isFormed(node) {
  const info = await node.cluster('INFO');
  return info.includes('cluster_state:ok') && info.includes(`cluster_known_nodes:${NODES}`);
}
