// Which tarballs a release has, by their digests: the statement of which npm signs one part for each package that it
// publishes (https://slsa.dev/provenance/v1). It is made where the tarballs are, and checked again where they are
// published.

const REPOSITORY = 'https://github.com';

/** The statement about tarballs; `env` is that of GitHub Actions. */
export function statementOf(tarballs, env) {
  const server = env.GITHUB_SERVER_URL ?? REPOSITORY;
  const repository = `${server}/${env.GITHUB_REPOSITORY}`;
  const [path, ref] = (env.GITHUB_WORKFLOW_REF ?? '')
    .replace(`${env.GITHUB_REPOSITORY}/`, '')
    .split('@');
  const run = `${repository}/actions/runs/${env.GITHUB_RUN_ID}/attempts/${env.GITHUB_RUN_ATTEMPT}`;
  return {
    _type: 'https://in-toto.io/Statement/v1',
    subject: tarballs.map(subjectOf),
    predicateType: 'https://slsa.dev/provenance/v1',
    predicate: {
      buildDefinition: {
        buildType: 'https://slsa-framework.github.io/github-actions-buildtypes/workflow/v1',
        externalParameters: { workflow: { ref, repository, path } },
        internalParameters: {
          github: {
            event_name: env.GITHUB_EVENT_NAME,
            repository_id: env.GITHUB_REPOSITORY_ID,
            repository_owner_id: env.GITHUB_REPOSITORY_OWNER_ID,
          },
        },
        resolvedDependencies: [
          {
            uri: `git+${repository}@${env.GITHUB_REF}`,
            digest: { gitCommit: env.GITHUB_SHA },
          },
        ],
      },
      runDetails: {
        builder: { id: `https://github.com/actions/runner/${env.RUNNER_ENVIRONMENT}` },
        metadata: { invocationId: run },
      },
    },
  };
}

/** Throws unless the tarballs are those of the statement: none changed, none missing, none more. */
export function assertSame(tarballs, { subject }) {
  const stated = new Map(subject.map(({ name, digest }) => [name, digest.sha512]));
  for (const tarball of tarballs) {
    const { name, digest } = subjectOf(tarball);
    if (stated.get(name) === undefined)
      throw new Error(`${tarball.path}: no statement names ${name}`);
    if (stated.get(name) !== digest.sha512) {
      throw new Error(`${tarball.path} is not the ${name} that was packed: its digest differs`);
    }
    stated.delete(name);
  }
  if (stated.size > 0) throw new Error(`missing: ${[...stated.keys()].join(', ')}`);
}

/** A package by its address, as npm writes it. */
function subjectOf({ manifest: { name, version }, sha512 }) {
  const encoded = name.replace('@', '%40');
  return { name: `pkg:npm/${encoded}@${version}`, digest: { sha512 } };
}
