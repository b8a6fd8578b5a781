import { connect } from 'holdfast'

async function credentials() {
  const url = `${process.env.VAULT_ADDR}/v1/database/creds/shop`
  const answer = await fetch(url, { headers: { 'X-Vault-Token': process.env.VAULT_TOKEN ?? '' } })
  if (!answer.ok) throw new Error(`Vault answers ${answer.status}`)
  const { data, lease_duration } = await answer.json()
  return { ...data, expiresAt: Date.now() + lease_duration * 1000 }
}

export const locks = await connect('redis://vault.example.com:6379', { credentials })
