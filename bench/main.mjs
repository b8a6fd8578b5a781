// holdfast beside other lock libraries, in one run.
//
//   npm run bench -- [--quick]            the most important workloads, in under two minutes
//                    [--report]           also writes docs/benchmarks.md and its charts
//                    [--only pairs,limit,delay,contended,tasks,waiters,held,shared,cluster,quorum,told,dropins]
//                    [--rounds N]
//                    [--peers name,name] [--levels 1,8,64,1000] [--ms N]       of the pairs
//                    [--before FOLDER]   an older build of holdfast, in turns with this one, among the pairs
//                    [--slice-ms N]                                          of contended and tasks
//                    [--held-seconds N]                                      of held
//
// Ends with code 0 also when a target is missed: it is a report. Not when a participant fails or
// cannot be loaded, for then the comparison is incomplete.

import { Admin } from './admin.mjs';
import { readFlags } from './flags.mjs';
import { heading } from './heading.mjs';
import { writeRecord } from './record.mjs';
import { startServer } from './server.mjs';

const flags = readFlags();
const server = await startServer();
const admin = await Admin.connect(server.url);
/** The participants that failed, the way of the failure, and its message. */
const failures = [];
const where = heading(await admin.version(), server.own);
const sections = [];
console.log(where);
try {
  for (const { id, question, about, run } of flags.workloads) {
    const fail = (who, how, message) => failures.push(`${who} ${how}: ${message.trim()}`);
    const { lines, table, charts } = await run({ url: server.url, admin, flags, fail });
    console.log(['', ...lines].join('\n'));
    sections.push({ id, question, about, lines, table, charts });
  }
  // The keys that are left are deleted from a server that is not the benchmark's own.
  if (!server.own) await admin.deleteAll();
} finally {
  admin.close();
  await server.stop();
}
if (failures.length > 0) console.log(['', 'Incomplete:', ...failures].join('\n'));
if (flags.report) writeRecord({ where, sections, failures });
process.exitCode = failures.length === 0 ? 0 : 1;
