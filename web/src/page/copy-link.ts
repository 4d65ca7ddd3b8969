import { copyText } from '../ui/copying'
import { settleAddress } from './address'

/** Copies a link to the view as it is now. Returns whether this was possible. */
export async function copyLink(): Promise<boolean> {
  await settleAddress()
  return copyText(window.location.href)
}
