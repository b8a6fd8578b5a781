/** A registry on the loopback interface that has the packages as they would be published, and what they need. */

import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

interface Manifest {
  readonly name: string;
  readonly version: string;
}

/** What `npm publish` sends. */
interface Sent {
  readonly versions: Readonly<Record<string, Manifest>>;
  readonly 'dist-tags': Readonly<Record<string, string>>;
  readonly _attachments: Readonly<Record<string, { readonly data: string }>>;
}

interface Package {
  readonly manifest: Manifest;
  readonly tarball: Buffer;
  readonly tag: string;
}

export class Registry {
  readonly #packages = new Map<string, Package>();
  readonly #server: Server;
  /** The packages whose files were asked for. */
  readonly fetched = new Set<string>();
  /** The requested packages that are missing here. */
  readonly missed: string[] = [];
  /** The packages that `npm publish` has sent, in its order. */
  readonly sent: string[] = [];

  constructor() {
    this.#server = createServer((request, response) => {
      const path = decodeURIComponent(request.url ?? '/').slice(1);
      if (request.method === 'PUT') void this.#take(request, response);
      else this.#answer(path, response);
    });
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}/`;
  }

  start(): Promise<void> {
    return new Promise((resolve) => this.#server.listen(0, '127.0.0.1', resolve));
  }

  stop(): Promise<void> {
    this.#server.closeAllConnections();
    return new Promise((resolve) => this.#server.close(() => resolve()));
  }

  publish(manifest: Manifest, tarball: string): void {
    this.#packages.set(manifest.name, { manifest, tarball: readFileSync(tarball), tag: 'latest' });
  }

  /** The package of that name, as it was published. */
  package(name: string): Package {
    const found = this.#packages.get(name);
    if (found === undefined) throw new Error(`${name} has not been published`);
    return found;
  }

  #answer(path: string, response: ServerResponse): void {
    const name = path.replace(/\.tgz$/, '');
    const found = this.#packages.get(name);
    if (found === undefined) {
      this.missed.push(path);
      response.statusCode = 404;
      response.end('{"error":"not found"}');
    } else if (name === path) {
      response.setHeader('content-type', 'application/json');
      response.end(JSON.stringify(this.#document(found)));
    } else {
      this.fetched.add(name);
      response.end(found.tarball);
    }
  }

  async #take(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk);
    const {
      versions,
      'dist-tags': tags,
      _attachments,
    } = JSON.parse(String(Buffer.concat(chunks))) as Sent;
    const [manifest] = Object.values(versions);
    const [attached] = Object.values(_attachments);
    const [tag = ''] = Object.keys(tags);
    if (manifest === undefined || attached === undefined) throw new Error('npm sent no package');
    const tarball = Buffer.from(attached.data, 'base64');
    this.#packages.set(manifest.name, { manifest, tarball, tag });
    this.sent.push(manifest.name);
    response.statusCode = 201;
    response.end('{"ok":true}');
  }

  #document({ manifest, tarball, tag }: Package): object {
    const { name, version } = manifest;
    const dist = {
      tarball: `${this.url}${encodeURIComponent(name)}.tgz`,
      shasum: createHash('sha1').update(tarball).digest('hex'),
      integrity: `sha512-${createHash('sha512').update(tarball).digest('base64')}`,
    };
    const versions = { [version]: { ...manifest, dist } };
    // Package managers may refuse what was published a moment ago.
    const time = { [version]: '2026-01-01T00:00:00.000Z' };
    return { name, 'dist-tags': { [tag]: version }, versions, time };
  }
}
