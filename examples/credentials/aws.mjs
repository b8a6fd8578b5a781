import { Sha256 } from '@aws-crypto/sha256-js'
import { fromNodeProviderChain } from '@aws-sdk/credential-providers'
import { SignatureV4 } from '@smithy/signature-v4'
import { connect } from 'holdfast'

// The name of the cache, not its address; its user; seconds.
const [hostname, username, expiresIn] = ['shop-cache', 'shop', 900]
const where = { region: 'eu-west-1', service: 'elasticache' }
const signer = new SignatureV4({ ...where, credentials: fromNodeProviderChain(), sha256: Sha256 })

async function credentials() {
  const [method, protocol, path] = ['GET', 'https:', '/']
  const query = { Action: 'connect', User: username }
  const request = { method, protocol, hostname, path, headers: { host: hostname }, query }
  const signed = await signer.presign(request, { expiresIn })
  const password = `${hostname}/?${new URLSearchParams(signed.query)}`
  return { username, password, expiresAt: Date.now() + expiresIn * 1000 }
}

const address = 'master.shop-cache.abc123.euw1.cache.amazonaws.com:6379'
export const locks = await connect(`rediss://${address}`, { credentials })
