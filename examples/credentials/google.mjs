import { GoogleAuth } from 'google-auth-library'
import { connect } from 'holdfast'

const google = new GoogleAuth({ scopes: 'https://www.googleapis.com/auth/cloud-platform' })

async function credentials() {
  const client = await google.getClient()
  const { token } = await client.getAccessToken()
  return { password: token, expiresAt: client.credentials.expiry_date }
}

export const locks = await connect({ cluster: ['redis://10.0.0.5:6379'] }, { credentials })
