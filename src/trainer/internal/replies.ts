/** What the CJ answers. */
import { Option } from "effect"
import type { CellReply } from "../../cell/Cell.ts"
import * as ClientApi from "../../clientapi/ClientApi.ts"

export type ResultReply = typeof ClientApi.Body.resultReply.Type

/** The body of an answer whose code is `ok`; `None` where it is none of the Client API's. */
export const okBody = ({ payload, returnCode }: CellReply): Option.Option<ResultReply> =>
  returnCode === "ok" ? ClientApi.read(ClientApi.Body.resultReply)(payload) : Option.none()
