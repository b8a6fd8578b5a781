// Stands in for the packages of clouds: the same shapes, with a secret that a test changes.

import { readFileSync } from 'node:fs';

const secret = () => readFileSync(process.env.CLOUD_SECRET, 'utf8');

// @aws-crypto/sha256-js, @aws-sdk/credential-providers, @smithy/signature-v4
export class Sha256 {}

export const fromNodeProviderChain = () => async () => ({
  accessKeyId: 'key',
  secretAccessKey: 'secret',
});

export class SignatureV4 {
  constructor({ service, region, credentials, sha256 }) {
    if (service !== 'elasticache' || typeof region !== 'string') throw new Error('no service');
    if (typeof credentials !== 'function' || sha256 !== Sha256) throw new Error('no credentials');
  }

  async presign({ method, protocol, hostname, path, headers, query }, { expiresIn }) {
    if (headers.host !== hostname) throw new Error('the host must be signed');
    const signed = {
      ...query,
      'X-Amz-Expires': String(expiresIn),
      'X-Amz-Signature': secret(),
    };
    return { method, protocol, hostname, path, headers, query: signed };
  }
}

// @azure/identity
export class DefaultAzureCredential {
  async getToken(scope) {
    if (scope !== 'https://redis.azure.com/.default') throw new Error('another scope');
    return { token: secret(), expiresOnTimestamp: Date.now() + 2_000 };
  }
}

// google-auth-library
export class GoogleAuth {
  async getClient() {
    const credentials = {};
    return {
      credentials,
      getAccessToken: async () => {
        credentials.expiry_date = Date.now() + 2_000;
        return { token: secret() };
      },
    };
  }
}
