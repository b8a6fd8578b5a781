/** Certificates for tests, made with the `openssl` binary in a folder of their own. */

import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { removeFolder } from './folders.js';
import { needs } from './tools.js';

const program = needs('openssl');

/** A certificate with its key: PEM, and the files that hold it. */
export interface Certified {
  readonly cert: string;
  readonly key: string;
  readonly certFile: string;
  readonly keyFile: string;
}

/** The arguments of `openssl` for the kinds of keys. */
const KEYS = {
  ed25519: ['-newkey', 'ed25519'],
  p256: ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1'],
  rsa: ['-newkey', 'rsa:2048'],
} as const;

/** A CA that issues the certificates of a test. */
export class Authority {
  readonly #folder = mkdtempSync(join(tmpdir(), 'holdfast-tls-'));
  /** Its own certificate. */
  readonly ca: Certified;
  #issued = 0;

  constructor() {
    this.ca = this.#files('ca');
    const self = ['-x509', '-days', '30', '-subj', '/CN=holdfast test CA'];
    this.#openssl('req', ...self, ...this.#newKey(this.ca, 'p256'), '-out', this.ca.certFile);
  }

  /**
   * Issues a certificate; `names` as in `DNS:localhost,IP:127.0.0.1`.
   *
   * @param days - How long it is valid, from now; a negative number for one that has expired.
   */
  issue(names: string, { days = 30, kind = 'p256' as keyof typeof KEYS } = {}): Certified {
    this.#issued += 1;
    const certified = this.#files(`issued-${this.#issued}`);
    const request = join(this.#folder, 'request.pem');
    const extensions = join(this.#folder, 'extensions');
    writeFileSync(extensions, `basicConstraints=CA:FALSE\nsubjectAltName=${names}\n`);
    const subject = ['-subj', '/CN=holdfast test'];
    this.#openssl('req', ...subject, ...this.#newKey(certified, kind), '-out', request);
    const by = ['-CA', this.ca.certFile, '-CAkey', this.ca.keyFile, '-CAcreateserial'];
    const how = ['-days', String(days), '-extfile', extensions];
    this.#openssl('x509', '-req', '-in', request, ...by, ...how, '-out', certified.certFile);
    return certified;
  }

  /** A certificate that signs itself and calls itself a CA, as `openssl req -x509` makes it. */
  selfSigned(names: string, { expired = false } = {}): Certified {
    this.#issued += 1;
    const certified = this.#files(`self-signed-${this.#issued}`);
    const self = ['-subj', '/CN=holdfast test', '-addext', `subjectAltName=${names}`];
    const request = join(this.#folder, 'self-signed.pem');
    const extensions = join(this.#folder, 'self-signed');
    writeFileSync(extensions, `basicConstraints=critical,CA:TRUE\nsubjectAltName=${names}\n`);
    this.#openssl('req', ...self, ...this.#newKey(certified, 'p256'), '-out', request);
    const how = ['-days', expired ? '-1' : '30', '-extfile', extensions];
    const by = ['-signkey', certified.keyFile];
    this.#openssl('x509', '-req', '-in', request, ...by, ...how, '-out', certified.certFile);
    return certified;
  }

  /** Removes all files. */
  remove(): void {
    removeFolder(this.#folder);
  }

  #newKey({ keyFile }: Certified, kind: keyof typeof KEYS): string[] {
    return [...KEYS[kind], '-nodes', '-keyout', keyFile];
  }

  #files(name: string): Certified {
    const certFile = join(this.#folder, `${name}.crt`);
    const keyFile = join(this.#folder, `${name}.key`);
    return {
      certFile,
      keyFile,
      get cert() {
        return readFileSync(certFile, 'utf8');
      },
      get key() {
        return readFileSync(keyFile, 'utf8');
      },
    };
  }

  #openssl(...args: string[]): void {
    execFileSync(program(), args, { stdio: 'pipe' });
  }
}
