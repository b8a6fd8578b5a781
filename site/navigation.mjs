// The order in which a reader meets the pages: each section is a list of titles and files of the repository.

export const SECTIONS = [
  {
    text: 'Guide',
    pages: [
      ['A tour by task', 'docs/guide.md'],
      ['指南（前半部分）', 'docs/guide.zh-CN.md'],
      ['Connecting', 'docs/connecting.md'],
      ['Jobs that run once', 'docs/once.md'],
      ['One leader', 'docs/lead.md'],
      ['Schedulers and queues', 'docs/jobs.md'],
      ['Idempotency keys', 'docs/idempotency.md'],
      ['Nest', 'docs/nest.md'],
      ['Testing', 'docs/testing.md'],
      ['Platforms and bundlers', 'docs/platforms.md'],
      ['Examples', 'examples/README.md'],
    ],
  },
  {
    text: 'Reference',
    pages: [
      ['Options, errors, events', 'docs/reference.md'],
      ['Command line', 'docs/cli.md'],
      ['API', 'docs/api/README.md'],
    ],
  },
  {
    text: 'Guarantees',
    pages: [
      ['Safety', 'docs/safety.md'],
      ['Fencing', 'docs/fencing.md'],
      ['Proof', 'docs/proof.md'],
    ],
  },
  {
    text: 'Operations',
    pages: [
      ['In production', 'docs/operations.md'],
      ['The page for operators', 'docs/ui.md'],
      ['Observability', 'docs/observability.md'],
      ['Servers and services', 'docs/servers.md'],
      ['Services at a failover', 'docs/services.md'],
      ['Costs', 'docs/costs.md'],
    ],
  },
  {
    text: 'Moving over',
    pages: [
      ['Before you decide', 'docs/deciding.md'],
      ['Migration', 'docs/migration.md'],
      ['Rules of migrate', 'docs/migrate-rules.md'],
      ['redlock', 'docs/redlock.md'],
      ['redis-semaphore', 'docs/redis-semaphore.md'],
      ['Web Locks', 'docs/web-locks.md'],
    ],
  },
  {
    text: 'Design',
    pages: [
      ['Protocol', 'docs/protocol.md'],
      ['Architecture', 'docs/architecture.md'],
      ['Benchmarks', 'docs/benchmarks.md'],
    ],
  },
  {
    text: 'Project',
    pages: [
      ['Contributing', 'CONTRIBUTING.md'],
      ['Changelog', 'CHANGELOG.md'],
    ],
  },
];
