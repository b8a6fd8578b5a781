/** A registry on the loopback interface that has the packages as they would be published, and what they need. */

import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';

interface Manifest {
  readonly name: string;
  readonly version: string;
}

export class Registry {
  readonly #packages = new Map<string, { manifest: Manifest; tarball: Buffer }>();
  readonly #server: Server;
  /** The packages whose files were asked for. */
  readonly fetched = new Set<string>();
  /** The requested packages that are missing here. */
  readonly missed: string[] = [];

  constructor() {
    this.#server = createServer((request, response) => {
      const path = decodeURIComponent(request.url ?? '/').slice(1);
      const name = path.replace(/\.tgz$/, '');
      const found = this.#packages.get(name);
      if (found !== undefined && name !== path) {
        this.fetched.add(name);
        return response.end(found.tarball);
      }
      if (found !== undefined) {
        response.setHeader('content-type', 'application/json');
        return response.end(JSON.stringify(this.#document(found.manifest, found.tarball)));
      }
      this.missed.push(path);
      response.statusCode = 404;
      return response.end('{"error":"not found"}');
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
    this.#packages.set(manifest.name, { manifest, tarball: readFileSync(tarball) });
  }

  #document(manifest: Manifest, tarball: Buffer): object {
    const { name, version } = manifest;
    const dist = {
      tarball: `${this.url}${encodeURIComponent(name)}.tgz`,
      shasum: createHash('sha1').update(tarball).digest('hex'),
      integrity: `sha512-${createHash('sha512').update(tarball).digest('base64')}`,
    };
    const versions = { [version]: { ...manifest, dist } };
    // Package managers may refuse what was published a moment ago.
    const time = { [version]: '2026-01-01T00:00:00.000Z' };
    return { name, 'dist-tags': { latest: version }, versions, time };
  }
}
