import { DefaultAzureCredential } from '@azure/identity'
import { connect } from 'holdfast'

const azure = new DefaultAzureCredential()

async function credentials() {
  const { token, expiresOnTimestamp } = await azure.getToken('https://redis.azure.com/.default')
  const { oid } = JSON.parse(Buffer.from(token.split('.')[1], 'base64url'))
  return { username: oid, password: token, expiresAt: expiresOnTimestamp }
}

const address = 'shop.westeurope.redis.azure.net:10000'
export const locks = await connect(`rediss://${address}`, { credentials })
