// Signs a statement as a workflow's is signed (https://github.com/secure-systems-lab/dsse), with a key that is thrown
// away: Sigstore signs only for a workflow of GitHub that can prove who it is.

import { generateKeyPairSync, sign, verify } from 'node:crypto';

const TYPE = 'application/vnd.in-toto+json';

/** The envelope with the statement and its signature, which has been verified. */
export function signed(statement) {
  const { publicKey, privateKey } = generateKeyPairSync('ed25519');
  const payload = Buffer.from(statement);
  const signature = sign(null, encoded(payload), privateKey);
  if (!verify(null, encoded(payload), publicKey, signature)) throw new Error('it does not verify');
  const signatures = [{ keyid: '', sig: signature.toString('base64') }];
  return { payloadType: TYPE, payload: payload.toString('base64'), signatures };
}

/** What is signed: the type too, each with its length. */
function encoded(payload) {
  const head = `DSSEv1 ${TYPE.length} ${TYPE} ${payload.length} `;
  return Buffer.concat([Buffer.from(head), payload]);
}
